// The adjoints by hand that work through loops, tiles and indices: see by_hand.cu.

#define WARP 32
#define ALL 0xffffffffu
#define TAPS 31
#define SPAN 1024  // elements of a block of convolution_adjoint, four a thread

// dx gathers its taps; dw is summed over the block's share in registers, a row of `partial` for each block, which
// column_sums adds up. x has n + TAPS elements.
extern "C" __global__ void __launch_bounds__(256) convolution_adjoint(
    float *__restrict__ dx, float *__restrict__ partial, const float *__restrict__ dy, const float *__restrict__ x,
    const float *__restrict__ w, int n)
{
    __shared__ float4 G[SPAN / 4 + 8], X[SPAN / 4 + 8];  // dy from 32 before the share, x up to 32 behind it
    __shared__ float W[TAPS + 1], sums[8][TAPS];
    float *g_flat = reinterpret_cast<float *>(G), *x_flat = reinterpret_cast<float *>(X);
    int t = threadIdx.x, lane = t % WARP, warp = t / WARP, all = n + TAPS;
    float dw[TAPS];
#pragma unroll
    for (int k = 0; k < TAPS; ++k) dw[k] = 0.0f;
    if (t < TAPS) W[t] = w[t];
    for (int first = blockIdx.x * SPAN; first < all; first += gridDim.x * SPAN) {
        __syncthreads();
        for (int s = t; s < SPAN + 32; s += 256) {
            int i = first - 32 + s, j = first + s;
            g_flat[s] = i >= 0 && i < n ? dy[i] : 0.0f;
            x_flat[s] = j < all ? x[j] : 0.0f;
        }
        __syncthreads();
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int part = 0; part < 9; ++part) {
            float4 v = G[t + part];
            float window[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int m = 0; m < 4; ++m)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    int k = e + 32 - (4 * part + m);
                    if (k >= 0 && k < TAPS) sum[e] += W[k] * window[m];
                }
        }
        int at = first + 4 * t;
        if (at + 3 < all) reinterpret_cast<float4 *>(dx)[at / 4] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        else
            for (int e = 0; e < 4; ++e)
                if (at + e < all) dx[at + e] = sum[e];
        float4 own = G[t + 8];
        float g[4] = {own.x, own.y, own.z, own.w};
#pragma unroll
        for (int part = 0; part < 9; ++part) {
            float4 v = X[t + part > SPAN / 4 + 7 ? SPAN / 4 + 7 : t + part];
            float window[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int m = 0; m < 4; ++m)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    int k = 4 * part + m - e;
                    if (k >= 0 && k < TAPS) dw[k] += g[e] * window[m];
                }
        }
    }
#pragma unroll
    for (int k = 0; k < TAPS; ++k) {
        float v = dw[k];
        for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(ALL, v, d);
        if (lane == 0) sums[warp][k] = v;
    }
    __syncthreads();
    if (t < TAPS) {
        float v = 0.0f;
        for (int k = 0; k < 8; ++k) v += sums[k][t];
        partial[blockIdx.x * TAPS + t] = v;
    }
}

// The force between two bodies has a symmetric derivative: dx[i] = sum over j of J(i, j) * (g[j] - g[i]).
extern "C" __global__ void nbody_adjoint(
    float *dx, float *dy, float *dz, const float *__restrict__ gx, const float *__restrict__ gy,
    const float *__restrict__ gz, const float *__restrict__ x, const float *__restrict__ y, const float *__restrict__ z,
    int n)
{
    __shared__ float4 place[256];
    __shared__ float2 force[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    float px = x[i], py = y[i], pz = z[i], qx = gx[i], qy = gy[i], qz = gz[i], ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int first = 0; first < n; first += 256) {
        place[t] = make_float4(x[first + t], y[first + t], z[first + t], gx[first + t]);
        force[t] = make_float2(gy[first + t], gz[first + t]);
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 256; ++j) {
            float4 p = place[j];
            float2 q = force[j];
            float rx = p.x - px, ry = p.y - py, rz = p.z - pz, ux = p.w - qx, uy = q.x - qy, uz = q.y - qz;
            float inverse = rsqrtf(rx * rx + ry * ry + rz * rz + 1e-3f), square = inverse * inverse;
            float f = square * inverse, along = 3.0f * f * square * (rx * ux + ry * uy + rz * uz);
            ax += f * ux - along * rx;
            ay += f * uy - along * ry;
            az += f * uz - along * rz;
        }
        __syncthreads();
    }
    dx[i] = ax;
    dy[i] = ay;
    dz[i] = az;
}

// The map's slope is carried along with its value. Value and gradient in one go: y is stored, dx is added to, and dy is
// consumed, as a joint gradient does.
__device__ void logistic_step(float &v, float &slope, float r)
{
    slope *= r * (1.0f - 2.0f * v);
    v = r * v * (1.0f - v);
}

extern "C" __global__ void logistic_adjoint(float *y, float *dx, float *dy, const float *__restrict__ x, float r, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], slope = 1.0f;
    for (int k = 0; k < 100; ++k) logistic_step(v, slope, r);
    y[i] = v;
    dx[i] += dy[i] * slope;
    dy[i] = 0.0f;
}

extern "C" __global__ void logistic_runtime_adjoint(
    float *y, float *dx, float *dy, const float *__restrict__ x, float r, int n, int steps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], slope = 1.0f;
    for (int k = 0; k < steps; ++k) logistic_step(v, slope, r);
    y[i] = v;
    dx[i] += dy[i] * slope;
    dy[i] = 0.0f;
}

// dx starts at zero.
extern "C" __global__ void gather_adjoint(float *dx, const float *__restrict__ dy, const int *__restrict__ index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&dx[index[i]], 2.0f * dy[i]);
}

// The same where the index ascends: equal neighbours are added up in the warp. dx starts at zero.
extern "C" __global__ void gather_sorted_adjoint(
    float *dx, const float *__restrict__ dy, const int *__restrict__ index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % WARP;  // n is a multiple of four blocks
    float4 g = reinterpret_cast<const float4 *>(dy)[i];
    int4 at = reinterpret_cast<const int4 *>(index)[i];
    int key = at.x;
    float sum = 2.0f * ((g.x + g.y) + (g.z + g.w));
    if (at.x != at.w) {
        atomicAdd(&dx[at.x], 2.0f * g.x);
        atomicAdd(&dx[at.y], 2.0f * g.y);
        atomicAdd(&dx[at.z], 2.0f * g.z);
        atomicAdd(&dx[at.w], 2.0f * g.w);
        key = -1 - lane;
        sum = 0.0f;
    }
    for (int d = 1; d < WARP; d *= 2) {
        float more = __shfl_down_sync(ALL, sum, d);
        int other = __shfl_down_sync(ALL, key, d);
        if (lane + d < WARP && other == key) sum += more;
    }
    int previous = __shfl_up_sync(ALL, key, 1);
    if (key >= 0 && (lane == 0 || previous != key)) atomicAdd(&dx[key], sum);
}

// The contraction is a product of matrices, c[rows, columns] = a[rows, inner] * b[inner, columns]. Tiles of 64 x 64, 16
// deep, 4 x 4 elements a thread of 256. Sizes are multiples of 64, or of 16 where they are summed over.
#define SIDE 68  // 64, and space that keeps columns in different banks

__device__ void multiply_tiles(float (&sum)[4][4], const float (&L)[16][SIDE], const float (&R)[16][SIDE], int ty, int tx)
{
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        float4 l = reinterpret_cast<const float4 *>(L[k])[ty], r = reinterpret_cast<const float4 *>(R[k])[tx];
        float left[4] = {l.x, l.y, l.z, l.w}, right[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[i][j] += left[i] * right[j];
    }
}

__device__ void store_tile(float *out, int width, int row, int column, const float (&sum)[4][4])
{
    for (int i = 0; i < 4; ++i)
        *reinterpret_cast<float4 *>(out + (row + i) * width + column) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}

// Four neighbours of a row become a column of the tile.
__device__ void load_transposed(float (&tile)[16][SIDE], const float *from, int width, int t)
{
    int row = t / 4, part = t % 4;
    float4 v = *reinterpret_cast<const float4 *>(from + row * width + 4 * part);
    tile[4 * part][row] = v.x;
    tile[4 * part + 1][row] = v.y;
    tile[4 * part + 2][row] = v.z;
    tile[4 * part + 3][row] = v.w;
}

__device__ void load_straight(float (&tile)[16][SIDE], const float *from, int width, int t)
{
    *reinterpret_cast<float4 *>(&tile[t / 16][4 * (t % 16)]) =
        *reinterpret_cast<const float4 *>(from + (t / 16) * width + 4 * (t % 16));
}

// da[rows, inner] = dc[rows, columns] * transposed b[inner, columns]; grid (inner / 64, rows / 64)
extern "C" __global__ void __launch_bounds__(256) contraction_adjoint_a(
    float *__restrict__ da, const float *__restrict__ dc, const float *__restrict__ b, int inner, int columns)
{
    __shared__ __align__(16) float L[16][SIDE], R[16][SIDE];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, row = blockIdx.y * 64, col = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k = 0; k < columns; k += 16) {
        load_transposed(L, dc + row * columns + k, columns, t);
        load_transposed(R, b + col * columns + k, columns, t);
        __syncthreads();
        multiply_tiles(sum, L, R, ty, tx);
        __syncthreads();
    }
    store_tile(da, inner, row + 4 * ty, col + 4 * tx, sum);
}

// db[inner, columns] = transposed a[rows, inner] * dc[rows, columns]; grid (columns / 64, inner / 64, parts): each part
// sums up to `share` rows into an array of its own, and column_sums adds these up.
extern "C" __global__ void __launch_bounds__(256) contraction_adjoint_b(
    float *__restrict__ partial, const float *__restrict__ dc, const float *__restrict__ a, int rows, int inner,
    int columns, int share)
{
    __shared__ __align__(16) float L[16][SIDE], R[16][SIDE];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, row = blockIdx.y * 64, col = blockIdx.x * 64;
    float sum[4][4] = {};
    int end = min(rows, (int)(blockIdx.z + 1) * share);
    for (int k = blockIdx.z * share; k < end; k += 16) {
        load_straight(L, a + k * inner + row, inner, t);
        load_straight(R, dc + k * columns + col, columns, t);
        __syncthreads();
        multiply_tiles(sum, L, R, ty, tx);
        __syncthreads();
    }
    store_tile(partial + blockIdx.z * inner * columns, columns, row + 4 * ty, col + 4 * tx, sum);
}
