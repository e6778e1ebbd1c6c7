"""Kernels with maxima and minima of equal numbers, and what their derivatives are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgrad as kg
from derived import gradient_of, kernel_of, tangent_of

N = 64
Numbers = np.ndarray[Any, np.dtype[np.float64]]
Move = Callable[[Any], Any]

# By lanes of a warp, over steps o = 16, 8, 4, 2, 1.
MAXIMA = {
    "fmax": "m = fmax(m, __shfl_xor_sync(~0u, m, o));",
    "fmax, the other first": "m = fmax(__shfl_xor_sync(~0u, m, o), m);",
    "a choice": "double other = __shfl_xor_sync(~0u, m, o); m = other > m ? other : m;",
    "a branch": "double other = __shfl_xor_sync(~0u, m, o); if (other >= m) m = other;",
    "by lane": "double other = __shfl_sync(~0u, m, lane ^ o); m = max(other, m);",
    "of the negative": "m = -fmin(-m, __shfl_xor_sync(~0u, -m, o));",
    "of twice the numbers": "m = 0.5 * fmax(2 * m, 2 * __shfl_xor_sync(~0u, m, o));",
    "what it is more": "double other = __shfl_xor_sync(~0u, m, o); m = other + fmax(m - other, 0.0);",
    "under a condition": "double other = __shfl_xor_sync(~0u, m, o); if (o < n && !(other <= m)) m = other;",
    "by masks of several bits": "m = fmax(m, __shfl_xor_sync(~0u, m, 2 * o - 1));",
    "down": "m = fmax(m, __shfl_down_sync(~0u, m, o)); if (o == 1) m = __shfl_sync(~0u, m, 0);",
}


def softmax(maximum: str) -> kg.Kernel:
    return kernel_of(
        f"""__global__ void k(double *y, const double *x, int n) {{
            int lane = threadIdx.x;
            double m = -1e300, s = 0;
            for (int c = lane; c < n; c += 32) m = fmax(m, x[c]);
            for (int o = 16; o > 0; o >>= 1) {{ {maximum} }}
            for (int c = lane; c < n; c += 32) s += exp(x[c] - m);
            for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
            for (int c = lane; c < n; c += 32) y[c] = exp(x[c] - m) / s;
        }}"""
    )


BLOCK_MAXIMA = {  # of 64 threads: m is each one's own, red has those of two warps, sh all of them
    "from its own on": "for (int k = 0; k < 2; k++) m = fmax(m, red[k]);",
    "its own and what is common": "m = fmax(fmax(m, red[0]), red[1]);",
    "branches from its own on": "for (int k = 0; k < 64; k++) if (sh[k] > m) m = sh[k];",
    "in turn": "for (int k = 0; k < 32; ++k) m = fmax(m, __shfl_sync(~0u, top, k)); PUT(m) m = max(*red, red[1]);",
    "exchanged": "for (int o = 32; o; o /= 2) { double q = fmax(sh[t], sh[t ^ o]); SYNC sh[t] = q; SYNC } m = sh[t];",
    "exchanged in registers": "for (int o = 32; o; o /= 2) { top = sh[t ^ o]; SYNC sh[t] = m = fmax(m, top); SYNC }",
    "around": "for (int o = 32; o; o /= 2) { top = fmax(sh[t], sh[(t + o) % 64]); SYNC sh[t] = top; SYNC } m = sh[t];",
    "tree": "for (int o = 32; o; o /= 2) { if (t < o) sh[t] = fmax(sh[t], sh[t + o]); SYNC } m = sh[0];",
}


def block_softmax(name: str) -> kg.Kernel:
    warp = "for (int o = 16; o; o /= 2) m = fmax(m, __shfl_xor_sync(~0u, m, o));" * (name == "from its own on")
    text = f"""#define SYNC __syncthreads();
    #define PUT(m) SYNC if (t % 32 == 0) red[w] = m; SYNC
    __global__ void k(double *y, const double *x, int n) {{
        __shared__ double red[2], sh[64], sums[64];
        int t = threadIdx.x, w = t / 32;
        double m = x[t], s = 0, top = m;
        sh[t] = m;
        for (int o = 16; o; o /= 2) top = fmax(top, __shfl_xor_sync(~0u, top, o));
        PUT(top) {warp} {BLOCK_MAXIMA[name]}
        sums[t] = exp(x[t] - m);
        SYNC
        for (int k = 0; k < n; k++) s += sums[k];
        y[t] = exp(x[t] - m) / s;
    }}"""
    return kernel_of(text)


# Over v = x[1], x[2], ... from m = x[0] and d = 1: in the end, m + log(d) is the logarithm of the sum of exp(x).
ONLINE = {
    "branches": "if (v > m) { d = d * exp(m - v) + 1; m = v; } else d += exp(v - m);",
    "a maximum and a choice": "double top = fmax(v, m); d = v > m ? d * exp(m - v) + 1 : d + exp(v - m); m = top;",
    "a maximum and a branch": "double e = fmax(v, m); if (v <= m) d += exp(v - m); else d = d * exp(m - v) + 1; m = e;",
    "distances": "double top = fmax(v, m), e = exp(-fabs(m - v)); d = v > m ? d * e + 1 : d + e; m = top;",
    "one number": "m = fmax(m, v) + log1p(exp(-fabs(m - v)));",
    "one number, both": "double top = fmax(m, v), low = fmin(m, v); m = top + log1p(exp(low - top));",
    "one number, chosen": "m = (m > v ? m : v) + log1p(exp(m < v ? m - v : v - m));",
}
PAIRS = {  # of lanes
    "a struct": """bool is_first = m > other_m;
        double big = is_first ? m : other_m, low = is_first ? other_m : m;
        d = (is_first ? d : other_d) + (is_first ? other_d : d) * exp(low - big); m = big;""",
    "a maximum": "double top = fmax(m, other_m); d = d * exp(m - top) + other_d * exp(other_m - top); m = top;",
    "branches": """if (other_m > m) { d = d * exp(m - other_m) + other_d; m = other_m; }
        else d += other_d * exp(other_m - m);""",
    "one number": "m = fmax(m, other_m) + log1p(exp(-fabs(m - other_m)));",
    "one that looks for NaN": "d = 1; m = other_m > m || m != m ? other_m : m;",
}


def online_softmax(step: str) -> kg.Kernel:
    text = f"""__global__ void k(double *y, const double *x, int n) {{
        int t = threadIdx.x;
        double m = x[0], d = 1;
        for (int j = 1; j < n; j++) {{ double v = x[j]; {step} }}
        y[t] = exp(x[t] - m) / d;
    }}"""
    return kernel_of(text)


def online_softmax_of_pairs(step: str) -> kg.Kernel:
    """Each half of 64 threads has all 32 numbers twice."""
    text = f"""__global__ void k(double *y, const double *x, int n) {{
        int t = threadIdx.x;
        double m = fmax(x[t % 32], x[32 + t % 32]), d = exp(x[t % 32] - m) + exp(x[32 + t % 32] - m);
        {"m += log(d); d = 1;" if "log" in step else ""}
        for (int o = 16; o; o /= 2) {{
            double other_m = __shfl_xor_sync(~0u, m, o), other_d = __shfl_xor_sync(~0u, d, o);
            {step}
        }}
        {"d = 0; for (int j = 0; j < n; j++) d += exp(x[j] - m);" if "!=" in step else ""}
        y[t] = exp(x[t] - m) / d;
    }}"""
    return kernel_of(text)


FILL = "__shared__ double s[32]; s[t] = x[t]; __syncthreads();"
STEPS = "for (int k = 2; k <= 32; k *= 2) for (int j = k / 2; j; j /= 2)"
SORTS = {
    "lanes": f"""double v = x[t];
        {STEPS} {{ double q = __shfl_xor_sync(~0u, v, j); v = UP ? fmin(v, q) : fmax(v, q); }}
        y[t] = v;""",
    "lanes by comparisons": f"""double v = x[t];
        {STEPS} {{ double q = __shfl_xor_sync(~0u, v, j), low = MIN(v, q), high = MAX(v, q); v = UP ? low : high; }}
        y[t] = v;""",
    "pairs in shared memory": f"""{FILL} {STEPS} {{
        int p = t ^ j;
        if (p > t) {{
            double low = fmin(s[t], s[p]), high = fmax(s[t], s[p]);
            s[t] = UP ? low : high; s[p] = UP ? high : low;
        }}
        __syncthreads(); }} y[t] = s[t];""",
    "each its own in shared memory": f"""{FILL} {STEPS} {{
        double a = s[t], b = s[t ^ j]; __syncthreads();
        s[t] = UP ? fmin(a, b) : fmax(a, b); __syncthreads(); }} y[t] = s[t];""",
    "from below in shared memory": f"""{FILL} {STEPS} {{
        double a = s[t & ~j], b = s[t | j]; __syncthreads();
        s[t] = UP ? fmin(a, b) : fmax(a, b); __syncthreads(); }} y[t] = s[t];""",
    "an array": """double v[4];
        for (int k = 0; k < 4; k++) v[k] = x[t % 8 * 4 + k];
        for (int p = 0; p < 3; p++) for (int k = 0; k < 3; k++) {
            double low = fmin(v[k], v[k + 1]), high = fmax(v[k], v[k + 1]);
            v[k] = low; v[k + 1] = high;
        }
        if (t < 8) for (int k = 0; k < 4; k++) y[t * 4 + k] = v[k];""",
    "comparisons": """double a = x[2 * t % 32], b = x[2 * t % 32 + 1], low = MIN(a, b), high = MAX(a, b);
        if (t < 16) { y[2 * t] = low; y[2 * t + 1] = high; }""",
}


def sort(name: str) -> kg.Kernel:
    text = f"""#define MIN(a, b) ((a) < (b) ? (a) : (b))
    #define MAX(a, b) ((a) > (b) ? (a) : (b))
    #define UP (((t & k) == 0) == ((t & j) == 0))
    __global__ void k(double *y, const double *x) {{ int t = threadIdx.x; {SORTS[name]} }}"""
    return kernel_of(text)


def inputs(ties: str) -> Numbers:
    x = np.random.default_rng(3).standard_normal(N)
    return {"all": np.zeros(N), "two": np.where(np.isin(np.arange(N), (5, 38)), 3.0, x), "none": x}[ties]


def check_softmax(kernel: kg.Kernel, threads: int, x: Numbers, there: Move = np.array, back: Move = np.asarray) -> None:
    """Its gradient, which is that of a smooth function at ties as well."""
    seed, way = np.random.default_rng(4).standard_normal((2, N))
    p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    for options in ({}, {"primal": False}):
        y, d_y, d_x = map(there, (np.zeros(N), seed, np.zeros(N)))
        gradient_of(kernel, "y, x", **options)[1, threads](y, there(x), N, d_y, d_x)
        np.testing.assert_allclose(back(d_x), p * (seed - seed @ p), atol=1e-14)
    y, tangent = there(np.zeros(N)), there(np.zeros(N))
    tangent_of(kernel, "y, x")[1, threads](y, there(x), N, tangent, there(way))
    np.testing.assert_allclose(back(tangent), p * (way - way @ p), atol=1e-14)


def check_sort(kernel: kg.Kernel, there: Move = np.array, back: Move = np.asarray) -> None:
    """Each number is in the result once, however many equal ones there are."""
    rng = np.random.default_rng(7)
    x, way, zeros = rng.integers(0, 4, 32) / 1.0, rng.standard_normal(32), np.zeros(32)
    d_x, tangent = there(zeros), there(zeros)
    kg.gradient(kernel, "y, x")[1, 32](there(zeros), there(x), there(np.ones(32)), d_x)
    np.testing.assert_array_equal(back(d_x), 1)
    kg.jvp(kernel, "y, x")[1, 32](there(zeros), there(x), tangent, there(way))
    np.testing.assert_allclose(back(tangent).sum(), way.sum())
