// Sums over segments, by a thread each and by atomics for sorted keys, and numbers sorted by a block.

__global__ void segments_thread(float *y, const float *x, const int *start, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = start[i]; k < start[i + 1]; ++k) sum += x[k] * x[k];
    y[i] = sum;
}

__global__ void segments_atomic(float *y, const float *x, const int *segment, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&y[segment[i]], x[i] * x[i]);
}

__global__ void sort_block(float *y, const float *x)
{
    __shared__ float keys[512];
    int t = threadIdx.x;
    keys[t] = x[blockIdx.x * 512 + t];
    keys[t + 256] = x[blockIdx.x * 512 + t + 256];
    for (int size = 2; size <= 512; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int low = 2 * t - (t & (stride - 1)), high = low + stride;
            bool up = (low & size) == 0;
            float a = keys[low], b = keys[high];
            if ((a > b) == up) {
                keys[low] = b;
                keys[high] = a;
            }
        }
    __syncthreads();
    y[blockIdx.x * 512 + t] = keys[t];
    y[blockIdx.x * 512 + t + 256] = keys[t + 256];
}
