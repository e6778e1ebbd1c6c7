"""Pointers that a loop may swap, into arrays of a thread's own and into buffers: their shadows are taped."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg

N, STEPS = 37, 4
HEAD = "__global__ void k(double *y, double *t, const double *x, const int *c, int n, int m) {"
START = " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; double b[4] = {x[i], 2 * x[i], 0, 0};"
# What memory decides has no rule: the pointers are taped.
SWAP = " if (c[(i + 2 * k) % n] >= 0) { double *other = from; from = to; to = other; } }"
END = " y[i] = b[0] * b[0] + 3 * b[1] + b[2] * b[3]; }"

BODIES = {
    "two of one array": (
        " double *from = b + c[i], *to = b + 2;"
        " for (int k = 0; k < m; k++) { *to = sin(*from) + x[k] * *to;" + SWAP + END
    ),
    "the same element twice": (
        " double *p = b + (x[i] > 0), *from = b + m % 4, *to = b + m % 4;"
        " for (int k = 0; k < m; k++) { *p = sqrt(1 + x[i] * x[k]); *to = *p;" + SWAP + END
    ),
    "an array and a buffer": (
        " double *from = b + c[i], *to = t + i;"
        " for (int k = 0; k < m; k++) { *to = *to * x[k] + sin(*from);" + SWAP + END
    ),
    "an element of all": (
        " double *from = b, *to = b + 1;"
        " for (int k = 0; k < m; k++) { const double *s = c[(i + k) % n] ? from : x; *to = *to * .5 + s[0] * x[i];"
        + SWAP + END
    ),
}  # fmt: skip


def gradient(name: str, **options: Any) -> Any:
    return kg.gradient(kg.compile(HEAD + START + BODIES[name])["k"], "y, t, x", **options)


def arguments() -> list[Any]:
    rng = np.random.default_rng(4)
    y, t, x = rng.normal(size=(3, N))
    return [y, t, x, rng.integers(0, 2, N).astype("i4"), N, STEPS, *rng.normal(size=(3, N))]
