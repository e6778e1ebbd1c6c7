// gradient of: y, x
__global__ void k(float *y, const float *x) {
    int i = threadIdx.x;
    y[i] = x[i] * __shfl_xor_sync(0xffffffffu, x[i], 1);  // error: threads that cooperate
}
