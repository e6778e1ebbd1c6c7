// An element a turn: maps in every form of loop, moves by / and %, pooling, sums of losses, rows of a table.

__device__ float gelu(float v)
{
    return 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
}

__global__ void gelu_one(float *y, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu(x[i]);
}

__global__ void gelu_stride(float *y, const float *x, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = gelu(x[i]);
}

__global__ void gelu_while(float *y, const float *x, size_t n)
{
    size_t i = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    while (i < n) {
        y[i] = gelu(x[i]);
        i += step;
    }
}

__global__ void gelu_four(float *y, const float *x, int n)
{
    int first = blockIdx.x * blockDim.x * 4 + threadIdx.x;
    for (int k = 0; k < 4; ++k) {
        int i = first + k * blockDim.x;
        if (i < n) y[i] = gelu(x[i]);
    }
}

__global__ void bias_gelu(float *y, const float *x, const float *b, int n, int columns)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        y[i] = gelu(x[i] + b[i % columns]);
}

__global__ void permute_021(float *y, const float *x, int A, int B, int C)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= A * B * C) return;
    int c = i % C, b = i / C % B, a = i / (B * C);
    y[(a * C + c) * B + b] = x[i];
}

__global__ void permute_out(float *y, const float *x, int A, int B, int C)
{
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o < A * B * C) {
        int b = o % B, c = (o / B) % C, a = o / (B * C);
        y[o] = x[a * B * C + b * C + c];
    }
}

__global__ void transpose_plain(float *y, const float *x, int rows, int columns)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * columns) y[i % columns * rows + i / columns] = x[i];
}

__global__ void transpose_tile(float *y, const float *x, int n)
{
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) y[(row + k) * n + column] = tile[threadIdx.x][threadIdx.y + k];
}

__global__ void max_pool_flat(float *y, const float *x, int planes, int h, int w)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, oh = h / 2, ow = w / 2;
    if (i >= planes * oh * ow) return;
    int ox = i % ow, oy = i / ow % oh, p = i / (ow * oh);
    const float *at = x + (p * h + 2 * oy) * w + 2 * ox;
    y[i] = fmaxf(fmaxf(at[0], at[1]), fmaxf(at[w], at[w + 1]));
}

__global__ void max_pool_grid(float *y, const float *x, int h, int w)
{
    int ox = blockIdx.x * blockDim.x + threadIdx.x, oy = blockIdx.y * blockDim.y + threadIdx.y, p = blockIdx.z;
    if (ox >= w / 2 || oy >= h / 2) return;
    float top = -1e30f;
    for (int dy = 0; dy < 2; ++dy)
        for (int dx = 0; dx < 2; ++dx) top = fmaxf(top, x[(p * h + 2 * oy + dy) * w + 2 * ox + dx]);
    y[(p * (h / 2) + oy) * (w / 2) + ox] = top;
}

__global__ void mse_tree(float *loss, const float *x, const float *target, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += blockDim.x * gridDim.x) {
        float d = x[i] - target[i];
        sum += d * d;
    }
    s[t] = sum;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) atomicAdd(loss, s[0] / n);
}

__global__ void mse_shuffles(float *loss, const float *x, const float *target, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 0.0f;
    if (i < n) {
        float d = x[i] - target[i];
        v = d * d;
    }
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x % 32 == 0) atomicAdd(loss, v / n);
}

__global__ void embedding_block(float *y, const float *table, const int *token, int width)
{
    int row = blockIdx.x;
    for (int c = threadIdx.x; c < width; c += blockDim.x) y[row * width + c] = table[token[row] * width + c];
}

__global__ void embedding_flat(float *y, const float *table, const int *token, int n, int width)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * width) y[i] = table[token[i / width] * width + i % width];
}
