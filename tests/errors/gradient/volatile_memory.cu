// gradient of: y, x
__global__ void k(float *y, volatile float *x) {
    int i = threadIdx.x;
    y[i] = x[i] * x[i];  // error: volatile memory that a launch both reads and writes has no gradient
    x[i] = 0;
}
