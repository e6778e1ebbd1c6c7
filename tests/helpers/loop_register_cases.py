"""Kernels that go on storing an element in a loop: where a register can carry it, and where it may not."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg

LOOP = "for (int k = 0; k < m; ++k)"
AT, X = "int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;", "x[k * n + i]"
TAKEN = {
    "cleared": f"y[i] = 0; {LOOP} y[i] += {X} * w[k];",
    "scaled": f"y[i] *= w[0]; {LOOP} y[i] += {X} * w[k];",
    "a product": f"y[i] = x[i]; {LOOP} y[i] *= sin({X}) + w[k];",
    "a recurrence": f"y[i] = x[i]; {LOOP} y[i] = sin(y[i] * w[k]) + {X};",
    "squared in place": f"{LOOP} {{ double v = y[i]; y[i] = v * v; z[i] += v * v * v * w[k]; }}",
    "added to": f"{LOOP} y[i] += {X} * w[k];",
    "added to through a pointer": f"double *p = y + i; {LOOP} *p += {X} * w[k];",
    "in loops": f"y[i] = 0; {LOOP} for (int j = 0; j < m; ++j) y[i] += {X} * w[j];",
    "in loops that have iterations": f"for (int j = 0; j < 2; ++j) for (int k = 0; k < 3; ++k) y[i] += {X} * w[j];",
    "in two loops": f"y[i] = 0; {LOOP} y[i] += {X}; {LOOP} y[i] *= w[k]; z[i] = y[i] * y[i];",
    "backwards": f"for (int k = m - 1; k >= 0; --k) y[i] = y[i] * w[k] + {X};",
    "while": f"y[i] = 0; int k = 0; while (k < m && y[i] < 0.7) {{ y[i] += {X} * w[k]; k += 1 + (y[i] > 5); }}",
    "do": f"int k = 0; do y[i] += {X} * w[k]; while (++k < m && y[i] < 1.1);",
    "left": f"y[i] = w[0]; {LOOP} {{ y[i] += {X}; if (y[i] > 1.0) break; y[i] *= w[k]; }}",
    "returned from": f"y[i] = w[0]; {LOOP} {{ y[i] += {X}; if (y[i] > 1.0) return; y[i] *= w[k]; }} z[i] = y[i];",
    "returned from before a barrier": f"""y[i] = 0; {LOOP} {{ y[i] += {X} * w[k]; if (y[i] > 1e3) return; }}
        __syncthreads(); z[i] = y[i];""",
    "sometimes": f"y[i] = 0; {LOOP} if ({X} > 0.5) y[i] += {X} * w[k];",
    "in one of two ways": f"y[i] = 0; {LOOP} if ({X} > 0.5) y[i] += {X} * w[k]; else y[i] -= w[k];",
    "begun in two ways": f"if (x[i] > 0.5) y[i] = 1; else y[i] = w[0]; {LOOP} y[i] += {X} * w[k];",
    "several": f"y[i] = z[i] = 0; {LOOP} {{ y[i] += {X}; z[i] += y[i] * w[k]; }}",
    "neighbours": f"y[2 * i] = y[2 * i + 1] = 1; {LOOP} {{ y[2 * i] += y[2 * i + 1] * w[k]; y[2 * i + 1] += {X}; }}",
    "read later": f"y[i] = 0; {LOOP} y[i] += {X} * w[k]; z[i] = y[i] * y[i]; y[i] *= 2;",
    "the last": f"{LOOP} y[i] = {X} * w[k];",
    "stored and read": f"{LOOP} {{ y[i] = {X} * w[k]; z[k * n + i] = y[i] * y[i]; }}",
    "an index of the loop": f"{LOOP} y[n * (m - m) + blockIdx.x * blockDim.x + threadIdx.x] += {X} * w[k];",
    "shared": f"s[t] = 0; {LOOP} s[t] += {X} * w[k]; __syncthreads(); y[i] = s[3 - t] * s[t];",
    "between barriers": f"""double v = 0; for (int r = 0; r < 2; ++r) {{
        s[t] = r; {LOOP} s[t] += {X} * w[k]; __syncthreads(); v += s[(t + 1) % 4]; __syncthreads(); }} y[i] = v;""",
    "beside an atomic": f"y[i] = 0; {LOOP} {{ y[i] += {X} * w[k]; atomicAdd(&z[0], {X}); }}",
    "beside a print": f'y[i] = 0; {LOOP} {{ y[i] += {X} * w[k]; if (y[i] > 1e9) printf("%g", y[i]); }}',
}
NOT_TAKEN = {
    "an element each": f"{LOOP} y[k * n + i] += {X} * w[k];",
    "a barrier": f"y[i] = 0; {LOOP} {{ y[i] += {X} * w[k]; __syncthreads(); }}",
    "a shuffle": f"y[i] = 0; {LOOP} y[i] += __shfl_down_sync(15u, {X}, 1) * w[k];",
    "a fence": f"y[i] = 0; {LOOP} {{ y[i] += {X} * w[k]; __threadfence_block(); }}",
    "other elements": f"if (i == 0) {{ y[0] = 1; {LOOP} {{ y[0] += {X} * w[k]; y[k] *= 0.5; }} }}",
    "read elsewhere": f"if (i == 0) {{ y[0] = 1; {LOOP} y[0] += y[k] * w[k]; }}",
    "only sometimes": f"{LOOP} if ({X} > 0.5) y[i] += {X} * w[k];",
    "while there is one": f"int k = 0; while (k < m && {X} < 0.95) {{ y[i] += {X} * w[k]; k += 1 + (w[k] > 5); }}",
    "volatile": f"volatile double *p = y; p[i] = 0; {LOOP} p[i] += {X} * w[k];",
    "atomics": f"y[i] = 0; {LOOP} {{ atomicAdd(&y[i], {X} * w[k]); y[i] += w[k]; }}",
    "what an atomic gave": f"y[i] = 0; {LOOP} if (atomicAdd(&c[i], 1) < 9) y[i] += {X} * w[k];",
    "what an atomic gave before": f"y[i] = 0; if (atomicAdd(&c[i], 1) < 9) {LOOP} if (w[k] > 0) y[i] += {X};",
    "a pointer that may be any": f"double *p = c[i] ? z : y; y[i] = 1; {LOOP} {{ y[i] += {X}; p[i + n] = y[i]; }}",
    "a chosen pointer": f"double *p = c[i] ? z : y; {LOOP} {{ p[i] += {X} * w[k]; }}",
    "bits": f"y[i] = 1; {LOOP} {{ y[i] += {X}; z[k * n + i] = ((int *)y)[2 * i]; }}",
    "what may be the same": f"y[i] = y[i + n] = 1; {LOOP} {{ y[i] += y[i + n] * w[k]; y[i + n] += {X}; }}",
    "stored before a barrier": f"""s[3 - t] = 0; __syncthreads(); {LOOP} if ({X} > 0.5) s[3 - t] += {X};
        __syncthreads(); y[i] = s[t];""",
    "asserted": f"y[i] = 0; {LOOP} {{ y[i] += {X} * w[k]; assert(y[i] < 100); }}",
}


def kernel_of(body: str) -> Any:
    params = "double *y, const double *x, double *z, const double *w, int *c, int n, int m"
    shared = "__shared__ double s[4];" if "s[" in body else ""
    heads = "#include <cassert>\n#include <cstdio>\n"
    return kg.compile(f"{heads}__global__ void k({params}) {{ {shared} {AT} {body} }}")["k"]


def arguments_of(m: int = 3) -> list[Any]:
    """Eight threads, and elements for each of them in each iteration."""
    rng = np.random.default_rng(6)
    y, x, z, w = (rng.random(size) for size in (24, 24, 24, 3))
    return [y, x, z, w, np.zeros(16, "i4"), 8, m]
