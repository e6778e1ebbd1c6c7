// gradient of: y, x
__global__ void k(float *y, const float *x, int *arrived) {
    y[blockIdx.x] = x[blockIdx.x];
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < gridDim.x) {  // error: a loop that waits for another thread
    }
    y[blockIdx.x + gridDim.x] = y[(blockIdx.x + 1) % gridDim.x];
}
