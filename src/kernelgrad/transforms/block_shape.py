"""Gradients for blocks of one shape. `for (d = blockDim.x / 2; d > 0; d >>= 1)` then has a constant number of
iterations: unrolled, such a tree needs no tape, and its levels no arithmetic. Every shape is compiled anew, so that
only kernels with such loops are worth it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..errors import Span
from ..ir.effects import has_barrier
from ..ir.ops import Block, Builtin, Constant, For, Function, Load, Module, Op, Store, Value, Warp, While
from ..ir.traverse import blocks, descend, walk, with_body
from ..ir.types import Pointer
from . import loops, promote, simplify
from .unroll import constants_of, copies_of, trips, unroll

Shape = tuple[int, int, int]
SMALL = 256  # operations that a loop may become when it is unrolled
_SMALL_KERNEL = 200  # operations, loops as they are written
_RESIDENT = {False: 1536, True: 2048}  # threads of a multiprocessor, with 40 registers each or 32


def is_short(loop: For | While, constants: dict[Value, int]) -> bool:
    """Whether a loop has few iterations, as many in every launch."""
    count = trips(loop, constants)
    return count is not None and copies_of(loop, count) <= SMALL


def with_shape(function: Function, module: Module, shape: Shape, alone: bool) -> Function:
    """The kernel for blocks of that shape, with short loops unrolled where they have barriers or local arrays, whose
    elements are values then. `alone`: for its reverse alone, which needs fewer registers."""
    shaped = simplify.run(with_extents(function, shape), module)
    shaped = simplify.run(loops.run(shaped, module), module)
    constants = constants_of(shaped)
    chosen = {op for op in _loops(shaped) if (_meets(op) or _has_arrays(op)) and is_short(op, constants)}
    unrolled = promote.run(unroll(shaped, chosen.__contains__), module)
    return replace(simplify.run(unrolled, module), launch_bounds=_bounds(function, math.prod(shape), alone))


def _meets(loop: For | While) -> bool:
    """Whether threads have to do with each other in it."""
    return has_barrier(loop) or any(isinstance(op, Warp) for op in _inside(loop))


def _inside(loop: For | While) -> Iterator[Op]:
    return (op for block in blocks(loop) for op in walk(block))


def _has_arrays(loop: For | While) -> bool:
    """Whether the loop touches memory of its thread alone."""
    pointers = (op.ptr.type for op in _inside(loop) if isinstance(op, Load | Store))
    return any(isinstance(type, Pointer) and type.space == "local" for type in pointers)


def with_extents(function: Function, shape: Shape) -> Function:
    """The extents of the block as constants, and the indices along those that are 1."""
    return with_body(function, _with_extents(function.body, shape))


def _with_extents(block: Block, shape: Shape) -> Block:
    ops = tuple(_known(op, shape) or descend(op, lambda b: _with_extents(b, shape)) for op in block.ops)
    return Block(block.args, ops, block.results)


def _known(op: Op, shape: Shape) -> Constant | None:
    match op:
        case Builtin("block_dim", axis):
            return Constant(shape[axis], results=op.results, span=op.span)
        case Builtin("thread_idx", axis) if shape[axis] == 1:
            return Constant(0, results=op.results, span=op.span)
    return None


def decided_by(function: Function, shape: Shape, taped: set[Span]) -> set[Span]:
    """The short loops with barriers, or with something on the tape, whose number of iterations the shape decides; and
    short loops without others inside in which threads meet, which may be trees."""
    found = _loops(function)
    trees = {loop.span for loop in found if _meets(loop) and not any(inner in found for inner in _inside(loop))}
    candidates = {loop.span for loop in found if has_barrier(loop) or loop.span in taped}
    if not candidates | trees:
        return set()
    short = _short(with_extents(function, shape))
    return (trees & short) | (candidates & (short - _short(function)))


def _loops(function: Function) -> list[For | While]:
    return [op for op in walk(function.body) if isinstance(op, For | While)]


def _short(function: Function) -> set[Span]:
    constants = constants_of(function)
    return {loop.span for loop in _loops(function) if is_short(loop, constants)}


def _bounds(function: Function, threads: int, alone: bool) -> tuple[int, ...]:
    """How many threads a block has; and how many blocks a multiprocessor should have, that others work while one waits
    at a barrier. A large kernel needs its registers more."""
    if function.launch_bounds[1:]:
        return (threads, *function.launch_bounds[1:])
    small = sum(1 for _ in walk(function.body)) <= _SMALL_KERNEL
    return (threads, _resident(threads, alone)) if small else (threads,)


def _resident(threads: int, alone: bool) -> int:
    return max(1, _RESIDENT[alone] // threads)


def unhurried(function: Function) -> Function:
    """The gradient with all the registers it likes, for one whose threads hardly wait for each other any more."""
    bounds = function.launch_bounds
    asked = bounds[1:] and bounds[1] in (_resident(bounds[0], alone) for alone in _RESIDENT)
    return replace(function, launch_bounds=bounds[:1]) if asked else function
