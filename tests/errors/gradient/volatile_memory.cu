// gradient of: y, x
__global__ void k(float *y, volatile float *x) {
    int i = threadIdx.x;
    y[i] = x[i] * x[i];  // error: volatile memory has no gradient
}
