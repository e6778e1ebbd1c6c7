"""`kg.jvp` as an object, and of gradients: second derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
__device__ double shared_state = 2.0;
__device__ double f(double a, double b, double *p) { p[0] = a * p[0]; return a * b * p[0]; }
__global__ void k(double *y, const double *x, double a, double *tmp, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    tmp[i] = x[i] * x[i] * a;
    y[i] = tmp[i] * tmp[i] + x[0] * x[i];
}
__global__ void through_variable(double *y, const double *x) { shared_state = x[0] * x[0]; y[0] = shared_state * x[0]; }
__global__ void named(double *t_x, const double *x) { t_x[0] = x[0] * x[0]; }
__global__ void loop(double *y, const double *x, int n) {
    int i = threadIdx.x;
    double s = x[i];
    for (int j = 0; j < n; j++) s = s * s * 0.9 + x[j] * y[i];
    y[i] = s;
}
__global__ void plain(double *y, const double *x, double a, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = sin(x[i] * x[0]) * a * a;
}
__global__ void square(double *y, const double *x) { y[threadIdx.x] = x[0] * x[0]; }
"""


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def test_signature_and_source(module: kg.Module) -> None:
    t = kg.jvp(module["k"], "y, x, a")
    assert repr(t) == (
        "<jvp __global__ void k(double *y, const double *x, double a, double *tmp, int n, double *t_y,"
        " const double *t_x, const double *t_a)>"
    )
    assert "k_jvp" in t.source


def test_fresh_names(module: kg.Module) -> None:
    assert "_t_x" in repr(kg.jvp(module["named"], "t_x, x"))


def test_positions_keywords_and_missing_tangents(module: kg.Module) -> None:
    """`tmp` is not listed, yet derivatives flow through it."""
    t = kg.jvp(module["k"], "y, x, a")
    x, tangents = np.array([1.0, 2, 3]), np.array([1.0, 0, 0])

    def run(*args: Any, **keywords: Any) -> np.ndarray[Any, Any]:
        t_y = np.full(3, 9.0)
        keywords = {"t_y": t_y, **keywords} if keywords else {}
        t[1, 4](np.zeros(3), x, 2.0, np.zeros(3), 3, *([t_y, *args] if args else []), **keywords)
        return t_y

    # y = a²x⁴ + x₀x
    np.testing.assert_allclose(run(tangents, np.array([1.0])), [16 + 4 + 2, 2 + 64, 3 + 324])
    np.testing.assert_allclose(run(tangents, None), [18, 2, 3])
    np.testing.assert_allclose(run(t_x=None, t_a=np.array([1.0])), [4, 64, 324])


def test_unlisted_device_variable_carries_tangents(module: kg.Module) -> None:
    t_y = np.zeros(1)
    kg.jvp(module["through_variable"], "y, x")[1, 1](np.zeros(1), np.array([2.0]), t_y, np.array([1.0]))
    assert t_y[0] == 12


def test_functions_give_value_and_tangent(module: kg.Module) -> None:
    t = kg.jvp(module["f"])
    p, t_p = np.array([3.0]), np.zeros(1)
    assert t.execute(2.0, 5.0, p, np.ones(1), np.zeros(1), t_p) == (60.0, 2 * 2 * 5 * 3)
    assert (p[0], t_p[0]) == (6, 3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: kg.jvp(m["k"], "y, z"), "no parameter 'z'\n  __global__ void k"),
        (lambda m: kg.jvp(m["k"], "y, n"), r"'n' \(int\) holds no floating-point"),
        (lambda m: kg.jvp(m["k"], ""), "nothing to differentiate"),
        (lambda m: kg.jvp(m["k"], "y")[1, 1](1), "5 arguments and 1 tangents, got 1"),
        (lambda m: kg.jvp(m["k"], "y")[1, 1](1, wrong=2), "tangents t_y by name"),
        (lambda m: kg.jvp(m["k"], "y").execute(1), "use execute_kernel"),
        (lambda m: kg.jvp(m["f"]).execute_kernel(1), "use execute"),
        (lambda m: kg.jvp(m["f"])[1, 1], "use execute"),
    ],
)
def test_errors(module: kg.Module, call: Any, words: str) -> None:
    with pytest.raises((kg.ArgumentError, kg.LaunchError), match=words):
        call(module)


def test_tangents_must_not_overlap(module: kg.Module) -> None:
    x = np.ones(3)
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.jvp(module["plain"], "y, x")[1, 3](np.zeros(3), x, 1.0, 3, x, np.zeros(3))


# ---- second order -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "taped"), [("plain", False), ("loop", True)])
def test_jvp_of_a_gradient(module: kg.Module, name: str, taped: bool) -> None:
    """Against differences of the gradient, in every argument at once; with a tape and without."""
    kernel = module[name]
    number = name == "plain"
    listed = "y, x, a" if number else "y, x"
    gradient = kg.gradient(kernel, listed)
    assert bool(gradient.variant().derivative.stacks) == taped
    names = listed.split(", ")
    second = kg.jvp(gradient, ", ".join((*names, *(f"d_{n}" for n in names))))
    random = np.random.default_rng(0)
    start = [random.uniform(0.1, 0.9, 4), random.uniform(0.1, 0.9, 4), *([random.uniform(0.5, 1, 1)] if number else [])]
    start += [random.standard_normal(a.size) for a in start]
    direction = [random.standard_normal(a.size) for a in start]

    def call(what: Any, *vectors: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        copies = [[v.copy() for v in vector] for vector in vectors]
        args = [float(v[0]) if k == 2 and number else v for k, v in enumerate(copies[0])]
        half = len(names)
        what[1, 4](*args[:half], 4, *args[half:], *(v for c in copies[1:] for v in c))
        return [v for c in copies for v in c]

    h = 1e-6
    ahead = call(gradient, [a + h * v for a, v in zip(start, direction, strict=True)])
    behind = call(gradient, [a - h * v for a, v in zip(start, direction, strict=True)])
    result = call(second, start, direction)[len(start) :]
    for k, (got, one, other) in enumerate(zip(result, ahead, behind, strict=True)):
        np.testing.assert_allclose(got, (one - other) / (2 * h), rtol=1e-6, atol=1e-7, err_msg=str(k))


def test_an_adjoint_that_is_zero_may_have_a_tangent(module: kg.Module) -> None:
    """The gradient skips adding zeros; the second derivative of x² at 0 is 2 all the same."""
    second = kg.jvp(kg.gradient(module["square"], "y, x"), "x, d_x")
    d_x, t_d_x = np.zeros(1), np.zeros(1)
    second[1, 3](np.zeros(3), np.zeros(1), np.ones(3), d_x, np.ones(1), t_d_x)
    assert (d_x[0], t_d_x[0]) == (0, 6)


@pytest.mark.parametrize(
    "body",
    [
        "y[0] = __int_as_float(__float_as_int(x[0]) ^ 0x80000000);",
        "union { float f; unsigned u; } v; v.f = x[0]; v.u ^= 0x80000000u; y[0] = v.f;",
        "y[0] = x[0] * ((const int *)x)[0];",
    ],
)
def test_bits_are_refused(body: str) -> None:
    kernel = kg.compile(f"__global__ void k(float *y, const float *x) {{ {body} }}")["k"]
    with pytest.raises(kg.UnsupportedError, match="bits"):
        kg.jvp(kernel, "y, x")
