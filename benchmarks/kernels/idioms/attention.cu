// Attention that a thread does for its row: a softmax of scores that is rescaled as it goes.

template <int D>
__device__ void attend(float *o, const float *q, const float *k, const float *v, int rows, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float mine[D], sum[D], highest = -1e30f, total = 0;
    for (int d = 0; d < D; ++d) {
        mine[d] = q[row * D + d];
        sum[d] = 0;
    }
    for (int j = 0; j < n; ++j) {
        float score = 0;
        for (int d = 0; d < D; ++d) score += mine[d] * k[j * D + d];
        float next = fmaxf(highest, score), scale = expf(highest - next), p = expf(score - next);
        total = total * scale + p;
        for (int d = 0; d < D; ++d) sum[d] = sum[d] * scale + p * v[j * D + d];
        highest = next;
    }
    for (int d = 0; d < D; ++d) o[row * D + d] = sum[d] / total;
}

__global__ void attention_32(float *o, const float *q, const float *k, const float *v, int rows, int n)
{
    attend<32>(o, q, k, v, rows, n);
}

__global__ void attention_64(float *o, const float *q, const float *k, const float *v, int rows, int n)
{
    attend<64>(o, q, k, v, rows, n);
}

// Scores first, then two passes over them again: the way of those who do not rescale.
__global__ void attention_twice(float *o, const float *q, const float *k, const float *v, int rows, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        const float *mine = q + row * 32;
        float highest = -1e30f, total = 0, sum[32] = {0};
        for (int j = 0; j < n; j++) {
            float score = 0;
            for (int d = 0; d < 32; d++) score += mine[d] * k[j * 32 + d];
            highest = fmaxf(highest, score);
        }
        for (int j = 0; j < n; j++) {
            float score = 0;
            for (int d = 0; d < 32; d++) score += mine[d] * k[j * 32 + d];
            float p = expf(score - highest);
            total += p;
            for (int d = 0; d < 32; d++) sum[d] += p * v[j * 32 + d];
        }
        for (int d = 0; d < 32; d++) o[row * 32 + d] = sum[d] / total;
    }
}

// Keys and values pass through shared memory, 32 at a time.
__global__ void attention_tiles(float *o, const float *q, const float *k, const float *v, int rows, int n)
{
    __shared__ float keys[32][32], values[32][32];
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float mine[32], sum[32], highest = -1e30f, total = 0;
    for (int d = 0; d < 32; ++d) {
        mine[d] = row < rows ? q[row * 32 + d] : 0;
        sum[d] = 0;
    }
    for (int start = 0; start < n; start += 32) {
        __syncthreads();
        for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) {
            keys[i / 32][i % 32] = start + i / 32 < n ? k[start * 32 + i] : 0;
            values[i / 32][i % 32] = start + i / 32 < n ? v[start * 32 + i] : 0;
        }
        __syncthreads();
        for (int t = 0; t < 32 && start + t < n; ++t) {
            float score = 0;
            for (int d = 0; d < 32; ++d) score += mine[d] * keys[t][d];
            float next = fmaxf(highest, score), scale = expf(highest - next), p = expf(score - next);
            total = total * scale + p;
            for (int d = 0; d < 32; ++d) sum[d] = sum[d] * scale + p * values[t][d];
            highest = next;
        }
    }
    if (row < rows)
        for (int d = 0; d < 32; ++d) o[row * 32 + d] = sum[d] / total;
}
