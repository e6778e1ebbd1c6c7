"""Wrong arguments of public functions are errors of ours that say what is wanted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

TEXT = "__global__ void k(float *y, const float *x, int n) { int i = threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }"
MODULE = kg.compile(TEXT)
K = MODULE["k"]
G = kg.gradient(K, "y, x")
Y, X = np.zeros(4, np.float32), np.ones(4, np.float32)

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: kg.gradient(MODULE), r"got a module: name its function"),
    (lambda: kg.split(G), "second derivatives are had by kg.gradient and kg.jvp"),
    (lambda: kg.gradient(kg.gradient(G)), "no further derivative here"),
    (lambda: kg.gradient(G, primal=False), "options are for kernels and functions"),
    (lambda: kg.hvp(G), "second derivatives are had by"),
    (lambda: kg.gradient(None), "wants a kernel or a function"),
    (lambda: kg.gradient(K, 5), "wants names"),
    (lambda: kg.gradient(K, [1]), "wants names"),
    (lambda: kg.gradient(K, "y, x", keep=3), "keep: wants names"),
    (lambda: kg.gradient(K, "y, x", tape_budget="a lot"), "tape_budget: wants a number of bytes"),
    (lambda: kg.gradient(K, "y, x", tape_budget=-1), "tape_budget: wants a number of bytes"),
    (lambda: kg.gradient(K, "y, x", primal="no"), "primal: wants True or False"),
    (lambda: kg.compile(Path("a.cu")), r"kg.load\('a.cu'\) reads a file"),
    (lambda: kg.compile(b"text"), "wants CUDA C"),
    (lambda: kg.compile(TEXT, std="17"), r"one of c\+\+11"),
    (lambda: kg.compile(TEXT, std=17), r"one of c\+\+11"),
    (lambda: kg.compile(TEXT, name=3), "name: wants a path"),
    (lambda: kg.compile(TEXT + "//\udc80"), "cannot be encoded"),
    (lambda: kg.load(None), "load: wants a path"),
    (lambda: kg.compile(TEXT, include_dirs=3), "include_dirs: wants a list"),
    (lambda: kg.compile(TEXT, include_dirs=[3]), "include_dirs: wants a path"),
    (lambda: kg.compile(TEXT, defines=4), "defines: wants a dict"),
    (lambda: kg.compile(TEXT, defines=[4]), "defines: wants macros"),
    (lambda: kg.compile(TEXT, defines={4: 4}), "defines: wants macros"),
    (lambda: kg.compile(TEXT, defines={"N": "4 \\\n + 3"}), "defines: wants macros of one line"),
    (lambda: kg.compile(TEXT, defines=["N=4\0"]), "defines: wants macros of one line"),
    (lambda: kg.split(K, unchanged=3), "unchanged: wants names"),
    (lambda: kg.jvp(MODULE), "got a module"),
    (lambda: kg.split(G), "split: wants a kernel"),
    (lambda: kg.check_gradient(kg.jvp(K)), "check_gradient: wants"),
    (lambda: kg.check_gradient(K, "y, x", 1, 4, 3), "in a tuple"),
    (lambda: kg.check_gradient(K, "y, x", 1, 4, (Y, X, 4), rtol="a"), "rtol: wants a number"),
    (lambda: kg.check_gradient(K, "y, x", 1, 4, (Y, X, 4), seed="a"), "seed: wants an integer"),
    (lambda: kg.assume(unique=3), "assume: unique: wants names"),
    (lambda: K.launch(grid=1, block=1, args=3), "in a tuple"),
    (lambda: K.check(1, 4, Y, X, 4, seed="a"), "seed: wants an integer"),
    (lambda: kg.split(K)[0][1, 4](y=3), "no argument for x, n"),
    (lambda: kg.split(K)[1][1, 4](), "the first argument is the tape"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(kg.ArgumentError, match=message):
        call()


def test_a_string_is_one_macro_and_one_folder(tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("#define SCALE 3.0f\n")
    text = '#include "scale.h"\n__global__ void k(float *y) { y[0] = N * SCALE; }'
    for defines in ("N=4", ["N=4"], {"N": 4}, {"N": 4, "FAST": None}):
        y = np.zeros(1, np.float32)
        kg.compile(text, defines=defines, include_dirs=str(tmp_path))["k"][1, 1](y)
        assert y[0] == 12


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_check_gradient_notes_points_that_cannot_be_compared(value: float) -> None:
    x = np.array([1, value, 2, 3], np.float32)
    report = kg.check_gradient(K, "y, x", 1, 4, (Y, x, 4))
    assert any("x[1]" in note and "not compared" in note for note in report.notes)


def test_the_adjoint_of_half2_in_its_own_dtype() -> None:
    text = "#include <cuda_fp16.h>\n__global__ void k(half2 *y, const half2 *x) { y[0] = __hmul2(x[0], x[0]); }"
    dtype = np.dtype([("x", "f2"), ("y", "f2")])
    y, x, d_y, d_x = (np.array([(v, v)], dtype) for v in (0, 3, 1, 0))
    kg.gradient(kg.compile(text)["k"], "y, x")[1, 1](y, x, d_y, d_x)
    assert d_x.tolist() == [(6.0, 6.0)]


@pytest.mark.parametrize("shape", [-1, (2, -3), "a", 2.5, (2, "x")])
def test_shapes_of_zeros(shape: Any) -> None:
    with pytest.raises(kg.ArgumentError, match="zeros: the shape is a number of elements or a tuple"):
        kg.zeros(shape)
    with pytest.raises(kg.ArgumentError, match="zeros: dtype= wants a dtype"):
        kg.zeros(2, "nonsense")


def test_lists_for_the_grid_and_the_block() -> None:
    y, x = np.zeros(4, np.float32), np.full(4, 3, np.float32)
    K[[1], [4, 1]](y, x, 4)
    expected = y.copy()
    K[1, 4](y, x, 4)
    assert y.tolist() == expected.tolist() and y.any()


def test_launches_by_keywords() -> None:
    kernel = kg.compile("__global__ void k(double *y, const double *x) { y[0] = x[0] * x[0]; }")["k"]
    d_x, t_y = np.zeros(1), np.zeros(1)
    kg.gradient(kernel).launch(grid=1, block=1, args=(np.zeros(1), np.full(1, 3.0)), d_y=np.ones(1), d_x=d_x)
    kg.jvp(kernel).launch(grid=1, block=1, args=(np.zeros(1), np.full(1, 3.0), t_y, np.ones(1)))
    assert d_x[0] == t_y[0] == 6


def test_a_header_that_is_missing_is_told_where_the_user_asks() -> None:
    module = kg.compile('#include "nowhere.h"\n__global__ void k(double *y) { y[0] = 1; }')
    with pytest.warns(UserWarning, match=r"nowhere\.h") as told:
        module["k"]
    assert [warning.filename for warning in told] == [__file__]
