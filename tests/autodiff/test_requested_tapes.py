"""Augmented forward and reverse passes that kernels ask for: tapes behind pointers and as values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from in_source_cases import BODY, INLINE, POINTER
from kernelgrad.errors import KernelGradError


@pytest.mark.parametrize(("text", "kind"), [(POINTER, np.uint64), (INLINE, np.float32)])
def test_what_changes_in_between_is_on_the_tape(text: str, kind: Any) -> None:
    module = kg.compile(BODY + text)
    src, dst = np.linspace(0, 1, 100, dtype=np.float32), np.full(100, 0.5, np.float32)
    dsrc, ddst, tape = np.zeros(100, np.float32), np.ones(100, np.float32), np.zeros(100, kind)
    was = src.copy()
    module["aug_collide"][1, 100](src, dsrc, dst, ddst, tape)
    np.testing.assert_allclose(dst, 0.5 + was * was - 3 * was, rtol=1e-6)
    src[:], dst[:] = 7, 8
    module["rev_collide"][1, 100](src, dsrc, dst, ddst, tape)
    np.testing.assert_allclose(dsrc, 2 * was - 3, rtol=1e-6)
    np.testing.assert_allclose(ddst, 1)


def test_memory_of_tapes_is_used_again_when_they_are_used() -> None:
    module = kg.compile(BODY + POINTER)
    given = [np.ones(100, np.float32) for _ in range(4)]
    tapes = [np.zeros(100, np.uint64) for _ in range(3)]
    for tape in tapes[:2]:
        module["aug_collide"][1, 100](*given, tape)
    assert tapes[0][0] != tapes[1][0]
    module["rev_collide"][1, 100](*given, tapes[0])
    module["aug_collide"][1, 100](*given, tapes[2])
    assert tapes[2][0] == tapes[0][0]


LOOP = r"""
extern int enzyme_allocated, enzyme_const;
struct Tape { double values[16]; };
template <typename... Args> __device__ Tape __enzyme_augmentfwd(Args...);
template <typename... Args> __device__ double __enzyme_reverse(Args...);
__device__ double chain(double x, const double *w, int n) {
    for (int k = 0; k < 8; k++) if (k < n) x = sin(x) * w[0];
    return x;
}
__global__ void forward(const double *x, double *w, double *dw, Tape *tape, int n) {
    tape[threadIdx.x] = __enzyme_augmentfwd(chain, enzyme_allocated, sizeof(Tape), x[threadIdx.x], w, dw, n);
}
__global__ void backward(const double *x, double *w, double *dw, Tape *tape, int n, double *dx, double seed) {
    int i = threadIdx.x;
    dx[i] = __enzyme_reverse(chain, enzyme_allocated, sizeof(Tape), x[i], w, dw, n, seed, tape[i]);
}
"""


@pytest.mark.parametrize("n", [0, 5, 8])
def test_loops_seeds_and_structs(n: int) -> None:
    module = kg.compile(LOOP)
    x, w, dw, dx = np.array([0.3, 0.9]), np.array([1.2]), np.zeros(1), np.zeros(2)
    tape = np.zeros(2, np.dtype([("values", "f8", 16)]))
    module["forward"][1, 2](x, w, dw, tape, n)
    w[:] = 100.0
    module["backward"][1, 2](x, w, dw, tape, n, dx, 2.0)

    def chain(a: Any, b: Any) -> Any:
        for _ in range(n):
            a = np.sin(a) * b
        return a

    np.testing.assert_allclose(dx, 2 * chain(x + 1e-30j, 1.2).imag / 1e-30, rtol=1e-12)
    np.testing.assert_allclose(dw, 2 * sum(np.imag(chain(x, 1.2 + 1e-30j))) / 1e-30, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "name", "problem", "line"),
    [
        (INLINE.replace("sizeof(float)", "sizeof(char)"), "aug_collide", "needs 4 bytes, and has 1", 14),
        (INLINE.replace("sizeof(float)", "sizeof(char)"), "rev_collide", "needs 4 bytes, and has 1", 18),
        (INLINE.replace("float __enzyme_augmentfwd", "void *__enzyme_augmentfwd"), "aug_collide", "void \\*", 14),
        (POINTER.replace("void *__enzyme_augmentfwd", "float __enzyme_augmentfwd").replace("void **t", "float *t"),
         "aug_collide", "gives a pointer to the tape, and is declared to return 'float'", 14),
        (POINTER.replace(", tape[idx]);", ");"), "rev_collide", "lacks the tape", 18),
    ],
)  # fmt: skip
def test_refused_at_the_line(text: str, name: str, problem: str, line: int) -> None:
    with pytest.raises(KernelGradError, match=problem) as caught:
        kg.compile(BODY + text)[name]
    assert f":{line}:" in str(caught.value)


SLIPS = {
    "dsr": "__global__ void collide(float *src, float *dst) {\n dsr[threadIdx.x] += src[threadIdx.x];\n}",
    "d_x": '#include "clad/Differentiator/Differentiator.h"\n__device__ double fn(double *a) { return *a * *a; }\n'
    "__global__ void collide(double *d_a, double *d_result) {\n"
    '  auto fn_grad = clad::gradient(fn, "a");\n  fn_grad.execute(d_x, d_result);\n}',
}


@pytest.mark.parametrize(("slip", "line"), [("dsr", 2), ("d_x", 5)])
def test_slips_of_the_pen_are_errors_at_their_line(slip: str, line: int) -> None:
    with pytest.raises(KernelGradError, match=f"'{slip}'") as caught:
        kg.compile(SLIPS[slip])["collide"]
    assert f":{line}:" in str(caught.value)


def test_they_run_when_mended() -> None:
    text = SLIPS["d_x"].replace("d_x", "d_a")
    a, result = np.array([3.0]), np.zeros(1)
    kg.compile(text)["collide"][1, 1](a, result)
    np.testing.assert_allclose(result, 6.0)
