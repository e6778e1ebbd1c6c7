"""Kernels whose threads read back what they stored: where they have it still, and where they may not."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg

LOOP = "for (int c = threadIdx.x; c < n; c += blockDim.x)"
SUM = """s[threadIdx.x] = sum; __syncthreads(); sum = 0;
    for (int k = 0; k < blockDim.x; ++k) sum += s[k];
    __syncthreads();"""
ROW = "const double *a = x + blockIdx.x * n; double *b = y + blockIdx.x * n;"
TAKEN = {
    "rows": f"""{ROW} double sum = 0; {LOOP} {{ double e = exp(a[c]);
        b[c] = e; sum += e; }} {SUM} {LOOP} b[c] *= 1 / sum;""",
    "flat": f"""double sum = 0; {LOOP} {{ y[blockIdx.x * n + c] = sin(x[blockIdx.x * n + c]); sum += a0; }} {SUM}
        {LOOP} {{ double v = y[blockIdx.x * n + c]; y[blockIdx.x * n + c] = v * v * sum; }}""",
    "rows in turn": f"""for (int row = blockIdx.x; row < 5; row += gridDim.x) {{
        const double *a = x + row * n; double *b = y + row * n, sum = 0;
        {LOOP} {{ double e = exp(a[c]); b[c] = e; sum += e; }} {SUM} {LOOP} b[c] = b[c] / sum + sum;
    }}""",
    "one element each": f"""int i = blockIdx.x * blockDim.x + threadIdx.x; double sum = 0;
        if (threadIdx.x < n) {{ y[i] = x[i] * x[i]; sum = x[i]; }} {SUM} if (threadIdx.x < n) y[i] *= sum;""",
    "three loops": f"""{ROW} double sum = 0; {LOOP} {{ double e = exp(a[c]); b[c] = e; sum += e; }} {SUM}
        double more = 0; {LOOP} more += b[c] * sum; {LOOP} b[c] *= more;""",
}
TAKEN["loops of constant length"] = f"""{ROW} double sum = 0; int t = 2 * threadIdx.x;
    for (int q = 0; q < 2; ++q) {{ b[t + q] = sin(a[t + q]); sum += a[t + q]; }} {SUM}
    for (int q = 0; q < 2; ++q) b[t + q] *= sum;"""
NOT_TAKEN = {
    "another end": f"""{ROW} {LOOP} b[c] = exp(a[c]); __syncthreads(); for (int c
        = threadIdx.x; c < n - 1; c += blockDim.x) b[c + 1] *= a0;""",
    "another start": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads(); for (int
        c = threadIdx.x + 1; c < n; c += blockDim.x) b[c] *= a0;""",
    "another step": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads(); for (int
        c = threadIdx.x; c < n; c += 2 * blockDim.x) b[c] *= a0;""",
    "a neighbour": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads(); double v = 0; {LOOP}
        v += b[n - 1 - c]; z[blockIdx.x * blockDim.x + threadIdx.x] = v;""",
    "what a loop carries": f"{ROW} double v = 0; {LOOP} {{ v += a[c]; b[c] = v; }} {LOOP} b[c] *= b[c];",
    "under a condition": f"{ROW} {LOOP} if (a[c] > 0) b[c] = a[c] * a[c]; {LOOP} b[c] *= a0;",
    "stored in between": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads(); {LOOP}
        b[n - 1 - c] = a0; __syncthreads(); {LOOP} b[c] *= b[c];""",
    "stored twice": f"{ROW} {LOOP} {{ b[c] = a[c] * a[c]; if (c % 2) b[c] = 1; }} {LOOP} b[c] *= b[c];",
    "an input that is added to": f"{ROW} {LOOP} b[c] += a[c] * a[c]; {LOOP} b[c] *= b[c];",
    "atomic": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; {LOOP} atomicAdd(&b[c],
        a0); {LOOP} z[blockIdx.x * n + c] = b[c] * a0;""",
    "one cell of a loop": f"""{ROW} {LOOP} b[threadIdx.x] = a[c] * a[c]; {LOOP}
        z[blockIdx.x * n + c] = b[threadIdx.x] * a0;""",
    "what decides": f"{ROW} {LOOP} b[c] = a[c] * a[c] + 1; {LOOP} b[c] = b[c] > 1.25 ? b[c] * a0 : a0;",
}
NOT_TAKEN["a return in between"] = f"{ROW} {LOOP} b[c] = a[c] * a[c]; if (a[0] < 0.6) return; {LOOP} b[c] = sin(b[c]);"
NOT_TAKEN["rows that overlap"] = f"""{ROW} if (threadIdx.x == 0) {{
    for (int q = 0; q < 2; ++q) for (int c = 0; c < 4; ++c) b[2 * q + c] = a[4 * q + c] * a0;
    for (int q = 0; q < 2; ++q) for (int c = 0; c < 4; ++c) z[blockIdx.x * n + 4 * q + c] = b[2 * q + c] * a0; }}"""
NOT_TAKEN["an index that comes round"] = f"""{ROW} unsigned char u = threadIdx.x;
    for (int q = 0; q < 6; ++q, u += 128) b[u % 8] = a[q] * a[threadIdx.x]; u = threadIdx.x;
    for (int q = 0; q < 6; ++q, u += 128) z[blockIdx.x * n + threadIdx.x] += b[u % 8];"""
NOT_TAKEN["another's store in between"] = f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads();
    if (threadIdx.x == 1) for (int c = 0; c < n; c += 3) b[c] = a[n - 1 - c]; __syncthreads(); {LOOP} b[c] *= b[c];"""
FORMS: dict[str, dict[str, Any]] = {
    "joint": {},
    "reverse": {"primal": False, "keep": "y", "assign": "x"},
    "deterministic": {"deterministic": True},
    "checkpointed": {"tape_budget": 4096},
}


def kernel_of(body: str) -> Any:
    text = f"""__global__ void k(double *y, const double *x, double *z, double a0, int n) {{
        __shared__ double s[8]; s[threadIdx.x] = 0; __syncthreads(); {body} }}"""
    return kg.compile(text)["k"]


def arguments_of() -> list[Any]:
    rng = np.random.default_rng(6)
    return [np.zeros(45), rng.random(45) + 0.1, np.zeros(45), 0.75, 8]
