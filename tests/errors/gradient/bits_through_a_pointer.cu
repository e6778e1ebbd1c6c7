// gradient of: y, x
__global__ void k(float *y, const float *x) {
    const int *bits = (const int *)x;
    int i = threadIdx.x;
    int exponent = bits[i] >> 23;
    y[i] = x[i] * exponent;  // error: the bits of an active value become a floating-point number again
}
