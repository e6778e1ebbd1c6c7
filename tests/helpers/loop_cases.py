"""Kernels with loops: over memory with functions in them, over places that stay, and as often as arguments tell."""

from __future__ import annotations

BATCHED_HEAD = "__global__ void k(float *y, const float *x, const float *w, const int *f, int n, int c)"
STRIDES = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
ELEMENT = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)"
VALUE = "tanhf(x[i] + w[i % c])"
BATCHED = {
    "strides of the grid": f"{STRIDES} y[i] = {VALUE};",
    "behind a guard": f"{STRIDES} if (i % 3) y[i] = {VALUE};",
    "on both sides": f"{STRIDES} if (i % 2) y[i] = {VALUE}; else y[i] = expf(x[i]) * w[i % c];",
    "what the data leaves out": f"{STRIDES} if (f[i] > 0) y[i] = {VALUE}; else y[i] = x[i] * 2;",
    "downwards": "int m = gridDim.x * blockDim.x; int first = blockIdx.x * blockDim.x + threadIdx.x;"
    " for (int i = n - 1 - first; i >= 0; i -= m) y[i] = tanhf(x[i]);",
    "a column": "int m = gridDim.x * blockDim.x, t = blockIdx.x * blockDim.x + threadIdx.x; float s = 0;"
    " for (int k = 0; k < n / m; ++k) s = fmaf(s, 0.5f, expf(x[k * m + t]) * w[t % c]); y[t] = s;",
}

SLOW_HEAD = "__global__ void k(double *y, const double *x, const double *w, const double *v, int n, int each, int c)"
LOOP = "for (int i = threadIdx.x; i < n; i += blockDim.x)"
SLOW = {
    "channels of a block's row": f"{LOOP} {{ int q = blockIdx.x * n + i; y[q] = x[q] * w[i / each] + v[i / each]; }}",
    "channels of a group": f"{LOOP} {{ int q = blockIdx.x * n + i; y[q] = x[q] * w[blockIdx.x * (n / each) + i / each];"
    " }",
    "channels that come round": f"{LOOP} {{ int q = blockIdx.x * n + i; y[q] = x[q] * sin(w[q / each % c]); }}",
    "behind a sum": f"double s = 0; {LOOP} s += x[blockIdx.x * n + i]; {LOOP} {{ int q = blockIdx.x * n + i;"
    " y[q] = s * x[q] * w[i / each]; }",
}

SHORT_HEAD = "__global__ void k(double *y, const double *x, const double *w, int n, int r, int c, int s)"
START = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; double a = 0;"
SHORT = {
    "taps": f"{START} for (int j = 0; j < r; ++j) a += w[j] * x[i + j]; y[i] = a * a;",
    "a radius": f"{START} for (int j = -r; j <= r; ++j) if (i + j >= 0 && i + j < n) a += w[j + r] * x[i + j];"
    " y[i] = a;",
    "a window": f"{START} int q = i % 8, p = i / 8; for (int u = 0; u < r; ++u) for (int v = 0; v < c; ++v)"
    " a += w[u * c + v] * x[(p * s + u) * 16 + q * s + v]; y[i] = a;",
    "a matrix": f"{START} for (int u = 0; u < r; ++u) {{ double b = 0; for (int v = 0; v < c; ++v)"
    " b += w[u * c + v] * x[i * c + v]; a += tanh(b); } y[i] = a;",
    "state": f"{START} a = x[i]; for (int u = 0; u < r; ++u) a = a * w[u] + sin(a); y[i] = a;",
}
