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
    """The adjoint is a struct of adjoints; integers have none."""
    gradient = kg.gradient(module["views"], "v")
    assert repr(gradient) == "<gradient __global__ void views(Views v, Views d_v)>"
    v, d_v = views(), {"y": np.ones(4), "x": np.zeros(4), "at": None, "scale": 0, "n": 0}
    gradient[1, 4](v, d_v)
    np.testing.assert_allclose(v["y"], X[v["at"]] * 1.5 * X[0])
    want = np.zeros(4)
    np.add.at(want, v["at"], 1.5 * X[0])
    want[0] += 1.5 * X[v["at"]].sum()
    np.testing.assert_allclose(d_v["x"], want)
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
        kg.gradient(module["views"], "v")[1, 4](views(), {**views(), "x": None})


def test_overlap_inside_structs(module: kg.Module) -> None:
    v = views()
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.gradient(module["views"], "v")[1, 4](v, {**views(), "x": v["x"]})
    v["y"] = v["x"]
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.gradient(module["views"], "v")[1, 4](v, views())


def test_unlisted_struct_is_refused(module: kg.Module) -> None:
    with pytest.raises(kg.UnsupportedError, match="flows through the pointers in 'v', which is not listed"):
        kg.gradient(module["unlisted"], "y, x")
    assert kg.gradient(module["unlisted"], "y, x, v")


def test_numbers_beside_pointers_are_constants(module: kg.Module) -> None:
    assert "numbers beside the pointers in 'v' are constants" in kg.gradient(module["views"], "v").explain()
