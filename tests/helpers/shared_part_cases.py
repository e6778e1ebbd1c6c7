"""Kernels that lay out dynamic shared memory themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """`k(T *y, const T *x, const T *z, const int *f, int n, int d)`; `parts`: where they begin, and how many bytes they
    have; none where the memory stays one."""

    body: str
    parts: list[tuple[int, int]]
    nbytes: int = 256
    shared: str = "extern __shared__ double s[];"
    d: int = 2
    block: Any = 8

    @property
    def source(self) -> str:
        params = "double *y, const double *x, const double *z, const int *f, int n, int d"
        head = "struct P { double u; float v; int w; };"
        return f"{head}\n__global__ void k({params}) {{\n    {self.shared}\n{OWN}\n    {self.body}\n}}"


OWN = "    int t = threadIdx.x, B = blockDim.x, i = blockIdx.x * B + t; double a = 0, p = 1;"
SYNC, END = "__syncthreads();", "y[i] = a * p;"
TURNS = "for (int j = 0; j < n; j += B)"
SUM = "for (int q = 0; q < B; ++q) { p = 0.5 * p + 0.3 * sin(u[q] * v[q]); a += v[q] * p; }"
TWO = f"{TURNS} {{ v[t] = x[j + t]; {SYNC} {SUM} {SYNC} }} {END}"

CASES = {
    "before the loop and in it": Case(f"double *u = s, *v = s + B; u[t] = z[i]; {TWO}", [(0, 64), (64, 64)]),
    "addresses": Case(f"double *u = &s[0], *v = &s[B]; u[t] = z[i]; {TWO}", [(0, 64), (64, 64)]),
    "the other way round": Case(f"double *v = s, *u = v + B; u[t] = z[i]; {TWO}", [(0, 64), (64, 64)]),
    "with room between": Case(f"double *u = s + 2, *v = s + B + 4; u[t] = z[i]; {TWO}", [(16, 64), (96, 64)]),
    "indices": Case(
        f"s[t] = z[i]; {TURNS} {{ s[B + t] = x[j + t]; {SYNC} for (int q = 0; q < B; ++q) {{"
        f" p = 0.5 * p + 0.3 * sin(s[q] * s[B + q]); a += s[B + q] * p; }} {SYNC} }} {END}",
        [(0, 64), (64, 64)],
    ),
    "sizes": Case(
        "double *u = s, *v = u + B * d; for (int c = 0; c < d; ++c) u[t * d + c] = z[i + c];"
        f" {TURNS} {{ for (int c = 0; c < d; ++c) v[t * d + c] = x[j + t + c]; {SYNC}"
        " for (int q = 0; q < min(B, n - j); ++q) {"
        " double g = 0; for (int c = 0; c < d; ++c) g += u[t * d + c] * v[q * d + c];"
        f" p = 0.5 * p + 0.3 * sin(g); a += g * p; }} {SYNC} }} {END}",
        [(0, 128), (128, 128)],
    ),
    "three, one of integers": Case(
        "double *u = (double *)raw, *v = u + B; int *at = (int *)(v + B); u[t] = z[i];"
        f" {TURNS} {{ v[t] = x[j + t]; at[t] = f[j + t]; {SYNC} for (int q = 0; q < B; ++q)"
        f" {{ p = 0.5 * p + 0.3 * sin(u[q] * v[q]); a += v[q] * p * at[q]; }} {SYNC} }} {END}",
        [(0, 64), (64, 64), (128, 32)],
        shared="extern __shared__ char raw[];",
    ),
    "records": Case(
        f"P *u = (P *)raw; double *v = (double *)(u + B); u[t].u = z[i]; u[t].w = t;"
        f" {TURNS} {{ v[t] = x[j + t]; {SYNC} for (int q = 0; q < B; ++q)"
        f" {{ p = 0.5 * p + 0.3 * sin(u[q].u * v[q]); a += v[q] * p * (1 + u[q].w % 2); }} {SYNC} }} {END}",
        [(0, 120), (128, 64)],
        shared="extern __shared__ __align__(16) char raw[];",
    ),
    "guards": Case(
        "double *u = s, *v = s + 3 * d; if (t < 3 * d) u[t] = z[i];"
        f" {TURNS} {{ if (!j || f[j + t]) v[t] = x[j + t]; {SYNC}"
        f" for (int q = 0; q < B; ++q) {{ p = 0.5 * p + 0.3 * sin(u[q % 6] * v[q]); a += v[q] * p; }} {SYNC} }} {END}",
        [(0, 48), (48, 64)],
    ),
    "a tree": Case(
        f"double *u = s, *v = s + B; u[t] = z[i]; v[t] = x[i] * z[i]; {SYNC} for (int h = 4; h > 0; h /= 2)"
        f" {{ if (t < h) v[t] += v[t + h]; {SYNC} }} y[i] = u[B - 1 - t] * v[0];",
        [(0, 64), (64, 64)],
    ),
    "two rows of threads": Case(
        "int r = threadIdx.y; double *u = s, *v = s + 16; u[r * 4 + t] = z[r * 4 + t];"
        f" for (int j = 0; j < n; j += 4) {{ v[r * 4 + t] = x[j * 2 + r * 4 + t]; {SYNC} for (int q = 0; q < 4; ++q)"
        f" {{ p = 0.5 * p + 0.3 * sin(u[r * 4 + q] * v[q * 2 + r % 2]); a += p; }} {SYNC} }}"
        " y[blockIdx.x * 8 + r * 4 + t] = a;",
        [(0, 64), (128, 64)],
        block=(4, 2),
    ),
    # One array is all there is, or something reaches across.
    "one": Case(
        f"{TURNS} {{ s[t] = x[j + t]; {SYNC} for (int q = 0; q < B; ++q) a += s[q] * s[q]; {SYNC} }} {END}", []
    ),
    "overlapping": Case(
        f"double *u = s, *v = s + B - 2; {TURNS} {{ u[t] = z[i]; {SYNC} if (t > 0) v[t] = x[j + t]; {SYNC}"
        f" for (int q = 1; q < B; ++q) {{ p = 0.5 * p + 0.3 * sin(u[q] * v[q]); a += v[q] * p; }} {SYNC} }} {END}",
        [],
    ),
    "by data": Case(f"double *u = s, *v = s + B; u[t] = z[i]; {TWO}".replace("u[q]", "u[f[q]]"), []),
    "beyond what there is": Case(f"double *u = s, *v = s + B; u[t] = z[i]; {TWO}", [], 120),
    "pointers that are chosen": Case(
        f"double *u = s, *v = s + B; u[t] = z[i]; {TURNS} {{ v[t] = x[j + t]; {SYNC} const double *w = j % 16 ? u : v;"
        f" for (int q = 0; q < B; ++q) {{ p = 0.5 * p + 0.3 * sin(w[q]); a += v[q] * p; }} {SYNC} }} {END}",
        [],
    ),
}  # fmt: skip


def arguments(case: Case) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(0.5, 1.5, 160) for _ in range(3)]
    return (*arrays, rng.integers(0, 3, 160).astype(np.int32), 24, case.d)
