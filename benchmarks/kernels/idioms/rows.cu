// A row a block or a warp, as different people write it: softmax, layer and RMS norm, cross entropy.

__inline__ __device__ float warp_sum(float v)
{
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d);
    return v;
}

__inline__ __device__ float warp_max(float v)
{
    for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, d));
    return v;
}

// Shuffles within warps, then the warps' totals in shared memory.
__inline__ __device__ float block_sum(float v, float *partial)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_sum(v);
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? partial[lane] : 0.0f;
    if (warp == 0) v = warp_sum(v);
    if (threadIdx.x == 0) partial[0] = v;
    __syncthreads();
    v = partial[0];
    __syncthreads();
    return v;
}

__inline__ __device__ float block_max(float v, float *partial)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_max(v);
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? partial[lane] : -1e30f;
    if (warp == 0) v = warp_max(v);
    if (threadIdx.x == 0) partial[0] = v;
    __syncthreads();
    v = partial[0];
    __syncthreads();
    return v;
}

__global__ void softmax_block_tree(float *y, const float *x, int n)
{
    extern __shared__ float s[];
    int t = threadIdx.x, row = blockIdx.x;
    float top = -1e30f;
    for (int c = t; c < n; c += blockDim.x) top = fmaxf(top, x[row * n + c]);
    s[t] = top;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    top = s[0];
    __syncthreads();
    float sum = 0.0f;
    for (int c = t; c < n; c += blockDim.x) sum += expf(x[row * n + c] - top);
    s[t] = sum;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    sum = s[0];
    for (int c = t; c < n; c += blockDim.x) y[row * n + c] = expf(x[row * n + c] - top) / sum;
}

__global__ void softmax_block_shuffles(float *out, const float *in, int rows, int cols)
{
    __shared__ float partial[32];
    if (blockIdx.x >= rows) return;
    const float *x = in + (size_t)blockIdx.x * cols;
    float *y = out + (size_t)blockIdx.x * cols;
    float top = -1e30f, sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) top = fmaxf(top, x[c]);
    top = block_max(top, partial);
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float e = expf(x[c] - top);
        y[c] = e;
        sum += e;
    }
    float scale = 1.0f / block_sum(sum, partial);
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[c] *= scale;
}

__global__ void softmax_warp(float *y, const float *x, int rows, int n)
{
    int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float top = -1e30f, sum = 0.0f;
    for (int c = lane; c < n; c += 32) top = fmaxf(top, x[row * n + c]);
    top = warp_max(top);
    for (int c = lane; c < n; c += 32) sum += expf(x[row * n + c] - top);
    sum = warp_sum(sum);
    for (int c = lane; c < n; c += 32) y[row * n + c] = expf(x[row * n + c] - top) / sum;
}

__global__ void softmax_warp_flat(float *y, const float *x, int rows, int n)
{
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (warp < rows) {
        float top = -1e30f, sum = 0.0f;
        for (int c = lane; c < n; c += warpSize) top = fmaxf(top, x[warp * n + c]);
        top = warp_max(top);
        for (int c = lane; c < n; c += warpSize) sum += expf(x[warp * n + c] - top);
        sum = warp_sum(sum);
        for (int c = lane; c < n; c += warpSize) y[warp * n + c] = expf(x[warp * n + c] - top) / sum;
    }
}

__global__ void layer_norm_block(float *y, const float *x, const float *w, const float *b, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, row = blockIdx.x;
    float sum = 0.0f;
    for (int c = t; c < n; c += blockDim.x) sum += x[row * n + c];
    s[t] = sum;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    float mean = s[0] / n;
    __syncthreads();
    float square = 0.0f;
    for (int c = t; c < n; c += blockDim.x) square += (x[row * n + c] - mean) * (x[row * n + c] - mean);
    s[t] = square;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    float inverse = rsqrtf(s[0] / n + 1e-5f);
    for (int c = t; c < n; c += blockDim.x) y[row * n + c] = (x[row * n + c] - mean) * inverse * w[c] + b[c];
}

__global__ void layer_norm_warp(float *y, const float *x, const float *w, const float *b, int rows, int n)
{
    int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0.0f, squares = 0.0f;
    for (int c = lane; c < n; c += 32) {
        float v = x[row * n + c];
        sum += v;
        squares += v * v;
    }
    float mean = warp_sum(sum) / n, variance = warp_sum(squares) / n - mean * mean;
    float inverse = rsqrtf(variance + 1e-5f);
    for (int c = lane; c < n; c += 32) y[row * n + c] = (x[row * n + c] - mean) * inverse * w[c] + b[c];
}

__global__ void rms_norm_block(float *y, const float *x, const float *w, int n)
{
    __shared__ float partial[32];
    int row = blockIdx.x;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < n; c += blockDim.x) {
        float v = x[row * n + c];
        squares += v * v;
    }
    float inverse = rsqrtf(block_sum(squares, partial) / n + 1e-6f);
    for (int c = threadIdx.x; c < n; c += blockDim.x) y[row * n + c] = x[row * n + c] * inverse * w[c];
}

__global__ void rms_norm_warp(float *y, const float *x, const float *w, int n)
{
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < n; c += 32) squares += x[row * n + c] * x[row * n + c];
    float inverse = rsqrtf(warp_sum(squares) / n + 1e-6f);
    for (int c = threadIdx.x; c < n; c += 32) y[row * n + c] = x[row * n + c] * inverse * w[c];
}

__global__ void cross_entropy_block(float *loss, const float *logits, const int *label, int n)
{
    __shared__ float partial[32];
    const float *x = logits + (size_t)blockIdx.x * n;
    float top = -1e30f, sum = 0.0f;
    for (int c = threadIdx.x; c < n; c += blockDim.x) top = fmaxf(top, x[c]);
    top = block_max(top, partial);
    for (int c = threadIdx.x; c < n; c += blockDim.x) sum += expf(x[c] - top);
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) + top - x[label[blockIdx.x]];
}

__global__ void cross_entropy_tree(float *loss, const float *x, const int *label, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, row = blockIdx.x;
    float top = -1e30f, sum = 0.0f;
    for (int c = t; c < n; c += 256) top = fmaxf(top, x[row * n + c]);
    s[t] = top;
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    top = s[0];
    __syncthreads();
    for (int c = t; c < n; c += 256) sum += expf(x[row * n + c] - top);
    s[t] = sum;
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) loss[row] = logf(s[0]) + top - x[row * n + label[row]];
}
