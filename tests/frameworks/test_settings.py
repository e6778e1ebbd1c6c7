"""What is said of an operator, to PyTorch's and to JAX's alike: what is wrong with it is told by name, and at once
where it can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from operator_kernels import ON_CPU

MODULE = kg.compile(ON_CPU)
X = np.linspace(-1, 1, 5)


@pytest.fixture(params=["torch", "jax"])
def package(request: pytest.FixtureRequest) -> Iterator[Any]:
    """`op`, and what makes an array of NumPy's one of the package's."""
    found: Any = pytest.importorskip(request.param)
    if request.param == "torch":
        yield kg.torch.op, found.from_numpy
        return
    from jax_kernels import on_cpu

    with on_cpu():
        yield kg.jax.op, lambda array: array


def weighted(package: Any, outputs: Any = None, x: Any = X, a: Any = 1.0, **settings: Any) -> Any:
    op, array = package
    return op(MODULE["weighted"], {"y": "x"} if outputs is None else outputs, **settings)(array(x), array(X), a)


def fails(x: Any, **_: Any) -> int:
    return len(x) // 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "outputs": ({"outputs": ["y"]}, r"""outputs: wants a dict, as in {"y": "x"}, got \['y'\]"""),
    "a shape of none": ({"outputs": {"y": 2.5}}, "outputs: the shape of 'y': wants an integer from 0 on or a tuple"),
    "a negative shape": ({"outputs": {"y": (-3,)}}, "outputs: the shape of 'y': wants an integer from 0 on"),
    "a shape's function": (
        {"outputs": {"y": lambda x, **_: x.shape[0] / 2}},
        "weighted: the shape of 'y': wants an integer from 0 on",
    ),
    "an array for a shape": (
        {"outputs": {"y": lambda x, **_: x}},
        "weighted: the shape of 'y': wants an integer from 0",
    ),
    "a number for a shape": ({"outputs": {"y": lambda x, **_: x.sum()}}, "the shape of 'y': wants an integer from 0"),
    "an array for a size": ({"sizes": {"n": np.arange(2)}}, "sizes: 'n': wants an integer or a function of the argu"),
    "a function that fails": (
        {"grid": fails},
        "weighted: the function grid= raised ZeroDivisionError: .*\nhelp: it is called with x, w, a, n by name",
    ),
    "a function without the rest": ({"sizes": {"n": lambda x: 5}}, r"""sizes\["n"\] raised TypeError.*\n.*as \*\*_"""),
    "a shape's function that fails": ({"outputs": {"y": fails}}, r"""outputs\["y"\] raised ZeroDivisionError"""),
    "four numbers": ({"grid": (1, 1, 1, 1)}, "weighted: grid: wants an integer or a tuple of 1 to 3 of them"),
    "a function of four": (
        {"grid": lambda **_: (1, 1, 1, 1)},
        r"weighted: grid: wants an integer or a tuple of 1 to 3 of them, got \(1, 1, 1, 1\)",
    ),
    "no blocks": ({"grid": 0}, "weighted: grid: the x extent must be positive, got 0"),
    "no threads": ({"block": 0}, "weighted: block: the x extent must be positive, got 0"),
    "no threads by a function": ({"block": lambda **_: 0}, "weighted: block: the x extent must be positive, got 0"),
    "half a thread": ({"block": 2.5}, "weighted: block: wants integers, got float"),
    "shared memory": ({"shared": -1}, "weighted: shared memory: wants a number of bytes, got -1"),
    "a size": ({"sizes": {"n": 2.5}}, "sizes: 'n': wants an integer or a function of the arguments, got 2.5"),
    "a size's function": ({"sizes": {"n": lambda **_: 2.5}}, r"weighted: parameter 'n' \(int\) wants an integer, got"),
    "sizes": ({"sizes": "n"}, "sizes: wants a dict"),
    "fill": ({"fill": 1.0}, "fill: wants a dict"),
    "fill of another": ({"fill": {"z": 1}}, "fill: 'z' is no output: those are y"),
    "fill with words": ({"fill": {"y": "one"}}, r"fill: 'y' \(double \*\): wants a number that it can hold, or None"),
    "a flag": ({"deterministic": "yes"}, "deterministic: wants True or False, got 'yes'"),
    "a promise": ({"assume": "x"}, "assume: wants kg.assume"),
    "a promise of another": ({"assume": kg.assume(unique="z")}, "assume: weighted has no parameter 'z'"),
    "a number": ({"a": "one"}, r"weighted: parameter 'a' \(double\) wants a number or a floating-point .*, got str"),
    "no number": (
        {"a": None},
        r"weighted: parameter 'a' \(double\) wants a number or a floating-point .*, got NoneType",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(package: Any, name: str) -> None:
    settings, words = WRONG[name]
    with pytest.raises((kg.ArgumentError, kg.LaunchError), match=words):
        weighted(package, **settings)


@pytest.mark.parametrize("fill", [1.5, 2**40, float("nan"), -(2**31) - 1])
def test_what_an_integer_cannot_hold(package: Any, fill: float) -> None:
    op, _ = package
    with pytest.raises(kg.ArgumentError, match=r"fill: 'sign' \(int \*\): wants a number that it can hold"):
        op(MODULE["both"], {"sum": (), "sign": "x", "product": "x"}, fill={"sign": fill})


def test_what_is_updated_is_not_filled(package: Any) -> None:
    op, _ = package
    with pytest.raises(kg.ArgumentError, match="fill: 'x' is no output: it is updated, and goes in"):
        op(MODULE["iterate"], fill={"x": 1.0})


def test_what_is_right(package: Any) -> None:
    expected = 2 * X * X * np.sin(X)
    for settings in ({"grid": np.int64(1)}, {"grid": [1, 1]}, {"fill": {"y": np.float32(3)}}, {"a": np.float64(2)}):
        np.testing.assert_allclose(np.asarray(weighted(package, **{"a": 2, **settings})), expected, rtol=1e-12)
    filled = weighted(package, {"y": lambda x, **_: x.shape[0] + 1}, fill={"y": float("inf")})
    assert np.isposinf(np.asarray(filled)[5])
    for number in (float("inf"), float("nan")):
        assert not np.isfinite(np.asarray(weighted(package, a=number))[0])


def test_a_size_by_name(package: Any) -> None:
    op, array = package
    found = np.asarray(op(MODULE["iterate"])(array(X), 1, n=2))
    np.testing.assert_allclose(found, [*(np.sin(X) * X)[:2], *X[2:]], rtol=1e-12)


def test_in_a_notebook(package: Any) -> None:
    op, _ = package
    shown = op(MODULE["weighted"], {"y": "x"})._repr_html_()
    assert shown.startswith("<pre>&lt;op (x, w, a) -&gt; y\n") and "<td>w</td><td>const double *</td>" in shown
