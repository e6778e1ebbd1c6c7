"""`kg.check_gradient`: what it reports and what it finds."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.autodiff.sweep import reverse_sweep

F = np.float32
SOURCE = """
#include <cuda_fp16.h>
struct Mixed { float a; int tag; double b; __half h; };
struct Views { float *out; const float *in; float scale; };
__constant__ float weights[2] = {1.5f, 2.5f};
__device__ float state = 0.5f;
__device__ float f(float a, float b, float *p) { p[0] = a * p[0]; return a * b * p[0]; }
__global__ void narrow(float *y, const float *x, float a, float *tmp, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    tmp[i] = x[i] * x[i] * a * weights[i % 2];
    y[i] = tmp[i] * tmp[i] + x[0] * __sinf(x[i]);
}
__global__ void records(Mixed *y, const Mixed *x, const float4 *v, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    Mixed m = x[i];
    m.a *= m.b * m.tag * v[i].x;
    m.b += m.a * m.a * v[i].w;
    m.h = __float2half(m.a);
    y[i] = m;
}
__global__ void halves(__half *y, const __half2 *x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = __hmul(x[i].x, x[i].y);
}
__global__ void kink(float *y, const float *x, int n) { int i = threadIdx.x; if (i < n) y[i] = fmaxf(x[i], 0.f); }
__global__ void infinite(float *y, const float *x, int n) { int i = threadIdx.x; if (i < n) y[i] = cbrtf(x[i]) + x[i]; }
__global__ void bits(float *y, const float *x) { y[0] = x[0] * (__float_as_int(x[1]) & 1); }
__global__ void changes_a_variable(float *y, const float *x) { y[0] = x[0] * state; state = state + 1.0f; }
__global__ void power(float *y, const float *x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = expf(x[i]) * sinf(x[(i + 1) % n]);
}
"""


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def test_report(module: kg.Module) -> None:
    args = (np.zeros(3, F), np.array([1, 2, 3], F), 2.0, np.zeros(3, F), 3)
    report = kg.check_gradient(module["narrow"], "y, x, a", 1, 4, args)
    assert report.ok and not report.notes and report.elements == 7 and report.error < 1e-12
    assert str(report).splitlines()[0] == "narrow: gradient of y, x, a (7 numbers)"
    assert "finite differences agree" in str(report)


def test_arguments_and_variables_are_left_alone(module: kg.Module) -> None:
    y, x = np.zeros(1, F), np.ones(1, F)
    assert kg.check_gradient(module["changes_a_variable"], "y, x", 1, 1, (y, x)).ok
    assert y[0] == 0 and module.variable("state")[()] == 0.5


def test_records_are_laid_out_anew(module: kg.Module) -> None:
    dtype = np.dtype([("a", "f4"), ("tag", "i4"), ("b", "f8"), ("h", "f2")], align=True)
    x = np.zeros(3, dtype)
    x["a"], x["tag"], x["b"] = [1, 2, 3], [2, 3, 4], [0.5, 0.25, 0.125]
    args = (np.zeros(3, dtype), x, np.arange(1, 13, dtype=F), 3)
    report = kg.check_gradient(module["records"], "y, x, v", 1, 4, args)
    assert report.ok and report.elements == 2 * 3 * 3 + 12


def test_half(module: kg.Module) -> None:
    args = (np.zeros(4, np.float16), np.arange(1, 9).astype(np.float16), 4)
    assert kg.check_gradient(module["halves"], "y, x", 1, 4, args).ok


def test_functions(module: kg.Module) -> None:
    assert kg.check_gradient(module["f"], args=(1.5, 2.0, np.ones(1, F))).ok


def test_a_kink_is_noted(module: kg.Module) -> None:
    args = (np.zeros(3, F), np.array([1, 0, -2], F), 3)
    report = kg.check_gradient(module["kink"], "y, x", 1, 3, args)
    assert not report.ok
    (note,) = report.notes
    assert note.startswith("x[1]: finite differences give") and "not differentiable" in note


def test_an_infinite_derivative_is_noted(module: kg.Module) -> None:
    report = kg.check_gradient(module["infinite"], "y, x", 1, 3, (np.zeros(3, F), np.array([1, 2, 0], F), 3))
    assert any(note.startswith("x[2]: the derivative is") for note in report.notes)


def test_bits_of_floats_are_refused(module: kg.Module) -> None:
    with pytest.raises(kg.UnsupportedError, match=r"bits of a float cannot be widened"):
        kg.check_gradient(module["bits"], "y, x", 1, 1, (np.zeros(1, F), np.ones(2, F)))


def test_wrong_counts_and_overlap(module: kg.Module) -> None:
    with pytest.raises(kg.ArgumentError, match="takes 3 arguments, got 1"):
        kg.check_gradient(module["kink"], "y, x", 1, 1, (np.zeros(1, F),))
    both = np.zeros(3, F)
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.check_gradient(module["kink"], "y, x", 1, 1, (both, both, 3))


@pytest.mark.parametrize("wrong", [0, 3, 4])
def test_a_wrong_rule_is_found(module: kg.Module, monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    """A reverse mode that errs at one element of the input: the error names it."""
    original = reverse_sweep.Sweep.chain
    elements = np.linspace(0.1, 0.9, 5).astype(F)

    def chain(self: Any, op: Any, adjoint: Any) -> None:
        if op.fn == "exp":
            hit = self.b.apply("eq", self.value(op.args[0]), self.b.constant(float(elements[wrong]), op.result.type))
            doubled = self.b.apply("add", adjoint, adjoint)
            adjoint = self.b.apply("select", hit, doubled, adjoint)
        original(self, op, adjoint)

    monkeypatch.setattr(reverse_sweep.Sweep, "chain", chain)
    with pytest.raises(kg.GradientError, match=rf"reverse and forward mode differ at x\[{wrong}\]: reverse"):
        kg.check_gradient(module["power"], "y, x", 1, 5, (np.zeros(5, F), elements, 5))


_IN = "struct In { float a; double b; }; struct Three { float v[3]; };"
ARRAYS = {
    "by value": (
        "struct S { In in[2][2]; int k; };",
        "y[i] = s.in[0][i % 2].a * (float)s.in[i % 2][1].b * s.k;",
        lambda: {"in": [[(1.5, 2.5), (0.5, 3.0)], [(3.0, 4.0), (2.0, 1.0)]], "k": 2},
        12,
    ),
    "deep": (
        "struct S { struct B { Three a[2]; Three one; } b[2]; float c; };",
        "y[i] = s.b[1].a[i % 2].v[2] * s.b[0].one.v[1] + s.c;",
        lambda: {"b": [([([1, 2, 3],), ([4, 5, 6],)], ([7, 8, 9],))] * 2, "c": 2.0},
        23,
    ),
    "beside a pointer": (
        "struct S { Three a[2]; float *p; float c; };",
        "y[i] = s.a[i % 2].v[2] * s.p[i] + s.c;",
        lambda: {"a": [([1, 2, 3],), ([4, 5, 6],)], "p": np.arange(1, 5).astype(F), "c": 2.0},
        15,
    ),
    "of structs with pointers": (
        "struct L { const float *w; float b; }; struct S { L l[2]; };",
        "y[i] = s.l[0].w[i] * s.l[1].w[i] * s.l[0].b + s.l[1].b;",
        lambda: {"l": [{"w": np.arange(1, 5).astype(F), "b": 1.0}, {"w": np.ones(4, F), "b": 2.0}]},
        14,
    ),
    "of pointers": (
        "struct S { float *w[2]; float c; };",
        "y[i] = s.w[0][i] * s.w[1][i] * s.c;",
        lambda: {"w": [np.arange(1, 5).astype(F), np.ones(4, F)], "c": 2.0},
        13,
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_structs_with_arrays(name: str) -> None:
    declared, body, value, numbers = ARRAYS[name]
    source = f"{_IN} {declared} __global__ void k(float *y, S s) {{ int i = threadIdx.x; {body} }}"
    report = kg.check_gradient(kg.compile(source)["k"], "y, s", 1, 4, (np.zeros(4, F), value()))
    assert report.ok and report.elements == numbers and report.error < 1e-12


def test_tensors_without_a_warning() -> None:
    torch = pytest.importorskip("torch")
    kernel = kg.compile("__global__ void k(float *y, const float *x) { y[threadIdx.x] = sinf(x[threadIdx.x]); }")["k"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = kg.check_gradient(kernel, "y, x", 1, 4, (torch.zeros(4), torch.linspace(0, 1, 4)))
    assert report.ok and report.elements == 8
