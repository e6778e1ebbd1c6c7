// gradient of: y, x
__global__ void k(float *y, const float *x) {
    __shared__ float s[32];
    if (threadIdx.x == 0) memcpy((char *)s, x, sizeof(s));
    __syncthreads();
    y[threadIdx.x] = s[31 - threadIdx.x];  // error: the bits of an active value become a floating-point number again
}
