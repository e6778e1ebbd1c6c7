// gradient of: y, x
__device__ double shuffled(double v, int lane) {
    int lo = __shfl_sync(0xffffffff, __double2loint(v), lane), hi = __shfl_sync(0xffffffff, __double2hiint(v), lane);
    return __hiloint2double(hi, lo);  // error: the bits of an active value become a floating-point number again
}
__global__ void k(double *y, const double *x) { y[threadIdx.x] = shuffled(x[threadIdx.x], 3); }
