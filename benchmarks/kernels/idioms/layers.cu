// Weights that all threads share: small dense layers in a thread, convolutions, Monte-Carlo paths.

__global__ void dense_thread(float *y, const float *x, const float *w1, const float *b1, const float *w2, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v[16], out = 0.0f;
    for (int k = 0; k < 16; ++k) v[k] = x[i * 16 + k];
    for (int j = 0; j < 16; ++j) {
        float s = b1[j];
        for (int k = 0; k < 16; ++k) s += w1[j * 16 + k] * v[k];
        out += w2[j] * tanhf(s);
    }
    y[i] = out;
}

__global__ void dense_stride(float *y, const float *x, const float *w1, const float *b1, const float *w2, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float out = 0.0f;
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
            float s = b1[j];
            #pragma unroll
            for (int k = 0; k < 16; ++k) s += w1[j * 16 + k] * x[k * n + i];
            out += w2[j] * fmaxf(s, 0.0f);
        }
        y[i] = out;
    }
}

__global__ void dense_columns(float *y, const float *x, const float *w, const float *b, int n, int in, int out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int j = 0; j < out; ++j) {
        float s = b[j];
        for (int k = 0; k < in; ++k) s += w[j * in + k] * x[k * n + i];
        y[j * n + i] = tanhf(s);
    }
}

__global__ void conv2d_blocks(float *y, const float *x, const float *w, int C, int K, int H, int W)
{
    int ox = blockIdx.x * blockDim.x + threadIdx.x, oy = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z;
    if (ox >= W || oy >= H) return;
    float sum = 0.0f;
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s) {
                int iy = oy + r - 1, ix = ox + s - 1;
                if (iy >= 0 && iy < H && ix >= 0 && ix < W)
                    sum += x[(c * H + iy) * W + ix] * w[((k * C + c) * 3 + r) * 3 + s];
            }
    y[(k * H + oy) * W + ox] = sum;
}

__global__ void conv2d_flat(float *y, const float *x, const float *w, const float *b, int C, int K, int H, int W)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int OH = H - 2, OW = W - 2;
    if (i >= K * OH * OW) return;
    int ox = i % OW, oy = i / OW % OH, k = i / (OW * OH);
    float sum = b[k];
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s)
                sum += x[(c * H + oy + r) * W + ox + s] * w[((k * C + c) * 3 + r) * 3 + s];
    y[i] = sum;
}

__global__ void conv2d_one_channel(float *y, const float *x, const float *w, int H, int W)
{
    int ox = blockIdx.x * 16 + threadIdx.x, oy = blockIdx.y * 16 + threadIdx.y;
    if (ox < W && oy < H) {
        float sum = 0.0f;
        for (int r = -1; r <= 1; ++r)
            for (int s = -1; s <= 1; ++s) {
                int iy = min(max(oy + r, 0), H - 1), ix = min(max(ox + s, 0), W - 1);
                sum += x[iy * W + ix] * w[(r + 1) * 3 + s + 1];
            }
        y[oy * W + ox] = sum;
    }
}

__global__ void paths(float *y, const float *noise, const float *p, int n, int steps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = p[0], drift = p[1], sigma = p[2];
    for (int k = 0; k < steps; ++k) s *= 1.0f + drift * 0.01f + sigma * 0.1f * noise[k * n + i];
    y[i] = logf(1.0f + expf(s - p[3]));
}

__global__ void table_lookup(float *y, const float *x, const float *table, int n, int size)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float at = x[i] * (size - 1);
    int k = min((int)at, size - 2);
    float f = at - k;
    y[i] = table[k] * (1.0f - f) + table[k + 1] * f;
}
