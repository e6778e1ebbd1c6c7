// gradient of: y, x
__global__ void k(float *y, const float *x, int *lock) {
    while (atomicCAS(lock, 0, 1) != 0)  // error: a loop that waits for another thread
        ;
    y[0] += x[threadIdx.x];
    atomicExch(lock, 0);
}
