// gradient of: y, x
__global__ void k(double *y, const double *x) {
    long long bits = __shfl_xor_sync(0xffffffffu, __double_as_longlong(x[threadIdx.x]), 1);
    y[threadIdx.x] = __longlong_as_double(bits);  // error: the bits of an active value become a floating-point number
}
