"""Kernels whose blocks add to the same elements of small inputs: which of them get blocks that do the work of many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """`k(T *y, const T *x, const T *w, numbers...)`; `started`: the grid of the smaller launch, if there is."""

    body: str
    launch: tuple[Any, Any]
    sizes: tuple[int, int, int]
    numbers: tuple[int, ...]
    started: tuple[int, int, int] | None = None
    params: str = "int n, int c"
    head: str = ""

    @property
    def source(self) -> str:
        params = f"double *y, const double *x, const double *w, {self.params}"
        return f"{self.head}\n__global__ void k({params}) {{\n    {self.body}\n}}"

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(5)
        return [rng.uniform(0.5, 1.5, n) for n in self.sizes]


INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
SIZED = ((300, 300, 12), (300, 12))

SMALLER = {
    "columns": Case(f"{INDEX} if (i < n) y[i] = x[i] * w[i % c];", (20, 16), *SIZED, (6, 1, 1)),
    "columns, early return": Case(
        f"{INDEX} if (i >= n) return; y[i] = sin(x[i] * w[i % c]);", (20, 16), *SIZED, (6, 1, 1)
    ),
    "columns of a block": Case(
        f"{INDEX} if (i < n) y[i] = x[i] * w[i % c];", (20, 16), (320, 320, 16), (310, 16), (4, 1, 1)
    ),
    "channels": Case(
        f"{INDEX} if (i < n) y[i] = x[i] * w[i / h % c];",
        (40, 16),
        (640, 640, 4),
        (630, 4, 12),
        (6, 1, 1),
        "int n, int c, int h",
    ),
    "unsigned": Case(
        "unsigned i = threadIdx.x + blockDim.x * blockIdx.x; if (i < n) y[i] = x[i] * w[i % c];",
        (20, 16),
        *SIZED,
        (6, 1, 1),
        "unsigned n, unsigned c",
    ),
    "64 bits": Case(
        "size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * w[i % c];",
        (20, 16),
        *SIZED,
        (6, 1, 1),
        "size_t n, size_t c",
    ),
    "rows of a grid": Case(
        f"{INDEX} int j = blockIdx.y; if (i < n) y[j * n + i] = x[j * n + i] * w[i];",
        ((2, 12), 16),
        (360, 360, 30),
        (30, 0),
        (2, 2, 1),
    ),
    "the other way round": Case(
        f"{INDEX} int j = blockIdx.y; if (i < n) y[i * c + j] = x[i * c + j] * w[j * 16 + threadIdx.x];",
        ((12, 3), 16),
        (570, 570, 48),
        (190, 3),
        (2, 3, 1),
    ),
    "planes": Case(
        f"{INDEX} int j = blockIdx.y * blockDim.y + threadIdx.y, p = blockIdx.z; if (i >= n || j >= n) return;"
        " int e = (p * n + j) * n + i; y[e] = x[e] * w[p % c * n + i] + w[p % c * n + j];",
        ((2, 2, 12), (8, 4)),
        (12 * 64, 12 * 64, 24),
        (8, 3),
        (2, 2, 3),
    ),
    "extents of the grid": Case(
        f"{INDEX} if (i < n) y[i] = x[i] * w[i % c] + gridDim.x * x[i] * blockIdx.x;", (20, 16), *SIZED, (6, 1, 1)
    ),
    "a loop": Case(
        f"{INDEX} if (i >= n) return; double s = 0;"
        " for (int k = 0; k < 3; ++k) s += x[i] * (k + w[i % c]); y[i] = s * s;",
        (20, 16),
        *SIZED,
        (6, 1, 1),
    ),
    "a sum": Case(f"{INDEX} if (i < n) atomicAdd(y, x[i] * w[i % c]);", (20, 16), (1, 300, 12), (300, 12), (6, 1, 1)),
    "read and stored": Case(f"{INDEX} if (i < n) y[i] += x[i] * w[i % c];", (20, 16), *SIZED, (6, 1, 1)),
    "structs": Case(
        f"{INDEX} P p = ((const P *)w)[i % c]; if (i < n) y[i] = x[i] * p.a + p.b;",
        (20, 16),
        (300, 300, 24),
        (300, 12),
        (6, 1, 1),
        head="struct P { double a, b; };",
    ),
    "most of them": Case(
        f"{INDEX} if (i < n) y[i] = x[i * 7 % n] * w[i % c] * w[(i + 1) % c];",
        (20, 16),
        (301, 301, 12),
        (301, 12),
        (6, 1, 1),
    ),
}

# What blocks do together, or what differs between them, or what each would keep for its reverse.
STAYS = {
    "a barrier": Case(
        f"__shared__ double s[16]; {INDEX} s[threadIdx.x] = i < n ? x[i] : 0; __syncthreads();"
        " if (i < n) y[i] = s[15 - threadIdx.x] * w[i % c];",
        (20, 16),
        *SIZED,
    ),
    "an element each": Case(f"{INDEX} if (i < n) y[i] = x[i] * w[i % n];", (20, 16), (300, 300, 300), (300, 300)),
    "a loop over columns": Case(
        f"{INDEX} if (i >= n) return; double s = 0;"
        " for (int k = 0; k < h; ++k) s += x[i] * w[i % c * 3 + k]; y[i] = s * s;",
        (20, 16),
        (300, 300, 36),
        (300, 12, 3),
        params="int n, int c, int h",
    ),
    "other columns in each": Case(
        f"{INDEX} if (i < n) y[i] = x[i] * w[i / 2 % 150 * 2];", (20, 16), (300, 300, 300), (300, 12)
    ),
    "an array": Case(
        f"{INDEX} double own[4]; if (i < n) {{ for (int k = 0; k < 4; ++k) own[k] = x[i] * w[(i + k) % c];"
        " y[i] = own[i % 4] * own[1]; }",
        (20, 16),
        *SIZED,
    ),
    "a loop that ends early": Case(
        f"{INDEX} if (i >= n) return; double s = x[i];"
        " for (int k = 0; k < 9; ++k) { s *= w[i % c]; if (s > 2 || s < 0.2) break; } y[i] = s;",
        (20, 16),
        *SIZED,
    ),
    "few blocks": Case(f"{INDEX} if (i < n) y[i] = x[i] * w[i % c];", (7, 16), (112, 112, 12), (112, 12)),
}
