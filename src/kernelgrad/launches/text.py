"""The text of a launch: every kernel that runs, in order, with how it is launched and what it is given."""

from __future__ import annotations

from collections.abc import Iterator

from ..kernel import Kernel
from .memory.buffers import Alias, Copy, Memory
from .plan import LaunchPlan, PlannedStep

_ROLES = {
    "gather": "collects an adjoint, element by element",
    "kernel": "the gradient",
    "keys": "sums up over the gradient's threads what they would add to the same elements",
    "forward": "the kernel itself, after its reverse",
}


def text_of(plan: LaunchPlan) -> str:
    """As CUDA C++. Each kernel stands for itself: helpers may be there several times."""
    texts = ((*_head(plan, k, step), _source(plan, step.kernel)) for k, step in enumerate(plan.steps))
    return "\n".join("\n".join(lines) for lines in (tuple(_before(plan)), *texts, tuple(_after(plan))) if lines)


def _before(plan: LaunchPlan) -> Iterator[str]:
    """What launches it is for, and what the launcher does before all kernels."""
    for name, number in sorted(plan.variant.kernel.fixed.items()):
        yield f"// For launches with {name} = {number}."
    for number, start, nbytes in plan.cleared:
        yield f"// First, {nbytes} bytes of {plan.launch.sizes[number][0]} are zeroed, from byte {start} on."
    for name in sorted(plan.variant.options.facts.unkept):
        yield f"// First, {plan.variant.derivative.adjoints[name].name} is replaced by a copy: it is to be kept."
    if plan.sizes is None and plan.variant.places:
        yield "// First, a launch counts how much each block keeps."


def _after(plan: LaunchPlan) -> Iterator[str]:
    """What it does when they have run."""
    given = {p.name for step in plan.steps for p in step.kernel.function.params}
    yield from (line for name, line in supplied_lines(plan) if name not in given)
    for addition in plan.additions:
        yield f"// Afterwards: {addition.describe(plan.sized)}"
    kernels = {addition.kernel.name: addition.kernel for addition in plan.additions}
    yield from (kernel.source for kernel in kernels.values())


def _source(plan: LaunchPlan, kernel: Kernel) -> str:
    own = plan.variant.kernels
    return plan.variant.source(own.index(kernel)) if kernel in own else kernel.source


def _head(plan: LaunchPlan, number: int, step: PlannedStep) -> Iterator[str]:
    yield f"// Launch {number + 1} of {len(plan.steps)}: {_ROLES[step.role]}."
    yield f"// {step.kernel.name}<<<dim3({_extents(step.grid)}), dim3({_extents(step.block)})>>>"
    if (step.grid, step.block) != (plan.given, plan.launch.block):
        launch = f"dim3({_extents(plan.given)}), dim3({_extents(plan.launch.block)})"
        yield f"// for a launch of the kernel with {launch}."
    given = {p.name for p in step.kernel.function.params}
    for name, told in step.told.items():
        if name in given:
            yield f"//   {name}: {told.value}"
    yield from (line for name, line in supplied_lines(plan) if name in given)


def supplied_lines(plan: LaunchPlan) -> Iterator[tuple[str, str]]:
    """What kernels are given besides the arguments: by the parameter's name, a comment."""
    at = plan.sized
    for need in plan.needs:
        if isinstance(need, Copy | Alias):
            yield need.name, f"//   {need.name}: {need.role}"
        elif isinstance(need, Memory):
            filled = "" if need.fill is None else f", each {need.fill:#x}" if need.fill else ", zeroed"
            amount = f" {need.nbytes.value(at)} bytes ({need.nbytes}){filled}" if str(need.nbytes) != "0" else ""
            yield need.name, f"//   {need.name}:{amount}: {need.role}"
        else:
            yield need.name, f"//   {need.name}: {need.value.value(at)}: {need.role}"


def _extents(extents: tuple[int, ...]) -> str:
    return ", ".join(map(str, extents))
