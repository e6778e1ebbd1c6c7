// Adjoints of the kernels in gradients.cu as one would write them by hand for their sizes: the outputs' adjoints are read
// and stay, the inputs' adjoints are assigned. by_hand.py launches them. Arrays are aligned to 16 bytes, and sizes are
// multiples of a block's share unless a guard says otherwise.

#define WARP 32
#define ALL 0xffffffffu

__device__ float4 load4(const float *p, int i) { return reinterpret_cast<const float4 *>(p)[i]; }
__device__ void store4(float *p, int i, float4 v) { reinterpret_cast<float4 *>(p)[i] = v; }
__device__ float total(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

__device__ float warp_sum(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(ALL, v, d);
    return v;
}

__device__ float warp_max(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(ALL, v, d));
    return v;
}

// The sum over 256 threads, for all of them. `s` holds 8 floats that nobody uses between two barriers.
__device__ float block_total(float *s, float v)
{
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0) s[threadIdx.x / WARP] = v;
    __syncthreads();
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

__device__ float sine_slope(float x)
{
    float s, c;
    sincosf(x, &s, &c);
    return s + x * c;
}

extern "C" __global__ void sine_adjoint(float *__restrict__ dx, const float *__restrict__ dy, const float *__restrict__ x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 4) return;
    float4 v = load4(x, i), g = load4(dy, i);
    store4(dx, i, make_float4(g.x * sine_slope(v.x), g.y * sine_slope(v.y), g.z * sine_slope(v.z), g.w * sine_slope(v.w)));
}

__device__ float polynomial_slope(float v)
{
    float p = 0.0f, slope = 0.0f;
#pragma unroll
    for (int k = 16; k >= 0; --k) {
        slope = slope * v + p;
        p = p * v + 1.0f / (k + 1);
    }
    return slope;
}

extern "C" __global__ void polynomial_adjoint(
    float *__restrict__ dx, const float *__restrict__ dy, const float *__restrict__ x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 4) return;
    float4 v = load4(x, i), g = load4(dy, i);
    store4(dx, i, make_float4(g.x * polynomial_slope(v.x), g.y * polynomial_slope(v.y), g.z * polynomial_slope(v.z),
                              g.w * polynomial_slope(v.w)));
}

// A sum for each block; column_sums adds these up.
extern "C" __global__ void scale_adjoint(float *partial, const float *__restrict__ dy, const float *__restrict__ x, int n)
{
    __shared__ float s[8];
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n / 4; i += gridDim.x * 256) sum += dot(load4(dy, i), load4(x, i));
    sum = block_total(s, sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// out[c] = sum over r of partial[r * columns + c]; a block for 32 columns, 8 warps that take rows in turns.
extern "C" __global__ void column_sums(float *out, const float *__restrict__ partial, int rows, int columns)
{
    __shared__ float s[8][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, c = blockIdx.x * WARP + lane;
    float sum = 0.0f;
    if (c < columns)
        for (int r = warp; r < rows; r += 8) sum += partial[r * columns + c];
    s[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && c < columns) {
        for (int k = 1; k < 8; ++k) sum += s[k][lane];
        out[c] = sum;
    }
}

// A thread walks along z through `depth` planes; an output's adjoint counts where the kernel stored that output.
extern "C" __global__ void stencil_adjoint(float *__restrict__ dx, const float *__restrict__ dy, int n, int depth)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, first = blockIdx.z * depth;
    bool row = j >= 1 && j < n - 1, column = i >= 1 && i < n - 1, own = row && column;
    bool left = row && i >= 2, right = row && i < n - 2, up = column && j >= 2, down = column && j < n - 2;
    int plane = n * n, at = first * plane + j * n + i;
    float before = own && first >= 2 ? dy[at - plane] : 0.0f;
    float here = own && first >= 1 && first < n - 1 ? dy[at] : 0.0f;
    for (int k = first; k < first + depth; ++k, at += plane) {
        float after = own && k + 1 < n - 1 ? dy[at + plane] : 0.0f;
        float sum = before + after;
        if (k >= 1 && k < n - 1) {
            if (left) sum += dy[at - 1];
            if (right) sum += dy[at + 1];
            if (up) sum += dy[at - n];
            if (down) sum += dy[at + n];
        }
        dx[at] = 0.4f * here + 0.1f * sum;
        before = here;
        here = after;
    }
}

// da = dc * transposed b, in the tiles of the product itself.
extern "C" __global__ void matmul_adjoint_a(float *da, const float *__restrict__ dc, const float *__restrict__ b, int n)
{
    __shared__ float C[32][32], B[32][33];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
    float sum = 0.0f;
    for (int t = 0; t < n / 32; ++t) {
        C[ty][tx] = dc[row * n + t * 32 + tx];
        B[ty][tx] = b[(blockIdx.x * 32 + ty) * n + t * 32 + tx];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += C[ty][k] * B[tx][k];
        __syncthreads();
    }
    da[row * n + col] = sum;
}

// db = transposed a * dc
extern "C" __global__ void matmul_adjoint_b(float *db, const float *__restrict__ dc, const float *__restrict__ a, int n)
{
    __shared__ float A[32][32], C[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
    float sum = 0.0f;
    for (int t = 0; t < n / 32; ++t) {
        A[ty][tx] = a[(t * 32 + ty) * n + blockIdx.y * 32 + tx];
        C[ty][tx] = dc[(t * 32 + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += A[k][ty] * C[k][tx];
        __syncthreads();
    }
    db[row * n + col] = sum;
}

extern "C" __global__ void block_sum_adjoint(float *__restrict__ dx, const float *__restrict__ dy, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 4) return;
    float g = dy[i / 64];
    store4(dx, i, make_float4(g, g, g, g));
}

// A block a row of 1024, four neighbours a thread.
extern "C" __global__ void softmax_adjoint(float *__restrict__ dx, const float *__restrict__ dy, const float *__restrict__ x)
{
    __shared__ float s[8], e[8], eg[8];
    int at = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float4 v = load4(x, at), g = load4(dy, at);
    float top = warp_max(fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    if (lane == 0) s[warp] = top;
    __syncthreads();
    top = fmaxf(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])), fmaxf(fmaxf(s[4], s[5]), fmaxf(s[6], s[7])));
    v = make_float4(expf(v.x - top), expf(v.y - top), expf(v.z - top), expf(v.w - top));
    float sum = warp_sum(total(v)), mixed = warp_sum(dot(v, g));
    if (lane == 0) {
        e[warp] = sum;
        eg[warp] = mixed;
    }
    __syncthreads();
    sum = mixed = 0.0f;
    for (int k = 0; k < 8; ++k) {
        sum += e[k];
        mixed += eg[k];
    }
    float scale = 1.0f / sum, mean = mixed * scale;
    store4(dx, at, make_float4(v.x * scale * (g.x - mean), v.y * scale * (g.y - mean), v.z * scale * (g.z - mean),
                               v.w * scale * (g.w - mean)));
}

// Blocks take rows in turns and keep the sums of dw and db for their columns in registers: a row of `partial_w` and of
// `partial_b` for each block, which column_sums adds up.
extern "C" __global__ void layer_norm_adjoint(
    float *__restrict__ dx, float *__restrict__ partial_w, float *__restrict__ partial_b, const float *__restrict__ dy,
    const float *__restrict__ x, const float *__restrict__ w, int rows)
{
    __shared__ float first[2][8];
    __shared__ float3 second[2][8];
    int t = threadIdx.x, lane = t % WARP, warp = t / WARP, turn = 0;
    float4 sum_w = make_float4(0, 0, 0, 0), sum_b = make_float4(0, 0, 0, 0), weight = load4(w, t);
    for (int row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        int at = row * 256 + t;
        float4 v = load4(x, at), g = load4(dy, at);
        float mean = block_total(first[turn], total(v)) / 1024;
        v = make_float4(v.x - mean, v.y - mean, v.z - mean, v.w - mean);
        float4 u = make_float4(g.x * weight.x, g.y * weight.y, g.z * weight.z, g.w * weight.w);
        float square = warp_sum(dot(v, v)), plain = warp_sum(total(u)), mixed = warp_sum(dot(u, v));
        if (lane == 0) second[turn][warp] = make_float3(square, plain, mixed);
        __syncthreads();
        square = plain = mixed = 0.0f;
        for (int k = 0; k < 8; ++k) {
            square += second[turn][k].x;
            plain += second[turn][k].y;
            mixed += second[turn][k].z;
        }
        float inverse = rsqrtf(square / 1024 + 1e-5f), slope = mixed * inverse * inverse / 1024;
        plain /= 1024;
        store4(dx, at, make_float4(inverse * (u.x - plain - v.x * slope), inverse * (u.y - plain - v.y * slope),
                                   inverse * (u.z - plain - v.z * slope), inverse * (u.w - plain - v.w * slope)));
        sum_b = make_float4(sum_b.x + g.x, sum_b.y + g.y, sum_b.z + g.z, sum_b.w + g.w);
        sum_w = make_float4(sum_w.x + g.x * v.x * inverse, sum_w.y + g.y * v.y * inverse, sum_w.z + g.z * v.z * inverse,
                            sum_w.w + g.w * v.w * inverse);
    }
    store4(partial_w, blockIdx.x * 256 + t, sum_w);
    store4(partial_b, blockIdx.x * 256 + t, sum_b);
}
