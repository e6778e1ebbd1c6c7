// gradient of: y, x
__global__ void k(float *y, const float *x) {
    unsigned *bits = (unsigned *)y;
    bool done = false;
    for (int tries = 0; tries < 3 && !done; tries++) {  // error: a loop around atomicCAS that is not known to add
        unsigned old = *bits;
        done = atomicCAS(bits, old, __float_as_uint(__uint_as_float(old) + x[threadIdx.x])) == old;
    }
}
