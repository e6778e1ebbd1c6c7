// gradient of: y, x
union Bits { float f; unsigned u; };
__global__ void k(float *y, const float *x) {
    int i = threadIdx.x;
    Bits v;
    v.f = x[i];
    v.u ^= 0x80000000u;  // error: the bits of an active value
    y[i] = v.f;
}
