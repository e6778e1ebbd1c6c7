// gradient of: y, x
__global__ void k(float *y, const float *x) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();  // error: threads that cooperate
    y[i] = tile[31 - i] * tile[i];
}
