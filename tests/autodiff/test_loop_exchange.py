"""Cells that a loop's counter picks: exchanged loops, and sums that go round the lanes, where the block allows them."""

from __future__ import annotations

import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of
from exchange_cases import CASES, SIZE, Case, arguments, typed
from kernelgrad.autodiff.accumulate.choice import Facts
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.ir.layout import param_layout
from kernelgrad.ir.ops import Atomic, For, Warp
from kernelgrad.ir.traverse import walk
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig
from some_cases import in_turn, some

from ..emulation.run_text import run_packed

EVERY = pytest.mark.parametrize("name", CASES, scope="module")
SOME = pytest.mark.parametrize("name", some(CASES, 3), scope="module")


def expected(case: Case, seed: Any) -> tuple[Any, Any]:
    """From the gradient without any of it: one thread after another, on one warp's worth of proofs less."""
    gradient = kg.gradient(kg.compile(case.source.replace("float", "double"))["k"])
    plain = gradient.variant(None, Facts(private=frozenset(), exclusive=frozenset(), apart=frozenset(), refill=False))
    gradient.forms.for_launch = lambda *_: plain  # type: ignore[method-assign]
    args = arguments(case)
    d_x, d_w = np.zeros(SIZE), np.zeros(SIZE)
    gradient[case.launch](*args, seed.copy(), d_x, d_w)
    return d_x, d_w


@cache
def wanted_of(name: str) -> tuple[Any, Any]:
    return expected(CASES[name], np.random.default_rng(3).standard_normal(SIZE))


@pytest.mark.parametrize(("name", "form"), in_turn(CASES, ("joint", "primal=False"), ("split",)))
def test_values(name: str, form: str) -> None:
    """Run, and watched in shuffled orders as a GPU would run it."""
    case = CASES[name]
    kernel = kernel_of(case.source)
    seed = np.random.default_rng(3).standard_normal(SIZE)
    want = wanted_of(name)
    tolerance = 1e-11 if case.dtype == np.float64 else 2e-5
    gradient = kg.split(kernel) if form == "split" else gradient_of(kernel, primal=form == "joint")
    for order in (None,) if form == "split" else (None, 1, 2):
        args = typed(case, arguments(case))
        adjoints = typed(case, [seed, np.zeros(SIZE), np.zeros(SIZE)])
        if form == "split":
            forward, reverse = gradient
            reverse[case.launch](forward[case.launch](*args), *args, *adjoints)
        elif order is None:
            gradient[case.launch](*args, *adjoints)
        else:
            report = gradient.check(*case.launch, *args, *adjoints, seed=order)
            assert not report.findings, report
        for got, wanted in zip(adjoints[1:], want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * abs(wanted).max())


@SOME
def test_finite_differences(name: str) -> None:
    case = CASES[name]
    if case.dtype == np.float32:
        pytest.skip("in double precision only")
    report = kg.check_gradient(kernel_of(case.source), ("y", "x", "w"), *case.launch, tuple(arguments(case)))
    assert report.ok, report


def tuned(case: Case) -> Any:
    kernel = kernel_of(case.source)
    bound, _ = kernel.bind(tuple(typed(case, arguments(case))))
    gradient = gradient_of(kernel, primal=False)
    return gradient.variant_for(("y", "x", "w"), make_launch(*case.launch), bound)


@EVERY
def test_what_is_chosen(name: str) -> None:
    case = CASES[name]
    kernel = tuned(case).reverse
    left = [v for v in kernel.module.globals.values() if v.name.startswith("_of_")]
    shuffles = [op for op in walk(kernel.function.body) if isinstance(op, Warp) and op.fn in ("shfl_idx", "shfl_xor")]
    assert (bool(left), bool(shuffles)) == (case.exchanged, case.rings), kernel.source


def test_no_shared_atomics_are_left_in_the_loops() -> None:
    body = tuned(CASES["square"]).reverse.function.body
    inner = [op for op in walk(body) if isinstance(op, For) and not any(isinstance(o, For) for o in walk(op.body))]
    atomics = [op for loop in inner for op in walk(loop.body) if isinstance(op, Atomic)]
    assert all(op.ptr.type.space == "global" for op in atomics)  # type: ignore[union-attr]


def test_other_blocks_get_other_code() -> None:
    case = CASES["flat"]
    kernel = kernel_of(case.source)
    gradient = kg.gradient(kernel)
    bound, _ = kernel.bind(tuple(arguments(case)))
    variants = [gradient.variant_for(("y", "x", "w"), make_launch(1, n), bound) for n in (32, 64, 24, 32)]
    assert len(set(map(id, variants))) == 3 and variants[0] is variants[3]


@SOME
def test_nvrtc(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(tuned(CASES[name]).reverse.source, "sm_80")


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.exchanged or case.rings], scope="module")
def test_as_text(name: str) -> None:
    """The CUDA text, compiled by g++ against an emulation, does what the CPU backend does."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    case = CASES[name]
    seed = np.random.default_rng(3).standard_normal(SIZE)
    args, adjoints = typed(case, arguments(case)), typed(case, [seed, np.zeros(SIZE), np.zeros(SIZE)])
    launch = make_launch(*case.launch)
    gradient = gradient_of(kernel_of(case.source), primal=False)
    ((kernel, bound, *_),), _, own = gradient._prepare(launch, (*args, *adjoints), {}, single=True)
    module = kernel.cuda_module
    config = LaunchConfig(launch.grid, launch.block)
    packed = kernel._with_variables(module, bound, config, None, own.supplied).packed
    offsets, _ = param_layout(module.functions[kernel.name])
    run_packed(kernel.source, kernel_name(kernel.name), launch.grid, launch.block, packed, offsets)
    tolerance = 1e-11 if case.dtype == np.float64 else 2e-5
    for got, wanted in zip(adjoints[1:], wanted_of(name), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * abs(wanted).max())


@pytest.mark.parametrize("name", ["square", "flat", "guarded", "until_n"])
def test_tangent_of_the_gradient(name: str) -> None:
    """Rule 19: forward mode accepts it, against differences of the gradient."""
    case = CASES[name]
    gradient = gradient_of(kernel_of(case.source), primal=False)
    second = kg.jvp(gradient, "x, d_y, d_w")
    y, x, w, n = arguments(case)
    rng = np.random.default_rng(5)
    d_y, v_x, v_d = (rng.standard_normal(SIZE) for _ in range(3))

    def gradient_at(step: float) -> Any:
        d_x, d_w = np.zeros(SIZE), np.zeros(SIZE)
        gradient[case.launch](y, x + step * v_x, w, n, d_y + step * v_d, d_x, d_w)
        return d_w

    tangent = np.zeros(SIZE)
    second[case.launch](y, x, w, n, d_y.copy(), np.zeros(SIZE), np.zeros(SIZE), v_x, v_d.copy(), tangent)
    want = (gradient_at(1e-6) - gradient_at(-1e-6)) / 2e-6
    np.testing.assert_allclose(tangent, want, rtol=0, atol=1e-6 * max(1.0, abs(want).max()))


def test_explained() -> None:
    text = kg.gradient(kg.compile(CASES["square"].source)["k"]).explain()
    assert "the sums of its rows go round" in text and "each thread sums up the cells of one iteration" in text
