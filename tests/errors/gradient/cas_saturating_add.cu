// gradient of: y, x
__global__ void k(float *y, const float *x) {
    int *bits = (int *)y;
    int old = *bits, assumed;
    do {  // error: a loop around atomicCAS that is not known to add, or to take a maximum or minimum
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(fminf(1.0f, x[threadIdx.x] + __int_as_float(assumed))));
    } while (assumed != old);
}
