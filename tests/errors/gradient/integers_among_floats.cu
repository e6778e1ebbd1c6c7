// gradient of: y, x
__global__ void k(float *y, const float *x) {
    extern __shared__ float s[];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    ((int *)(s + t))[0] ^= 0x80000000;  // error: the bits of an active value in 's' are written
    y[t] = s[t];
}
