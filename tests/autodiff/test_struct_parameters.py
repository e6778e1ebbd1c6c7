"""Structs as parameters: by value with numbers, by value with pointers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
struct Plain { double a; int k; double b[2]; };
struct Views { double *y; const double *x; const int *at; double scale; int n; };
struct Inner { const float *x; int n; };
struct Outer { float *y; Inner in; };
__global__ void plain(double *y, const double *x, Plain p) {
    int i = threadIdx.x;
    y[i] = x[i] * p.a * p.b[i % 2] * p.k;
}
__device__ double get(Views v, int i) { return v.x[v.at[i]] * v.scale; }
__global__ void views(Views v) { int i = threadIdx.x; if (i < v.n) v.y[i] = get(v, i) * v.x[0]; }
__global__ void in_place(Views v) {
    int i = threadIdx.x;
    for (int j = 0; j < 3; j++) v.y[i] = v.y[i] * v.y[i] * v.x[i];
}
__global__ void nested(Outer v) {
    int i = threadIdx.x;
    float s = 1;
    Inner in = v.in;
    for (int j = 0; j < in.n; j++) s = s * in.x[j] + in.x[i];
    v.y[i] = s;
}
__global__ void chosen(Views a, Views b, int which) {
    int i = threadIdx.x;
    Views c = which ? a : b;
    c.y[i] = c.x[i] * c.x[i];
}
__global__ void unlisted(double *y, const double *x, Views v) {
    int i = threadIdx.x;
    for (int j = 0; j < v.n; j++) v.y[i] = v.y[i] * x[j];
    y[i] = v.y[i];
}
"""

X = np.array([0.5, 0.6, 0.7, 0.8])


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def views() -> dict[str, Any]:
    return {"y": np.ones(4), "x": X.copy(), "at": np.array([3, 2, 2, 0], np.int32), "scale": 1.5, "n": 4}


def adjoint(**changed: Any) -> dict[str, Any]:
    return {**views(), "at": None, "scale": None, **changed}


def test_numbers(module: kg.Module) -> None:
    """The adjoint is a pointer to one such struct."""
    p = {"a": 2.0, "k": 3, "b": [5.0, 7.0]}
    gradient = kg.gradient(module["plain"], "y, x, p")
    assert "Plain *d_p" in repr(gradient)
    d_p = np.zeros(1, np.dtype([("a", "f8"), ("k", "i4"), ("b", "f8", 2)], align=True))
    gradient[1, 4](np.zeros(4), X, p, np.ones(4), np.zeros(4), d_p)
    even, odd = X[::2].sum(), X[1::2].sum()
    np.testing.assert_allclose(d_p["a"], 3 * (5 * even + 7 * odd))
    np.testing.assert_allclose(d_p["b"], [[6 * even, 6 * odd]])
    assert kg.check_gradient(module["plain"], "y, x, p", 1, 4, (np.zeros(4), X, p)).ok


def test_pointers(module: kg.Module) -> None:
    """The adjoint is a struct of adjoints; a number's is an array of one, integers have none."""
    gradient = kg.gradient(module["views"], "v")
    assert repr(gradient) == "<gradient __global__ void views(Views v, Views d_v)>"
    v, d_v = views(), {"y": np.ones(4), "x": np.zeros(4), "at": None, "scale": np.ones(1), "n": 0}
    gradient[1, 4](v, d_v)
    np.testing.assert_allclose(v["y"], X[v["at"]] * 1.5 * X[0])
    want = np.zeros(4)
    np.add.at(want, v["at"], 1.5 * X[0])
    want[0] += 1.5 * X[v["at"]].sum()
    np.testing.assert_allclose(d_v["x"], want)
    np.testing.assert_allclose(d_v["scale"], 1 + (X[v["at"]] * X[0]).sum())
    assert not d_v["y"].any()


@pytest.mark.parametrize("name", ["views", "in_place"])
def test_all_modes_agree(module: kg.Module, name: str) -> None:
    assert kg.check_gradient(module[name], "v", 1, 4, (views(),)).ok


def test_struct_in_a_struct(module: kg.Module) -> None:
    v = {"y": np.zeros(4, "f4"), "in": {"x": X.astype("f4"), "n": 4}}
    assert kg.check_gradient(module["nested"], "v", 1, 4, (v,)).ok


@pytest.mark.parametrize("which", [0, 1])
def test_chosen_at_run_time(module: kg.Module, which: int) -> None:
    assert kg.check_gradient(module["chosen"], "a, b", 1, 4, (views(), views(), which)).ok


def test_a_missing_member_is_an_error(module: kg.Module) -> None:
    with pytest.raises(kg.ArgumentError, match=r"the adjoint of 'v' lacks 'v\.x'"):
        kg.gradient(module["views"], "v")[1, 4](views(), adjoint(x=None))


def test_members_without_a_derivative_need_not_be_given(module: kg.Module) -> None:
    gradient = kg.gradient(module["views"], "v")
    found, given = adjoint(x=np.zeros(4), scale=np.zeros(1)), adjoint(x=np.zeros(4), scale=np.zeros(1))
    gradient[1, 4](views(), found)
    gradient[1, 4](views(), {name: given[name] for name in ("y", "x", "scale")})
    assert np.array_equal(given["x"], found["x"]) and np.array_equal(given["scale"], found["scale"])
    assert found["scale"][0] != 0
    with pytest.raises(kg.ArgumentError, match=r"the adjoint of 'v\.scale' is missing"):
        gradient[1, 4](views(), {"y": given["y"], "x": given["x"]})
    with pytest.raises(kg.ArgumentError, match=r"the adjoint of 'v' has 'z', which is no member: it has y, x, at"):
        gradient[1, 4](views(), adjoint(z=np.zeros(1)))


def test_overlap_inside_structs(module: kg.Module) -> None:
    v = views()
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.gradient(module["views"], "v")[1, 4](v, adjoint(x=v["x"]))
    v["y"] = v["x"]
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.gradient(module["views"], "v")[1, 4](v, adjoint())


def test_unlisted_struct_is_refused(module: kg.Module) -> None:
    with pytest.raises(kg.UnsupportedError, match="flows through the pointers in 'v', which is not listed"):
        kg.gradient(module["unlisted"], "y, x")
    assert kg.gradient(module["unlisted"], "y, x, v")


MIXED = """
struct Coeff { const int *at; float w[2]; double inner; };
struct Mixed { float *y; Coeff c; float a; const float *x; };
__device__ float weigh(const Mixed &m, int i) { return (i % 2 == 0 ? m.c.w[0] : m.c.w[1]) * m.a; }
__global__ void mixed(Mixed m, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = 0;
    for (int j = 0; j < 3; j++) s += weigh(m, j) * m.x[m.c.at[i]] * m.a * (float)m.c.inner;
    m.y[i] = s * s;
}
"""


@pytest.mark.parametrize("options", [{}, {"primal": False}, {"deterministic": True}, {"tape_budget": 1 << 20}])
def test_numbers_beside_pointers(options: dict[str, Any]) -> None:
    """Also arrays of them, in structs in structs."""
    rng, n = np.random.default_rng(0), 40
    x, at, w = rng.random(n, "f4"), rng.integers(0, n, n).astype("i4"), np.array([0.5, 1.5], "f4")
    m = {"y": np.zeros(n, "f4"), "c": {"at": at, "w": w, "inner": 0.7}, "a": 1.3, "x": x}
    d_y = rng.standard_normal(n).astype("f4")
    d_m = {
        "y": d_y.copy(),
        "c": {"at": None, "w": np.zeros(2, "f4"), "inner": np.ones(1)},
        "a": np.zeros(1, "f4"),
        "x": np.zeros(n, "f4"),
    }
    kg.gradient(kg.compile(MIXED)["mixed"], "m", **options)[2, 32](m, n, d_m)
    k = 2 * 0.5 + 1.5
    s = k * 1.3**2 * 0.7 * x[at].astype("f8")
    d_s = 2 * s * d_y
    np.testing.assert_allclose(d_m["a"], (d_s * 2 * s / 1.3).sum(), rtol=1e-4)
    np.testing.assert_allclose(d_m["c"]["inner"], 1 + (d_s * s / 0.7).sum(), rtol=1e-4)
    np.testing.assert_allclose(d_m["c"]["w"], [(d_s * 2 * s / k).sum(), (d_s * s / k).sum()], rtol=1e-4)


def test_numbers_beside_pointers_compile() -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    source = kg.gradient(kg.compile(MIXED)["mixed"], "m").source
    assert "float *__restrict__ _d_m_a" in source and compile_only(source, "sm_90")


def test_numbers_beside_pointers_in_a_split(module: kg.Module) -> None:
    forward, reverse = kg.split(module["views"], "v")
    v, d_v = views(), {**adjoint(scale=np.zeros(1)), "y": np.ones(4), "x": np.zeros(4)}
    want = (X[v["at"]] * X[0]).sum()
    tape = forward[1, 4](v)
    for array in (v["y"], v["x"], v["at"]):
        array[...] = 0
    reverse[1, 4](tape, v, d_v)
    np.testing.assert_allclose(d_v["scale"], want)


def test_a_number_for_the_adjoint_of_a_number_is_an_error(module: kg.Module) -> None:
    with pytest.raises(kg.ArgumentError, match=r"'v\.scale' is an array of one element, or None .* got float"):
        kg.gradient(module["views"], "v")[1, 4](views(), adjoint(scale=0.0))
    with pytest.raises(kg.ArgumentError, match=r"'d_v\.scale' has 2 elements"):
        kg.gradient(module["views"], "v")[1, 4](views(), adjoint(scale=np.zeros(2)))
