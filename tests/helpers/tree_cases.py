"""Kernels that combine a block's or a warp's numbers in trees: `k(double *y, const double *x, int n)`, in which nobody
writes the same element twice."""

from __future__ import annotations

from typing import Any

import numpy as np

HEAD = "__global__ void k(double *y, const double *x, int n) { int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
FILL = "__shared__ double s[256]; s[t] = i < n ? x[i] * x[i] : 0.0; __syncthreads();"
TREE = "for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }"
UPWARDS = "for (int d = 1; d < blockDim.x; d *= 2) { if (t % (2 * d) == 0) s[t] += s[t + d]; __syncthreads(); }"

# Nothing of the shadow is left: every thread loads or sums up what it would be told.
PASSED_ON = {
    "one thread stores": f"{HEAD} {FILL} {TREE} if (t == 0) y[blockIdx.x] = s[0]; }}",
    "from neighbours up": f"{HEAD} {FILL} {UPWARDS} if (t == 0) y[blockIdx.x] = s[0]; }}",
    "all threads read": f"{HEAD} {FILL} {TREE} double total = s[0]; if (i < n) y[i] = x[i] * total; }}",
    "read twice": f"""{HEAD} {FILL} {TREE} double total = s[0]; __syncthreads();
        if (i < n) y[i] = x[i] * total + s[0]; }}""",
    "another thread stores": f"{HEAD} {FILL} {TREE} if (t == 7) y[blockIdx.x] = 3.0 * s[0]; }}",
    "two trees": f"""{HEAD} {FILL} {TREE} double total = s[0]; __syncthreads();
        s[t] = i < n ? x[i] * total : 0.0; __syncthreads(); {TREE}
        if (i < n) y[i] = x[i] * total + s[0]; }}""",
}
ADDED = {"one thread stores": 0, "from neighbours up": 0, "another thread stores": 0, "two trees": 2, "read twice": 2}
# Something of it stays: cells differ, or somebody looks at them in between.
KEPT = {
    "other cells": f"{HEAD} {FILL} {TREE} if (t < 2) y[blockIdx.x * 2 + t] = s[t]; }}",
    "a product": f"{HEAD} {FILL} {TREE.replace('+=', '*=')} if (i < n) y[i] = s[0]; }}",
    "in between": f"""{HEAD} {FILL} double seen = 0.0;
        for (int d = blockDim.x / 2; d > 0; d >>= 1) {{
            if (t < d) s[t] += s[t + d];
            __syncthreads();
            if (d == 4) seen = s[2];
            __syncthreads();
        }}
        if (i < n) y[i] = seen * s[0]; }}""",
    "half of a block": f"{HEAD} {FILL} {TREE.replace('/ 2', '/ 4')} if (t == 0) y[blockIdx.x] = s[0]; }}",
    "from the tenth": f"""{HEAD} {FILL}
        for (int d = 8; d > 0; d >>= 1) {{ if (t < d) s[10 + t] += s[10 + t + d]; __syncthreads(); }}
        if (i < n) y[i] = s[10] * s[t]; }}""",
    "somewhere": f"{HEAD} {FILL} {TREE} if (i < n) y[i] = s[n % 3] * x[i]; }}",
    "scan": f"""{HEAD} {FILL}
        for (int d = 1; d < blockDim.x; d *= 2) {{
            double v = t >= d ? s[t - d] : 0.0;
            __syncthreads();
            s[t] += v;
            __syncthreads();
        }}
        if (i < n) y[i] = s[t]; }}""",
}
SOURCES = PASSED_ON | KEPT

# One thread gets it all.
MAXIMA = {
    "maximum": f"{HEAD} {FILL} {TREE.replace('s[t] += s[t + d]', 's[t] = fmax(s[t], s[t + d])')} END",
    "minimum": f"{HEAD} {FILL} {TREE.replace('s[t] += s[t + d]', 's[t] = fmin(s[t], s[t + d])')} END",
    "upwards": f"{HEAD} {FILL} {UPWARDS.replace('s[t] += s[t + d]', 's[t] = fmax(s[t], s[t + d])')} END",
}
MAXIMA = {name: text.replace("END", "if (i < n) y[i] = s[0] * (t + 1); }") for name, text in MAXIMA.items()}

DOWN = "for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);"
LANES = {
    "a warp": f"{HEAD} double v = i < n ? x[i] * x[i] : 0.0; {DOWN} if (t % 32 == 0) y[i] = v; }}",
    "warps of a block": f"""{HEAD} __shared__ double s[32]; double v = i < n ? x[i] * x[i] : 0.0; {DOWN}
        if (t % 32 == 0) s[t / 32] = v;
        __syncthreads();
        if (t < 32) {{
            v = t < blockDim.x / 32 ? s[t] : 0.0;
            {DOWN}
            if (t == 0) y[blockIdx.x] = v;
        }} }}""",
    "for all lanes": f"{HEAD} double v = x[i] * x[i]; {DOWN.replace('down', 'xor')} y[i] = v * x[i]; }}",
    "half a warp": f"{HEAD} double v = x[i] * x[i]; {DOWN.replace(', d)', ', d, 16)')} if (t % 16 == 0) y[i] = v; }}",
    "the last lane": f"{HEAD} double v = x[i] * x[i]; {DOWN} if (t % 32 == 31) y[i] = v; }}",
    "each lane": f"{HEAD} double v = x[i] * x[i]; {DOWN} y[i] = v * x[i]; }}",
}
SHUFFLES = {"a warp": 1, "warps of a block": 0}  # in a reverse alone


def arguments(block: int) -> tuple[Any, Any, int]:
    x = np.random.default_rng(3).uniform(0.5, 1.5, 3 * block)
    return np.zeros(3 * block), x, 3 * block - 5
