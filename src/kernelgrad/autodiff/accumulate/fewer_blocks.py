"""Fewer blocks that each do the work of many, for gradients that only sum up the adjoints of numbers, or of a few
elements (see `block_constant_sums`).

A block of such a gradient loads a little and leaves one sum: with hundreds of thousands of them, starting blocks and
adding up their sums takes longer than the loads. So a few thousand are started, and each runs through blocks of the
launch, its sums in registers:

    for (block = blockIdx.x; block < blocks of the launch; block += gridDim.x) ...

Nothing else is written, so that the loads of several turns can be under way together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ...analysis.machine import RESIDENT_THREADS
from ...ir.builder import Builder
from ...ir.effects import MEETINGS
from ...ir.ops import Atomic, Block, Builtin, Call, For, GlobalRef, Load, Op, Param, Print, Store, Value, While
from ...ir.traverse import rebuild, walk
from ...ir.types import I64, U32, Pointer

_THREADS = 2 * RESIDENT_THREADS  # that are started
_TURNS = 8  # for each block at least: with fewer, some have to wait for those that got one more
_UNROLLED = 4
_SHORT = 64  # operations of a turn that may be unrolled
_MOST_BLOCKS = 1 << 31  # so that their numbers fit an unsigned int, the last one's successor too
INDICES = ("thread_idx", "block_idx", "block_dim", "grid_dim")

Extents = tuple[int, int, int]


def blocks_for(block: Extents, threads: int | None = None) -> int:
    """How many blocks of that shape are started. `threads`: of all of them, where that is not as usual."""
    return max(1, (threads or _THREADS) // math.prod(block))


def pays(grid: Extents, block: Extents, threads: int | None = None, turns: int | None = None) -> bool:
    """Whether the launch has so many blocks that each of those started has enough to do."""
    return (turns or _TURNS) * blocks_for(block, threads) <= math.prod(grid) < _MOST_BLOCKS


def only_sums(ops: Iterable[Op], updates: Collection[Op] = ()) -> bool:
    """Whether threads write nothing but their own variables, and do nothing together. `updates`: but for these, which
    are sums too."""
    return all(op in updates or is_alone(op) for op in walk(Block((), tuple(ops), ())))


def is_alone(op: Op) -> bool:
    match op:
        case Store(ptr, _, volatile):
            return not volatile and isinstance(ptr.type, Pointer) and ptr.type.space == "local"
        case Load(_, volatile):
            return not volatile
        case Builtin(name, _):
            return name in INDICES
        case GlobalRef():
            return isinstance(op.result.type, Pointer) and op.result.type.space != "shared"
    return not isinstance(op, (*MEETINGS, Atomic, Call, Print))


@dataclass(frozen=True)
class Coarse:
    """`extents`: of the launch's grid, parameters; along the first axis alone, or along all three. `threads`: that are
    started, where those are not as many as usual."""

    extents: tuple[Param, ...]
    threads: int | None = None

    def blocks_for(self, block: Extents) -> int:
        return blocks_for(block, self.threads)

    def emit(self, b: Builder, work: tuple[Op, ...]) -> None:
        """The loop around the work of a block."""
        extents = [b.convert(p.value, U32) for p in self.extents]
        count = extents[0]
        for extent in extents[1:]:
            count = b.apply("mul", count, extent)
        first, step = b.builtin("block_idx"), b.builtin("grid_dim")
        tested, block = Value(U32, "~block"), Value(U32, "~block")
        with b.region() as before:
            more = b.apply("lt", tested, count)
        with b.region() as body:
            indices = _indices(b, block, extents)
            for op in _renumbered(work, {"block_idx": indices, "grid_dim": extents}, b):
                b.add(op)
            following = b.apply("add", block, step)
        test, turn = before.block((tested,), (more, tested)), body.block((block,), (following,))
        b.while_((first,), test, turn, _unrolling(work))


def coarse(axes: int, threads: int | None = None) -> Coarse:
    return Coarse(tuple(Param(Value(I64, f"_grid_{axis}"), "long long") for axis in "xyz"[:axes]), threads)


def _indices(b: Builder, block: Value, extents: list[Value]) -> list[Value]:
    if len(extents) == 1:
        return [block]
    row = b.apply("div", block, extents[0])
    return [b.apply("rem", block, extents[0]), b.apply("rem", row, extents[1]), b.apply("div", row, extents[1])]


def _renumbered(ops: tuple[Op, ...], known: dict[str, list[Value]], b: Builder) -> tuple[Op, ...]:
    """The operations with the indices and extents of the launch's grid instead of those of the one that is started."""
    mapping: dict[Value, Value] = {}
    for op in walk(Block((), ops, ())):
        if isinstance(op, Builtin) and op.name in known:
            along = known[op.name]
            missing = b.constant(0 if op.name == "block_idx" else 1, U32) if op.axis >= len(along) else None
            mapping[op.result] = b.convert(along[op.axis] if missing is None else missing, op.result.type)

    def inner(block: Block) -> Block:
        kept = (op for op in block.ops if not any(result in mapping for result in op.results))
        replaced = tuple(rebuild(op, lambda v: mapping.get(v, v), inner) for op in kept)
        return Block(block.args, replaced, tuple(mapping.get(v, v) for v in block.results))

    return inner(Block((), ops, ())).ops


def _unrolling(work: tuple[Op, ...]) -> int | None:
    nested = list(walk(Block((), work, ())))
    arithmetic = sum(not isinstance(op, Load | Store) or op.volatile for op in nested)
    short = arithmetic <= _SHORT and not any(isinstance(op, For | While) for op in nested)
    return _UNROLLED if short else None
