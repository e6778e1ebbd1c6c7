// gradient of: y, x
__device__ unsigned done;
__global__ void k(float *y, const float *x) {
    y[blockIdx.x + 1] = x[blockIdx.x];
    __threadfence();  // error: a fence passes values between blocks inside one launch
    if (atomicAdd(&done, 1) == gridDim.x - 1) y[0] = y[1] + y[2];
}
