"""Adjoints and tangents have as many elements as what they belong to; whatever else is an error before the launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
struct Views { double *y; const double *x; };
struct Plain { double a, b; };
__device__ double W[3];
__global__ void k(double *y, const double *x, double a, int n) {
    int i = threadIdx.x; if (i < n) y[i] = a * x[i] * x[i] * W[i % 3];
}
__global__ void views(Views v, Plain p, int n) { int i = threadIdx.x; if (i < n) v.y[i] = v.x[i] * p.a * p.b; }
__global__ void half(__half *y, const __half2 *x, int n) {
    int i = threadIdx.x; if (i < n) y[i] = __hmul(__low2half(x[i]), __high2half(x[i]));
}
__device__ double f(const double *x, double a) { return x[0] * a; }
"""


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def given() -> dict[str, Any]:
    return {"y": np.ones(8), "x": np.zeros(6), "a": np.zeros(1), "W": np.zeros(3)}


def launch(module: kg.Module, form: str, d: dict[str, Any]) -> None:
    kernel, args = module["k"], (np.zeros(8), np.ones(6), 2.0, 6)
    if form == "split":
        forward, reverse = kg.split(kernel, "y, x, a, W")
        reverse[1, 8](forward[1, 8](*args), *args, *d.values())
    elif form == "jvp":
        kg.jvp(kernel, "y, x, a, W")[1, 8](*args, *d.values())
    elif form == "check":
        kg.gradient(kernel, "y, x, a, W").check(1, 8, *args, *d.values())
    else:
        kg.gradient(kernel, "y, x, a, W", primal=form == "joint")[1, 8](*args, *d.values())


@pytest.mark.parametrize("form", ["joint", "alone", "split", "jvp", "check"])
@pytest.mark.parametrize(("name", "size", "wanted"), [("y", 7, 8), ("x", 7, 6), ("x", 5, 6), ("a", 2, 1), ("W", 6, 3)])
def test_every_form_compares_sizes(module: kg.Module, form: str, name: str, size: int, wanted: int) -> None:
    d = given()
    d[name] = np.full(size, 5.0)
    own = "t" if form == "jvp" else "d"
    with pytest.raises(kg.ArgumentError, match=rf"'{own}_{name}' has .* and its parameter '{name}' has") as error:
        launch(module, form, d)
    assert f"has {size} elements" in str(error.value) and f"has {wanted}:" in str(error.value)
    assert (d[name] == 5).all()
    launch(module, form, given())


def test_the_wrong_order_is_found(module: kg.Module) -> None:
    d = given()
    with pytest.raises(kg.ArgumentError, match="'d_y' has 6 elements and its parameter 'y' has 8"):
        launch(module, "joint", {"y": d["x"], "x": d["y"], "a": d["a"], "W": d["W"]})
    with pytest.raises(kg.ArgumentError, match="'d_y' has 1 elements"):
        launch(module, "joint", {"y": d["a"], "x": d["x"], "a": d["y"], "W": d["W"]})


def test_a_launch_that_came_before_is_no_excuse(module: kg.Module) -> None:
    gradient = kg.gradient(module["k"], "y, x")
    for size in (6, 6, 4):
        args = (np.zeros(8), np.ones(6), 2.0, 6, np.ones(8), np.zeros(size))
        if size == 6:
            gradient[1, 8](*args)
        else:
            with pytest.raises(kg.ArgumentError, match="'d_x' has 4 elements"):
                gradient[1, 8](*args)
    gradient[1, 8](np.zeros(8), np.ones(6), 2.0, 6, np.ones(8), None)


def test_shorter_ones_are_asked_for_by_name(module: kg.Module) -> None:
    gradient = kg.gradient(module["k"], "y, x", shorter="x")
    d_x = np.zeros(6)
    gradient[1, 8](np.zeros(8), np.ones(6), 2.0, 4, np.ones(8), d_x[:4])
    assert not d_x[4:].any()
    for d_y, wrong, words in ((np.ones(7), d_x[:4], "'d_y' has 7"), (np.ones(8), np.zeros(7), "'d_x' has 7")):
        with pytest.raises(kg.ArgumentError, match=words):
            gradient[1, 8](np.zeros(8), np.ones(6), 2.0, 4, d_y, wrong)
    with pytest.raises(kg.ArgumentError, match="'d_a' has 0 elements"):
        empty = np.zeros(0)
        kg.gradient(module["k"], "y, a", shorter="a")[1, 8](np.zeros(8), np.ones(6), 2.0, 4, np.ones(8), empty)
    with pytest.raises(kg.ArgumentError, match="'a' is not among"):
        kg.gradient(module["k"], "y, x", shorter="a")


def test_in_structs(module: kg.Module) -> None:
    v, p = {"y": np.zeros(4), "x": np.ones(4)}, {"a": 1.0, "b": 2.0}
    gradient = kg.gradient(module["views"], "v, p")
    with pytest.raises(kg.ArgumentError, match=r"'d_v\.x' has 3 elements and its parameter 'v\.x' has 4"):
        gradient[1, 4](v, p, 4, {"y": np.ones(4), "x": np.zeros(3)}, np.zeros(2))
    with pytest.raises(kg.ArgumentError, match="'d_p' has 2 elements and its parameter 'p' has 1"):
        gradient[1, 4](v, p, 4, {"y": np.ones(4), "x": np.zeros(4)}, np.zeros(4))
    gradient[1, 4](v, p, 4, {"y": np.ones(4), "x": np.zeros(4)}, np.zeros(2))


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_of_halves(module: kg.Module, dtype: str) -> None:
    gradient = kg.gradient(module["half"], "y, x")
    y, x = np.zeros(4, "f2"), np.ones(8, "f2")
    gradient[1, 4](y, x, 4, np.ones(4, dtype), np.zeros(8, dtype))
    with pytest.raises(kg.ArgumentError, match="'d_x' has 3 elements and its parameter 'x' has 4"):
        gradient[1, 4](y, x, 4, np.ones(4, dtype), np.zeros(6, dtype))


def test_of_functions(module: kg.Module) -> None:
    gradient = kg.gradient(module["f"], "x, a")
    with pytest.raises(kg.ArgumentError, match="'d_x' has 2 elements and its parameter 'x' has 1"):
        gradient.execute(np.ones(1), 2.0, np.zeros(2), np.zeros(1))
    tangent = kg.jvp(module["f"], "x, a")
    with pytest.raises(kg.ArgumentError, match="'t_a' has 0 elements and its parameter 'a' has 1"):
        tangent.execute(np.ones(1), 2.0, np.zeros(1), np.zeros(0))
