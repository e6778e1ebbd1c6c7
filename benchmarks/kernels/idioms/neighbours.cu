// Stencils, scans, sparse rows, lists of neighbours, samples between pixels, histograms.

__global__ void stencil_halo(float *y, const float *x, int n)
{
    __shared__ float tile[18][34];
    int tx = threadIdx.x, ty = threadIdx.y, gx = blockIdx.x * 32 + tx, gy = blockIdx.y * 16 + ty;
    for (int j = ty; j < 18; j += 16)
        for (int i = tx; i < 34; i += 32) {
            int sx = min(max((int)blockIdx.x * 32 + i - 1, 0), n - 1), sy = min(max((int)blockIdx.y * 16 + j - 1, 0), n - 1);
            tile[j][i] = x[sy * n + sx];
        }
    __syncthreads();
    if (gx < n && gy < n)
        y[gy * n + gx] = 0.5f * tile[ty + 1][tx + 1] + 0.125f * (tile[ty][tx + 1] + tile[ty + 2][tx + 1] + tile[ty + 1][tx] + tile[ty + 1][tx + 2]);
}

__global__ void stencil_halo_ifs(float *y, const float *x, int n)
{
    __shared__ float s[258];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t + 1] = i < n ? x[i] : 0.0f;
    if (t == 0) s[0] = i > 0 ? x[i - 1] : 0.0f;
    if (t == 255) s[257] = i + 1 < n ? x[i + 1] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = 0.25f * s[t] + 0.5f * s[t + 1] + 0.25f * s[t + 2];
}

__global__ void stencil_halo_line(float *y, const float *x, int n)
{
    extern __shared__ float s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    for (int j = t; j < blockDim.x + 6; j += blockDim.x) {
        int g = (int)(blockIdx.x * blockDim.x) + j - 3;
        s[j] = g >= 0 && g < n ? x[g] : 0.0f;
    }
    __syncthreads();
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < 7; ++k) sum += 0.1f * (k + 1) * s[t + k];
    y[i] = sum;
}

__global__ void stencil_halo_space(float *y, const float *x, int n)
{
    __shared__ float s[6][6][34];
    int tx = threadIdx.x, ty = threadIdx.y, tz = threadIdx.z;
    int gx = blockIdx.x * 32 + tx, gy = blockIdx.y * 4 + ty, gz = blockIdx.z * 4 + tz;
    for (int c = tz; c < 6; c += 4)
        for (int b = ty; b < 6; b += 4)
            for (int a = tx; a < 34; a += 32) {
                int ax = (int)blockIdx.x * 32 + a - 1, by = (int)blockIdx.y * 4 + b - 1, cz = (int)blockIdx.z * 4 + c - 1;
                bool inside = ax >= 0 && ax < n && by >= 0 && by < n && cz >= 0 && cz < n;
                s[c][b][a] = inside ? x[(cz * n + by) * n + ax] : 0.0f;
            }
    __syncthreads();
    if (gx < n && gy < n && gz < n)
        y[(gz * n + gy) * n + gx] = 0.4f * s[tz + 1][ty + 1][tx + 1]
            + 0.1f * (s[tz][ty + 1][tx + 1] + s[tz + 2][ty + 1][tx + 1] + s[tz + 1][ty][tx + 1] + s[tz + 1][ty + 2][tx + 1]
                + s[tz + 1][ty + 1][tx] + s[tz + 1][ty + 1][tx + 2]);
}

__global__ void conv2d_halo(float *y, const float *x, const float *w, int n)
{
    __shared__ float s[20][36];
    int tx = threadIdx.x, ty = threadIdx.y, gx = blockIdx.x * 32 + tx, gy = blockIdx.y * 16 + ty;
    for (int c = ty * 32 + tx; c < 20 * 36; c += 512) {
        int sx = (int)blockIdx.x * 32 + c % 36 - 2, sy = (int)blockIdx.y * 16 + c / 36 - 2;
        s[c / 36][c % 36] = sx >= 0 && sx < n && sy >= 0 && sy < n ? x[sy * n + sx] : 0.0f;
    }
    __syncthreads();
    if (gx >= n || gy >= n) return;
    float sum = 0.0f;
    for (int p = 0; p < 5; ++p)
        for (int q = 0; q < 5; ++q) sum += w[p * 5 + q] * s[ty + p][tx + q];
    y[gy * n + gx] = sum;
}

__global__ void scan_double_buffer(float *y, const float *x, int n)
{
    __shared__ float s[2][256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t, in = 0, out = 1;
    s[0][t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        s[out][t] = t >= d ? s[in][t] + s[in][t - d] : s[in][t];
        in ^= 1;
        out ^= 1;
        __syncthreads();
    }
    if (i < n) y[i] = s[in][t];
}

__global__ void scan_in_place(float *y, const float *x, int n)
{
    extern __shared__ float s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d <<= 1) {
        float v = t >= d ? s[t - d] : 0.0f;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    if (i < n) y[i] = s[t];
}

__global__ void csr_thread(float *y, const float *value, const float *x, const int *start, const int *column, int rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = start[row]; k < start[row + 1]; ++k) sum += value[k] * x[column[k]];
    y[row] = sum;
}

__global__ void csr_warp(float *y, const float *value, const float *x, const int *start, const int *column, int rows)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = start[row] + lane; k < start[row + 1]; k += 32) sum += value[k] * x[column[k]];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (lane == 0) y[row] = sum;
}

__global__ void pairs(float *energy, const float *px, const float *py, const float *pz, const int *list, int n, int most)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = px[i], y = py[i], z = pz[i], sum = 0.0f;
    for (int k = 0; k < most; ++k) {
        int j = list[k * n + i];
        float dx = px[j] - x, dy = py[j] - y, dz = pz[j] - z, r2 = dx * dx + dy * dy + dz * dz + 0.01f;
        if (r2 < 0.7f) {
            float s = 0.01f / r2;
            sum += s * s - s;
        }
    }
    energy[i] = sum;
}

__global__ void bilinear(float *y, const float *image, const float *where, int n, int channels, int side)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float fx = where[2 * i] * (side - 1), fy = where[2 * i + 1] * (side - 1);
    int x0 = min((int)fx, side - 2), y0 = min((int)fy, side - 2);
    float u = fx - x0, v = fy - y0;
    for (int c = 0; c < channels; ++c) {
        const float *at = image + (c * side + y0) * side + x0;
        y[c * n + i] = (1 - v) * ((1 - u) * at[0] + u * at[1]) + v * ((1 - u) * at[side] + u * at[side + 1]);
    }
}

__global__ void weighted_histogram(float *bins, const float *weight, const int *key, int n)
{
    __shared__ float s[256];
    s[threadIdx.x] = 0.0f;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&s[key[i]], weight[i]);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}

__global__ void histogram_global(float *bins, const float *weight, const int *key, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[key[i]], weight[i] * weight[i]);
}
