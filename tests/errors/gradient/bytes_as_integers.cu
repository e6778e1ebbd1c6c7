// gradient of: y, x
__global__ void k(float *y, const float *x) {
    extern __shared__ char raw[];
    float *numbers = (float *)raw;
    int *bits = (int *)raw;
    int t = threadIdx.x;
    numbers[t] = x[t];
    __syncthreads();
    bits[31 - t] = 0;  // error: 'raw' holds floating-point numbers and something else in the same place
    __syncthreads();
    y[t] = numbers[t] * x[t];
}
