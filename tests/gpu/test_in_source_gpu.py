"""Derivatives that the source asks for, on a GPU: the same numbers as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from in_source_cases import BODY, CLAD, ENZYME, INLINE, ITER, KERNELS, LAUNCHES, POINTER, TOTAL, iterated, with_passes

cupy = pytest.importorskip("cupy")

DEVICE = r"""
template <typename R = void, typename... A> __device__ R __enzyme_autodiff(A...);
template <typename R = void, typename... A> __device__ R __enzyme_fwddiff(A...);
__device__ int enzyme_const;
__device__ void f(const double *w, const double *x, double *y) {
    double v = *x;
    for (int k = 0; k < 5; k++) v = sin(v) * w[0] + w[1];
    *y = v;
}
__global__ void grad(const double *w, double *dw, const double *x, double *dx, double *y, double *dy, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) __enzyme_autodiff((void *)f, w, dw, x + i, dx + i, y + i, dy + i);
}
__device__ double cube(double x) { return x * x * x; }
__global__ void slopes(const double *x, double *o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = __enzyme_autodiff<double>((void *)cube, x[i]) + __enzyme_fwddiff<double>((void *)cube, x[i], 2.0);
}
__device__ void shared(const double *x, double *y) {
    __shared__ double s[64];
    int i = threadIdx.x;
    s[i] = x[i] * x[i];
    __syncthreads();
    y[i] = s[i] * s[(i + 1) % 64];
}
__global__ void cooperating(const double *x, double *dx, double *y, double *dy) {
    __enzyme_autodiff((void *)shared, x, dx, y, dy);
}
"""


def both(launch: Any, arrays: list[Any]) -> None:
    """Runs it on copies here and there, and compares them."""
    here, there = [a.copy() for a in arrays], [cupy.asarray(a) for a in arrays]
    launch(*here)
    launch(*there)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(other.get(), one, rtol=1e-11, atol=1e-13)


def test_kernels() -> None:
    module, rng, n = kg.compile(DEVICE), np.random.default_rng(4), 1000
    w, x, dy = np.array([1.1, 0.2]), rng.uniform(0, 1, n), rng.uniform(-1, 1, n)
    given = [w, np.zeros(2), x, np.zeros(n), np.zeros(n), dy]
    both(lambda *a: module["grad"][8, 128](*a, n), given)
    both(lambda *a: module["slopes"][8, 128](*a, n), [x, np.zeros(n)])
    both(lambda *a: module["cooperating"][1, 64](*a), [x[:64], np.zeros(64), np.zeros(64), dy[:64]])


@pytest.mark.parametrize(("text", "kind"), [(POINTER, np.uint64), (INLINE, np.float32)])
def test_tapes(text: str, kind: Any) -> None:
    module = kg.compile(BODY + text)
    was = cupy.linspace(0, 1, 100, dtype=np.float32)
    src, dst = was.copy(), cupy.zeros(100, np.float32)
    dsrc, ddst, tape = cupy.zeros(100, np.float32), cupy.ones(100, np.float32), cupy.zeros(100, kind)
    module["aug_collide"][1, 100](src, dsrc, dst, ddst, tape)
    src[:], dst[:] = 7, 8
    module["rev_collide"][1, 100](src, dsrc, dst, ddst, tape)
    np.testing.assert_allclose(dsrc.get(), (2 * was - 3).get(), rtol=1e-6)
    np.testing.assert_allclose(ddst.get(), 1)


GRAD_ITER = r"""
void grad_iter(int nTimeSteps, float *src, float *dsrc, float *dst, float *ddst) {
    __enzyme_autodiff(iter, nTimeSteps, src, dsrc, dst, ddst);
}
"""
PROGRAMS = {
    "plain": ENZYME + ITER + GRAD_ITER,
    "tapes behind pointers": with_passes(POINTER, "void *"),
    "tapes as values": with_passes(INLINE, "float "),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_iterated(name: str) -> None:
    rng = np.random.default_rng(1)
    src, dst = (rng.uniform(0.1, 0.4, 100) for _ in range(2))
    given = [cupy.asarray(a.astype(np.float32)) for a in (src, np.zeros(100), dst, np.ones(100))]
    kg.compile(PROGRAMS[name])["grad_iter"](4, *given)
    expected = [iterated(4, src + 1e-30j, dst)[1].imag / 1e-30, iterated(4, src, dst + 1e-30j)[1].imag / 1e-30]
    np.testing.assert_allclose(given[1].get(), expected[0], rtol=1e-3)
    np.testing.assert_allclose(given[3].get(), expected[1], rtol=1e-3)


MAINS = {
    "launches": (KERNELS + LAUNCHES.replace("CONFIGURATION", "dim3(1), dim3(10)"), "35 35 950\n70 70\n"),
    "on a stream": (KERNELS + LAUNCHES.replace("CONFIGURATION", "1, 10, 64, stream"), "35 35 950\n70 70\n"),
    "a function that launches": (TOTAL, "8 16 24 32, 120\n120\n"),
    "integers": (
        "__global__ void add(int *out, int *in) { out[threadIdx.x] += in[threadIdx.x] * in[threadIdx.x]; }\n"
        "int main() { int *p[4], five[3] = {5, 5, 5}; for (int i = 0; i < 4; i++) { cudaMalloc(&p[i], 12); "
        "cudaMemcpy(p[i], five, 12, cudaMemcpyHostToDevice); } "
        'clad::gradient(add, "out, in").execute_kernel(1, 3, p[0], p[1], p[2], p[3]); '
        'cudaMemcpy(five, p[3], 12, cudaMemcpyDeviceToHost); printf("%d %d\\n", five[0], five[2]); }',
        "55 55\n",
    ),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", MAINS)
def test_mains(name: str, device: str, capsys: Any) -> None:
    text, expected = MAINS[name]
    kg.compile(CLAD + text)["main"](device=device)
    assert capsys.readouterr().out == expected
