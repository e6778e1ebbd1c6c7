"""Kernels of half precision, each with the listed parameters whose adjoints stay halves: in R and in J."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HEAD = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__device__ float to_float(__half v) { return __half2float(v); }
__device__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ void set(__half &to, float v) { to = __float2half(v); }
__device__ void set(__nv_bfloat16 &to, float v) { to = __float2bfloat16(v); }
"""
I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
SUM = "for (int d = 16; d > 0; d >>= 1) {0} += __shfl_xor_sync(0xffffffff, {0}, d);"


class Case(NamedTuple):
    """`body`: of `k(T *y, const T *x, const T *w, int n, int m)`. In place, y is read: it has no R."""

    body: str
    reverse: str
    joint: str
    in_place: bool = False
    block: int | tuple[int, ...] = 64
    size: int = 1024  # elements of each array
    blocks: int | tuple[int, ...] = 16
    m: int = 32


CASES: dict[str, Case] = {
    "elements": Case(f"{I} if (i < n) set(y[i], sinf(to_float(x[i])) * to_float(w[i]));", "x y w", "x y w"),
    "strides": Case(
        f"{I} for (; i < n; i += gridDim.x * blockDim.x) set(y[i], to_float(x[i]) * to_float(x[i]) * to_float(w[i]));",
        "x y w",
        "x y w",
        blocks=3,
    ),
    "in place": Case(f"{I} if (i < n) set(y[i], to_float(y[i]) * to_float(x[i]));", "", "x y w", in_place=True),
    "twice": Case(  # two updates of an element: a copy rounds them once
        f"{I} if (i < n) set(y[i], to_float(x[i]) * to_float(w[i])); if (i < m) set(y[n + i], to_float(x[i]));",
        "y w",
        "y w",
        size=1088,
    ),
    "shared weight": Case(f"{I} if (i < n) set(y[i], to_float(x[i]) * to_float(w[0]));", "x y", "x y"),
    "neighbours": Case(
        f"{I} if (i > 0 && i < n - 1) set(y[i], to_float(x[i - 1]) + 2 * to_float(x[i]) + to_float(x[i + 1]));",
        "x y w",
        "x y w",
    ),
    "transpose": Case(
        """__shared__ float t[32][33];
        int tx = threadIdx.x, ty = threadIdx.y, gx = blockIdx.x * 32 + tx, gy = blockIdx.y * 32 + ty;
        if (gx < m && gy < m) t[ty][tx] = to_float(x[gy * m + gx]);
        __syncthreads();
        int ox = blockIdx.y * 32 + tx, oy = blockIdx.x * 32 + ty;
        if (ox < m && oy < m) set(y[oy * m + ox], t[tx][ty]);""",
        "x y w",
        "x y w",
        block=(32, 32),
        blocks=(2, 2),
        size=45 * 45,
        m=45,
    ),
    "rows": Case(
        f"""int row = blockIdx.x * 2 + threadIdx.x / 32, lane = threadIdx.x % 32;
        float s = 0;
        for (int c = lane; c < m; c += 32) s += to_float(x[row * m + c]) * to_float(x[row * m + c]);
        {SUM.format("s")}
        float r = rsqrtf(s + 0.1f);
        for (int c = lane; c < m; c += 32) set(y[row * m + c], to_float(x[row * m + c]) * r);""",
        "y w",
        "y w",
        blocks=8,
        m=64,
    ),
    "norm with weights": Case(
        f"""int row = blockIdx.x * 2 + threadIdx.x / 32, lane = threadIdx.x % 32;
        float s = 0;
        for (int c = lane; c < m; c += 32) s += to_float(x[row * m + c]) * to_float(x[row * m + c]);
        {SUM.format("s")}
        float r = rsqrtf(s + 0.1f);
        for (int c = lane; c < m; c += 32) set(y[row * m + c], to_float(x[row * m + c]) * r * to_float(w[c]));""",
        "y",
        "y",
        blocks=8,
        m=64,
    ),
    "halo": Case(
        f"""{I} int t = threadIdx.x;
        __shared__ float s[66];
        s[t + 1] = i < n ? to_float(x[i]) : 0.0f;
        if (t == 0) s[0] = i > 0 ? to_float(x[i - 1]) : 0.0f;
        if (t == 63) s[65] = i + 1 < n ? to_float(x[i + 1]) : 0.0f;
        __syncthreads();
        if (i < n) set(y[i], s[t] * s[t + 1] + s[t + 2]);""",
        "y w",
        "y w",
    ),
    "windows": Case(
        f"{I} float v = 0; if (i >= n - 8) return; "
        "for (int k = 0; k < 8; ++k) v += (k + 1) * to_float(x[i + k]); set(y[i], v);",
        "x y w",
        "x y w",
    ),
    "pairs of halves": Case(
        f"{I} if (i < n / 2) {{ const T *p = &x[2 * i]; set(y[2 * i], to_float(p[0]) * to_float(p[1])); "
        "set(y[2 * i + 1], to_float(p[0]) + to_float(p[1])); }",
        "x y w",
        "x y w",
    ),
    "scattered": Case(f"{I} if (i < n) set(y[(i * 5) % n], to_float(x[i]) * to_float(x[i]));", "x w", "x w"),
    "unread": Case(f"{I} if (i < n / 2) set(y[i], to_float(x[i]) * 3);", "x y w", "x y w"),
}


def source(case: Case, element: str) -> str:
    return (
        f"{HEAD} typedef {element} T;\n__global__ void k(T *y, const T *x, const T *w, int n, int m) {{ {case.body} }}"
    )


def numbers(case: Case, dtype: np.dtype) -> list[np.ndarray]:
    """y, x, w and their adjoints."""
    rng = np.random.default_rng(1)
    return [rng.uniform(-1.5, 1.5, case.size).astype(dtype) for _ in range(6)]
