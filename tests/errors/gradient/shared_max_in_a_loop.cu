// gradient of: y, x
__global__ void k(float *y, const float *x, int n) {
    __shared__ float m;
    if (threadIdx.x == 0) m = -1e30f;
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += blockDim.x)
        atomicMax((int *)&m, __float_as_int(x[j]));  // error: in shared memory that stands in a loop without its barrier
    __syncthreads();
    if (threadIdx.x == 0) y[0] = m;
}
