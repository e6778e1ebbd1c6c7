"""Clad's derivatives as values that are passed on, structs that are passed by value, and its helpers in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from clad_programs import PASSED, PASSED_TOLD, STRUCTS, STRUCTS_TOLD
from in_source_cases import CLAD


def test_handles_are_passed_on(capsys: Any) -> None:
    """Also those of one type to one function: it is another one for each."""
    kg.compile(CLAD + PASSED)["main"](device="cpu")
    assert capsys.readouterr().out.splitlines() == PASSED_TOLD


def test_handles_in_kernels() -> None:
    text = r"""
    __device__ double f(double x) { return x * x; }
    __device__ double g(double x) { return x * x * x; }
    template <class D> __device__ void add(D derivative, double x, double *to) { derivative.execute(x, to); }
    __global__ void run(double *to) {
        add(clad::gradient(f), 3.0, to);
        auto of_g = clad::gradient(g);
        add(of_g, 3.0, to + 1);
    }
    """
    to = np.array([1.0, 2.0])
    kg.compile(CLAD + text)["run"][1, 1](to)
    assert to.tolist() == [7, 29]


def test_a_handle_that_nobody_knows_is_refused() -> None:
    text = r"""
    double f(double x) { return x * x; }
    double g(double x) { return 2 * x; }
    int main() {
        auto one = clad::gradient(f), two = clad::gradient(g);
        double d = 0;
        (d > 0 ? one : two).execute(1.0, &d);
    }
    """
    with pytest.raises(kg.UnsupportedError, match="or a parameter that is given one") as caught:
        kg.compile(CLAD + text)["main"](device="cpu")
    assert caught.value.span.line == 9


def test_adjoints_of_structs_that_are_passed_by_value(capsys: Any) -> None:
    kg.compile(CLAD + STRUCTS)["main"](device="cpu")
    assert capsys.readouterr().out.splitlines() == STRUCTS_TOLD


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "__device__ double f(S s) { return s.a; }\n__global__ void run(double *x) { S s = {x[0]}, d = {0};\n"
            "auto g = clad::gradient(f); g.execute(s, &d);  // here\nx[0] = d.a; }",
            "'s' is a struct passed by value: an adjoint of it is not supported here",
        ),
        (
            "#include <vector>\ndouble f(std::vector<double> s) { cudaDeviceSynchronize(); return s[0]; }\n"
            "double run() { std::vector<double> s(1), d(1); auto g = clad::gradient(f);\n"
            "g.execute(s, &d);  // here\nreturn d[0]; }",
            "'s' is a struct passed by value, which the function destroys",
        ),
    ],
)
def test_structs_by_value_that_are_refused(text: str, told: str) -> None:
    source = CLAD + "struct S { double a; };\n" + text
    line = next(k for k, row in enumerate(source.splitlines(), 1) if row.endswith("// here"))
    with pytest.raises(kg.UnsupportedError, match=told) as caught:
        kg.compile(source)["run"]
    assert caught.value.span.line == line


HELPERS = r"""
#include "clad/Differentiator/ThrustBuiltins.h"
#include <vector>
struct Made { double x; int n[2]; __host__ __device__ Made(double x) : x(x), n{1, 2} {} };
__global__ void zeroed(double *to) {
    Made made(3.0);
    double row[2] = {4, 5}, one = 6;
    clad::zero_init(made);
    clad::zero_init(row, 2);
    clad::zero_init(one);
    to[0] = made.x + made.n[1] + row[1] + one;
}
__global__ void restored(double *to, int n) {
    clad::restore_tracker tracker;
    int count = 7;
    tracker.store(to[0]);
    tracker.store(count);
    for (int k = 0; k < n; k++) {
        to[0] += k;
        tracker.store(to[0]);
        count++;
    }
    to[1] = count;
    tracker.restore();
    to[2] = count;
}
void on_the_host(double *to) {
    thrust::device_vector<double> there(3, 2.0);
    std::vector<double> here(3, 2.0);
    clad::zero_init(there);
    clad::zero_init(here);
    to[0] = there[1] + here[2];
}
"""


def test_helpers() -> None:
    module = kg.compile(CLAD + HELPERS)
    to = np.array([1.5, 2, 3])
    module["restored"][1, 1](to, 4)
    assert to.tolist() == [1.5, 11, 7]
    module["zeroed"][1, 1](to)
    assert to[0] == 0
    to[0] = 1
    module["on_the_host"](to, device="cpu")
    assert to[0] == 0


@pytest.mark.parametrize("kind", ["__global__", ""])
def test_objects_with_a_destructor_are_not_made_zero(kind: str) -> None:
    text = "struct S { double x; __host__ __device__ ~S() {} };\n"
    text += f"{kind} void run(S *s) {{ {'' if kind else 'cudaDeviceSynchronize();'}\nclad::zero_init(*s);\n}}"
    with pytest.raises(kg.UnsupportedError, match="zero_init of an object with a destructor") as caught:
        kg.compile(CLAD + text)["run"]
    assert caught.value.span.line == 5
