"""Gradients against forward mode, under any plan: of all tangents t, the products of J^T s with t are those of s with
J t."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgrad as kg
from derived import kernel_of, tangent_of
from every_plan import forced
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig

Arrays = list[np.ndarray[Any, Any]]
PLANS = ("as launched", "gathered", "gathered as on a GPU", "gathered and staged", "as on a GPU", "in cells of blocks")
REVERSE = {"primal": False, "keep": "y"}


@dataclass(frozen=True)
class Case:
    """A kernel `k` of arrays of doubles, the first of which is the output y, and of numbers after them. `variables`: of
    the source, whose derivatives are asked for, too. `gathered`: which inputs are."""

    source: str
    grid: Any
    block: Any
    sizes: dict[str, int]
    numbers: tuple[Any, ...] = ()
    gathered: frozenset[str] = frozenset()
    variables: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    nulls: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        return (*(n for n in self.sizes if n not in self.nulls), *self.variables)

    @property
    def kernel(self) -> Any:
        return kernel_of(self.source)

    def contents(self) -> Arrays:
        """Of the arrays and variables, by name in this order; those of variables are set."""
        rng = np.random.default_rng(3)
        arrays = [rng.uniform(0.5, 1.5, n) for name, n in self.sizes.items() if name not in self.nulls]
        for name in self.variables:
            variable = self.kernel.variable(name)
            own = np.array(variable[...])
            own[...] = np.random.default_rng(len(name)).uniform(0.5, 1.5, own.shape)
            variable[...] = own
            arrays.append(own)
        return arrays

    def arguments(self) -> list[Any]:
        arrays = iter(self.contents())
        return [*(None if name in self.nulls else next(arrays) for name in self.sizes), *self.numbers]

    def randoms(self, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        return [rng.uniform(-1, 1, own.shape) for own in self.contents()]

    def plan(self, on_gpu: bool = False, **options: Any) -> Any:
        gradient = kg.gradient(self.kernel, self.names, **options)
        return gradient.planned(make_launch(self.grid, self.block), self.arguments(), {}, on_gpu=on_gpu).plan


def gathers(case: Case, **options: Any) -> set[str]:
    """Which inputs are gathered in a launch."""
    return {gather.name for gather in case.plan(**options).variant.options.facts.gathered}


def assert_transposed(case: Case, plan: str, assigned: bool = False, **options: Any) -> None:
    """`assigned`: adjoints of inputs start at zero, whatever they hold."""
    seed, given = case.randoms(1), case.randoms(2)
    start = [seed[0], *([np.full_like(g, np.nan) for g in given[1:]] if assigned else given[1:])]
    adjoints = [a.copy() for a in start]
    asked = {"assign": case.names[1:], **options} if assigned else options
    with forced(plan):
        kg.gradient(case.kernel, case.names, **REVERSE | asked)[case.grid, case.block](*case.arguments(), *adjoints)
    if (REVERSE | asked)["keep"]:
        np.testing.assert_array_equal(adjoints[0], seed[0])
    found = [a if assigned else a - s for a, s in zip(adjoints[1:], start[1:], strict=True)]
    for k in range(2):
        tangents = case.randoms(5 + k)
        moved = [t.copy() for t in tangents]
        tangent_of(case.kernel, case.names)[case.grid, case.block](*case.arguments(), *moved)
        backward = sum(float(np.vdot(f, t)) for f, t in zip(found, tangents[1:], strict=True))
        # Where nothing is stored, a tangent stays what it was, and an adjoint what was given.
        forward = float(np.vdot(moved[0], seed[0])) - float(np.vdot(_left(case, tangents), seed[0]))
        np.testing.assert_allclose(backward, forward, rtol=1e-9, atol=1e-9)


def _left(case: Case, tangents: Arrays) -> np.ndarray[Any, Any]:
    """What of y's tangent the kernel leaves."""
    first = [tangents[0].copy(), *(np.zeros_like(t) for t in tangents[1:])]
    tangent_of(case.kernel, case.names)[case.grid, case.block](*case.arguments(), *first)
    return first[0]


def assert_same_as_text(case: Case, run_packed: Callable[..., None], **options: Any) -> None:
    """The CUDA text of every launch, compiled by g++ against an emulation."""
    gradient, seed = kg.gradient(case.kernel, case.names, **REVERSE | options), case.randoms(1)
    expected, adjoints = ([a.copy() for a in seed] for _ in range(2))
    gradient[case.grid, case.block](*case.arguments(), *expected)
    steps, _, own = gradient._prepare(make_launch(case.grid, case.block), (*case.arguments(), *adjoints), {})
    for kernel, bound, launch, supplied in steps:
        module, config = kernel.cuda_module, LaunchConfig(launch.grid, launch.block)
        packed = kernel._with_variables(module, bound, config, None, supplied).packed
        offsets, _ = param_layout(module.functions[kernel.name])
        constants = {name: bytes(kernel.variable(name)[...].data) for name in case.constants}
        run_packed(kernel.source, kernel_name(kernel.name), launch.grid, launch.block, packed, offsets, constants)
    own.finish()
    for got, wanted in zip(adjoints, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def assert_compiles(case: Case, **options: Any) -> str:
    """What a GPU gets, with NVRTC; the text."""
    from kernelgrad.runtime.cuda import compile_only

    gradient = kg.gradient(case.kernel, case.names, **REVERSE | options)
    text = gradient.source_for(case.grid, case.block, *case.arguments(), on_gpu=True)
    assert compile_only(text, "sm_90")
    return str(text)
