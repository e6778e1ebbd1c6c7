"""Kernels whose reverse reads again what they read, for splits whose buffers change: on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from winner_cases import FUNCTIONS

N = 24


@dataclass(frozen=True)
class Case:
    """`listed` are the parameters in front; `rest` follow them. Output and inputs are N doubles each."""

    source: str
    rest: Callable[[np.random.Generator], list[Any]] = lambda rng: [N]
    listed: str = "y, x"
    parts: int = 2
    launch: tuple[Any, ...] = (2, 16)


INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
CASES = {
    "square": Case(
        f"__global__ void k(double *y, const double *x, int n) {{ {INDEX} if (i < n) y[i] = x[i] * x[i]; }}"
    ),
    "linear": Case(f"__global__ void k(double *y, const double *x, int n) {{ {INDEX} if (i < n) y[i] = 3 * x[i]; }}"),
    "index buffer": Case(
        f"""__global__ void k(double *y, const double *x, const int *at, int n) {{
        {INDEX} if (i >= n) return; y[i] = x[at[i]]; }}""",
        lambda rng: [rng.integers(0, N, N).astype("i4"), N],
    ),
    "in place": Case(
        f"__global__ void k(double *y, const double *x, int n) {{ {INDEX} if (i < n) y[i] *= y[i] * x[i]; }}"
    ),
    "in place, twice": Case(f"""__global__ void k(double *y, const double *x, int n) {{
        {INDEX} if (i >= n) return; double v = y[i]; y[i] = v * x[i]; y[i] = y[i] * y[i] + v; }}"""),
    "loop": Case(f"""__global__ void k(double *y, const double *x, int n) {{
        {INDEX} if (i >= n) return;
        double s = 1; for (int j = 0; j < i % 5; j++) s = s * x[j] + x[i] * s; y[i] = s; }}"""),
    "nested loops": Case(f"""__global__ void k(double *y, const double *x, int n) {{
        {INDEX} if (i >= n) return; double s = 0;
        for (int j = 0; j < 3; j++) {{ double t = x[j]; for (int k = j; k < 5; k++) t *= sin(x[k] + s); s += t; }}
        y[i] = s; }}"""),
    "rows": Case(
        f"""__global__ void k(double *y, const double *x, const int *row, const int *col, int n) {{
        {INDEX} if (i >= n) return; double s = 0; for (int j = row[i]; j < row[i + 1]; j++) s += x[col[j]] * x[i];
        y[i] = s * s; }}""",
        lambda rng: [np.arange(N + 1).astype("i4") * 3 // 2, rng.integers(0, N, 2 * N).astype("i4"), N],
    ),
    "while": Case(f"""__global__ void k(double *y, const double *x, int n) {{
        {INDEX} if (i >= n) return; double v = x[i]; int j = 0;
        while (fabs(v) < 3) {{ v *= 1 + fabs(x[j]); j = (j + 1) % n; }}
        y[i] = v; }}"""),
    "branch": Case(f"""__device__ double f(const double *p, int i) {{ return p[i] > 0 ? p[i] * p[i + 1] : exp(p[i]); }}
        __global__ void k(double *y, const double *x, int n) {{
        {INDEX} if (i + 1 >= n) return;
        double s = 1; for (int j = 0; j < 2; j++) s *= f(x, i - i % 2 * j); y[i] = s; }}"""),
    "tiles": Case("""__global__ void k(double *y, const double *x, int n) {
        __shared__ double t[16]; int i = blockIdx.x * 16 + threadIdx.x; double s = 0;
        for (int j = 0; j < 2; j++) { t[threadIdx.x] = i < n ? x[i] * (j + 1) : 0; __syncthreads();
            for (int k = 0; k < 16; k++) s += t[k] * t[k] * t[threadIdx.x]; __syncthreads(); }
        if (i < n) y[i] = s; }"""),
    "across a barrier": Case("""__global__ void k(double *y, const double *x, int n) {
        int i = blockIdx.x * 16 + threadIdx.x; int j = blockIdx.x * 16 + (threadIdx.x + 1) % 8;
        double v = i < n ? y[i] : 0; __syncthreads(); if (i < n) y[i] = v * x[i]; __syncthreads();
        double w = j < n ? y[j] : 0; __syncthreads(); if (i < n) y[i] = w * v; }"""),
    "winner": Case(f"""{FUNCTIONS} __global__ void k(double *y, double *x, int n) {{
        {INDEX} if (i >= n) return; double v = x[i]; x[i] = v * 3; max_bits(y, v * v); }}"""),
    "choice of buffers": Case(
        f"""__global__ void k(double *y, const double *x, const double *z, int n) {{
        {INDEX} if (i >= n) return; const double *p = x[i] > 0 ? x : z; y[i] = p[i] * p[0]; }}""",
        lambda rng: [rng.standard_normal(N), N],
    ),
    "struct": Case(
        f"""struct V {{ const double *w; const int *at[2]; int n; }};
        __global__ void k(double *y, const double *x, V v) {{
        {INDEX} if (i < v.n) y[i] = x[v.at[0][i]] * v.w[v.at[1][i]] * x[i]; }}""",
        lambda rng: [
            {"w": rng.standard_normal(N), "at": [rng.integers(0, N, N).astype("i4") for _ in range(2)], "n": N}
        ],
    ),
}


def arguments(case: Case) -> list[Any]:
    rng = np.random.default_rng(3)
    return [*(rng.standard_normal(N) for _ in range(case.parts)), *case.rest(rng)]


def seeds(case: Case) -> list[Any]:
    return [*np.random.default_rng(4).standard_normal((case.parts, N))]


VARIABLES = """
__device__ double W[4];
__constant__ double C[4];
__device__ int first;
__global__ void k(double *y, const double *x) {
    int i = threadIdx.x; y[i] = x[i] * x[i] * W[i % 4] * C[(i + first) % 4];
}
__global__ void set(double by) { for (int j = 0; j < 4; j++) W[j] = by; first = 2; }
"""
