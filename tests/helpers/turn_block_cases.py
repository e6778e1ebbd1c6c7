"""Kernels whose threads go through their elements in loops: which of them get the turns as blocks of a larger grid."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """`k(double *y, const double *x, const double *w, numbers...)`; `grid`: that of the larger launch, if there is."""

    body: str
    launch: tuple[Any, Any]
    sizes: tuple[int, int, int]
    numbers: tuple[int, ...]
    grid: tuple[int, int, int] | None = None
    params: str = "int n"

    @property
    def source(self) -> str:
        return f"__global__ void k(double *y, const double *x, const double *w, {self.params}) {{\n    {self.body}\n}}"

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(5)
        return [rng.uniform(0.5, 1.5, n) for n in self.sizes]


STRIDES = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
COLUMNS = "for (int c = threadIdx.x; c < n; c += blockDim.x)"
TWO = "int h, int n"  # rows and columns

SPREAD = {
    "strides of the grid": Case(
        f"{STRIDES} if (i > 0 && i < n - 1) y[i] = x[i - 1] * x[i] + w[i] * x[i + 1];",
        (3, 32),
        (300, 300, 300),
        (300,),
        (12, 1, 1),
    ),
    "a number of steps": Case(
        f"int by = 96; {STRIDES.replace('gridDim.x * blockDim.x', 'by')} if (i < n - 2) y[i] = x[i] * x[i + 2] + w[i];",
        (3, 32),
        (288, 288, 288),
        (288,),
        (9, 1, 1),
    ),
    "tested elsewhere": Case(
        "int i = blockIdx.x * blockDim.x + threadIdx.x;"
        " while (i + 2 < n) { y[i] = x[i] * x[i + 1] + w[i] * x[i + 2]; i += blockDim.x * gridDim.x; }",
        (2, 32),
        (200, 200, 200),
        (200,),
        (8, 1, 1),
    ),
    "64 bits": Case(
        "for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)"
        " if (i) y[i] = x[i - 1] * w[i] + x[i];",
        (2, 32),
        (150, 150, 150),
        (150,),
        (6, 1, 1),
        "size_t n",
    ),
    "quotients": Case(
        f"{STRIDES.replace('< n', '< h * n')} {{ int r = i / n, c = i % n;"
        " if (r == 0 || c == 0 || r == h - 1 || c == n - 1) { y[i] = x[i] * w[i]; continue; }"
        " y[i] = x[i] * x[i] + w[i] * (x[i - n] + x[i + n] - x[i - 1] * x[i + 1]); }",
        (3, 64),
        (20 * 37, 20 * 37, 20 * 37),
        (20, 37),
        (12, 1, 1),
        TWO,
    ),
    "read before": Case(
        f"{STRIDES} if (i < n - 1) y[i] = y[i] * x[i] + w[i] * x[i + 1];",
        (2, 32),
        (150, 150, 150),
        (150,),
        (6, 1, 1),
    ),
    "a block a row": Case(
        f"int r = blockIdx.x; {COLUMNS} {{ double left = c ? x[r * n + c - 1] : 0.0;"
        " y[r * n + c] = left * x[r * n + c] + w[c]; }",
        (7, 32),
        (7 * 70, 7 * 70, 70),
        (7, 70),
        (3, 7, 1),
        TWO,
    ),
    "rows of threads": Case(
        f"int r = blockIdx.x * blockDim.y + threadIdx.y; if (r >= h) return; {COLUMNS} {{ double sum = 0;"
        " for (int d = -2; d <= 2; ++d) sum += x[r * n + min(max(c + d, 0), n - 1)] * w[d + 2];"
        " y[r * n + c] = sum; }",
        (3, (16, 4)),
        (10 * 40, 10 * 40, 5),
        (10, 40),
        (3, 3, 1),
        TWO,
    ),
    "blocks stride over rows": Case(
        f"for (int r = blockIdx.x; r < h; r += gridDim.x) {COLUMNS} {{ double up = r ? x[(r - 1) * n + c] : 0.0;"
        " y[r * n + c] = up * x[r * n + c] + w[c]; }",
        (3, 32),
        (10 * 70, 10 * 70, 70),
        (10, 70),
        (3, 12, 1),
        TWO,
    ),
    "both axes": Case(
        "for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < h; r += gridDim.y * blockDim.y)"
        " for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < n; c += gridDim.x * blockDim.x) {"
        " double up = r ? x[(r - 1) * n + c] : 0.0, left = c ? x[r * n + c - 1] : 0.0;"
        " y[r * n + c] = up * left + w[c] * x[r * n + c]; }",
        ((2, 2), (8, 4)),
        (19 * 37, 19 * 37, 37),
        (19, 37),
        (6, 6, 1),
        TWO,
    ),
}

# What turns have to do with each other, or with where the launch's blocks lie.
STAYS = {
    "carried": Case(
        f"double last = 0; {STRIDES} if (i < n - 1) {{ last = 0.5 * last + x[i] * x[i + 1]; y[i] = last * w[i]; }}",
        (2, 32),
        (150, 150, 150),
        (150,),
    ),
    "left in an array": Case(
        f"double own[2] = {{0, 1}}; {STRIDES} if (i < n - 1) {{ own[i % 2] += x[i];"
        " y[i] = own[0] * x[i + 1] + w[i]; }",
        (2, 32),
        (150, 150, 150),
        (150,),
    ),
    "stored again": Case(
        f"{STRIDES} if (i < n - 1) y[i % (gridDim.x * blockDim.x)] = x[i] * x[i + 1] * w[i];",
        (2, 32),
        (64, 150, 150),
        (150,),
    ),
    "read after it was stored": Case(
        f"{STRIDES} if (i < n - 1) {{ y[i] = x[i] * x[i + 1]; if (i >= 64) y[i] += y[i - 64] * w[i]; }}",
        (2, 32),
        (150, 150, 150),
        (150,),
    ),
    "stored after the loop": Case(
        f"double sum = 0; {STRIDES} if (i < n - 1) sum += x[i] * x[i + 1];"
        " y[blockIdx.x * blockDim.x + threadIdx.x] = sum * w[0];",
        (2, 32),
        (64, 150, 1),
        (150,),
    ),
    "by the block's number": Case(
        f"{STRIDES} if (i < n - 1) y[i] = x[i] * x[i + 1] * w[blockIdx.x];",
        (2, 32),
        (150, 150, 2),
        (150,),
    ),
    "by the number of blocks": Case(
        f"{STRIDES} if (i < n - 1) y[i] = x[i] * x[i + 1] * w[i] * gridDim.x;",
        (2, 32),
        (150, 150, 150),
        (150,),
    ),
    "the turn after": Case(
        f"int by = gridDim.x * blockDim.x; {STRIDES} if (i + by < n) y[i] = x[i] * x[i + by] * w[i] * by;",
        (2, 32),
        (150, 150, 150),
        (150,),
    ),
    "half a stride": Case(
        "int by = gridDim.x * blockDim.x / 2; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n - 1; i += by)"
        " y[i] = x[i] * x[i + 1] * w[i];",
        (2, 32),
        (150, 150, 150),
        (63,),
    ),
    "what all turns read": Case(
        "int i = blockIdx.x * blockDim.x + threadIdx.x; for (int j = 0; j < h; ++j) { double s = 0;"
        " for (int k = 0; k < 4; ++k) s += w[4 * j + k] * x[k * n + i]; y[j * n + i] = tanh(s); }",
        (64, 128),
        (4 * 8192, 4 * 8192, 16),
        (4, 8192),
        params=TWO,
    ),
    "until it is found": Case(
        f"{STRIDES} {{ if (w[i] > 1.4) break; if (i < n - 1) y[i] = x[i] * x[i + 1]; }}",
        (2, 32),
        (150, 150, 150),
        (150,),
    ),
    "coming round": Case(
        "for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 3221225472u + gridDim.x * blockDim.x)"
        " if (i > 0) y[i] = x[i] * x[i - 1] * w[i];",
        (2, 32),
        (150, 150, 150),
        (150,),
        None,
        "unsigned n",
    ),
}
