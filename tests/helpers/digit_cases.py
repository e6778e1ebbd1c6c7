"""Kernels in blocks of one row whose threads take their index apart, with the rows that they are in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`k(T *y, const T *x, const T *w, int n)`. `width`: of the rows that the threads of a block are taken in, None
    where they stay in one; `size`: of y, x and w, all square."""

    source: str
    threads: int
    width: int | None
    grid: tuple[int, int]
    size: int
    block: tuple[int, ...] | None = None


def product(tx: str, ty: str, at: str = "ty * 8 + tx", rest: str = "", store: str = "row * n + col") -> str:
    """Tiles of 8 x 8."""
    return f"""
    __device__ int across(int t) {{ return t % 8; }}
    __global__ void k(double *y, const double *x, const double *w, int n) {{
      __shared__ double A[64], B[64];
      int t = threadIdx.x, tx = {tx}, ty = {ty}, row = blockIdx.y * 8 + ty, col = blockIdx.x * 8 + tx;
      {rest}
      double sum = 0;
      for (int k0 = 0; k0 < n; k0 += 8) {{
        A[{at}] = x[row * n + k0 + tx];
        B[{at}] = w[(k0 + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < 8; ++k) sum += A[ty * 8 + k] * B[k * 8 + tx];
        __syncthreads();
      }}
      y[{store}] = sum;
    }}"""


def registers(tx: str = "t % 8", ty: str = "t / 8", unroll: str = "", pad: int = 0) -> str:
    """Tiles of 16 x 16 for 64 threads, 2 x 2 for each, and 8 along the sum."""
    return f"""
    __global__ void k(double *y, const double *x, const double *w, int n) {{
      __shared__ double A[8][{16 + pad}], B[8][{16 + pad}];
      int t = threadIdx.x, tx = {tx}, ty = {ty}, row = blockIdx.y * 16, col = blockIdx.x * 16;
      double acc[2][2] = {{}};
      for (int k0 = 0; k0 < n; k0 += 8) {{
        {unroll}
        for (int k = 0; k < 2; ++k) {{
          int at = t + k * 64;
          A[at % 8][at / 8] = x[(row + at / 8) * n + k0 + at % 8];
          B[at / 16][at % 16] = w[(k0 + at / 16) * n + col + at % 16];
        }}
        __syncthreads();
        for (int k = 0; k < 8; ++k) {{
          double a[2], b[2];
          {unroll}
          for (int i = 0; i < 2; ++i) a[i] = A[k][ty * 2 + i];
          for (int j = 0; j < 2; ++j) b[j] = B[k][tx * 2 + j];
          {unroll}
          for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j) acc[i][j] += a[i] * b[j];
        }}
        __syncthreads();
      }}
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) y[(row + ty * 2 + i) * n + col + tx * 2 + j] = acc[i][j];
    }}"""


def padded(tx: str, ty: str, width: int = 33) -> str:
    """Tiles of 32 x 32 in rows of that width."""
    return f"""
    __global__ void k(float *y, const float *x, const float *w, int n) {{
      __shared__ float A[32][{width}], B[32][{width}];
      int tx = {tx}, ty = {ty}, row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
      float sum = 0;
      for (int k0 = 0; k0 < n; k0 += 32) {{
        A[ty][tx] = x[row * n + k0 + tx];
        B[ty][tx] = w[(k0 + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += A[ty][k] * B[k][tx];
        __syncthreads();
      }}
      y[row * n + col] = sum;
    }}"""


_TILES, _SIZE = (2, 2), 16
CASES = {
    "remainder": Case(product("t % 8", "t / 8"), 64, 8, _TILES, _SIZE),
    "bits": Case(product("t & 7", "t >> 3"), 64, 8, _TILES, _SIZE),
    "unsigned": Case(product("threadIdx.x % 8u", "threadIdx.x / 8u"), 64, 8, _TILES, _SIZE),
    "a function": Case(product("across(t)", "t / 8"), 64, 8, _TILES, _SIZE),
    "the index too": Case(product("t % 8", "t / 8", at="t"), 64, 8, _TILES, _SIZE),
    "the block's extent": Case(product("t % 8", "t / 8", at="t % blockDim.x"), 64, 8, _TILES, _SIZE),
    "other parts": Case(
        product("t % 8", "t / 8", rest="row += t % 4 - t % 16 % 4 + t / 16 - (t / 2) / 8; col += t % 3 - t % 3;"),
        64,
        8,
        _TILES,
        _SIZE,
    ),
    "a counter below zero": Case(
        product(
            "t % 8",
            "t / 8",
            rest="for (int q = -2; q < 2; ++q) { int u = t + q * 64; col += u % 8 - (u < 0 ? -(-u % 8) : u & 7); }",
        ),
        64,
        8,
        _TILES,
        _SIZE,
    ),
    "no whole rows": Case(
        product(
            "t % 8", "t / 8", rest="for (int q = 0; q < 3; ++q) { int u = t + q * 4; col += u % 8 - u + u / 8 * 8; }"
        ),
        64,
        8,
        _TILES,
        _SIZE,
    ),
    "registers": Case(registers(), 64, 8, (1, 1), 16),
    "registers, unrolled": Case(registers("t & 7", "t >> 3", "\n#pragma unroll\n"), 64, 8, (1, 1), 16),
    "registers, padded": Case(registers(pad=1), 64, 8, (1, 1), 16),
    "a sum is not an index": Case(product("(t + 64) % 8", "(t + 64) / 8 - 8"), 64, None, _TILES, _SIZE),
}
