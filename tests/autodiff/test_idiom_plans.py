"""Kernels as people write them: right under all plans that gather, and at a real size no element of an input is added
to atomically that could be gathered, or stored by its reader."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from idiom_cases import IDIOMS, flat, small
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.explain.counted import counts
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig

from ..emulation.run_text import run_packed

PLANS = ("as launched", "gathered", "gathered as on a GPU", "gathered and staged", "in two on a GPU")


@pytest.mark.parametrize("name", IDIOMS)
def test_under_plans_that_gather(name: str) -> None:
    idiom = IDIOMS[name]
    arrays, grid, block = small(idiom)
    kernel, listed = kernel_of(idiom.text("double")), ", ".join(idiom.arrays.split())
    rng = np.random.default_rng(5)
    seed, ways = rng.standard_normal(arrays[0].size), [rng.standard_normal(a.size) for a in arrays[1:]]
    kernel.check(grid, block, *[a.copy() for a in arrays], *idiom.small)
    tangent = np.zeros(arrays[0].size)
    kg.jvp(kernel, listed)[grid, block](*[a.copy() for a in arrays], *idiom.small, tangent, *[w.copy() for w in ways])
    for options in ({}, {"primal": False, "keep": "out", "assign": ", ".join(idiom.arrays.split()[1:])}):

        def run(options: dict[str, Any] = options) -> list[Any]:
            held = 7.0 if options else 0.0
            adjoints = [seed.copy(), *(np.full(a.size, held) for a in arrays[1:])]
            kg.gradient(kernel, listed, **options)[grid, block](*[a.copy() for a in arrays], *idiom.small, *adjoints)
            return adjoints[1:]

        found = {}
        for plan in PLANS if options else PLANS[:2]:
            with forced(plan):
                found[plan] = run()
        for plan, adjoints in found.items():
            for got, wanted in zip(adjoints, found["as launched"], strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-12, err_msg=plan)
        along = sum(float(d @ w) for d, w in zip(found["as launched"], ways, strict=True))
        np.testing.assert_allclose(along, float(seed @ tangent), rtol=1e-10)


@pytest.mark.parametrize("plan", ["gathered as on a GPU", "gathered and staged"])
@pytest.mark.parametrize(
    "name",
    ["average pooling, odd", "an activation behind a convolution", "a square behind a window", "a blur in a mirror"],
)
def test_as_text(name: str, plan: str) -> None:
    """The CUDA text of every launch, compiled by g++ against an emulation."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    idiom = IDIOMS[name]
    arrays, grid, block = small(idiom)
    seed = np.random.default_rng(5).standard_normal(arrays[0].size)
    out, *inputs = idiom.arrays.split()
    adjoints = [seed.copy(), *(np.full(a.size, 7.0) for a in arrays[1:])]
    expected = [a.copy() for a in adjoints]
    options: dict[str, Any] = {"primal": False, "keep": [out], "assign": inputs}
    kernel = kernel_of(idiom.text("double"))
    with forced("one kernel"):
        kg.gradient(kernel, [out, *inputs], **options)[grid, block](*arrays, *idiom.small, *expected)
    with forced(plan):
        gradient = kg.gradient(kernel, [out, *inputs], **options)
        steps, _, own = gradient._prepare(make_launch(grid, block), (*arrays, *idiom.small, *adjoints), {})
        assert any("_gather_" in step.kernel.name for step in steps)
        for step, bound, launch, supplied in steps:
            module, config = step.cuda_module, LaunchConfig(launch.grid, launch.block)
            packed = step._with_variables(module, bound, config, None, supplied).packed
            offsets, _ = param_layout(module.functions[step.name])
            run_packed(step.source, kernel_name(step.name), launch.grid, launch.block, packed, offsets)
        own.finish()
    for got, wanted in zip(adjoints, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", IDIOMS)
def test_what_a_large_launch_costs(name: str) -> None:
    idiom = IDIOMS[name]
    sizes, shape = idiom.sizes(*idiom.large), idiom.launch(*idiom.large)
    launch = make_launch(*(flat(shape) if isinstance(shape, int) else shape))
    out, *inputs = idiom.arrays.split()
    gradient = kg.gradient(kernel_of(idiom.text("float")), [out, *inputs], primal=False, keep=[out], assign=inputs)
    arrays = tuple(np.empty(n, np.float32) for n in sizes)
    found = counts(gradient.planned(launch, (*arrays, *idiom.large), {}, on_gpu=True))
    assert found.atomics <= idiom.atomics * max(sizes)
    assert found.tape == 0
