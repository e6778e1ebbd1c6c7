"""Blocks of one row whose threads take their index apart: values, and which blocks are started."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from digit_cases import CASES, Case, padded, product
from every_plan import forced
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.layout import param_layout
from kernelgrad.ir.ops import For, Warp
from kernelgrad.ir.traverse import walk
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways
from kernelgrad.runtime.launch import LaunchConfig
from kernelgrad.schedule.coarsen import block_rows
from plan_tiles import PRODUCTS, REGISTERS
from some_cases import in_turn

from ..emulation.run_text import run_packed

EVERY = pytest.mark.parametrize("name", CASES, scope="module")


def arrays(case: Case) -> list[Any]:
    random = np.random.default_rng(2)
    return [np.zeros(case.size**2), *(random.standard_normal(case.size**2) for _ in range(3))]


def launched(case: Case, **options: Any) -> tuple[Any, Any]:
    y, x, w, seed = arrays(case)
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    kg.gradient(kernel_of(case.source), **options)[case.grid, case.threads](y, x, w, case.size, seed, d_x, d_w)
    return d_x, d_w


def assert_right(got: tuple[Any, Any], case: Case, tolerance: float = 1e-11) -> None:
    """Of y = x w."""
    _, x, w, seed = (a.reshape(case.size, case.size) for a in arrays(case))
    for found, wanted in zip(got, (seed @ w.T, x.T @ seed), strict=True):
        np.testing.assert_allclose(found, wanted.ravel(), rtol=tolerance, atol=tolerance * abs(wanted).max())


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU"])
@pytest.mark.parametrize(("name", "primal"), in_turn(CASES, (True, False)))
def test_values(name: str, plan: str, primal: bool) -> None:
    with forced(plan):
        assert_right(launched(CASES[name], primal=primal), CASES[name])


@pytest.mark.parametrize("name", ["remainder", "registers"])
@pytest.mark.parametrize("option", ["deterministic", "may_alias"])
def test_values_with(option: str, name: str) -> None:
    with forced("as on a GPU"):
        assert_right(launched(CASES[name], primal=False, **{option: True}), CASES[name])


@EVERY
def test_which_blocks(name: str) -> None:
    case = CASES[name]
    y, x, w, _ = arrays(case)
    gradient = kg.gradient(kernel_of(case.source), primal=False)
    planned = gradient.planned(make_launch(case.grid, case.threads), (y, x, w, case.size), {}, on_gpu=True)
    assert planned.plan.variant.rows == (None if case.width is None else (case.width, case.threads // case.width, 1))


@pytest.mark.parametrize("name", ["remainder", "the index too", "registers"])
def test_watched(name: str) -> None:
    """In shuffled orders, as a GPU would run it."""
    case = CASES[name]
    with forced("as on a GPU"):
        gradient = kg.gradient(kernel_of(case.source), primal=False)
        for order in (1, 2):
            y, x, w, seed = arrays(case)
            adjoints = seed, np.zeros_like(x), np.zeros_like(w)
            report = gradient.check(case.grid, case.threads, y, x, w, case.size, *adjoints, seed=order)
            assert not report.findings, report
            assert_right(adjoints[1:], case)


def run_text(gradient: Any, case: Case, arguments: list[Any]) -> None:
    """The CUDA text of a GPU's plan, compiled by g++ against an emulation."""
    launch = make_launch(case.grid, case.block or case.threads)
    steps, _, own = gradient._prepare(launch, tuple(arguments), {}, single=False)
    for kernel, bound, at, supplied in steps:
        module = kernel.cuda_module
        config = LaunchConfig(at.grid, at.block)
        packed = kernel._with_variables(module, bound, config, None, {**own.supplied, **supplied}).packed
        offsets, _ = param_layout(module.functions[kernel.name])
        run_packed(kernel.source, kernel_name(kernel.name), at.grid, at.block, packed, offsets)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", ["remainder", "registers", "padded", "flat, padded"])
def test_as_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
    monkeypatch.setattr(block_rows, "FILLING_THREADS", 1)
    case = {**CASES, **PADDED}[name]
    dtype = np.float64 if name in CASES else np.float32
    y, x, w, seed, d_x, d_w = (a.astype(dtype) for a in (*arrays(case), *np.zeros((2, case.size**2))))
    run_text(kg.gradient(kernel_of(case.source), primal=False), case, [y, x, w, case.size, seed, d_x, d_w])
    assert_right((d_x, d_w), case, 1e-11 if name in CASES else 2e-6)


# ---- cells of a row ------------------------------------------------------------------------------------------------

PADDED = {
    "padded": Case(padded("threadIdx.x", "threadIdx.y"), 1024, None, (1, 1), 32, (32, 32)),
    "flat, padded": Case(padded("threadIdx.x % 32", "threadIdx.x / 32"), 1024, 32, (1, 1), 32),
}


def inner_loops(case: Case) -> tuple[int, int]:
    """Of the reverse on a GPU: loops over other threads, and those with shuffles."""
    y, x, w, _ = (a.astype(np.float32) for a in arrays(case))
    launch = make_launch(case.grid, case.block or case.threads)
    gradient = kg.gradient(kernel_of(case.source), primal=False)
    body = gradient.planned(launch, (y, x, w, case.size), {}, on_gpu=True).plan.variant.reverse.function.body
    loops = [op for op in walk(body) if isinstance(op, For)]
    others = [op for op in loops if op.body.args[0].name == "~other" and op.unroll is None]
    return len(others), sum(any(isinstance(inner, Warp) for inner in walk(op.body)) for op in loops)


def test_padded_rows_are_shared_out_and_others_go_round() -> None:
    """B[tx][other] of rows of 33 words lies in 32 banks; of rows of 32 all is in one, and B[lane ^ step][tx] is not."""
    assert inner_loops(PADDED["padded"])[1] == inner_loops(PADDED["flat, padded"])[1] == 0
    straight = Case(padded("threadIdx.x", "threadIdx.y", 32), 1024, None, (1, 1), 32, (32, 32))
    assert inner_loops(straight)[1] > 0


def test_lanes_that_are_elsewhere_add_alone() -> None:
    """The adjoints of what threads t + 64 k load: a row of 16 of b is two rows of the block's 8."""
    y, x, w = np.zeros((3, 32 * 32))
    gradient = kg.gradient(kernel_of(CASES["registers"].source), primal=False)
    text = gradient.source_for((2, 2), 64, y, x, w, 32, on_gpu=True)
    assert "atomicAdd(&_d_x" in text and "atomicAdd(&_d_w" in text and "warp_add" not in text


def test_register_tiles_have_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 sums of four rows are kept by each thread: half as many threads of a multiprocessor have room."""
    monkeypatch.setattr(block_rows, "FILLING_THREADS", 1)
    bounds = {}
    for name, made in (("registers", REGISTERS["register tiles"]), ("one sum", PRODUCTS["flat block"])):
        planned = kg.gradient(kernel_of(made.text), primal=False).planned(
            make_launch((2, 2), 256), (*(np.zeros(128 * 128, np.float32) for _ in range(3)), 128), {}, on_gpu=True
        )
        bounds[name] = planned.plan.variant.reverse.function.launch_bounds
    assert bounds == {"registers": (64, 4), "one sum": (64, 8)}


def test_other_blocks_stay_in_one_row() -> None:
    """100 threads are no rows of 8, and 8 are only one. 96 are 12 rows, but write beyond the tiles, so that what is
    read goes on the tape: that is for threads as they are."""
    kernel = kernel_of(product("t % 8", "t / 8"))
    y, x, w, _ = arrays(CASES["remainder"])
    for threads in (100, 8, 96):
        planned = kg.gradient(kernel).planned(make_launch(1, threads), (y, x, w, 16), {}, on_gpu=True)
        assert planned.plan.variant.rows is None
