// Adjoints as one would write them, near the kernels' structure, for some of kernels/idioms: assigned, d_y kept.

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

// A warp a row.
__global__ void softmax(float *d_x, const float *d_y, const float *x, int rows, int n)
{
    int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float *in = x + (size_t)row * n, *seed = d_y + (size_t)row * n;
    float top = -1e30f, sum = 0.0f, dot = 0.0f;
    for (int c = lane; c < n; c += 32) top = fmaxf(top, in[c]);
    top = warp_max(top);
    for (int c = lane; c < n; c += 32) {
        float e = expf(in[c] - top);
        sum += e;
        dot += e * seed[c];
    }
    sum = 1.0f / warp_sum(sum);
    dot = warp_sum(dot) * sum;
    for (int c = lane; c < n; c += 32) d_x[(size_t)row * n + c] = expf(in[c] - top) * sum * (seed[c] - dot);
}

__global__ void gelu(float *d_x, const float *d_y, const float *x, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        float v = x[i], t = tanhf(0.79788456f * (v + 0.044715f * v * v * v));
        d_x[i] = d_y[i] * (0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * 0.79788456f * (1.0f + 0.134145f * v * v));
    }
}

__global__ void permute(float *d_x, const float *d_y, int A, int B, int C)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= A * B * C) return;
    int c = i % C, b = i / C % B, a = i / (B * C);
    d_x[i] = d_y[(a * C + c) * B + b];
}

__global__ void transpose(float *d_x, const float *d_y, int n)
{
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = d_y[(row + k) * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) d_x[(row + k) * n + column] = tile[threadIdx.x][threadIdx.y + k];
}

__global__ void max_pool(float *d_x, const float *d_y, const float *x, int h, int w)
{
    int ox = blockIdx.x * blockDim.x + threadIdx.x, oy = blockIdx.y * blockDim.y + threadIdx.y, p = blockIdx.z;
    if (ox >= w / 2 || oy >= h / 2) return;
    int at = (p * h + 2 * oy) * w + 2 * ox;
    float a = x[at], b = x[at + 1], c = x[at + w], d = x[at + w + 1], top = fmaxf(fmaxf(a, b), fmaxf(c, d));
    float seed = d_y[(p * (h / 2) + oy) * (w / 2) + ox];
    d_x[at] = a == top ? seed : 0.0f;
    d_x[at + 1] = b == top && a != top ? seed : 0.0f;
    d_x[at + w] = c == top && a != top && b != top ? seed : 0.0f;
    d_x[at + w + 1] = d == top && a != top && b != top && c != top ? seed : 0.0f;
}

__global__ void mse(float *d_x, float *d_target, const float *d_loss, const float *x, const float *target, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        float d = 2.0f * (x[i] - target[i]) * *d_loss / n;
        d_x[i] = d;
        d_target[i] = -d;
    }
}
