// gradient of: y, x; primal=False
__global__ void k(float *y, const float *x) {
    atomicMax((int *)y, __float_as_int(x[threadIdx.x]));  // error: with primal=False the reverse cannot tell whose value
}
