// gradient of: y, x
__global__ void k(float *y, const float *x) {
    int i = threadIdx.x;
    int bits = __float_as_int(x[i]);
    y[i] = __int_as_float(bits & 0x7fffffff);  // error: the bits of an active value become a floating-point number again
}
