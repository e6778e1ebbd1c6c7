"""Derivatives that the user gives, and those that end at `stop_gradient`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from custom_cases import BLOCK, CASES, GRID, N, arguments, kernel

FORMS: dict[str, dict[str, Any]] = {
    "joint": {},
    "reverse": {"primal": False},
    "deterministic": {"deterministic": True},
    "budget": {"tape_budget": 512},
}


def adjoints(gradient: Any) -> tuple[np.ndarray, np.ndarray]:
    y, x, n = arguments()
    d_y, d_x = np.linspace(-1, 1, N), np.ones(N)
    gradient[GRID, BLOCK](y, x, n, d_y, d_x)
    return d_y, d_x


# ---- pullbacks that are right change nothing


@pytest.mark.parametrize("name", CASES)
def test_right_pullbacks(name: str) -> None:
    own, plain = kernel(name), kernel(name, custom=False)
    report = kg.check_gradient(own, "y, x", GRID, BLOCK, arguments())
    assert report.ok, report
    expected = adjoints(kg.gradient(plain, "y, x"))
    np.testing.assert_allclose(adjoints(kg.gradient(own, "y, x")), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("form", ["reverse", "deterministic", "budget"])
@pytest.mark.parametrize("name", ["in a while loop and its branches", "pointers", "a table", "structs"])
def test_forms(name: str, form: str) -> None:
    expected = adjoints(kg.gradient(kernel(name, custom=False), "y, x"))
    found = adjoints(kg.gradient(kernel(name), "y, x", **FORMS[form]))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["in a loop", "memory that is overwritten", "shared memory"])
def test_split(name: str) -> None:
    forward, reverse = kg.split(kernel(name), "y, x")
    y, x, n = arguments()
    d_y, d_x = np.linspace(-1, 1, N), np.ones(N)
    tape = forward[GRID, BLOCK](y, x, n)
    x[:] = np.nan
    reverse[GRID, BLOCK](tape, y, x, n, d_y, d_x)
    expected = adjoints(kg.gradient(kernel(name, custom=False), "y, x"))
    np.testing.assert_allclose((d_y, d_x), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["numbers", "pointers", "structs", "in a loop"])
def test_plain_launches_are_the_functions_own(name: str) -> None:
    (y, x, n), (z, *_) = arguments(), arguments()
    own, plain = kernel(name), kernel(name, custom=False)
    own[GRID, BLOCK](y, x, n)
    plain[GRID, BLOCK](z, x, n)
    np.testing.assert_array_equal(y, z)
    assert "cos" not in own.source  # nor anything else of the pullback
    assert own.check(GRID, BLOCK, y, x, n).findings == ()


# ---- what is given is what is used


SQUARE = """
__device__ REAL f(REAL x, int n) { return n * x * x; }
__global__ void k(REAL *y, const REAL *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = f(x[i], 3) * x[i];
}"""
OTHER = kg.custom_gradient(
    "f", "__device__ void f_pullback(REAL x, int n, REAL d, REAL *dx) { *dx += 10 * d * cos(x); }"
)
TANGENT = "__device__ REAL f_tangent(REAL x, int n, REAL t) { return 7 * t; }"


def square(given: Any, real: str = "double") -> Any:
    pullback, tangent = (text and text.replace("REAL", real) for text in (given.pullback, given.tangent))
    return kg.compile(SQUARE.replace("REAL", real), custom=kg.custom_gradient("f", pullback, tangent=tangent))["k"]


@pytest.mark.parametrize("real, dtype", [("double", np.float64), ("float", np.float32)])
def test_the_given_pullback_is_used(real: str, dtype: type) -> None:
    x, (y, d_x), d_y = np.linspace(0.1, 1, N).astype(dtype), np.zeros((2, N), dtype), np.ones(N, dtype)
    kg.gradient(square(OTHER, real), "y, x")[1, 32](y, x, N, d_y, d_x)
    rtol = 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(d_x, 3 * x**2 + 10 * np.cos(x) * x, rtol=rtol)
    np.testing.assert_allclose(y, 3 * x**3, rtol=rtol)


def test_half_precision() -> None:
    source = """
    __device__ __half f(__half x) { return x * x; }
    namespace kernelgrad { namespace custom_derivatives {
    __device__ void f_pullback(__half x, __half d, __half *dx) { *dx += __float2half(10.0f) * d * x; }
    } }
    __global__ void k(__half *y, const __half *x, int n) { int i = threadIdx.x; if (i < n) y[i] = f(x[i]); }"""
    x, (y, d_x), d_y = np.linspace(0.5, 2, N).astype(np.float16), np.zeros((2, N), np.float16), np.ones(N, np.float16)
    kg.gradient(kg.compile(source)["k"], "y, x")[1, 32](y, x, N, d_y, d_x)
    np.testing.assert_allclose(d_x, 10 * x, rtol=2e-3)
    np.testing.assert_array_equal(y, x * x)


def gradient_and_tangent(target: Any) -> tuple[np.ndarray, np.ndarray]:
    """By x, of all ones."""
    x, (y, d_x, t_y), ones = np.linspace(0.1, 1, N), np.zeros((3, N)), np.ones(N)
    kg.gradient(target, "y, x")[1, 32](y, x, N, ones.copy(), d_x)
    kg.jvp(target, "y, x")[1, 32](y, x, N, t_y, ones)
    return d_x, t_y


def test_each_mode_uses_what_is_given_for_it_and_follows_from_the_other_if_nothing_is() -> None:
    x = np.linspace(0.1, 1, N)
    by_pullback, by_tangent = 3 * x**2 + 10 * np.cos(x) * x, 3 * x**2 + 7 * x
    both = kg.custom_gradient("f", OTHER.pullback, tangent=TANGENT)
    tangent = kg.custom_gradient("f", tangent=TANGENT)
    for given, expected in (
        (OTHER, (by_pullback,) * 2),
        (tangent, (by_tangent,) * 2),
        (both, (by_pullback, by_tangent)),
    ):
        np.testing.assert_allclose(gradient_and_tangent(square(given)), expected, rtol=1e-13)


def test_second_derivatives_are_those_of_what_is_given() -> None:
    x, y, ones = np.linspace(0.1, 1, N), np.zeros(N), np.ones(N)
    twice = kg.jvp(kg.gradient(square(OTHER), "y, x"), "x, d_x")
    t_d_x = np.zeros(N)
    twice[1, 32](y, x, N, ones.copy(), np.zeros(N), ones, t_d_x)
    np.testing.assert_allclose(t_d_x, 20 * np.cos(x) - 10 * np.sin(x) * x, rtol=1e-13)


def test_of_a_function_itself() -> None:
    pullback = OTHER.pullback.replace("REAL", "double")
    module = kg.compile(SQUARE.replace("REAL", "double"), custom=kg.custom_gradient("f", pullback))
    d_x = np.zeros(1)
    assert kg.gradient(module["f"], "x").execute(0.5, 3, d_x) == 0.75
    np.testing.assert_allclose(d_x, 10 * np.cos(0.5))
    np.testing.assert_allclose(kg.jvp(module["f"], "x").execute(0.5, 3, np.array([2.0])), (0.75, 20 * np.cos(0.5)))


def test_wrong_pullbacks_are_found() -> None:
    y, x = np.zeros(N), np.linspace(0.1, 1, N)
    with pytest.raises(kg.GradientError, match="finite differences give(.|\n)*'f' has a custom derivative"):
        kg.check_gradient(square(OTHER), "y, x", 1, 32, (y, x, N))
    both = kg.custom_gradient("f", OTHER.pullback, tangent=TANGENT)
    with pytest.raises(kg.GradientError, match="reverse and forward mode differ(.|\n)*'f' has a custom derivative"):
        kg.check_gradient(square(both), "y, x", 1, 32, (y, x, N))


def test_the_text_has_the_pullback_and_explain_says_whose_it_is() -> None:
    gradient = kg.gradient(square(OTHER), "y, x")
    assert "_d_result * (10.0 * t)" in gradient.source and "t = cos(x_1)" in gradient.source
    assert "kernel.cu:2:19: 'f' has a custom derivative" in gradient.explain()


# ---- masks


ROOT = """
__device__ double root(double x) { return sqrt(x); }
namespace kernelgrad { namespace custom_derivatives {
__device__ void root_pullback(double x, double d, double *dx) { *dx += 0.5 * d / sqrt(x); }
} }
__global__ void masked(double *y, const double *x, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    double v = root(x[i]);
    y[i] = x[i] > 0 ? v : 0;
}
__global__ void plain(double *y, const double *x, int n) { int i = threadIdx.x; if (i < n) y[i] = root(x[i]); }
"""


def test_zeros_of_masks_stay_zero() -> None:
    module = kg.compile(ROOT)
    x, y = np.array([0.0, 1.0, 4.0]), np.zeros(3)
    for name, seed in (("masked", np.ones(3)), ("plain", np.array([0.0, 1, 1]))):
        d_x, t_y = np.zeros(3), np.zeros(3)
        kg.gradient(module[name], "y, x")[1, 32](y, x, 3, seed.copy(), d_x)
        kg.jvp(module[name], "y, x")[1, 32](y, x, 3, t_y, seed)
        np.testing.assert_allclose((d_x, t_y), [[0, 0.5, 0.25]] * 2)
    d_x = np.zeros(3)
    kg.gradient(module["plain"], "y, x")[1, 32](y, x, 3, np.ones(3), d_x)
    np.testing.assert_allclose(d_x, [np.inf, 0.5, 0.25])  # what is no mask stays


def test_parts_of_an_adjoint_that_are_zero_meet_no_infinity() -> None:
    module = kg.compile("""
    __device__ double2 f(double2 a) { return make_double2(a.x * a.y, a.x); }
    namespace clad { namespace custom_derivatives {
    __device__ void f_pullback(double2 a, double2 d, double2 *da) { da->x += d.x * a.y + d.y; da->y += d.x * a.x; }
    } }
    __global__ void k(double *y, const double *x) { y[0] = f(make_double2(x[0], x[1])).y; }""")
    x, d_x = np.array([2.0, np.inf]), np.zeros(2)
    kg.gradient(module["k"], "y, x")[1, 1](np.zeros(1), x, np.ones(1), d_x)
    np.testing.assert_array_equal(d_x, [1, 0])


def test_parts_of_a_tangent_that_are_zero_meet_no_infinity() -> None:
    source = """__device__ double f(double a, double b) { return a * b; }
    __global__ void k(double *y, const double *x) { y[0] = f(x[0], x[1]); }"""
    tangent = "__device__ double f_tangent(double a, double b, double t_a, double t_b) { return t_a * b + a * t_b; }"
    kernel = kg.compile(source, custom=kg.custom_gradient("f", tangent=tangent))["k"]
    x, t_y = np.array([2.0, np.inf]), np.zeros(1)
    kg.jvp(kernel, "y, x")[1, 1](np.zeros(1), x, t_y, np.array([0.0, 1.0]))
    assert t_y[0] == 2
    d_x = np.zeros(2)
    kg.gradient(kernel, "y, x")[1, 1](np.zeros(1), x, np.ones(1), d_x)
    np.testing.assert_array_equal(d_x, [np.inf, 2])


# ---- stop_gradient


STOP = """
__global__ void k(float *y, const float *x, float3 *v, __half *h, double *d, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    y[i] = kernelgrad::stop_gradient(x[i]) * x[i];
    float3 s = kernelgrad::stop_gradient(v[i]);
    v[i] = make_float3(s.x * v[i].x, s.y, v[i].z);
    h[i] = kernelgrad::stop_gradient(h[i]) * h[i];
    using kernelgrad::stop_gradient;
    for (int k = 0; k < 2; ++k) d[i] = stop_gradient(d[i]) * d[i];
}"""


def test_stop_gradient() -> None:
    ones, x, y, v = (
        np.ones(3),
        np.arange(3, dtype=np.float32) + 2,
        np.zeros(3, np.float32),
        np.full((3, 3), 3, np.float32),
    )
    h, d = np.full(3, 2, np.float16), np.full(3, 3.0)
    kernel = kg.compile(STOP)["k"]
    buffers = [a.copy() for a in (y, x, v, h, d)]
    seeds = [np.ones_like(a) for a in (y, x, v, h, d)]
    seeds[1][:] = 0
    kg.gradient(kernel, "y, x, v, h, d")[1, 32](*buffers, 3, *seeds)
    np.testing.assert_array_equal(buffers[4], d**4)
    np.testing.assert_array_equal(seeds[1], x)
    np.testing.assert_array_equal(seeds[2], [[3, 0, 1]] * 3)
    np.testing.assert_array_equal(seeds[3], h)
    np.testing.assert_array_equal(seeds[4], d**3)  # d[1] = stop(d[0]) d[0], d[2] = stop(d[1]) d[1]
    tangents = [np.ones_like(a) for a in (y, x, v, h, d)]
    kg.jvp(kernel, "y, x, v, h, d")[1, 32](y, x, v, h, d, 3, *tangents)
    for found, expected in zip(tangents, (x, ones, [[3, 0, 1]] * 3, np.full(3, 2), np.full(3, 27)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_stop_gradient_of_structs_and_integers() -> None:
    source = """struct Inner { float v[2]; };
    template <class T> struct Pair { T a; int k; Inner in; };
    __global__ void k(double *y, const double *x, int n) {
        int i = kernelgrad::stop_gradient(threadIdx.x);
        if (i >= kernelgrad::stop_gradient(n)) return;
        Pair<double> p = {x[i], 3, {{(float)x[i], 2.0f}}};
        for (int j = 0; j < 2; ++j) {
            Pair<double> q = kernelgrad::stop_gradient(p);
            p.a = q.a * q.in.v[0] * q.in.v[1] * q.k * p.a;
        }
        y[i] = p.a;
    }"""
    kernel, x, y, d_x = kg.compile(source)["k"], np.array([0.5, 0.75, 1.0]), np.zeros(3), np.zeros(3)
    kg.gradient(kernel, "y, x")[1, 4](y, x, 3, np.ones(3), d_x)
    first = 6 * x**3
    np.testing.assert_allclose(y, 6 * first**2 * x)
    np.testing.assert_allclose(d_x, (6 * x * first) * (6 * x * x))
    bad = "__global__ void k(float *y, float *x) { *y = *kernelgrad::stop_gradient(x); }"
    with pytest.raises(kg.UnsupportedError, match=r"kernel.cu:1:47: error: stop_gradient of a pointer"):
        kg.gradient(kg.compile(bad)["k"], "y, x")


def test_stop_gradient_has_no_second_derivative_either() -> None:
    source = """__global__ void k(double *y, const double *x) {
        double s = kernelgrad::stop_gradient(x[0]);
        y[0] = s * s * x[0] * x[0];
    }"""
    kernel, x, t_d_x = kg.compile(source)["k"], np.array([3.0]), np.zeros(1)
    twice = kg.jvp(kg.gradient(kernel, "y, x"), "x, d_x")
    twice[1, 1](np.zeros(1), x, np.ones(1), np.zeros(1), np.ones(1), t_d_x)
    assert t_d_x[0] == 2 * 9
    report = kg.check_gradient(kernel, "y, x", 1, 1, (np.zeros(1), x))
    assert "given (kernel.cu:2:20: stop_gradient)" in str(report)


# ---- what would come to nothing

REBOUND = {
    "a variable": "double z = 0; d_x = &z; *d_x += d;",
    "by way of another pointer": "double z = 0; double *q = &z; if (n > 2) d_x = q; *d_x += d;",
    "null": "*d_x += d; d_x = nullptr;",
    "an array": "double z[4]; for (int k = 0; k < n; k++) { d_x = z + k; *d_x += d; }",
    "an argument": "d_x = (double *)x; *d_x += d;",
}


def in_source(body: str, name: str = "f_pullback") -> Any:
    source = f"""__device__ double f(const double *x, int n) {{ return x[n] * x[n]; }}
    namespace clad {{ namespace custom_derivatives {{
    __device__ void {name}(const double *x, int n, double d, double *d_x) {{ {body} }}
    }} }}
    __global__ void k(double *y, const double *x) {{ y[threadIdx.x] = f(x, threadIdx.x); }}"""
    return kg.compile(source)["k"]


@pytest.mark.parametrize("body", REBOUND.values(), ids=REBOUND)
def test_an_adjoint_that_points_elsewhere(body: str) -> None:
    column = (
        4 + len("__device__ void f_pullback(const double *x, int n, double d, double *d_x) { ") + body.index("d_x =")
    )
    with pytest.raises(kg.UnsupportedError, match=rf"kernel.cu:3:{column + 1}: .*its 'd_x' point to something else"):
        kg.gradient(in_source(body), "y, x")


@pytest.mark.parametrize("body", ["d_x += n; *d_x += 9 * d;", "double *q = d_x; d_x = q + n; if (d_x) *d_x += 9 * d;"])
def test_an_adjoint_that_is_walked_through(body: str) -> None:
    d_x = np.zeros(3)
    kg.gradient(in_source(body), "y, x")[1, 3](np.zeros(3), np.ones(3), np.arange(3.0), d_x)
    np.testing.assert_array_equal(d_x, 9 * np.arange(3.0))


@pytest.mark.parametrize(
    ("variable", "write"), [("", "((double *)x)[n] = 0;"), ("__device__ double s;", "s = d;"), ("", "*(x + n) = 0;")]
)
def test_derivatives_that_write_something_else(variable: str, write: str) -> None:
    """Into the arguments of a launch, or into variables of the module."""
    body = f"d_x[n] += 2 * x[n] * d; {write}"
    const = "" if write.startswith("*") else "const "
    source = f"""{variable} __device__ double f(const double *x, int n) {{ return x[n] * x[n]; }}
    namespace clad {{ namespace custom_derivatives {{
    __device__ void f_pullback({const}double *x, int n, double d, double *d_x) {{ {body} }}
    }} }}
    __global__ void k(double *y, const double *x) {{ y[threadIdx.x] = f(x, threadIdx.x); }}"""
    with pytest.raises(kg.UnsupportedError, match="kernel.cu:3:.*writes to memory here that holds no adjoint"):
        kg.gradient(kg.compile(source)["k"], "y, x")


def test_tangents_that_write() -> None:
    source = """__device__ double s;
    __device__ double f(double x) { return x * x; }
    namespace kernelgrad { namespace custom_derivatives {
    __device__ double f_tangent(double x, double t) { s = x; return 2 * x * t; }
    } }
    __global__ void k(double *y, const double *x) { y[threadIdx.x] = f(x[threadIdx.x]); }"""
    with pytest.raises(kg.UnsupportedError, match="kernel.cu:4:.*writes to memory here"):
        kg.jvp(kg.compile(source)["k"], "y, x")


def test_kernels_are_no_derivatives() -> None:
    given = "__global__ void f_pullback(double x, const double *b, double d, double *d_x, double *d_b) { *d_x += d; }"
    source = """__device__ double f(double x, const double *b) { return x * *b; }
    __global__ void k(double *y, const double *x) { y[0] = f(x[0], x + 1); }"""
    with pytest.raises(kg.UnsupportedError, match="'f_pullback' does not fit 'f'.*\n.*__device__ void f_pullback"):
        kg.gradient(kg.compile(source, custom=[kg.custom_gradient("f", given)])["k"])


@pytest.mark.parametrize(
    ("name", "told"), [("g_pullback", "gives 'g' a derivative, and"), ("f_pulback", "is not used")]
)
def test_misspelt_names(name: str, told: str) -> None:
    with pytest.warns(UserWarning, match=f"kernel.cu:3: '{name}' {told}"):
        kernel = in_source("d_x[n] += 9 * d;", name)
    d_x = np.zeros(3)
    kg.gradient(kernel, "y, x")[1, 3](np.zeros(3), np.ones(3), np.ones(3), d_x)
    np.testing.assert_array_equal(d_x, 2)


def test_derivatives_of_what_is_not_reached() -> None:
    """They are none of this kernel's business, nor is what they call."""
    source = """__device__ double f(double x) { return x; }
    namespace clad { namespace custom_derivatives {
    __device__ double slope() { return 9; }
    __device__ void f_pullback(double x, double d, double *d_x) { *d_x += slope() * d; }
    } }
    __global__ void k(double *y, double *x) { *y = 2 * *x; }"""
    d_x = np.zeros(1)
    kg.gradient(kg.compile(source)["k"], "y, x")[1, 1](np.zeros(1), np.ones(1), np.ones(1), d_x)
    np.testing.assert_array_equal(d_x, 2)
