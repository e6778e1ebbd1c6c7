"""What a text asks for: which call, of which function, by which arguments, and where in the text."""

from __future__ import annotations

import pytest

from kernelgrad.errors import KernelGradError
from kernelgrad.frontend import in_source
from kernelgrad.frontend.in_source import Request
from kernelgrad.frontend.unit import Options, Unit

TEXT = r"""
#include "clad/Differentiator/Differentiator.h"
typedef void (*f_ptr)(double *, double *);
extern void __device__ __enzyme_autodiff(f_ptr, int, double *, double *, int, double *, double *);
template <typename... A> __device__ void *__enzyme_augmentfwd(A...);
template <typename... A> __device__ void __enzyme_reverse(A...);
template <typename T, typename... A> __device__ T __enzyme_fwddiff(A...);
template <typename... A> __host__ __device__ double __enzyme_autodiff_of(A...);
int __device__ enzyme_dup, enzyme_const;
int enzyme_dupnoneed, enzyme_out;
extern __device__ int enzyme_allocated;

__device__ void square(double *x, double *y) { y[0] = x[0] * x[0]; }
double scaled(double x, int n) { return x * n; }
__global__ void rows(double *out, const double *in, int n) { out[threadIdx.x] = in[threadIdx.x] * n; }

__global__ void requests(double *x, double *dx, double *y, double *dy, void **t, cudaStream_t s) {
  ASKED;
}
"""


def asked(call: str) -> list[Request]:
    unit = Unit("t.cu", TEXT.replace("ASKED", call), Options())
    assert not unit.errors, [e.spelling for e in unit.errors]
    return list(in_source.requests(unit, unit.tree.cursor))


def told(call: str) -> tuple[str, str, str, list[str]]:
    (found,) = asked(call)
    arguments = [f"{a.parameter.spelling}:{a.activity}{'+' * (a.shadow is not None)}" for a in found.arguments]
    return found.by, found.mode, found.function.spelling, arguments


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            "__enzyme_autodiff(square, enzyme_dup, x, dx, enzyme_dup, y, dy)",
            ("reverse", "square", ["x:dup+", "y:dup+"]),
        ),
        ("__enzyme_autodiff_of((void *)square, x, dx, enzyme_const, y)", ("reverse", "square", ["x:dup+", "y:const"])),
        ("__enzyme_autodiff_of((void *)scaled, 2.0, 3)", ("reverse", "scaled", ["x:out", "n:const"])),
        (
            "__enzyme_autodiff_of(&scaled, enzyme_out, 2.0, enzyme_const, 3)",
            ("reverse", "scaled", ["x:out", "n:const"]),
        ),
        ("__enzyme_fwddiff<double>(scaled, 2.0, 1.0, 3)", ("forward", "scaled", ["x:dup+", "n:const"])),
        ("__enzyme_augmentfwd((void *)square, x, dx, y, dy)", ("augmented", "square", ["x:dup+", "y:dup+"])),
        ("__enzyme_reverse((void *)square, x, dx, y, dy, t[0])", ("backward", "square", ["x:dup+", "y:dup+"])),
    ],
)
def test_enzyme(call: str, expected: tuple[str, str, list[str]]) -> None:
    assert told(call) == ("enzyme", *expected)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("clad::gradient(scaled).execute(1.0, 2, dx, nullptr)", ("reverse", "scaled", ["x:dup+", "n:const"])),
        ('auto g = clad::gradient(square, "x"); g.execute(x, y, dx)', ("reverse", "square", ["x:dup+", "y:const"])),
        ('auto d = clad::differentiate(scaled, "x"); d.execute(2.0, 3)', ("forward", "scaled", ["x:dup", "n:const"])),
        ("clad::differentiate(scaled, 0)(2.0, 3)", ("forward", "scaled", ["x:dup", "n:const"])),
    ],
)
def test_clad(call: str, expected: tuple[str, str, list[str]]) -> None:
    assert told(call) == ("clad", *expected)


def test_launches_of_gradients() -> None:
    (plain,) = asked('clad::gradient(rows, "out, in").execute_kernel(1, dim3(4), y, x, 3, dy, dx)')
    (whole,) = asked('auto g = clad::gradient(rows, "out, in"); g.execute_kernel(1, 4, 0, s, y, x, 3, dy, dx)')
    assert [len(r.configuration) for r in (plain, whole)] == [2, 4]
    assert [a.parameter.spelling for a in whole.shadows] == ["out", "in"]


def test_misuse() -> None:
    (kernel,) = asked("clad::gradient(rows).execute(y, x, 3, dy, dx)")
    (function,) = asked("clad::gradient(square).execute_kernel(1, 1, x, y, dx, dy)")
    assert kernel.misuse == "Use execute_kernel() for global CUDA kernels"
    assert function.misuse == "Use execute() for non-global CUDA kernels"


def test_the_size_of_a_tape() -> None:
    (found,) = asked("__enzyme_augmentfwd((void *)square, enzyme_allocated, sizeof(float), x, dx, y, dy)")
    assert found.tape_bytes == 4


def test_extents() -> None:
    call = "__enzyme_autodiff(square, enzyme_dup, x, dx, enzyme_dup, y, dy)"
    (found,) = asked(call)
    data = TEXT.replace("ASKED", call).encode()
    whole, shadow = in_source.extent(found.call), in_source.extent(found.shadows[0].shadow)
    assert data[whole.start : whole.end].decode() == call
    assert data[shadow.start : shadow.end] == b"dx" and shadow.file == "t.cu"


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("__enzyme_autodiff_of((void *)square, x, dx, y)", "lacks the shadow of 'y'"),
        ("__enzyme_autodiff_of((void *)square, x, dx, y, dy, x)", "more arguments than the function takes"),
        ("__enzyme_autodiff_of((void *)scaled, enzyme_dup, 2.0, 1.0, 3)", "its adjoint is returned, not passed"),
        ("__enzyme_autodiff_of(x, x)", "the function to differentiate must be named"),
        ('clad::gradient(square, "z").execute(x, y, dx)', "has no parameter 'z'"),
        ("clad::gradient(square).execute(x)", "execute wants 2 arguments and 2 adjoints, got 1"),
        ('clad::differentiate<2>(scaled, "x").execute(2.0, 3)', "higher order"),
        ("clad::hessian(scaled).execute(2.0, 3)", "clad::hessian is not supported"),
    ],
)
def test_refused(call: str, problem: str) -> None:
    with pytest.raises(KernelGradError, match=problem) as caught:
        asked(call)
    assert ":18:" in str(caught.value)
