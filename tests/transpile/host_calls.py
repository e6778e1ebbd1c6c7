"""Calls the host function of a gradient on the emulation as `g[grid, block](...)` would be called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from run_host import call_host, dim3

from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.types import Scalar
from kernelgrad.runtime.layouts import scalar_dtype
from kernelgrad.transpile.derivative_file import derivative_file, form
from kernelgrad.transpile.host_function import HostFunction, Shape


def three(extents: Any) -> tuple[int, int, int]:
    found = (extents,) if isinstance(extents, int) else tuple(extents)
    return (*found, *(1,) * (3 - len(found)))  # type: ignore[return-value]


def call_gradient(
    gradient: Gradient,
    grid: Any,
    block: Any,
    args: Sequence[Any],
    adjoints: Sequence[Any],
    shared: int = 0,
    exact: bool = False,
    fails_at: int = -1,
) -> int:
    """`exact`: by the form for this grid and block."""
    shape = Shape(three(grid), three(block)) if exact else None
    function = HostFunction(form(gradient, shape), shape, gradient.settings.assigned)
    given = dict(zip((p.name for p in function.params), (*args, *adjoints), strict=True))
    sizes = [np.uint64(given[buffer].nbytes) for buffer in function.sizes]
    launch = [] if exact else [dim3(*three(grid)), dim3(*three(block))]
    own = [_argument(p.type, given[p.name]) for p in function.params]
    variables = [np.asarray(gradient.kernel.variable(p.variable)) for p in function.variables]
    arguments = [*launch, np.uint64(shared), np.uint64(0), *own, *variables, *sizes]
    return call_host(derivative_file(gradient, shape), function.name, arguments, fails_at)


def _argument(type: Any, value: Any) -> Any:
    return scalar_dtype(type).type(value) if isinstance(type, Scalar) else value
