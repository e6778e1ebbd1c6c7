"""Several rows of a block for each thread: where it is done, where it would be wrong, and that values stay."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from exchange_cases import CASES, SIZE, Case, arguments, tile, typed
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways
from kernelgrad.runtime.launch import LaunchConfig
from kernelgrad.schedule.coarsen import block_rows
from row_cases import CONTROL, REFUSED, ROWS
from some_cases import in_turn

from ..emulation.run_text import run_packed

ALL = {**CASES, **ROWS}


@pytest.fixture(autouse=True)
def small_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, on a small scale."""
    monkeypatch.setattr(block_rows, "FILLING_THREADS", 1)
    monkeypatch.setattr(block_rows, "_FEWEST", 32)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def gradient_of(case: Case, **options: Any) -> tuple[Any, Any]:
    kernel = kernel_of(case.source)
    return kernel, kg.gradient(kernel, **options)


def merged(case: Case, **options: Any) -> Any:
    """The function that runs."""
    kernel, gradient = gradient_of(case, **options)
    bound, _ = kernel.bind(tuple(typed(case, arguments(case))))
    launch = make_launch(*case.launch)
    return gradient.variant_for(("y", "x", "w"), launch, bound, Ways(on_gpu=True)).reverse.function


@pytest.mark.parametrize(("name", "joint"), in_turn(ALL, (True, False)))
def test_values(name: str, joint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of one row for each thread; run, and watched in a shuffled order."""
    case = ALL[name]
    seed = np.random.default_rng(3).standard_normal(SIZE)
    tolerance = 1e-11 if case.dtype == np.float64 else 2e-5
    found = []
    for each, orders in ((1, (None,)), (8, (None, 1))):
        monkeypatch.setattr(block_rows, "_EACH", ((each,),) * 2 if each == 1 else ((8, 4, 2),) * 2)
        _, gradient = gradient_of(case, primal=joint)
        for order in orders:
            args, adjoints = typed(case, arguments(case)), typed(case, [seed, np.zeros(SIZE), np.zeros(SIZE)])
            if order is None:
                gradient[case.launch](*args, *adjoints)
            else:
                report = gradient.check(*case.launch, *args, *adjoints, seed=order)
                assert not report.findings, report
            found.append([args[0], *adjoints])
    for other in found[1:]:
        for got, wanted in zip(other, found[0], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * max(1e-300, abs(wanted).max()))


@pytest.mark.parametrize("name", ROWS)
def test_finite_differences(name: str) -> None:
    case = ROWS[name]
    report = kg.check_gradient(kernel_of(case.source), ("y", "x", "w"), *case.launch, tuple(arguments(case)))
    assert report.ok, report


@pytest.mark.parametrize("name", ROWS)
def test_where_it_is_done(name: str) -> None:
    function = merged(ROWS[name])
    assert function.launch_bounds[0] == 32 and block_rows.started(function, (8, 8, 1)) == (8, 4, 1)


@pytest.mark.parametrize("name", REFUSED)
def test_where_it_is_not(name: str) -> None:
    function = merged(Case(REFUSED[name], (8, 8), True, True))
    assert block_rows.started(function, (8, 8, 1)) == (8, 8, 1)


def test_what_one_row_has_of_lanes_stays() -> None:
    case = Case(tile("for (int j = 0; j < 32; ++j) sum += mine * s[j] * s[j];"), (128,), False, True)
    assert merged(case, primal=False).launch_bounds[0] == 64
    assert merged(Case(case.source, (32,), False, True), primal=False).launch_bounds[0] == 32
    assert merged(Case(case.source, (96,), False, True), primal=False).launch_bounds[0] == 96


@pytest.mark.parametrize(
    ("grid", "block", "each"),
    [
        ((64, 64, 1), (32, 32, 1), 8),
        ((16, 8, 1), (32, 32, 1), 4),
        ((8, 4, 1), (32, 32, 1), 1),
        ((256, 1, 1), (256, 1, 1), 2),
        ((255, 1, 1), (256, 1, 1), 1),
        ((4096, 1, 1), (96, 1, 1), 1),
        ((4096, 64, 1), (8, 8, 4), 1),
    ],
)
def test_how_many(grid: Any, block: Any, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert block_rows.rows_for(grid, block) == each


def test_a_block_that_the_user_does_not_allow_is_refused() -> None:
    source = CONTROL["its_own_branch"].replace("__global__ void", "__global__ void __launch_bounds__(32)")
    case = Case(source, (8, 8), True, True)
    with pytest.raises(kg.LaunchError, match="launch_bounds"):
        gradient_of(case)[1][case.launch](*arguments(case), *(np.zeros(SIZE) for _ in range(3)))


def test_a_bound_of_the_users_stays_one() -> None:
    source = CONTROL["kept_on_a_tape"].replace("__global__ void", "__global__ void __launch_bounds__(64)")
    assert merged(Case(source, (8, 8), True, True, n=7)).launch_bounds[0] == 32
    assert block_rows.started(kg.compile(source)["k"].function, (8, 8, 1)) == (8, 8, 1)


@pytest.mark.parametrize("name", ["returns_early", "its_own_length", "a_common_while", "an_array_of_its_own"])
def test_as_text(name: str) -> None:
    """The CUDA text, compiled by g++ against an emulation, does what the CPU backend does."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    case = ROWS[name]
    seed = np.random.default_rng(3).standard_normal(SIZE)
    launch = make_launch(*case.launch)
    results = []
    for as_text in (False, True):
        args, adjoints = arguments(case), [seed.copy(), np.zeros(SIZE), np.zeros(SIZE)]
        _, gradient = gradient_of(case, primal=False)
        if not as_text:
            gradient[case.launch](*args, *adjoints)
        else:
            ((kernel, bound, started, supplied),), _, _own = gradient._prepare(launch, (*args, *adjoints), {})
            config = LaunchConfig(started.grid, started.block)
            packed = kernel._with_variables(kernel.cuda_module, bound, config, None, supplied).packed
            offsets, _ = param_layout(kernel.cuda_module.functions[kernel.name])
            assert started.block == (8, 4, 1)
            run_packed(kernel.source, kernel_name(kernel.name), started.grid, started.block, packed, offsets)
        results.append(adjoints)
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11 * abs(wanted).max())


def test_told() -> None:
    case = ROWS["all_blocks_read_one"]
    kernel, gradient = gradient_of(case)
    assert "loads once what they load alike" in gradient.explain()
    assert "loads once" not in gradient_of(Case(REFUSED["fences"], (8, 8), True, True))[1].explain()
    bound, _ = kernel.bind(tuple(arguments(case)))
    variant = gradient.variant_for(("y", "x", "w"), make_launch(2, (8, 8)), bound, Ways(on_gpu=True))
    assert "8 x 4 x 1 threads are started" in variant.source(0)
