"""Gradients of kernels that read back what they stored, as CUDA text."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from run_text import run_packed

import kernelgrad as kg
from every_plan import forced
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig
from stored_value_cases import FORMS, TAKEN, arguments_of, kernel_of

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.mark.parametrize("name", ["rows", "loops of constant length", "three loops"])
def test_as_text(name: str) -> None:
    """The CUDA text of a GPU's plan, compiled by g++ against an emulation."""
    kernel, seed = kernel_of(TAKEN[name]), np.random.default_rng(1).standard_normal(45)
    expected, d_x = np.zeros(45), np.full(45, 3.0)
    kg.gradient(kernel, "y, x, z")[4, 4](*arguments_of(), seed.copy(), expected, np.zeros(45))
    with forced("as on a GPU"):
        gradient = kg.gradient(kernel, "y, x, z", **FORMS["reverse"])
        arguments = (*arguments_of(), seed.copy(), d_x, np.zeros(45))
        steps, _, own = gradient._prepare(make_launch(4, 4), arguments, {})
        for step, bound, launch, supplied in steps:
            module, config = step.cuda_module, LaunchConfig(launch.grid, launch.block)
            packed = step._with_variables(module, bound, config, None, supplied).packed
            offsets, _ = param_layout(module.functions[step.name])
            run_packed(step.source, kernel_name(step.name), launch.grid, launch.block, packed, offsets)
        own.finish()
    np.testing.assert_allclose(d_x, expected, rtol=1e-12, atol=1e-12)
