"""Shared and local memory that a kernel cuts into parts of different types: derivatives, checks, and emitted text."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced

N = 8
_HEAD = "__global__ void k(float *y, const float *x, int n) { int t = threadIdx.x; "
KERNELS = {
    "bytes": "extern __shared__ char raw[]; float *f = (float *)raw; int *ix = (int *)(f + n);"
    "f[t] = x[t] * x[t]; ix[t] = n - 1 - t; __syncthreads(); y[t] = f[t] * f[ix[t]]; }",
    "offsets in bytes": "extern __shared__ unsigned char raw[]; float *f = (float *)raw;"
    "double *d = (double *)(raw + (n * sizeof(float) + 7) / 8 * 8);"
    "f[t] = x[t] * x[t]; d[t] = x[t]; __syncthreads(); y[t] = f[(t + 1) % n] * (float)(d[n - 1 - t] * d[t]); }",
    "three types": "extern __shared__ __align__(16) unsigned char raw[]; double *d = (double *)raw;"
    "float *f = (float *)(d + n); int *ix = (int *)(f + n); d[t] = x[t] * 1.5; f[t] = x[t] * x[t]; ix[t] = n - 1 - t;"
    "__syncthreads(); y[t] = (float)d[ix[t]] * f[t] + f[ix[t]]; }",
    "declared double": "extern __shared__ double raw[]; float *f = (float *)(raw + n); int *ix = (int *)(f + n);"
    "raw[t] = x[t]; f[t] = x[t] * x[t]; ix[t] = n - 1 - t; __syncthreads(); y[t] = f[t] * (float)raw[ix[t]]; }",
    "of static size": "__shared__ char raw[256]; float *f = (float *)raw; int *ix = (int *)(raw + 128);"
    "f[t] = x[t] * x[t]; ix[t] = n - 1 - t; __syncthreads(); y[t] = f[t] * f[ix[t]]; }",
    "local": "char raw[64]; float *f = (float *)raw; int *ix = (int *)(raw + 32);"
    "for (int j = 0; j < n; j++) { f[j] = x[j] * x[t]; ix[j] = (j + t) % n; }"
    "float s = 0; for (int j = 0; j < n; j++) s += f[ix[j]] * f[j]; y[t] = s; }",
    "records": "extern __shared__ char raw[]; P *p = (P *)raw; float *f = (float *)(p + n); P q; q.a = x[t];"
    "q.i = n - 1 - t; q.b = x[t] * 2; p[t] = q; f[t] = x[t]; __syncthreads();"
    "P r = p[p[t].i]; y[t] = r.a * (float)r.b * f[t]; }",
    "atomics": "extern __shared__ char raw[]; float *f = (float *)raw; int *c = (int *)(f + n); f[t] = 0;"
    "if (t == 0) c[0] = 0; __syncthreads(); atomicAdd(&c[0], 1); atomicAdd(&f[t / 2], x[t] * x[t]); __syncthreads();"
    "y[t] = f[t / 2] * x[t] * c[0]; }",
    "swapped": "extern __shared__ char raw[]; float *a = (float *)raw, *b = a + n; int *ix = (int *)(b + n);"
    "a[t] = x[t]; ix[t] = (t + 1) % n; __syncthreads();"
    "for (int j = 0; j < 3; j++) { b[t] = a[t] * a[ix[t]]; __syncthreads(); float *c = a; a = b; b = c; }"
    "y[t] = a[t]; }",
    "null": "extern __shared__ char raw[]; float *f = (float *)raw; int *ix = (int *)(f + n); f[t] = x[t] * x[t];"
    "ix[t] = (t + 1) % n; __syncthreads(); float *p = 0; for (int j = 0; j < n; j++) if (ix[j] == t) p = f + j;"
    "y[t] = p ? *p * x[t] : 0; }",
    "flags": "extern __shared__ char raw[]; float *f = (float *)raw; bool *b = (bool *)(f + n); f[t] = x[t] * x[t];"
    "b[t] = t % 2; __syncthreads(); if (t == 3) return; y[t] = b[(t + 1) % n] ? f[t] * f[n - 1 - t] : f[t]; }",
    "helper": "float *f = SharedMemory<float>(); f[t] = x[t] * x[t]; __syncthreads(); y[t] = f[(t + 1) % n] * f[t]; }",
}
_DECLARED = """
struct P { float a; int i; double b; };
template <class T> struct SharedMemory {
    __device__ inline operator T *() { extern __shared__ int memory[]; return (T *)memory; }
};
"""


def _arguments() -> tuple[np.ndarray, np.ndarray, int]:
    return np.zeros(N, np.float32), np.linspace(0.5, 1.7, N).astype(np.float32), N


@pytest.mark.parametrize("name", KERNELS)
def test_parts_of_different_types(name: str) -> None:
    """In double precision all three agree, and the gradient of the kernel itself is that of its double."""
    kernel = kg.compile(_DECLARED + _HEAD + KERNELS[name])["k"]
    y, x, n = _arguments()
    report = kg.check_gradient(kernel, "y, x", 1, N, (y, x, n), shared=512)
    assert report.ok and report.error < 1e-12 and report.elements == 2 * N
    forward, reverse = np.zeros(N, np.float32), np.zeros(N, np.float32)
    direction, seed = np.cos(np.arange(N)).astype(np.float32), np.sin(np.arange(N) + 1).astype(np.float32)
    kg.jvp(kernel, "y, x")[1, N, 512](y, x, n, forward, direction)
    kg.gradient(kernel, "y, x", keep="y")[1, N, 512](y, x, n, seed, reverse)
    assert np.isclose(seed @ forward, reverse @ direction, rtol=1e-5) and np.abs(reverse).max() > 0.1


@pytest.mark.parametrize("name", ["three types", "of static size", "records", "swapped", "flags"])
def test_emitted_text_compiles(name: str) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    kernel = kg.compile(_DECLARED + _HEAD + KERNELS[name])["k"]
    assert compile_only(kg.gradient(kernel, "y, x").source, "sm_90")
    assert compile_only(kg.jvp(kernel, "y, x").source, "sm_90")


@pytest.mark.parametrize(
    "body",
    [
        "extern __shared__ float f[]; int *u = (int *)f; f[t] = x[t]; __syncthreads(); y[t] = f[t] * (u[t] > 0); }",
        "extern __shared__ char raw[]; float *f = (float *)raw; int *ix = (int *)raw; ix[t] = (t + 1) % n;"
        "__syncthreads(); int m = ix[t]; __syncthreads(); f[t] = x[t]; __syncthreads(); y[t] = f[m]; }",
        "extern __shared__ char raw[]; float *f = (float *)raw; f[t] = x[t]; __syncthreads();"
        "y[t] = f[t] * (raw[4 * t + 3] > 0); }",
    ],
)
def test_two_types_in_one_place_are_refused(body: str) -> None:
    kernel = kg.compile(_HEAD + body)["k"]
    with pytest.raises(kg.UnsupportedError, match="something else in the same place"):
        kg.check_gradient(kernel, "y, x", 1, N, _arguments(), shared=512)


def test_a_pointer_to_either_of_two_places_is_not_apart_from_one_of_them() -> None:
    body = (
        "extern __shared__ char raw[]; float *a = (float *)raw, *b = (float *)(raw + 64); int *u = (int *)(raw + 64);"
        "a[t] = x[t]; __syncthreads(); float *p = n > 4 ? a : b; u[t] = t; __syncthreads(); y[t] = p[t] * p[t]; }"
    )
    with pytest.raises(kg.UnsupportedError, match="something else in the same place"):
        kg.gradient(kg.compile(_HEAD + body)["k"], "y, x")


OVERLAPPING = """
__global__ void k(double *y, const double *x, const double *z, const int *f, int d) {{
  extern __shared__ __align__(16) char raw[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  double *u = (double *)(raw + {start}); {type} *h = ({type} *)raw;
  u[t] = x[t]; __syncthreads(); {store} __syncthreads();
  y[i] = u[t] * z[i] + h[7 - t];
}}"""


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(
    ("start", "type", "d", "fits"),
    [
        ("8", "int", 2, False),
        ("8", "float", 2, False),
        ("32", "int", 2, True),
        ("8 * d", "int", 3, False),
        ("8 * d", "int", 4, True),
        ("4 * blockDim.x", "int", 2, True),
        ("4 * blockDim.x - 8", "float", 2, False),
    ],
)
def test_views_that_reach_into_each_other_in_a_launch(start: str, type: str, d: int, fits: bool, on_gpu: bool) -> None:
    store = "h[t] = f[t];" if type == "int" else "h[t] = (float)z[t];"
    kernel = kg.compile(OVERLAPPING.format(start=start, type=type, store=store))["k"]
    x, z, f = np.arange(1.0, 9.0), np.arange(2.0, 10.0), np.arange(8, dtype=np.int32)
    y, d_y, d_x, d_z = np.zeros(8), np.ones(8), np.zeros(8), np.zeros(8)
    with forced("as on a GPU" if on_gpu else "as launched"):
        gradient = kg.gradient(kernel, "y, x, z")
        if not fits:
            with pytest.raises(kg.UnsupportedError, match="something else in the same place, in this launch"):
                gradient[1, 8, 128](y, x, z, f, d, d_y, d_x, d_z)
            return
        gradient[1, 8, 128](y, x, z, f, d, d_y, d_x, d_z)
    np.testing.assert_array_equal(d_x, z)
    np.testing.assert_array_equal(d_z, x)
