"""Which memory a plan reads again in the reverse."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.roots import Memory, Roots
from ...analysis.structure import Structure
from ...ir.ops import For, Load, Op, Value, While
from ...ir.traverse import blocks, walk
from .plan import Plan


def reread(plan: Plan, memory: Memory, structure: Structure) -> Roots:
    made = (structure.definition.get(value) for value in _values(plan, structure))
    loads = (plan.held.get(id(op), op) for op in made)
    return frozenset(root for op in loads if isinstance(op, Load) for root in memory.of(op.ptr))


def _values(plan: Plan, structure: Structure) -> Iterator[Value]:
    """What is computed again, in blocks, reruns of loops, and fills of tiles."""
    for key, values in plan.needed.items():
        kept = plan.frame(structure.places[key].block).keys() | plan.exported.get(key, {}).keys()
        for value in values:
            op = structure.definition.get(value)
            if value not in kept and op is not None:
                yield value
                yield from plan.slice_of([value], op) if blocks(op) else ()
    for op in walk(structure.top.block):
        if isinstance(op, For | While) and id(op) in plan.rerun:
            yield from plan.slice_of([*plan.wanted_of(op), *_frames(op, plan)], op)
    for tiles in plan.refilled.values():
        for tile in tiles:
            for op in tile.fill:
                yield from plan.slice_of(tile.stored(op), op, tile.inner) if blocks(op) else ()


def _frames(loop: Op, plan: Plan) -> Iterator[Value]:
    counts = set(plan.counts.values())  # known when their loops have run
    nested = (loop, *(op for inner in blocks(loop) for op in walk(inner)))
    frames = (plan.frame(block) for op in nested for block in blocks(op))
    return (value for frame in frames for value in frame if value not in counts)
