"""Second derivatives as objects: names and order of arguments, options, memory of all kinds, text, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = r"""
#include <cuda_fp16.h>
struct Views { double *out; const double *in; int n; };
struct Scaled { double *out; const double *in; double s; };
struct Pair { double a; int t; double b; };
__device__ double weights[3] = {1.0, 2.0, 0.5}, passing[64];
template <typename T> __global__ void wave(T *y, const T *x, const T *w, T a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sin(a * x[i]) * w[i % 4] * w[0];
}
__global__ void cubes(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] * x[i];
}
__global__ void loop(double *y, const double *x, double a, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = x[i];
    for (int j = 0; j < m; ++j) s = s + 0.1 * sin(s * a) * x[(i + j) % n];
    y[i] = s;
}
__global__ void halves(__half *y, const __half *x, int n) {
    int i = threadIdx.x;
    if (i < n) { float v = __half2float(x[i]); y[i] = __float2half(v * v * v); }
}
__global__ void views(Views v) {
    int i = threadIdx.x;
    if (i < v.n) v.out[i] = v.in[i] * v.in[i] * v.in[i];
}
__global__ void scaled(Scaled v) { v.out[threadIdx.x] = v.s * v.in[threadIdx.x]; }
__global__ void records(Pair *y, const Pair *x, Pair p, int n) {
    int i = threadIdx.x;
    if (i < n) { y[i].a = x[i].a * x[i].b * p.a; y[i].b = x[i].b * p.b; y[i].t = 1; }
}
__global__ void variables(double *y, const double *x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = weights[i % 3] * weights[0] * x[i] * x[i];
}
__global__ void through(double *y, const double *x, int n) {
    int i = threadIdx.x;
    passing[i] = x[i] * x[i];
    __syncthreads();
    y[i] = passing[i] * passing[(i + 1) % n];
}
__global__ void twice(double *y, const double *x, int n) {
    int i = threadIdx.x;
    if (i < n) { y[i] = x[i]; y[i / 2] = x[i / 2] * x[i / 2]; }
}
__global__ void largest(float *y, const float *x, int n) {
    int i = threadIdx.x;
    if (i < n) atomicMax((int *)y, __float_as_int(x[i] * x[i]));
}
__global__ void largest_of_block(float *y, const float *x, int n) {
    __shared__ float most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    atomicMax((int *)&most, __float_as_int(x[threadIdx.x] * x[threadIdx.x]));
    __syncthreads();
    y[threadIdx.x] = most * x[threadIdx.x];
}
"""
N = 8


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE, name="second.cu")


def draw(seed: int, size: int = N, dtype: Any = "f8") -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, size).astype(dtype)


def test_names_and_order(module: kg.Module) -> None:
    kernel = module["cubes"]
    own = "__global__ void cubes(float *y, const float *x, int n"
    gradient, tangent = kg.gradient(kernel, "y, x"), kg.jvp(kernel, "y, x")
    assert repr(kg.gradient(gradient)) == (
        f"<gradient of the gradient {own}, float *d_y, float *d_x, float *d2_y, float *d2_x, float *d2_d_y,"
        " const float *d2_d_x)>"
    )
    assert repr(kg.gradient(tangent)) == (
        f"<gradient of the jvp {own}, float *t_y, const float *t_x, float *d_y, float *d_x, float *d_t_y,"
        " float *d_t_x)>"
    )
    assert repr(kg.jvp(gradient, "x, d_x")) == (f"<jvp {own}, float *d_y, float *d_x, const float *t_x, float *t_d_x)>")
    assert repr(kg.hvp(kernel, "y, x")) == f"<hvp {own}, const float *d_y, const float *v_x, float *hv_x)>"


def test_names_that_a_kernel_has_are_not_taken() -> None:
    kernel = kg.compile("__global__ void k(double *y, double *v_x, const double *x) { y[0] = x[0] * v_x[0]; }")["k"]
    assert "const double *_v_x, const double *v_v_x, double *hv_x, double *hv_v_x" in repr(kg.hvp(kernel, "y, x, v_x"))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_all_kinds_exactly(dtype: str) -> None:
    """y = x³: every second derivative by hand."""
    real = {"f4": "float", "f8": "double"}[dtype]
    text = f"__global__ void k({real} *y, const {real} *x, int n) {{ int i = threadIdx.x; y[i] = x[i] * x[i] * x[i]; }}"
    kernel = kg.compile(text)["k"]
    gradient, tangent = kg.gradient(kernel, "y, x"), kg.jvp(kernel, "y, x")
    x, d_y, v, b = (draw(k, N, dtype) for k in range(4))
    close = {"rtol": 1e-5 if dtype == "f4" else 1e-13}
    y, d_x, d2_x, d2_d_y = (np.zeros(N, dtype) for _ in range(4))
    kg.gradient(gradient, "x, d_y, d_x")[1, N](y, x, N, d_y.copy(), d_x, d2_x, d2_d_y, b)
    np.testing.assert_allclose(y, x**3, **close)
    np.testing.assert_allclose(d_x, 3 * x**2 * d_y, **close)
    np.testing.assert_allclose(d2_x, 6 * x * d_y * b, **close)
    np.testing.assert_allclose(d2_d_y, 3 * x**2 * b, **close)
    d_x, d_t_x, t_y = (np.zeros(N, dtype) for _ in range(3))
    kg.gradient(tangent, "x, t_y, t_x")[1, N](y, x, N, t_y, v, d_x, d_y.copy(), d_t_x)
    np.testing.assert_allclose(t_y, 3 * x**2 * v, **close)
    np.testing.assert_allclose(d_x, 6 * x * v * d_y, **close)
    np.testing.assert_allclose(d_t_x, 3 * x**2 * d_y, **close)
    hv = np.full(N, 9, dtype)
    kg.hvp(kernel, "y, x")[1, N](y, x, N, d_y, v, hv)
    np.testing.assert_allclose(hv, 6 * x * v * d_y, **close)


@pytest.mark.parametrize(("real", "dtype", "tolerance"), [("double", "f8", 1e-10), ("float", "f4", 2e-4)])
def test_sums_of_large_launches(module: kg.Module, real: str, dtype: str, tolerance: float) -> None:
    """Where a gradient adds up in several steps, its tangent does too. sin(a x) w[i % 4] w[0], in a and w."""
    kernel, blocks = module[f"wave<{real}>"], 2100
    n = 32 * blocks
    x, d_y, w, v_w, (a, v_a) = draw(0, n, dtype), draw(1, n, dtype), draw(2, 4, dtype), draw(3, 4, dtype), draw(4, 2)
    hv_w, hv_a = np.zeros(4, dtype), np.zeros(1, dtype)
    product = kg.hvp(kernel, "y, w, a")
    product[blocks, 32](np.zeros(n, dtype), x, w, a, n, d_y, v_w, np.array([v_a], dtype), hv_w, hv_a)
    x, d_y, w, v_w = (z.astype("f8") for z in (x, d_y, w, v_w))
    k = np.arange(n) % 4
    pair, v_pair = w[k] * w[0], v_w[k] * w[0] + w[k] * v_w[0]
    by_a = d_y * (-(x**2) * np.sin(a * x) * v_a * pair + x * np.cos(a * x) * v_pair)
    wave, v_wave = np.sin(a * x), x * np.cos(a * x) * v_a
    by_w = np.bincount(k, d_y * (v_wave * w[0] + wave * v_w[0]), 4)
    by_w[0] += float(np.sum(d_y * (v_wave * w[k] + wave * v_w[k])))
    np.testing.assert_allclose(hv_a[0], by_a.sum(), rtol=tolerance)
    np.testing.assert_allclose(hv_w, by_w, rtol=tolerance)


def test_what_is_not_given_is_zero_and_not_wanted(module: kg.Module) -> None:
    """Also parameters that the first derivative does not list."""
    kernel, x, d_y, v = module["loop"], draw(1), draw(2), draw(3)
    gradient, tangent = kg.gradient(kernel, "y, x"), kg.jvp(kernel, "y, x")
    found = np.zeros(1)
    kg.gradient(gradient, "a, x, d_x")[1, N](np.zeros(N), x, 0.7, N, 3, d_y.copy(), None, found, None, d2_d_x=v)
    again = np.zeros(1)
    kg.gradient(tangent, "a, t_y")[1, N](np.zeros(N), x, 0.7, N, 3, np.zeros(N), v, d_t_y=d_y.copy(), d_a=again)

    def slope(a: float) -> Any:
        t_y = np.zeros(N)
        tangent[1, N](np.zeros(N), x, a, N, 3, t_y, v)
        return t_y @ d_y

    expected = (slope(0.7 + 1e-6) - slope(0.7 - 1e-6)) / 2e-6
    assert found[0] == pytest.approx(expected, rel=1e-8) and again[0] == pytest.approx(expected, rel=1e-8)


def test_arguments_by_name_and_slots_that_are_not_named() -> None:
    text = (
        "__global__ void k(double *y, const double *x, int n) { if (threadIdx.x < n) y[threadIdx.x] *= x[0] * x[0]; }"
    )
    product = kg.hvp(kg.compile(text)["k"], "y, x")  # takes d_y, v_y, v_x, hv_y, hv_x
    x, v, d, y, expected = np.full(1, 3.0), np.full(1, 5.0), draw(2), draw(3), 2 * 5.0 * (draw(2) * draw(3)).sum()
    for args, names in (((), {"y": y, "x": x, "n": N, "d_y": d}), ((y, x), {"n": N, "d_y": d}), ((y, x, N, d), {})):
        found, y[:] = np.zeros(1), draw(3)
        product[1, N](*args, **names, v_x=v, hv_x=found)
        np.testing.assert_allclose(found, expected)
    for args, names, told in (
        ((y, x, N), {}, "takes 3 arguments and after them d_y, v_y, v_x, hv_y, hv_x, got 3"),
        ((y, x, N, d), {"d_y": d, "v_x": v}, "got 4, d_y=, v_x="),
        ((y, x), {"d_y": d}, "k: no argument for n"),
        ((y, x, N), {"x": x, "d_y": d}, "k: 'x' is given twice"),
    ):
        with pytest.raises(kg.ArgumentError, match=told):
            product[1, N](*args, **names)


@pytest.mark.parametrize("options", [{"assign": "x"}, {"keep": "y"}, {"keep": "y", "assign": "x", "primal": False}])
@pytest.mark.parametrize(("name", "block"), [("cubes", N), ("twice", 1)])
def test_tangents_of_gradients_with_options(module: kg.Module, name: str, block: int, options: Any) -> None:
    """What is assigned has a tangent that is, what is kept one that stays, also where elements are stored twice."""
    kernel = module[name]
    dtype = "f4" if name == "cubes" else "f8"
    gradient, x, v, s, p = kg.gradient(kernel, "y, x", **options), *(draw(k, N, dtype) for k in range(4))
    start = 5.0 if "assign" in options else 0.0
    d_y, t_d_y, d_x, t_d_x = s.copy(), p.copy(), np.full(N, start, dtype), np.full(N, start, dtype)
    kg.jvp(gradient, "x, d_y, d_x")[1, block](np.zeros(N, dtype), x, block, d_y, d_x, v, t_d_y, t_d_x)
    used = np.arange(N) < block
    power = (3 * x**2, 6 * x) if name == "cubes" else (2 * x, 2.0)
    np.testing.assert_allclose(d_x, np.where(used, power[0] * s, 0), rtol=1e-5)
    np.testing.assert_allclose(t_d_x, np.where(used, power[0] * p + power[1] * v * s, 0), rtol=1e-5)
    if "keep" in options:
        np.testing.assert_array_equal(d_y, s)
        np.testing.assert_array_equal(t_d_y, p)


def test_within_a_budget(module: kg.Module) -> None:
    kernel, n, m = module["loop"], 32, 300
    x, d_y, v = draw(1, n), draw(2, n), draw(3, n)
    found = []
    for budget in (None, 20000):
        t = [np.zeros(n), np.zeros(n)]
        gradient = kg.gradient(kernel, "y, x", tape_budget=budget)
        kg.jvp(gradient, "x, d_x")[1, 32](np.zeros(n), x, 0.7, n, m, d_y.copy(), t[0], v, t[1])
        found.append(t)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


def test_memory_of_all_kinds(module: kg.Module) -> None:
    """Half precision, structs of pointers, records, module variables: y = x³ and the like."""
    x, d_y, v = draw(1, N, "f2"), draw(2, N, "f2"), draw(3, N, "f2")
    for dtype, close in (("f2", 2e-3), ("f4", 1e-6)):
        hv = np.zeros(N, dtype)
        kg.hvp(module["halves"], "y, x")[1, N](np.zeros(N, "f2"), x, N, d_y.astype(dtype), v, hv)
        np.testing.assert_allclose(hv, 6 * x.astype("f8") * v * d_y, rtol=close, atol=close)
    x, d_y, v, hv = draw(1), draw(2), draw(3), np.zeros(N)
    unused = [np.zeros(N) for _ in range(4)]
    kg.hvp(module["views"], "v")[1, N](
        {"out": unused[0], "in": x, "n": N},
        {"out": d_y, "in": unused[1]},
        {"out": unused[2], "in": v, "n": 0},
        {"out": unused[3], "in": hv},
    )
    np.testing.assert_allclose(hv, 6 * x * v * d_y)
    hv_x, hv_w, w, v_w = np.zeros(N), np.zeros(3), np.array([1.0, 2.0, 0.5]), draw(4, 3)
    kg.hvp(module["variables"], "y, x, weights")[1, N](np.zeros(N), x, N, d_y, v, v_w, hv_x, hv_w)
    k = np.arange(N) % 3
    moved = v_w[k] * w[0] + w[k] * v_w[0]
    np.testing.assert_allclose(hv_x, d_y * 2 * (x * moved + v * w[k] * w[0]))
    assert hv_w[1] == pytest.approx(np.sum((d_y * (2 * x * v * w[0] + x * x * v_w[0]))[k == 1]))


def test_variables_that_values_pass_through_have_tangents_of_their_size(module: kg.Module) -> None:
    kernel, x, v, d_y = module["through"], draw(1), draw(2), draw(3)
    f = x**2 * np.roll(x, -1) ** 2  # y
    want = d_y * 2 * np.roll(x, -1) ** 2 * v + d_y * 4 * x * np.roll(x * v, -1)
    d_before, before = np.roll(d_y, 1), np.roll(x, 1)
    want += d_before * 2 * before**2 * v + d_before * 4 * before * np.roll(v, 1) * x
    second, y, hv, d_x, d2_x = kg.hvp(kernel, "y, x"), np.zeros(N), np.zeros(N), np.zeros(N), np.zeros(N)
    assert second.check(1, N, y, x, N, d_y=d_y, v_x=v, hv_x=hv).ok
    np.testing.assert_allclose(hv, want)
    np.testing.assert_allclose(y, f)
    again = kg.gradient(kg.gradient(kernel, "y, x"))
    assert again.check(1, N, y, x, N, d_y=d_y.copy(), d_x=d_x, d2_x=d2_x, d2_d_x=v).ok
    np.testing.assert_allclose(d2_x, want)


def test_records(module: kg.Module) -> None:
    dtype = np.dtype([("a", "f8"), ("t", "i4"), ("b", "f8")], align=True)

    def pairs(seed: int, size: int = N) -> Any:
        made = np.zeros(size, dtype)
        made["a"], made["b"] = draw(seed, size), draw(seed + 50, size)
        return made

    x, d_y, v, p, hv, hv_p = pairs(1), pairs(2), pairs(3), pairs(4, 1), pairs(5), pairs(6, 1)
    kg.hvp(module["records"], "y, x, p")[1, N](np.zeros(N, dtype), x, p[0], N, d_y, v, None, hv, hv_p)
    np.testing.assert_allclose(hv["a"], d_y["a"] * v["b"] * p["a"])
    np.testing.assert_allclose(hv["b"], d_y["a"] * v["a"] * p["a"])
    np.testing.assert_allclose(hv_p["a"], np.sum(d_y["a"] * (v["a"] * x["b"] + x["a"] * v["b"])))
    np.testing.assert_allclose(hv_p["b"], np.sum(d_y["b"] * v["b"]))


def test_check_gradient(module: kg.Module) -> None:
    """Of a gradient: its second derivatives, against differences of it."""
    gradient = kg.gradient(module["loop"], "y, x, a")
    args = (draw(1), draw(2), 0.7, N, 4, draw(3), draw(4), draw(5, 1))
    report = kg.check_gradient(gradient, None, 1, N, args)
    assert report.ok and report.listed == ("y", "x", "a", "d_y", "d_x", "d_a") and report.error < 1e-12
    assert kg.check_gradient(gradient, "x, d_x", 1, N, args).ok
    with pytest.raises(kg.ArgumentError, match="5 arguments and 3 adjoints, got 5"):
        kg.check_gradient(gradient, None, 1, N, args[:5])


def test_text(module: kg.Module) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    kernel = module["loop"]
    gradient, tangent = kg.gradient(kernel, "y, x, a"), kg.jvp(kernel, "y, x, a")
    for made in (kg.gradient(gradient), kg.gradient(tangent), kg.jvp(gradient), kg.hvp(kernel, "y, x, a")):
        assert compile_only(made.source, "sm_90")
    product = kg.hvp(kernel, "y, x, a")
    assert "hv_x is the tangent of x's adjoint: the second derivative, and is written." in product.source
    assert "loop_hvp(" in product.source and "_tape_f64" in product.source
    assert "v_a is the direction of a" in product.explain() and "summed in each block" in product.explain()


REFUSED = [
    ("largest", lambda k: kg.hvp(k, "y, x"), "no second derivative here: its winner", "atomicMax((int *)y"),
    ("largest", lambda k: kg.gradient(kg.gradient(k)), "no second derivative here: its winner", "atomicMax((int *)y"),
    (
        "largest_of_block",
        lambda k: kg.jvp(kg.gradient(k)),
        "no second derivative here: its winner",
        "atomicMax((int *)&most",
    ),
    ("largest", lambda k: kg.gradient(kg.jvp(k)), "forward mode does not take an atomic maximum", "atomicMax((int *)y"),
    ("scaled", lambda k: kg.hvp(k, "v"), "numbers beside pointers", "void scaled"),
    ("cubes", lambda k: kg.gradient(kg.gradient(k, keep="y")), "a gradient with keep has no gradient", "void cubes"),
    ("cubes", lambda k: kg.gradient(kg.gradient(k, deterministic=True)), "goes through a log", "void cubes"),
]


@pytest.mark.parametrize(("name", "make", "reason", "line"), REFUSED)
def test_refused_at_the_line(module: kg.Module, name: str, make: Any, reason: str, line: str) -> None:
    with pytest.raises(kg.UnsupportedError, match=reason) as refused:
        make(module[name])
    assert line in SOURCE.splitlines()[refused.value.span.line - 1]


def test_wrong_arguments(module: kg.Module) -> None:
    product, x = kg.hvp(module["loop"], "y, x"), draw(1)
    args = (np.zeros(N), x, 0.7, N, 3)
    second = kg.gradient(kg.gradient(module["loop"], "y, x"))
    for call, told in (
        (lambda: product[1, N](*args, x), r"takes 5 arguments and after them d_y, v_x, hv_x, got 6"),
        (lambda: product[1, N](*args, draw(2), draw(3), hv=draw(4)), "got 7, hv="),
        (lambda: product[1, N](*args, draw(2), draw(3), np.zeros(3)), "the product 'hv_x' has 3 elements and its"),
        (lambda: product[1, N](*args, draw(2), draw(3), x), "'x' and 'hv_x' share memory"),
        (lambda: product[1, N](*args, draw(2, N, "f4"), x, draw(4)), r"'d_y' \(double \*\) wants a float64 array"),
        (lambda: product[1, N](*args, None, draw(1), None), "nothing to do"),
        (lambda: second[1, N](*args, draw(2), draw(3), *map(draw, (4, 5)), np.zeros(3), None, None), "'d2_a' has 3"),
        (lambda: product.execute(1), "use execute_kernel"),
        (lambda: kg.hvp(module["loop"], "y"), "none of 'y' is an input"),
        (lambda: kg.hvp(module["loop"], "x"), "none of 'x' is an output"),
        (lambda: kg.gradient(kg.jvp(module["loop"]), "z"), "no parameter 'z'"),
        (lambda: kg.gradient(kg.gradient(module["loop"]), "n"), "holds no floating-point"),
    ):
        with pytest.raises((kg.ArgumentError, kg.LaunchError), match=told):
            call()
    with kg.record(), pytest.raises(kg.TapeError, match="a second derivative cannot be recorded"):
        product[1, N](*args, draw(2), draw(3), draw(4))


ZEROS = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
__global__ void pairs(double *y, const double *x, int n) {
    int i = threadIdx.x; if (2 * i + 1 >= n) return;
    double a = x[2 * i], b = x[2 * i + 1]; y[2 * i] = a * b * a; y[2 * i + 1] = b * b * a; }
__global__ void shrink(double *y, const double *x, int n) {
    I; double s = x[i]; while (s * s > 0.05) s = s * 0.5 * cos(s); y[i] = s * x[i]; }
__global__ void tile(double *y, const double *x, int n) {
    extern __shared__ double s[]; int i = threadIdx.x; s[i] = i < n ? x[i] * x[i] : 0.0; __syncthreads();
    if (i < n) y[i] = s[(i + 1) % n] * x[i]; }
__global__ void near(double *y, const double *x, int n) { I; double s = 0;
    for (int j = -2; j <= 2; ++j) s += x[(i + j + n) % n] * x[i] * x[(i + 2 * j + 2 * n) % n];
    y[i] = s; }
"""


@pytest.mark.parametrize("zeros", [slice(None), slice(0, None, 2)], ids=["all", "some"])
@pytest.mark.parametrize("name", ["pairs", "shrink", "tile", "near"])
def test_adjoints_of_zero_have_second_derivatives(name: str, zeros: slice) -> None:
    """A gradient is linear in the adjoints. Where one is zero, what it is multiplied by is masked, not its tangent."""
    n, launch = 12, (1, 16, 16 * 8)
    kernel = kg.compile(ZEROS)[name]
    g, (x, v, w, seed) = kg.gradient(kernel, "y, x"), np.random.default_rng(0).uniform(0.3, 1, (4, n))
    seed[zeros] = 0

    def gradient(adjoint: Any) -> Any:
        d_x = np.zeros(n)
        g[launch](np.zeros(n), x, n, adjoint.copy(), d_x)
        return d_x

    moved = np.zeros(n)
    kg.jvp(g, "d_y, d_x")[launch](np.zeros(n), x, n, seed.copy(), np.zeros(n), v.copy(), moved)
    np.testing.assert_allclose(moved, gradient(v), atol=1e-14)
    d2_x, d2_d_y = np.zeros(n), np.zeros(n)
    kg.gradient(g)[launch](np.zeros(n), x, n, np.zeros(n), np.zeros(n), v.copy(), d2_x, d2_d_y, w.copy())
    np.testing.assert_allclose(d2_x, gradient(v), atol=1e-14)
    np.testing.assert_allclose(v @ d2_d_y, w @ gradient(v))
    d_x = np.zeros(n)
    tangents = np.zeros(n), seed * 0
    kg.gradient(kg.jvp(kernel, "y, x"))[launch](np.zeros(n), x, n, *tangents, d_y=v.copy(), d_x=d_x)
    np.testing.assert_allclose(d_x, gradient(v), atol=1e-14)
