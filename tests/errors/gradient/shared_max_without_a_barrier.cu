// gradient of: y, x
__global__ void k(float *y, const float *x) {
    __shared__ float m;
    if (threadIdx.x == 0) m = -1e30f;
    __syncthreads();
    atomicMax((int *)&m, __float_as_int(x[threadIdx.x]));  // error: in shared memory that is not followed by a barrier
    if (threadIdx.x == 0) y[0] = m;
}
