"""Lists of parameters: without an output there is no derivative; packs are listed by their name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
__device__ double total;
struct Views { double *y; const double *x; };
__global__ void k(double *y, double *z, const double *x, double a, int n) {
    int i = threadIdx.x; if (i < n) { y[i] = a * x[i]; z[i] = x[i]; }
}
__global__ void sum(const double *x, int n) { atomicAdd(&total, x[threadIdx.x]); }
__global__ void views(Views v, double a) { v.y[threadIdx.x] = v.x[threadIdx.x] * a; }
__global__ void counts(int *y, const double *x) { y[threadIdx.x] = x[threadIdx.x] > 0; }
__global__ void fill(double *y, double *x) { y[threadIdx.x] = 1; }
__global__ void mask(double *y, const double *x) { y[threadIdx.x] = x[threadIdx.x] > 0 ? 1.0 : 0.0; }
__global__ void shift(double *y, const double *x) { y[threadIdx.x] += (int)x[threadIdx.x]; }
__device__ double f(double x) { return x * x; }
__device__ void g(double *y, double x) { *y = x * x; }
"""

MAKERS: dict[str, Callable[..., Any]] = {
    "gradient": kg.gradient,
    "split": kg.split,
    "jvp": kg.jvp,
    "check": lambda kernel, listed: kg.check_gradient(kernel, listed, 1, 1, ()),
}


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("name", "listed", "outputs"),
    [("k", "x, a", "'y', 'z'"), ("k", "a", "'y', 'z'"), ("sum", "x", "'total'"), ("views", "a", "'v'")],
)
def test_a_list_without_an_output_is_an_error(
    module: kg.Module, maker: str, name: str, listed: str, outputs: str
) -> None:
    with pytest.raises(kg.ArgumentError, match=rf"none of '{listed}' is an output of {name}.*writes {outputs}"):
        MAKERS[maker](module[name], listed)


def test_of_functions(module: kg.Module) -> None:
    with pytest.raises(kg.ArgumentError, match="writes 'y'"):
        kg.gradient(module["g"], "x")
    for name, listed in (("f", "x"), ("g", "y, x"), ("views", "v"), ("sum", "total, x"), ("k", "z, x")):
        assert kg.gradient(module[name], listed)


def test_what_writes_no_floats_has_nothing_to_list(module: kg.Module) -> None:
    with pytest.raises(kg.ArgumentError, match="it writes nothing to list"):
        kg.gradient(module["counts"], "x")


@pytest.mark.parametrize("maker", ["gradient", "split"])
@pytest.mark.parametrize(("name", "listed"), [("fill", "y, x"), ("mask", "y, x"), ("shift", "y, x"), ("k", "y, z")])
def test_a_jacobian_of_zeros_is_a_warning(module: kg.Module, maker: str, name: str, listed: str) -> None:
    if name == "shift":
        MAKERS[maker](module[name], listed)  # y keeps its adjoint
        return
    with pytest.warns(UserWarning, match=f"{name}: nothing that is differentiable leads") as caught:
        made = MAKERS[maker](module[name], listed)
        if maker == "gradient" and name != "k":
            made[1, 4](np.zeros(4), np.ones(4), np.ones(4), np.zeros(4))
    assert len(caught) == 1 and caught[0].filename == __file__


def test_a_kernel_is_checked_for_a_launch(module: kg.Module) -> None:
    args = (np.zeros(4), np.zeros(4), np.ones(4), 2.0, 4)
    with pytest.raises(kg.ArgumentError, match="k: say for which launch"):
        kg.check_gradient(module["k"], "y, x", args=args)
    assert kg.check_gradient(module["k"], "y, x", 1, 4, args).ok
    assert kg.check_gradient(module["f"], "x", args=(2.0,)).ok


# ---- packs ----------------------------------------------------------------------------------------------------------

PACKS = """
__device__ double all() { return 0; }
template <class T, class... Rest> __device__ double all(T first, Rest... rest) { return first * first + all(rest...); }
template <class... T> __global__ void k(double *y, const double *x, T... t) {
    int i = threadIdx.x; y[i] = x[i] * all(t...);
}
template <class... T> __global__ void buffers(double *y, T *...t) { int i = threadIdx.x; y[i] = all(t[i]...); }
"""


def test_a_pack_is_listed_by_its_name() -> None:
    kernel = kg.compile(PACKS)["k<double, float, double>"]
    gradient = kg.gradient(kernel, "y, x, t")
    assert "double t0, float t1, double t2" in repr(gradient) and "d_t2" in repr(gradient)
    cells = [np.zeros(1), np.zeros(1, "f4"), np.zeros(1)]
    gradient[1, 4](np.zeros(4), np.ones(4), 2.0, 3.0, 5.0, np.ones(4), np.zeros(4), *cells)
    np.testing.assert_allclose([c[0] for c in cells], [16, 24, 40])
    (only,) = cells[1:2]
    kg.gradient(kernel, "y, t1")[1, 4](np.zeros(4), np.ones(4), 2.0, 3.0, 5.0, np.ones(4), only)
    assert only[0] == 48
    assert kg.check_gradient(kernel, "y, x, t", 1, 4, (np.zeros(4), np.ones(4), 2.0, 3.0, 5.0)).ok


def test_a_pack_of_buffers() -> None:
    kernel = kg.compile(PACKS)["buffers<const double, const double>"]
    a, b = np.arange(4.0), np.arange(4.0) + 1
    d = [np.ones(4), np.zeros(4), np.zeros(4)]
    kg.gradient(kernel, "y, t", assign="t")[1, 4](np.zeros(4), a, b, *d)
    np.testing.assert_array_equal(d[1:], [2 * a, 2 * b])
    forward, reverse = kg.split(kernel, "y, t", unchanged="t")
    tape = forward[1, 4](np.zeros(4), a, b)
    assert tape.nbytes == 0
    d = [np.ones(4), np.zeros(4), np.zeros(4)]
    reverse[1, 4](tape, np.zeros(4), a, b, *d)
    np.testing.assert_array_equal(d[1:], [2 * a, 2 * b])
