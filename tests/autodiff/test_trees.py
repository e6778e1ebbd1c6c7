"""Trees over shared memory in reverse: where one number is all that they pass on, and where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of, tangent_of
from kernelgrad.ir.ops import Atomic, Barrier, BarrierReduce, GlobalRef, Load, Offset, Op, Warp
from kernelgrad.ir.traverse import walk
from kernelgrad.runtime.config import make_launch
from tree_cases import ADDED, HEAD, KEPT, LANES, MAXIMA, PASSED_ON, SHUFFLES, SOURCES, TREE, arguments


def _operations(gradient: Any, grid: int, block: int, *arguments: Any) -> list[Op]:
    primal, _ = gradient.kernel.bind(arguments)
    variant = gradient.variant_for(gradient.settings.listed, make_launch(grid, block), primal)
    return [op for k in variant.kernels for op in walk(k.function.body)]


def _shadows(ops: list[Op]) -> set[str]:
    return {op.name for op in ops if isinstance(op, GlobalRef) and op.name.startswith("_d_")}


@pytest.mark.parametrize("form", [{}, {"primal": False, "keep": "y"}], ids=["joint", "reverse"])
@pytest.mark.parametrize("name", PASSED_ON, scope="module")
def test_a_tree_that_passes_on_one_number_is_not_walked(name: str, form: dict[str, Any]) -> None:
    gradient = gradient_of(kernel_of(SOURCES[name]), "y, x", **form)
    ops = _operations(gradient, 3, 64, *arguments(64))
    assert not _shadows(ops)
    assert not any(isinstance(op, Atomic) for op in ops)
    sums = [op for op in ops if isinstance(op, BarrierReduce) and op.kind == "sum"]
    assert len(sums) == ADDED.get(name, 1)


def test_a_reverse_alone_needs_no_barrier() -> None:
    gradient = kg.gradient(kg.compile(SOURCES["one thread stores"])["k"], "y, x", primal=False, keep="y")
    assert not any(isinstance(op, Barrier) for op in _operations(gradient, 3, 64, *arguments(64)))


@pytest.mark.parametrize("name", KEPT, scope="module")
def test_cells_that_differ_stay(name: str) -> None:
    gradient = gradient_of(kernel_of(SOURCES[name]), "y, x", primal=False, keep="y")
    assert _shadows(_operations(gradient, 3, 64, *arguments(64)))


@pytest.mark.parametrize("block", [64, 48])
@pytest.mark.parametrize("name", SOURCES, scope="module")
def test_values_and_races(name: str, block: int) -> None:
    """In blocks of 48, trees leave some of the cells out."""
    if (name, block) == ("from neighbours up", 48):
        pytest.skip("reads what nobody has written")
    kernel = kernel_of(SOURCES[name])
    y, x, n = arguments(block)
    seed = np.random.default_rng(4).standard_normal(len(y))
    v = np.random.default_rng(5).standard_normal(len(y))
    tangent = np.zeros_like(y)
    tangent_of(kernel, "y, x")[3, block](y.copy(), x, n, tangent, v)
    for form in ({}, {"primal": False, "keep": "y"}):
        gradient = gradient_of(kernel, "y, x", **form)
        d_x = np.zeros_like(x)
        report = gradient.check(3, block, y.copy(), x, n, seed.copy(), d_x, seed=1)
        assert not report.findings, str(report)
        assert d_x @ v == pytest.approx(tangent @ seed, rel=1e-9)
        d_x = np.zeros_like(x)
        gradient[3, block](y.copy(), x, n, seed.copy(), d_x)
        assert d_x @ v == pytest.approx(tangent @ seed, rel=1e-9)


# ---- maxima and minima: one thread gets it all


@pytest.mark.parametrize("name", MAXIMA)
def test_the_winner_of_a_tree(name: str) -> None:
    """With ties, with NaNs, and where all are NaN: as the levels of the tree would have it."""
    kernel = kg.compile(MAXIMA[name])["k"]
    gradient, (forward, reverse) = kg.gradient(kernel, "y, x"), kg.split(kernel, "y, x")
    _, x, n = arguments(64)
    x[[3, 5, 6, 40]] = 1.75
    x[[9, 33]] = 0.25
    x[64:128:3] = np.nan
    x[128:] = np.nan
    ops = _operations(gradient, 3, 64, np.zeros_like(x), x, n)
    assert not _shadows(ops)
    seed = np.random.default_rng(4).standard_normal(len(x))
    expected, y = np.zeros_like(x), np.zeros_like(x)
    reverse[3, 64](forward[3, 64](y, x, n), y, x, n, seed.copy(), expected)
    for order in (None, 1):
        found, value = np.zeros_like(x), np.zeros_like(x)
        report = gradient.check(3, 64, value, x, n, seed.copy(), found, seed=order)
        assert not report.findings, str(report)
        np.testing.assert_array_equal(value, y)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("replaced", ["fmax(s[t], 2.0 * s[t + d])", "s[t] > s[t + d] ? s[t] : 0.5 * s[t + d]"])
def test_no_winner_of_what_is_not_its_maximum(replaced: str) -> None:
    kernel = kg.compile(MAXIMA["maximum"].replace("fmax(s[t], s[t + d])", replaced))["k"]
    ops = _operations(kg.gradient(kernel, "y, x"), 3, 64, *arguments(64))
    assert _shadows(ops) and not any(isinstance(op, BarrierReduce) and op.kind == "min" for op in ops)


# ---- lanes


@pytest.mark.parametrize("name", LANES)
def test_sums_over_lanes(name: str) -> None:
    kernel = kg.compile(LANES[name])["k"]
    y, x, n = arguments(64)
    seed, v = (np.random.default_rng(k).standard_normal(len(x)) for k in (4, 5))
    tangent = np.zeros_like(y)
    kg.jvp(kernel, "y, x")[3, 64](y.copy(), x, n, tangent, v)
    for form in ({}, {"primal": False}):
        gradient = kg.gradient(kernel, "y, x", **form)
        d_x = np.zeros_like(x)
        report = gradient.check(3, 64, y.copy(), x, n, seed.copy(), d_x, seed=1)
        assert not report.findings, str(report)
        assert d_x @ v == pytest.approx(tangent @ seed, rel=1e-9)
        ops = _operations(gradient, 3, 64, y, x, n)
        shuffles = [op for op in ops if isinstance(op, Warp)]
        if name != "warps of a block":  # there, it is one of one warp alone
            assert not any(op.fn == "vote_ballot" for op in shuffles)
        if form and name in SHUFFLES:
            assert len(shuffles) == SHUFFLES[name]


def test_lanes_of_broken_warps_are_counted() -> None:
    """A ballot in a block of 48 threads is not known before it is taken."""
    gradient = kg.gradient(kg.compile(LANES["for all lanes"])["k"], "y, x")
    ops = _operations(gradient, 3, 48, *arguments(48))
    assert any(isinstance(op, Warp) and op.fn == "vote_ballot" for op in ops)


# ---- loads ahead of barriers


def _places(ops: list[Op], name: str) -> tuple[int, int]:
    """Where the first load through a parameter is, and the first meeting of the block."""
    roots = {op.result for op in ops if isinstance(op, Offset) and op.ptr.name == name}
    loads = [k for k, op in enumerate(ops) if isinstance(op, Load) and op.ptr in roots]
    meetings = [
        k
        for k, op in enumerate(ops)
        if isinstance(op, BarrierReduce) or (isinstance(op, Barrier) and op.scope == "block")
    ]
    return loads[0], meetings[0]


def test_loads_come_before_barriers() -> None:
    gradient = kg.gradient(kg.compile(SOURCES["all threads read"])["k"], "y, x")
    load, meeting = _places(_operations(gradient, 3, 64, *arguments(64)), "_d_y")
    assert load < meeting


def test_loads_of_what_was_written_stay() -> None:
    source = f"""{HEAD} __shared__ double s[64];
        y[i] = x[i] * x[i];
        s[t] = x[i];
        __syncthreads();
        double v = y[i - t + (t + 1) % blockDim.x] * s[63 - t];
        __syncthreads();
        {TREE.replace("s[t] += s[t + d]", "s[t] = s[t] * s[t + d]")}
        y[i] = v * s[0]; }}"""
    kernel = kg.compile(source)["k"]
    gradient = kg.gradient(kernel, "y, x")
    _, x, n = arguments(64)
    load, meeting = _places(_operations(gradient, 3, 64, np.zeros_like(x), x, n), "y")
    assert meeting < load
    kg.check_gradient(kernel, "y, x", 3, 64, (np.zeros_like(x), x, n))


def test_explain_tells() -> None:
    row = "'s': its adjoints need no shared memory"
    for name, expected in (("all threads read", True), ("scan", False)):
        gradient = kg.gradient(kg.compile(SOURCES[name])["k"], "y, x")
        assert (row in gradient.explain(3, 64, *arguments(64))) == expected
        assert row not in gradient.explain()


@pytest.mark.parametrize("source", [PASSED_ON["all threads read"], MAXIMA["maximum"], MAXIMA["upwards"]])
def test_second_derivatives(source: str) -> None:
    """Forward mode of a gradient with trees in one step, against its differences."""
    gradient = kg.gradient(kg.compile(source.replace("x[i] * x[i]", "x[i] * x[i] * x[i]"))["k"], "y, x")
    y, x, n = arguments(64)
    x, seed, direction = x + 0.01 * np.arange(len(x)), np.ones_like(y), np.cos(np.arange(len(y)))

    def at(step: float) -> Any:
        d_x = np.zeros_like(x)
        gradient[3, 64](y.copy(), x + step * direction, n, seed.copy(), d_x)
        return d_x

    tangents = [np.zeros_like(y), direction, np.zeros_like(y), np.zeros_like(y)]
    kg.jvp(gradient)[3, 64](y.copy(), x, n, seed.copy(), np.zeros_like(x), *tangents)
    expected = (at(1e-6) - at(-1e-6)) / 2e-6
    np.testing.assert_allclose(tangents[3], expected, rtol=1e-6, atol=1e-6 * abs(expected).max())


@pytest.mark.parametrize("source", [PASSED_ON["one thread stores"], LANES["warps of a block"]])
def test_what_all_load_is_cleared_behind_a_barrier(source: str) -> None:
    """An output's adjoint is consumed by one thread, now that all of them load it."""
    gradient = kg.gradient(kg.compile(source)["k"], "y, x", primal=False)
    y, x, n = arguments(64)
    load, meeting = _places(_operations(gradient, 3, 64, y, x, n), "_d_y")
    assert load < meeting
    d_y, d_x = np.arange(1.0, len(y) + 1), np.zeros_like(x)
    for order in (1, 2):
        assert not gradient.check(3, 64, y, x, n, d_y.copy(), np.zeros_like(x), seed=order).findings
    gradient[3, 64](y, x, n, d_y, d_x)
    np.testing.assert_array_equal(d_y[:3], 0.0)
    np.testing.assert_allclose(d_x[:n], 2 * x[:n] * np.repeat([1.0, 2.0, 3.0], 64)[:n])


def test_loads_behind_the_meeting_of_a_warp_stay() -> None:
    """A lane loads what its neighbour has stored, in a branch."""
    source = f"""{HEAD} __shared__ double s[64];
        s[t] = x[i];
        __syncthreads();
        double v = 0.0;
        if (t < 32) {{
            y[i] = x[i] * s[63 - t];
            __syncwarp();
            v = t < 31 ? y[i + 1] : 0.0;
            __syncwarp();
        }}
        {TREE}
        y[i] = v * s[0]; }}"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, x")
    _, x, n = arguments(64)
    seed = np.random.default_rng(4).standard_normal(len(x))
    d_x, value, expected = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    gradient.check(3, 64, value, x, n, seed, d_x)
    gradient.kernel[3, 64](expected, x, n)
    np.testing.assert_array_equal(value, expected)
