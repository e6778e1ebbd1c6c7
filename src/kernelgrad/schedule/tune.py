"""What is done to a finished gradient for the launches it is for: no needless fills, exchanged loops and warp
rotations instead of atomics, several rows for each thread, barriers of warps."""

from __future__ import annotations

import math
from dataclasses import replace

from ..analysis.tuning import Tuning, row_of
from ..ir.ops import For, Function, Module, Value
from ..ir.traverse import free_values, walk
from ..ir.types import Scalar
from ..transforms import simplify
from . import dead_fills, warp_barriers
from .coarsen import block_rows
from .exchange import loop_exchange
from .order import loads_before_barriers, reciprocals
from .sum_over import lanes_apart, turns, warp_rotation
from .trees import trees

_RESIDENT = 512  # threads of a multiprocessor that unrolled code must leave room for
_FEWER = 256  # of code that needs most registers for what its loops find
_MANY = 48  # such values


def run(function: Function, module: Module, tuning: Tuning, gathering: frozenset[str]) -> Module:
    """The module with the function as it is best for the launches; what it needs is still in local variables.
    `gathering`: the memory in which adjoints are added up, in any order."""
    variables = dict(module.globals)
    if tuning.refilled:
        function = dead_fills.run(function, tuning.refilled)
    if tuning.block is None:
        function = warp_rotation.run(function, tuning.row)
    else:
        exchanged, own = loop_exchange.run(function, module, tuning.block, tuning.row)
        if exchanged is not function:
            function, variables = simplify.run(exchanged, module), variables | own
        function = _for_block(function, module, tuning, tuning.block, gathering)
    return replace(module, functions={function.name: function}, globals=variables)


def _for_block(
    function: Function, module: Module, tuning: Tuning, block: tuple[int, int, int], gathering: frozenset[str]
) -> Function:
    if tuning.row > 1:
        function = lanes_apart.run(function, block)
        merged = block_rows.run(function, block, tuning.each)
        if merged is not function:
            function, block = simplify.run(merged, module), block_rows.started(merged, block)
        function = warp_rotation.run(function, row_of(block), module, block)
    function = trees.run(function, module, block, gathering)
    if tuning.row == 1:
        return function
    function = turns.run(function, module, block)
    function = warp_barriers.run(reciprocals.run(loads_before_barriers.run(function), gathering), block)
    return _with_registers(function, math.prod(block)) if warp_rotation.is_unrolled(function) else function


def _with_registers(function: Function, threads: int) -> Function:
    """Unrolled code runs several iterations at a time if it has registers for them, rather than threads enough to fill
    a multiprocessor."""
    if function.launch_bounds[1:]:
        return function
    resident = _FEWER if _most_found(function) > _MANY else _RESIDENT
    return replace(function, launch_bounds=(threads, max(1, resident // threads)))


def _most_found(function: Function) -> int:
    """How many floats an unrolled loop uses that were computed before it: a register tile's adjoints."""
    loops = (op for op in walk(function.body) if isinstance(op, For) and op.unroll == 0)
    return max((sum(_is_float(v) for v in free_values(loop.body)) for loop in loops), default=0)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float
