"""Kernels in which a loop's counter picks the shared cells that many threads read, with what their gradients do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SIZE = 2048


@dataclass(frozen=True)
class Case:
    """`k(T *y, const T *x, const T *w, int n)`. `exchanged`, `rings`: whether its gradient has them."""

    source: str
    block: tuple[int, ...]
    exchanged: bool
    rings: bool
    grid: int = 2
    n: int = 64
    dtype: Any = np.float64

    @property
    def launch(self) -> tuple[int, tuple[int, ...]]:
        return self.grid, self.block


def matmul(width: int, height: int, cells: int, more: str = "", guard: str = "true") -> str:
    """x: rows of n; w: n rows of `width`; tiles of `cells` along the sum."""
    return f"""
    __global__ void k(double *y, const double *x, const double *w, int n) {{
      __shared__ double A[{height}][{cells}], B[{cells}][{width}];
      int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.x * {height} + ty;
      double sum = 0;
      for (int t = 0; t < n; t += {cells}) {{
        for (int c = tx; c < {cells}; c += {width}) A[ty][c] = t + c < n ? x[row * n + t + c] : 0;
        for (int c = ty; c < {cells}; c += {height}) B[c][tx] = t + c < n ? w[(t + c) * {width} + tx] : 0;
        __syncthreads();
        for (int k = 0; k < {cells}; ++k) if ({guard}) sum += A[ty][k] * B[k][tx];
        {more}
        __syncthreads();
      }}
      y[row * {width} + tx] = sum;
    }}"""


# Blocks of 32 threads: s is what everybody reads.
def tile(loop: str, before: str = "", type: str = "double", cells: int = 32) -> str:
    return f"""
    __global__ void k({type} *y, const {type} *x, const {type} *w, int n) {{
      __shared__ {type} s[{cells}];
      int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
      {type} mine = x[i], sum = 0;
      {before}
      for (int first = 0; first < 64; first += 32) {{
        for (int c = t; c < {cells}; c += blockDim.x) s[c] = w[first + c];
        __syncthreads();
        {loop}
        __syncthreads();
      }}
      y[i] = sum;
    }}"""


def plane(work: str, before: str = "", behind: str = "", bound: str = "8") -> str:
    """Blocks of 8 x 8 threads, a tile of as many cells."""
    return f"""
    __global__ void k(double *y, const double *x, const double *w, int n) {{
      __shared__ double B[8][8], P[8][8];
      int tx = threadIdx.x, ty = threadIdx.y + blockDim.y * threadIdx.z, i = (blockIdx.x * 8 + ty) * 8 + tx;
      double mine = x[i], sum = 0;
      for (int t = 0; t < 3; ++t) {{
        B[ty][tx] = w[(t * 8 + ty) * 8 + tx];
        {before}
        __syncthreads();
        for (int k = 0; k < {bound}; ++k) {work};
        {behind}
        __syncthreads();
      }}
      y[i] = sum;
    }}"""


STRUCTS = """
struct Body { double a, b; };
__global__ void k(double *y, const double *x, const double *w, int n) {
  __shared__ Body s[8][8];
  int tx = threadIdx.x, ty = threadIdx.y, i = (blockIdx.x * 8 + ty) * 8 + tx;
  double mine = x[i], sum = 0;
  for (int t = 0; t < 3; ++t) {
    Body body = {w[(t * 8 + ty) * 8 + tx], w[300 + (t * 8 + ty) * 8 + tx]};
    s[ty][tx] = body;
    __syncthreads();
    for (int k = 0; k < 8; ++k) sum += mine * s[k][tx].a / (2 + s[k][tx].b * s[k][tx].b);
    __syncthreads();
  }
  y[i] = sum;
}"""

flat = "double *F = &B[0][0];"

CASES = {
    "square": Case(matmul(32, 4, 32), (32, 4), True, True),
    "short_rows": Case(matmul(16, 16, 16), (16, 16), True, True),
    "rows_of_four": Case(matmul(4, 8, 8), (4, 8), True, True),
    "no_whole_warps": Case(matmul(6, 5, 8), (6, 5), True, False),
    "more_cells_than_threads": Case(matmul(8, 4, 13), (8, 4), True, True, n=50),
    "fewer_cells_than_threads": Case(matmul(8, 16, 5), (8, 16), True, True, n=17),
    "guarded": Case(matmul(8, 8, 8, guard="t + k < n && k % 3 != 1"), (8, 8), True, True, n=21),
    "guarded_by_the_thread": Case(matmul(8, 8, 8, guard="k <= ty + tx"), (8, 8), True, True, n=21),
    "read_twice": Case(
        matmul(8, 8, 8, "for (int k = 0; k < 7; ++k) sum += B[k + 1][tx] * A[ty][k];"), (8, 8), True, True
    ),
    "flat": Case(
        tile("for (int j = 0; j < 32; ++j) sum += mine * s[j] / (1 + (mine - s[j]) * (mine - s[j]));"),
        (32,),
        False,
        True,
    ),
    "backwards": Case(tile("for (int j = 30; j >= 0; j -= 3) sum += mine * s[j] * s[j];"), (32,), False, True),
    "nine_of_them": Case(tile("for (int j = 0; j < 9; ++j) sum += mine * s[j] * s[j + 1];"), (32,), False, True),
    "and_another_cell": Case(
        tile("for (int j = 0; j < 32; ++j) sum += mine * s[j] * s[j]; sum += s[(t + 1) % 32];"), (32,), False, True
    ),
    "another_cell_and": Case(
        tile("sum += s[(t + 1) % 32]; for (int j = 0; j < 32; ++j) sum += mine * s[j] * s[j];"), (32,), False, True
    ),
    "until_n": Case(tile("for (int j = 0; j < n; ++j) sum += mine * s[j] * s[j];"), (64,), False, True, n=29),
    "none_at_all": Case(tile("for (int j = 0; j < n; ++j) sum += mine * s[j] * s[j];"), (64,), False, False, n=0),
    "floats": Case(
        tile("for (int j = 0; j < 32; ++j) sum += mine * s[j] * s[j];", type="float"),
        (64,),
        False,
        True,
        dtype=np.float32,
    ),
    "global_weights": Case(tile("for (int j = 0; j < 32; ++j) sum += mine * w[j] * s[j];"), (32,), False, True),
    "two_warps": Case(tile("for (int j = 0; j < 32; ++j) sum += sin(mine * s[j]);"), (64,), False, True),
    # What must stay as it is.
    "carried": Case(tile("for (int j = 0; j < 32; ++j) sum = sum * s[j] + mine;"), (32,), False, False),
    "bound_by_the_thread": Case(tile("for (int j = 0; j < t; ++j) sum += mine * s[j] * s[j];"), (32,), False, False),
    "some_threads": Case(
        tile("if (t % 3) for (int j = 0; j < 32; ++j) sum += mine * s[j] * s[j];"), (32,), False, False
    ),
    "not_a_warp": Case(tile("for (int j = 0; j < 32; ++j) sum += mine * s[j] * s[j];"), (24,), False, False),
    "own_cell": Case(
        tile("for (int j = 0; j < 32; ++j) sum += mine * s[(j + t) % 32] * s[j ^ t];"), (32,), False, False
    ),
    "sliding": Case(plane("sum += mine * B[(ty + k) % 8][tx]"), (8, 8), False, False),
    "same_cell_twice": Case(plane("sum += mine * B[k][tx] * B[7 - k][tx]"), (8, 8), True, False),
    "neighbours": Case(plane("sum += mine * B[k][tx] * B[k][(tx + 1) % 8]"), (8, 8), True, False),
    "next_row": Case(plane("sum += mine * F[k * 8 + tx] * F[k * 8 + 8 + tx]", flat, bound="7"), (8, 8), True, False),
    "carried_along": Case(plane("sum = sum * B[k][tx] + mine"), (8, 8), False, False),
    "powers": Case(plane("{ power *= mine; sum += power * B[k][tx]; }", "double power = 1;"), (8, 8), False, False),
    "bound_by_the_row": Case(plane("if (k < ty) sum += mine * B[k][tx]"), (8, 8), True, False),
    "rows_of_their_own_length": Case(plane("sum += mine * B[k][tx]", bound="ty"), (8, 8), False, False),
    "local_array": Case(
        plane("sum += own[k % 3] * B[k][tx]", "double own[3] = {mine, x[ty], 2};"), (8, 8), False, False
    ),
    "integers": Case(
        plane("sum += (tx + ty) * mine * B[k][tx] / (k + 9 + which)", "int which = 1 + (int)x[i];"), (8, 8), True, False
    ),
    "own_cell_changes": Case(
        plane("sum += P[ty][tx] * B[k][tx]", "P[ty][tx] = mine;", "P[ty][tx] = sum;"), (8, 8), False, False
    ),
    "around": Case(plane("if (k % 2 == 0) sum += mine * B[0][k * 0x80000000u + tx] * (k + 1)"), (8, 8), False, False),
    "deep": Case(plane("sum += mine * B[k][tx]"), (8, 2, 4), False, False),
    "rows_until_n": Case(plane("sum += mine * B[k][tx]", bound="n"), (8, 8), True, False, n=7),
    "structs": Case(STRUCTS, (8, 8), True, False),
}


def arguments(case: Case, seed: int = 1) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [np.zeros(SIZE), *(rng.standard_normal(SIZE) for _ in range(2)), case.n]


def typed(case: Case, args: list[Any]) -> list[Any]:
    return [a.astype(case.dtype) if isinstance(a, np.ndarray) else a for a in args]
