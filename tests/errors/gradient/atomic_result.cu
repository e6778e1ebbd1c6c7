// gradient of: y, x
__global__ void k(float *y, const float *x) {
    int i = threadIdx.x;
    float before = atomicAdd(&y[0], x[i]);  // error: the value that an atomic operation on floats returned is used
    y[i + 1] = before * x[i];
}
