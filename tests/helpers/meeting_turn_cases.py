"""Loops whose turns a block takes as a whole, with sums of its threads in each; and neighbours of which turns need each
other: launches of three blocks."""

from __future__ import annotations

from typing import Any

import kernelgrad as kg

FUNCTIONS = """
__device__ T lanes(T v) { for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o); return v; }
__device__ T block_sum(T v) {
    __shared__ T part[32];
    v = lanes(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : 0;
    v = lanes(v);
    __syncthreads();
    return v;
}
"""
ROWS = "for (int r = blockIdx.x; r < rows; r += gridDim.x)"
COLUMNS = "for (int i = t; i < n; i += blockDim.x)"
TREE = "for (int k = 32; k; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }"
SCALE = f"{COLUMNS} y[r * n + i] = x[r * n + i] * q * g[i];"

# The body of `k(T *y, const T *x, const T *g, int rows, int n)`: blocks of 64 threads, of which each row has a value.
SPREAD = {
    "two sums": f"{ROWS} {{ T a = 0; {COLUMNS} a += x[r * n + i]; T m = block_sum(a) / n; T b = 0;"
    f" {COLUMNS} b += (x[r * n + i] - m) * x[r * n + i]; T q = 1 / (1 + block_sum(b * b)); {SCALE} }}",
    "a tree": f"__shared__ T s[64]; {ROWS} {{ T a = 0; {COLUMNS} a += x[r * n + i] * x[r * n + i]; s[t] = a;"
    f" __syncthreads(); {TREE} T q = 1 / (1 + s[0]); __syncthreads(); {SCALE} }}",
    "two trees": f"__shared__ T s[64], u; {ROWS} {{ T a = 0; {COLUMNS} a += x[r * n + i]; s[t] = a; __syncthreads();"
    f" {TREE} if (t == 0) u = s[0] / n; __syncthreads(); s[t] = 0; {COLUMNS} s[t] += sin(x[r * n + i] - u);"
    f" __syncthreads(); {TREE} T q = s[0] * u; __syncthreads(); {SCALE} }}",
    "guarded rows": "__shared__ T s[64]; int turns = (rows + gridDim.x - 1) / gridDim.x;"
    " for (int k = 0; k < turns; ++k) { int r = k * gridDim.x + blockIdx.x; if (r < rows) {"
    f" s[t] = t < n ? x[r * n + t] : 0; __syncthreads(); {TREE} T q = s[0] * s[0]; __syncthreads(); {SCALE} }} }}",
    "a while loop": f"__shared__ T s[64]; int r = blockIdx.x; while (r < rows) {{ s[t] = t < n ? exp(x[r * n + t]) : 0;"
    f" __syncthreads(); {TREE} T q = 1 / s[0]; __syncthreads(); {SCALE} r += 3; }}",
    "a row kept": f"__shared__ T s[64], row[200]; {ROWS} {{ T a = 0; {COLUMNS} {{ row[i] = exp(x[r * n + i]);"
    " a += row[i]; }"
    f" s[t] = a; __syncthreads(); {TREE} T q = 1 / s[0]; {COLUMNS} y[r * n + i] = row[n - 1 - i] * q * g[i];"
    " __syncthreads(); }",
}  # fmt: skip
STAYING = {
    "filled in the first turn": f"__shared__ T s[64]; {ROWS} {{ if (r == blockIdx.x) s[t] = x[r * n + t % n];"
    f" __syncthreads(); {TREE} T q = s[0]; __syncthreads(); {SCALE} }}",
    "filled in the last turn": f"__shared__ T s[64]; s[t] = 1; __syncthreads(); {ROWS} {{ T q = s[63 - t]; {SCALE}"
    f" __syncthreads(); s[t] = x[r * n + t % n]; __syncthreads(); {TREE} s[t] = s[0]; __syncthreads(); }}",
    "filled in part": f"__shared__ T s[64]; s[t] = 1; __syncthreads(); {ROWS} {{ if (t < n / 2) s[t] = x[r * n + t];"
    f" __syncthreads(); {TREE} T q = s[0]; __syncthreads(); s[t] = x[r * n + t % n] * q; __syncthreads(); {SCALE} }}",
    "filled by its values": f"__shared__ T s[64]; s[t] = 1; __syncthreads(); {ROWS} {{ if (x[r * n + t % n] > 0)"
    f" s[t] = x[r * n + t % n]; __syncthreads(); {TREE} T q = s[0]; __syncthreads(); {SCALE} }}",
    "filled by threads that leave a loop": f"__shared__ T s[64]; s[t] = 1; __syncthreads(); {ROWS} {{"
    " for (int i = t; i != 0 && i != 3; --i) s[t] = x[r * n + t % n] * i;"
    f" __syncthreads(); {TREE} T q = s[0]; __syncthreads(); {SCALE} }}",
    "reads of the next row": f"__shared__ T s[64]; {ROWS} {{ T v = 1;"
    " if (r * n + t < rows * n) v = y[r * n + t] + x[r * n + t];"
    f" s[t] = v * v; __syncthreads(); {TREE} T q = 1 / (1 + s[0]); __syncthreads();"
    f" if (t < n) y[r * n + t] = v * q * g[t % n]; __syncthreads(); }}",
    "carried along": f"__shared__ T s[64]; T q = 1; {ROWS} {{ s[t] = t < n ? x[r * n + t] : 0; __syncthreads(); {TREE}"
    f" q = q * 0.5 + s[0]; __syncthreads(); {SCALE} }}",
    "rows of one place": f"__shared__ T s[64]; {ROWS} {{ s[t] = t < n ? x[r * n + t] : 0; __syncthreads(); {TREE}"
    f" T q = s[0]; __syncthreads(); {COLUMNS} y[blockIdx.x * n + i] = x[r * n + i] * q; }}",
    "what the last turn left": f"__shared__ T s[64]; {ROWS} {{ s[t] = r >= 3 && t < n ? y[(r - 3) * n + t] : 1;"
    f" __syncthreads(); {TREE} T q = s[0]; __syncthreads(); {SCALE} __syncthreads(); }}",
    "a break": f"__shared__ T s[64]; {ROWS} {{ s[t] = t < n ? x[r * n + t] : 0; __syncthreads(); {TREE} T q = s[0];"
    f" __syncthreads(); if (q > 40) break; {SCALE} }}",
}  # fmt: skip
BLOCKS, BLOCK = 3, 64
SHAPES = ((7, 90), (8, 64), (3, 65), (1, 100), (2, 20), (10, 1))


def compiled(body: str, element: str = "double") -> Any:
    text = f"typedef {element} T; {FUNCTIONS} __global__ void k(T *y, const T *x, const T *g, int rows, int n) {{"
    return kg.compile(f"{text} int t = threadIdx.x; {body} }}")["k"]
