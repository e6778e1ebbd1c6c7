// gradient of: y, x
extern __shared__ double numbers[];
extern __shared__ int words[];
__global__ void k(double *y, const double *x) {
    int t = threadIdx.x;
    numbers[t] = x[t];
    __syncthreads();
    if (t == 0) words[1] = 0;  // error: the bits of an active value in 'numbers' are written
    __syncthreads();
    y[t] = numbers[t];
}
