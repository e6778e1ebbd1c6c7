// gradient of: y, x
__global__ void k(float *y, const float *x, int *lock) {
    while (atomicExch(lock, 1)) {  // error: a loop that waits for another thread
    }
    y[0] += x[threadIdx.x];
    atomicExch(lock, 0);
}
