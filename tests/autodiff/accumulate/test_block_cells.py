"""Adjoints of small inputs that blocks add up in shared memory: the plans of a GPU, run here."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from cell_cases import BODIES, LAUNCHES, arguments, chosen, configuration, elements, run, source, viewed
from derived import kernel_of
from every_plan import forced
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.explain.counted import counts
from kernelgrad.explain.words import explain
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig

from ...emulation.run_text import run_packed

CELLS = "in cells of blocks"


OFTEN = ((9, 33), (50, 64))  # the others are run on a GPU, and with `-m slow`


@pytest.mark.parametrize(
    "launch", [pytest.param(one, marks=() if one in OFTEN else pytest.mark.slow) for one in LAUNCHES], ids=str
)
@pytest.mark.parametrize("name", BODIES)
def test_values(name: str, launch: Any) -> None:
    options = {"primal": name == "again"}
    for n in (elements(name, launch), 0):
        expected = run(name, launch, n, np.float64, **options)
        with forced(CELLS):
            got = run(name, launch, n, np.float64, **options)
        for one, other in zip(got[:2], expected[:2], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
        assert n == 0 or chosen(got[2]) == {"w"}


@pytest.mark.parametrize("name", ["weights", "walk", "columns"])
def test_loops_that_do_not_run(name: str) -> None:
    c = 5 if name == "columns" else 0
    n = 0 if name == "columns" else 3197
    with forced(CELLS):
        d_x, d_w, _ = run(name, (50, 64), n, np.float64, c=c)
    np.testing.assert_array_equal(d_x, 1)
    np.testing.assert_array_equal(d_w, 1)


@pytest.mark.parametrize("name", ["lookup", "outside", "tile", "columns"])
def test_floats_and_halves(name: str) -> None:
    launch = (9, 96)
    n = elements(name, launch)
    expected = run(name, launch, n, np.float64)
    with forced(CELLS):
        got = run(name, launch, n, np.float32)
        given = arguments(n, np.float32)
        given[2] = given[2].astype(np.float16)
        half: Any = kg.gradient(kernel_of(source(name, "float", "__half")), "y, x, w")
        half[launch](*viewed(given))
    assert chosen(got[2]) == chosen(half) == {"w"}
    for one, two, other in zip(got[:2], given[6:], expected[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-4)
        np.testing.assert_allclose(two, other, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("option", ["deterministic", "may_alias"])
def test_where_sums_have_an_order_or_memory_is_shared(option: str) -> None:
    expected = run("lookup", (50, 64), 3197, np.float64)
    with forced(CELLS):
        got = run("lookup", (50, 64), 3197, np.float64, **{option: True})
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-11)
    assert chosen(got[2]) == set()


def test_in_a_split() -> None:
    expected = run("columns", (7, 96), 2000, np.float64)
    y, x, w, n, c, seed, d_x, d_w = viewed(arguments(2000, np.float64))
    with forced(CELLS):
        forward, reverse = kg.split(kernel_of(source("columns")), "y, x, w")
        tape = forward[7, 96](y, x, w, n, c)
        reverse[7, 96](tape, y, x, w, n, c, seed, d_x, d_w)
    np.testing.assert_allclose(d_x, expected[0], rtol=1e-11)
    np.testing.assert_allclose(d_w, expected[1][3:9], rtol=1e-11)


@pytest.mark.parametrize("name", ["lookup", "return", "tile", "weights", "early", "early talk"])
def test_watched(name: str) -> None:
    """In shuffled orders: nothing is touched by two threads at once."""
    n = elements(name, (9, 33))
    expected = run(name, (9, 33), n, np.float64)
    with forced(CELLS):
        gradient: Any = kg.gradient(kernel_of(source(name)), "y, x, w")
        given = arguments(n, np.float64)
        report = gradient.check(9, 33, *viewed(given), seed=2)
    assert not report.findings, report
    np.testing.assert_allclose(given[7], expected[1], rtol=1e-11)


@pytest.mark.parametrize("left", [0, 64])
def test_returns_of_none(left: int) -> None:
    """Who returns waits for the others at the end. Where nobody does, the launch has no such branch."""
    text = source("early talk").replace("i >= n || t % 64 < 3", "i >= n")
    found = []
    for plan in ("as launched", CELLS):
        with forced(plan):
            gradient: Any = kg.gradient(kernel_of(text), "y, x, w")
            given = arguments(6400, np.float64)
            given[3] -= left
            gradient[100, 64](*viewed(given))
        found.append(given[6:])
    decided = [facts for _, facts in gradient.forms.made if facts.passed]
    assert bool(decided) == (left == 0) and chosen(gradient) == {"w"}
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


REFUSED = {
    "written": "y[i] = x[i] * w[i % c]; if (i == 0) w[c] = 2;",
    "of two": "const double *p = x[i] < 0.5 ? w : x; y[i] = p[i % c];",
    "large tile": "__shared__ T s[2048]; int t = threadIdx.x; s[t] = x[i] * w[i % c]; __syncthreads(); y[i] = s[t];",
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_cells(why: str) -> None:
    text = (
        f"__global__ void k(double *y, const double *x, {'' if why == 'written' else 'const '}double *w, int n, int c)"
    )
    text += f"{{ int i = blockIdx.x * blockDim.x + threadIdx.x; {REFUSED[why].replace('T ', 'double ')} }}"
    found = []
    for plan in ("as launched", CELLS):
        with forced(plan):
            gradient: Any = kg.gradient(kernel_of(text), "y, x, w")
            given = arguments(3200, np.float64)
            gradient[50, 64](*given)
        found.append((given[6], given[7]))
    assert chosen(gradient) == set()
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


def planned(text: str, sizes: tuple[int, ...], launch: Any, *numbers: int, listed: str = "y, x, w") -> Any:
    """The plan of a GPU; no memory is touched."""
    derivative = kg.gradient(kernel_of(text), listed, primal=False, keep="y")
    args = (*(np.empty(size, np.float32) for size in sizes), *numbers)
    return derivative.planned(make_launch(*launch), args, {}, on_gpu=True)


def cells_in(found: Any) -> Any:
    (own,) = found.plan.variant.options.facts.cells
    return own


def test_the_plan_of_a_large_launch() -> None:
    """As many additions in memory as blocks are started and cells there are."""
    n = 1 << 22
    found = planned(source("lookup", "float"), (n, n, 1000), (n // 256, 256), n, 1000)
    assert cells_in(found) == ("w", 1024, True, True, False, False)
    assert counts(found).atomics == pytest.approx(1056 * 1000, rel=0.01)


# By how many additions a block makes to a cell. Threads that agree add up first; of `w[k]` and `w[k + 1]` no two meet.
WIDTHS = {
    "248 in strides": ("for (; i < n; i += all) y[i] = x[i] + w[i % 256];", 1056, 1056 * 256 * 248, 256, False),
    "496 in strides": ("for (; i < n; i += all) y[i] = x[i] + w[i % 256];", 1056, 1056 * 256 * 496, 256, True),
    "8 warps in 16 turns": ("if (i < n) y[i] = x[i] * w[2] * w[5];", 1056 * 16, 1056 * 4096, 6, False),
    "8 warps in 64 turns": ("if (i < n) y[i] = x[i] * w[2] * w[5];", 1056 * 64, 1056 * 16384, 6, True),
    "lanes of a warp": (
        "for (int k = t % 32; k < c; k += 32) y[(i / 32) * c + k] = x[(i / 32) * c + k] * w[k];",
        8192,
        1 << 26,
        1024,
        False,
    ),
}


@pytest.mark.parametrize("how", WIDTHS)
def test_in_which_precision(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgrad.launches.choice.block_cells._SUMMED_TURNS", 1 << 20)
    body, grid, n, cells, wide = WIDTHS[how]
    head = source("one", "float").partition("for (")[0]
    own = cells_in(planned(f"{head} {body} }}", (n, n, cells), (grid, 256), n, cells))
    assert (own.wide, own.wide_total) == (wide, True)


def test_explained() -> None:
    n = 1 << 24
    arrays = (np.empty(n, np.float32), np.empty(n, np.float32), np.empty(64, np.float32))
    told = {}
    for name in ("lookup", "columns"):
        gradient: Any = kg.gradient(kernel_of(source(name, "float")), "y, x, w", primal=False)
        found = gradient.planned(make_launch(n // 256, 256), (*arrays, n, 64), {}, on_gpu=True)
        told[name] = explain(found.plan.variant.derivative)
    assert "shadow of w: added up by each block, in doubles in shared memory" in told["lookup"]
    assert "each does the work of many" in told["lookup"] and "turns of a thread" not in told["lookup"]
    assert "kernel.cu:3:156: the same in all turns of a thread" in told["columns"]


@pytest.mark.parametrize("name", ["columns", "lookup", "outside", "tile", "dynamic", "rows"])
def test_compiles(name: str) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    with forced(CELLS):
        gradient: Any = kg.gradient(kernel_of(source(name, "float")), "y, x, w")
        text = gradient.source_for(50, 64, *arguments(3197, np.float32)[:5], shared=256, on_gpu=True)
    assert "_cells_d_w[" in text and compile_only(text, "sm_90")


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize(
    "name", ["columns", "lookup", "outside", "walk outside", "tile", "early", "early talk", "rows"]
)
def test_as_text(name: str) -> None:
    """The CUDA text, compiled by g++ against an emulation."""
    launch, in_rows = (9, 96), name == "rows"
    n = elements(name, launch)
    expected = run(name, launch, n, np.float64, view=not in_rows)
    with forced(CELLS):
        gradient: Any = kg.gradient(kernel_of(source(name, "float")), "y, x, w")
        given = arguments(n, np.float32)
        at = make_launch(*configuration(name, launch, 4))
        steps, _, own = gradient._prepare(at, tuple(given if in_rows else viewed(given)), {}, single=False)
        ((kernel, bound, started, supplied),) = steps
        config = LaunchConfig(started.grid, started.block)
        told = {**own.supplied, **supplied}
        packed = kernel._with_variables(kernel.cuda_module, bound, config, None, told).packed
        offsets, _ = param_layout(kernel.cuda_module.functions[kernel.name])
        assert "_cells_d_w[" in kernel.source and ("cells_add_8" in kernel.source) == in_rows
        run_packed(kernel.source, kernel_name(kernel.name), started.grid, started.block, packed, offsets)
        own.finish()
    for one, other in zip(given[6:], expected[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-4)
