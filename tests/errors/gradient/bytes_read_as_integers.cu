// gradient of: y, x
__global__ void k(float *y, const float *x) {
    extern __shared__ char raw[];
    float *numbers = (float *)raw;
    int *bits = (int *)raw;
    int t = threadIdx.x;
    numbers[t] = x[t];
    __syncthreads();
    y[t] = __int_as_float(bits[31 - t]);  // error: the bits of an active value become a floating-point number again
}
