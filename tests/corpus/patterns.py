"""Kernels as people write them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from .case import F64, I32, U32, Theme, floats, full, ints, of, zeros

theme = Theme()


@theme.case(
    """
    __global__ void saxpy(float* y, const float* x, float a, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = a * x[i] + y[i];
    }
    """,
    floats(1000),
    floats(1000),
    2.0,
    1000,
    kernel="saxpy",
    grid=8,
    block=128,
)
def saxpy(y: Any, x: Any, a: float, n: int) -> Any:
    return a * x + y


@theme.case(
    """
    __global__ void matmul(float* C, const float* A, const float* B, int M, int N, int K) {
      int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
      if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
      }
    }
    """,
    zeros((13, 11)),
    floats((13, 17)),
    floats((17, 11)),
    13,
    11,
    17,
    kernel="matmul",
    grid=(2, 2),
    block=(8, 8),
    atol=1e-5,
)
def matrix_product(c: Any, a: Any, b: Any, *sizes: int) -> Any:
    return a @ b


@theme.case(
    """
    #define TILE 8
    __global__ void matmul(float* C, const float* A, const float* B, int M, int N, int K) {
      __shared__ float As[TILE][TILE], Bs[TILE][TILE + 1];
      int tx = threadIdx.x, ty = threadIdx.y;
      int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
      float acc = 0.0f;
      for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        As[ty][tx] = row < M && t * TILE + tx < K ? A[row * K + t * TILE + tx] : 0.0f;
        Bs[ty][tx] = col < N && t * TILE + ty < K ? B[(t * TILE + ty) * N + col] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < TILE; ++k) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
      }
      if (row < M && col < N) C[row * N + col] = acc;
    }
    """,
    zeros((20, 18)),
    floats((20, 13)),
    floats((13, 18)),
    20,
    18,
    13,
    kernel="matmul",
    grid=(3, 3),
    block=(8, 8),
    atol=1e-5,
)
def tiled_matrix_product(c: Any, a: Any, b: Any, *sizes: int) -> Any:
    return a @ b


@theme.case(
    """
    const int TILE_DIM = 16, ROWS = 4;
    __global__ void transpose(float* odata, const float* idata, int width, int height) {
      __shared__ float tile[TILE_DIM][TILE_DIM + 1];
      int x = blockIdx.x * TILE_DIM + threadIdx.x, y = blockIdx.y * TILE_DIM + threadIdx.y;
      for (int j = 0; j < TILE_DIM; j += ROWS)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
      __syncthreads();
      x = blockIdx.y * TILE_DIM + threadIdx.x;
      y = blockIdx.x * TILE_DIM + threadIdx.y;
      for (int j = 0; j < TILE_DIM; j += ROWS)
        if (x < height && y + j < width) odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
    }
    """,
    zeros((40, 25)),
    floats((25, 40)),
    40,
    25,
    kernel="transpose",
    grid=(3, 2),
    block=(16, 4),
    exact=True,
)
def transpose_with_padding(y: Any, x: Any, *sizes: int) -> Any:
    return x.T


@theme.case(
    """
    __global__ void stencil(float* out, const float* in, int nx, int ny, int nz) {
      int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
      if (i <= 0 || j <= 0 || i >= nx - 1 || j >= ny - 1) return;
      for (int k = 1; k < nz - 1; ++k) {
        int c = (k * ny + j) * nx + i;
        out[c] = 0.4f * in[c] + 0.1f * (in[c - 1] + in[c + 1] + in[c - nx] + in[c + nx] + in[c - nx * ny] +
          in[c + nx * ny]);
      }
    }
    """,
    zeros((6, 7, 10)),
    floats((6, 7, 10)),
    10,
    7,
    6,
    kernel="stencil",
    grid=(2, 2),
    block=(8, 4),
)
def seven_point_stencil(out: Any, x: Any, *sizes: int) -> Any:
    c = x[1:-1, 1:-1, 1:-1]
    around = x[:-2, 1:-1, 1:-1] + x[2:, 1:-1, 1:-1] + x[1:-1, :-2, 1:-1] + x[1:-1, 2:, 1:-1]
    out[1:-1, 1:-1, 1:-1] = 0.4 * c + 0.1 * (around + x[1:-1, 1:-1, :-2] + x[1:-1, 1:-1, 2:])
    return out


@theme.case(
    """
    __global__ void softmax(float* y, const float* x, int cols) {
      extern __shared__ float s[];
      int row = blockIdx.x, t = threadIdx.x;
      const float* in = x + row * cols;
      float m = -INFINITY;
      for (int c = t; c < cols; c += blockDim.x) m = fmaxf(m, in[c]);
      s[t] = m;
      __syncthreads();
      for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) s[t] = fmaxf(s[t], s[t + d]); __syncthreads(); }
      m = s[0];
      __syncthreads();
      float sum = 0;
      for (int c = t; c < cols; c += blockDim.x) sum += expf(in[c] - m);
      s[t] = sum;
      __syncthreads();
      for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
      for (int c = t; c < cols; c += blockDim.x) y[row * cols + c] = expf(in[c] - m) / s[0];
    }
    """,
    zeros((5, 50)),
    floats((5, 50)),
    50,
    kernel="softmax",
    grid=5,
    shared=128,
)
def row_softmax(y: Any, x: Any, cols: int) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@theme.case(
    """
    template <int THREADS> __device__ float block_reduce(float v) {
      __shared__ float warp[THREADS / 32];
      __shared__ float total;
      for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d);
      if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = v;
      __syncthreads();
      if (threadIdx.x == 0) { float s = 0; for (int w = 0; w < THREADS / 32; ++w) s += warp[w]; total = s; }
      __syncthreads();
      float r = total;
      __syncthreads();
      return r;
    }
    template <int THREADS> __global__ void layer_norm(float* y, const float* x, const float* g, const float* b,
      int n, float eps) {
      const float* row = x + blockIdx.x * n;
      float s = 0, q = 0;
      for (int i = threadIdx.x; i < n; i += THREADS) s += row[i];
      float mean = block_reduce<THREADS>(s) / n;
      for (int i = threadIdx.x; i < n; i += THREADS) { float d = row[i] - mean; q += d * d; }
      float rstd = rsqrtf(block_reduce<THREADS>(q) / n + eps);
      for (int i = threadIdx.x; i < n; i += THREADS) y[blockIdx.x * n + i] = (row[i] - mean) * rstd * g[i] + b[i];
    }
    """,
    zeros((4, 100)),
    floats((4, 100)),
    floats(100),
    floats(100),
    100,
    1e-5,
    kernel="layer_norm<64>",
    grid=4,
    block=64,
    rtol=1e-4,
    atol=1e-4,
)
def layer_norm(y: Any, x: Any, g: Any, b: Any, n: int, eps: float) -> Any:
    d = x - x.mean(1, keepdims=True)
    return d / np.sqrt((d**2).mean(1, keepdims=True) + eps) * g + b


@theme.case(
    """
    __global__ void reduce(float* out, const float* in, int n) {
      extern __shared__ float sdata[];
      unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
      sdata[tid] = (i < n ? in[i] : 0) + (i + blockDim.x < n ? in[i + blockDim.x] : 0);
      __syncthreads();
      for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
      }
      if (tid == 0) out[blockIdx.x] = sdata[0];
    }
    """,
    zeros(3),
    floats(350),
    350,
    kernel="reduce",
    grid=3,
    block=64,
    shared=256,
    atol=1e-5,
)
def tree_reduction(out: Any, x: Any, n: int) -> Any:
    return np.pad(x, (0, 34)).reshape(3, 128).sum(1)


@theme.case(
    """
    __device__ void warpReduce(volatile float* sdata, unsigned tid) {
      sdata[tid] += sdata[tid + 32];
      sdata[tid] += sdata[tid + 16];
      sdata[tid] += sdata[tid + 8];
      sdata[tid] += sdata[tid + 4];
      sdata[tid] += sdata[tid + 2];
      sdata[tid] += sdata[tid + 1];
    }
    __global__ void reduce(float* out, const float* in) {
      __shared__ float sdata[128];
      unsigned tid = threadIdx.x;
      sdata[tid] = in[blockIdx.x * 128 + tid];
      __syncthreads();
      if (tid < 64) sdata[tid] += sdata[tid + 64];
      __syncthreads();
      if (tid < 32) warpReduce(sdata, tid);
      if (tid == 0) out[blockIdx.x] = sdata[0];
    }
    """,
    zeros(2),
    floats(256),
    kernel="reduce",
    grid=2,
    block=128,
    atol=1e-5,
    races=True,  # lanes of a warp go in step: what check mode calls a race
    skip=frozenset({"emulated", "gpu"}),  # undefined where lanes do not go in step
)
def warp_synchronous_volatile_reduction(out: Any, x: Any) -> Any:
    return x.reshape(2, 128).sum(1)


@theme.case(
    """
    __inline__ __device__ float warpReduceSum(float val) {
      for (int offset = warpSize / 2; offset > 0; offset /= 2) val += __shfl_down_sync(0xffffffff, val, offset);
      return val;
    }
    __inline__ __device__ float blockReduceSum(float val) {
      static __shared__ float shared[32];
      int lane = threadIdx.x % warpSize, wid = threadIdx.x / warpSize;
      val = warpReduceSum(val);
      if (lane == 0) shared[wid] = val;
      __syncthreads();
      val = threadIdx.x < blockDim.x / warpSize ? shared[lane] : 0;
      if (wid == 0) val = warpReduceSum(val);
      return val;
    }
    __global__ void deviceReduce(float* out, const float* in, int N) {
      float sum = 0;
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += blockDim.x * gridDim.x) sum += in[i];
      sum = blockReduceSum(sum);
      if (threadIdx.x == 0) atomicAdd(out, sum);
    }
    """,
    zeros(1),
    floats(1000),
    1000,
    kernel="deviceReduce",
    grid=3,
    block=96,
    rtol=1e-4,
    atol=1e-4,
)
def block_reduction_with_shuffles(out: Any, x: Any, n: int) -> Any:
    return np.array([x.astype(F64).sum()])


@theme.case(
    """
    __global__ void scan(float* out, const float* in, int n) {
      extern __shared__ float temp[];
      int t = threadIdx.x, pout = 0, pin = 1;
      temp[t] = t > 0 && t < n ? in[t - 1] : 0;
      __syncthreads();
      for (int offset = 1; offset < n; offset <<= 1) {
        pout = 1 - pout; pin = 1 - pout;
        if (t >= offset) temp[pout * n + t] = temp[pin * n + t] + temp[pin * n + t - offset];
        else temp[pout * n + t] = temp[pin * n + t];
        __syncthreads();
      }
      out[t] = temp[pout * n + t];
    }
    """,
    zeros(64),
    floats(64),
    64,
    kernel="scan",
    block=64,
    shared=512,
    atol=1e-5,
)
def scan_hillis_steele(out: Any, x: Any, n: int) -> Any:
    return np.cumsum(x) - x


@theme.case(
    """
    __global__ void prescan(int* g_odata, const int* g_idata, int n) {
      extern __shared__ int temp[];
      int thid = threadIdx.x, offset = 1;
      temp[2 * thid] = g_idata[2 * thid];
      temp[2 * thid + 1] = g_idata[2 * thid + 1];
      for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (thid < d) { int ai = offset * (2 * thid + 1) - 1, bi = offset * (2 * thid + 2) - 1;
        temp[bi] += temp[ai]; }
        offset *= 2;
      }
      if (thid == 0) temp[n - 1] = 0;
      for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (thid < d) {
          int ai = offset * (2 * thid + 1) - 1, bi = offset * (2 * thid + 2) - 1;
          int t = temp[ai]; temp[ai] = temp[bi]; temp[bi] += t;
        }
      }
      __syncthreads();
      g_odata[2 * thid] = temp[2 * thid];
      g_odata[2 * thid + 1] = temp[2 * thid + 1];
    }
    """,
    zeros(64, I32),
    ints(64),
    64,
    kernel="prescan",
    block=32,
    shared=256,
)
def scan_blelloch(out: Any, x: Any, n: int) -> Any:
    return np.cumsum(x) - x


@theme.case(
    """
    __global__ void histogram(unsigned* bins, const unsigned char* data, int n) {
      __shared__ unsigned local[64];
      for (int b = threadIdx.x; b < 64; b += blockDim.x) local[b] = 0;
      __syncthreads();
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
      i += gridDim.x * blockDim.x) atomicAdd(&local[data[i] >> 2], 1u);
      __syncthreads();
      for (int b = threadIdx.x; b < 64; b += blockDim.x) if (local[b]) atomicAdd(&bins[b], local[b]);
    }
    """,
    zeros(64, U32),
    ints(999, 0, 256, np.uint8),
    999,
    kernel="histogram",
    grid=3,
)
def histogram(bins: Any, data: Any, n: int) -> Any:
    return np.bincount(data >> 2, minlength=64)


@theme.case(
    """
    __global__ void bitonic(float* data) {
      __shared__ float s[64];
      unsigned t = threadIdx.x;
      s[t] = data[t];
      __syncthreads();
      for (unsigned k = 2; k <= 64; k *= 2)
        for (unsigned j = k / 2; j > 0; j /= 2) {
          unsigned o = t ^ j;
          if (o > t) {
            bool up = (t & k) == 0;
            if ((s[t] > s[o]) == up) { float v = s[t]; s[t] = s[o]; s[o] = v; }
          }
          __syncthreads();
        }
      data[t] = s[t];
    }
    """,
    floats(64),
    kernel="bitonic",
    block=64,
    exact=True,
)
def bitonic_sort(data: Any) -> Any:
    return np.sort(data)


@theme.case(
    """
    __device__ float3 interact(float4 bi, float4 bj, float3 ai) {
      float3 r = {bj.x - bi.x, bj.y - bi.y, bj.z - bi.z};
      float d2 = r.x * r.x + r.y * r.y + r.z * r.z + 0.01f;
      float inv = rsqrtf(d2 * d2 * d2), s = bj.w * inv;
      ai.x += r.x * s; ai.y += r.y * s; ai.z += r.z * s;
      return ai;
    }
    __global__ void forces(float3* acc, const float4* pos, int n) {
      __shared__ float4 tile[16];
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      float4 mine = pos[i];
      float3 a = {0.0f, 0.0f, 0.0f};
      for (int t = 0; t < n / 16; ++t) {
        tile[threadIdx.x] = pos[t * 16 + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 16; ++j) a = interact(mine, tile[j], a);
        __syncthreads();
      }
      acc[i] = a;
    }
    """,
    zeros((48, 3)),
    floats((48, 4), 0, 1),
    48,
    kernel="forces",
    grid=3,
    block=16,
    rtol=1e-3,
    atol=1e-3,
)
def n_body_tiles(acc: Any, pos: Any, n: int) -> Any:
    p = pos.astype(F64)
    r = p[None, :, :3] - p[:, None, :3]
    d2 = (r**2).sum(-1) + 0.01
    return (r * (p[None, :, 3] / d2**1.5)[..., None]).sum(1)


@theme.case(
    """
    #define R 3
    #define B 32
    __constant__ float weights[2 * R + 1];
    __global__ void convolve(float* out, const float* in, int n) {
      __shared__ float tile[B + 2 * R];
      int i = blockIdx.x * B + threadIdx.x, l = threadIdx.x + R;
      tile[l] = i < n ? in[i] : 0.0f;
      if (threadIdx.x < R) {
        tile[l - R] = i - R >= 0 ? in[i - R] : 0.0f;
        tile[l + B] = i + B < n ? in[i + B] : 0.0f;
      }
      __syncthreads();
      if (i >= n) return;
      float s = 0;
      for (int o = -R; o <= R; ++o) s += tile[l + o] * weights[o + R];
      out[i] = s;
    }
    """,
    zeros(100),
    floats(100),
    100,
    kernel="convolve",
    grid=4,
    constants={"weights": np.array([1, 2, 3, 4, 3, 2, 1]) / 16},
)
def convolution_with_halo(out: Any, x: Any, n: int) -> Any:
    return np.convolve(x, np.array([1, 2, 3, 4, 3, 2, 1]) / 16, "same")


@theme.case(
    """
    __global__ void compact(int* out, int* count, const int* in, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n && in[i] > 0) {
        int p = atomicAdd(count, 1);
        atomicAdd(&out[0], in[i]);                 // the order of the list is open: its sum is not
        if (p == 0) out[1] = 1;
      }
    }
    """,
    zeros(2, I32),
    zeros(1, I32),
    ints(100),
    100,
    kernel="compact",
    grid=4,
)
def compaction_with_atomics(out: Any, count: Any, x: Any, n: int) -> Any:
    return np.array([x[x > 0].sum(), 1]), np.array([(x > 0).sum()])


@theme.case(
    """
    __device__ float cnd(float d) {
      const float A1 = 0.31938153f, A2 = -0.356563782f, A3 = 1.781477937f, A4 = -1.821255978f, A5 = 1.330274429f;
      float K = 1.0f / (1.0f + 0.2316419f * fabsf(d));
      float c = 0.39894228040143267794f * __expf(-0.5f * d * d) * (K * (A1 + K * (A2 + K * (A3 + K * (A4 + K *
        A5)))));
      return d > 0 ? 1.0f - c : c;
    }
    __global__ void blackScholes(float* call, float* put, const float* S, const float* X, const float* T,
      float r, float v, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      float q = sqrtf(T[i]);
      float d1 = (__logf(S[i] / X[i]) + (r + 0.5f * v * v) * T[i]) / (v * q), d2 = d1 - v * q;
      float e = __expf(-r * T[i]);
      call[i] = S[i] * cnd(d1) - X[i] * e * cnd(d2);
      put[i] = X[i] * e * (1.0f - cnd(d2)) - S[i] * (1.0f - cnd(d1));
    }
    """,
    zeros(60),
    zeros(60),
    floats(60, 5, 30),
    floats(60, 5, 30),
    floats(60, 0.25, 10),
    0.02,
    0.30,
    60,
    kernel="blackScholes",
    grid=2,
    rtol=1e-3,
    atol=1e-3,
)
def black_scholes(call: Any, put: Any, s: Any, x: Any, t: Any, r: float, v: float, n: int) -> Any:
    def normal(d: Any) -> Any:
        return np.array([0.5 * math.erfc(-e / math.sqrt(2)) for e in d])

    s, x, t = (a.astype(F64) for a in (s, x, t))
    d1 = (np.log(s / x) + (r + v * v / 2) * t) / (v * np.sqrt(t))
    d2 = d1 - v * np.sqrt(t)
    e = np.exp(-r * t)
    return s * normal(d1) - x * e * normal(d2), x * e * normal(-d2) - s * normal(-d1)


@theme.case(
    """
    __global__ void mandelbrot(int* out, int w, int h, double x0, double y0, double d, int limit) {
      int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
      if (px >= w || py >= h) return;
      double cx = x0 + px * d, cy = y0 + py * d, x = 0, y = 0;
      int n = 0;
      while (x * x + y * y <= 4.0 && n < limit) { double t = x * x - y * y + cx; y = 2 * x * y + cy; x = t; ++n; }
      out[py * w + px] = n;
    }
    """,
    zeros((10, 20), I32),
    20,
    10,
    -2.03,
    -1.01,
    0.1517,
    50,
    kernel="mandelbrot",
    grid=(3, 2),
    block=(8, 8),
)
def mandelbrot(out: Any, w: int, h: int, x0: float, y0: float, d: float, limit: int) -> Any:
    def one(c: complex) -> int:
        z, n = 0j, 0
        while z.real * z.real + z.imag * z.imag <= 4 and n < limit:
            z, n = z * z + c, n + 1
        return n

    return np.array([[one(complex(x0 + i * d, y0 + j * d)) for i in range(w)] for j in range(h)])


@theme.case(
    """
    __global__ void spmv(float* y, const int* rows, const int* cols, const float* values, const float* x, int n) {
      int r = blockIdx.x * blockDim.x + threadIdx.x;
      if (r < n) {
        float dot = 0;
        int start = rows[r], end = rows[r + 1];
        for (int j = start; j < end; j++) dot += values[j] * x[cols[j]];
        y[r] += dot;
      }
    }
    """,
    full(6, 1),
    of([0, 2, 2, 5, 6, 9, 10], I32),
    of([0, 3, 1, 2, 5, 4, 0, 1, 2, 5], I32),
    floats(10),
    floats(6),
    6,
    kernel="spmv",
)
def spmv_csr(y: Any, rows: Any, cols: Any, values: Any, x: Any, n: int) -> Any:
    return y + np.array([values[a:b] @ x[cols[a:b]] for a, b in pairwise(rows)])


@theme.case(
    """
    __global__ void step(float* a, float* b, int n, int steps) {
      float *from = a, *to = b;
      int i = threadIdx.x;
      for (int s = 0; s < steps; ++s) {
        float l = i > 0 ? from[i - 1] : 0.0f, r = i < n - 1 ? from[i + 1] : 0.0f;
        to[i] = from[i] + 0.25f * (l - 2 * from[i] + r);
        __syncthreads();
        float* t = from; from = to; to = t;
      }
    }
    """,
    floats(32),
    zeros(32),
    32,
    4,
    kernel="step",
)
def ping_pong_buffers(a: Any, b: Any, n: int, steps: int) -> Any:
    states = [a.astype(F64)]
    for _ in range(steps):
        p = np.pad(states[-1], 1)
        states.append(states[-1] + 0.25 * (p[:-2] - 2 * states[-1] + p[2:]))
    return states[4], states[3]


@theme.case(
    """
    __global__ void upsample(float* dst, const float* src, int w, int h, int W, int H) {
      int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
      if (x >= W || y >= H) return;
      float fx = (x + 0.5f) * w / W - 0.5f, fy = (y + 0.5f) * h / H - 0.5f;
      int x0 = (int)floorf(fx), y0 = (int)floorf(fy);
      float ax = fx - x0, ay = fy - y0;
      auto at = [&](int i, int j) { i = min(max(i, 0), w - 1); j = min(max(j, 0), h - 1); return src[j * w + i]; };
      dst[y * W + x] = (1 - ay) * ((1 - ax) * at(x0, y0) + ax * at(x0 + 1, y0)) + ay * ((1 - ax) * at(x0,
        y0 + 1) + ax * at(x0 + 1, y0 + 1));
    }
    """,
    zeros((9, 12)),
    floats((5, 6)),
    6,
    5,
    12,
    9,
    kernel="upsample",
    grid=(2, 2),
    block=(8, 8),
    rtol=1e-4,
    atol=1e-5,
)
def bilinear_resize(dst: Any, src: Any, w: int, h: int, big_w: int, big_h: int) -> Any:
    fx = (np.arange(big_w) + 0.5) * w / big_w - 0.5
    fy = (np.arange(big_h) + 0.5) * h / big_h - 0.5
    x0, y0 = np.floor(fx).astype(int), np.floor(fy).astype(int)
    ax, ay = fx - x0, (fy - y0)[:, None]

    def at(dx: int, dy: int) -> Any:
        return src[np.clip(y0 + dy, 0, h - 1)][:, np.clip(x0 + dx, 0, w - 1)]

    return (1 - ay) * ((1 - ax) * at(0, 0) + ax * at(1, 0)) + ay * ((1 - ax) * at(0, 1) + ax * at(1, 1))


@theme.case(
    """
    __global__ void bfs(int* dist, int* changed, const int* first, const int* to, int level, int n) {
      int v = blockIdx.x * blockDim.x + threadIdx.x;
      if (v >= n || dist[v] != level) return;
      for (int e = first[v]; e < first[v + 1]; ++e) {
        int w = to[e];
        if (atomicCAS(&dist[w], -1, level + 1) == -1) atomicExch(changed, 1);
      }
    }
    """,
    of([0, -1, -1, -1, -1], I32),
    zeros(1, I32),
    of([0, 2, 3, 4, 5, 6], I32),
    of([1, 2, 3, 3, 4, 0], I32),
    0,
    5,
    kernel="bfs",
    races=True,
)
def breadth_first_step(dist: Any, changed: Any, *rest: Any) -> Any:
    return np.array([0, 1, 1, -1, -1]), np.array([1])


@theme.case(
    """
    struct Rng { unsigned long long s; __device__ unsigned next() { s = s * 6364136223846793005ULL + 1;
    return (unsigned)(s >> 33); } };
    __global__ void pi(unsigned* hits, int samples) {
      Rng rng{(unsigned long long)threadIdx.x * 7919 + 17};
      unsigned mine = 0;
      for (int i = 0; i < samples; ++i) {
        float x = (rng.next() & 0xffff) / 65536.0f, y = (rng.next() & 0xffff) / 65536.0f;
        if (x * x + y * y < 1.0f) ++mine;
      }
      atomicAdd(hits, mine);
    }
    """,
    zeros(1, U32),
    20,
    kernel="pi",
)
def monte_carlo(hits: Any, samples: int) -> Any:
    total = 0
    for t in range(32):
        s = t * 7919 + 17
        for _ in range(samples):
            xy = []
            for _ in range(2):
                s = (s * 6364136223846793005 + 1) & (2**64 - 1)
                xy.append((s >> 33 & 0xFFFF) / 65536)
            total += np.float32(xy[0]) ** 2 + np.float32(xy[1]) ** 2 < 1
    return np.array([total])


@theme.case(
    """
    __global__ void gelu_bias_dropout(float* y, const float* x, const float* bias, const unsigned* mask,
      int rows, int cols, float keep) {
      int idx = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
      for (int i = idx; i < rows * cols; i += stride) {
        float v = x[i] + bias[i % cols];
        v = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
        bool on = (mask[i / 32] >> (i % 32)) & 1u;
        y[i] = on ? v / keep : 0.0f;
      }
    }
    """,
    zeros((8, 12)),
    floats((8, 12)),
    floats(12),
    of([0xDEADBEEF, 0x12345678, 0xCAFEBABE], U32),
    8,
    12,
    0.8,
    kernel="gelu_bias_dropout",
    grid=2,
)
def fused_elementwise(y: Any, x: Any, bias: Any, mask: Any, rows: int, cols: int, keep: float) -> Any:
    v = x + bias
    g = 0.5 * v * (1 + np.tanh(0.7978845608 * (v + 0.044715 * v**3)))
    on = np.array([int(mask[i // 32]) >> (i % 32) & 1 for i in range(96)]).reshape(8, 12)
    return np.where(on, g / keep, 0)
