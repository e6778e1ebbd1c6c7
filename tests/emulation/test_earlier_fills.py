"""Gradients whose tiles are filled again by what earlier iterations left, as CUDA text."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from run_text import run_packed

import kernelgrad as kg
from derived import kernel_of
from earlier_fill_cases import AGAIN
from every_plan import forced
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.mark.parametrize("name", ["data", "strides", "two guards", "a break", "some iterations, by data", "products"])
def test_as_text(name: str) -> None:
    """The CUDA text of a GPU's plan, compiled by g++ against an emulation."""
    case = AGAIN[name]
    grid, block, shared = case.launch
    given, arguments = case.arrays(), (case.flags(), case.n)
    seed = np.random.default_rng(1).standard_normal(given[0].size)
    expected, found = ([np.zeros_like(given[1]), np.zeros_like(given[2])] for _ in range(2))
    kernel = kernel_of(case.source)
    kg.gradient(kernel, "y, x, z")[grid, block, shared](*case.arrays(), *arguments, seed.copy(), *expected)
    with forced("as on a GPU"):
        gradient = kg.gradient(kernel, "y, x, z", primal=False)
        passed = (*given, *arguments, seed.copy(), *found)
        steps, _, own = gradient._prepare(make_launch(grid, block, shared), passed, {})
        for step, bound, launch, supplied in steps:
            module, config = step.cuda_module, LaunchConfig(launch.grid, launch.block, shared)
            packed = step._with_variables(module, bound, config, None, supplied).packed
            offsets, _ = param_layout(module.functions[step.name])
            run_packed(step.source, kernel_name(step.name), launch.grid, launch.block, packed, offsets)
        own.finish()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
