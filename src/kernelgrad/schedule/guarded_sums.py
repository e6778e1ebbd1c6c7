"""Sums that the same guard masks (Note [Masks]) are made in one branch, instead of by a select each:

    if (d != 0) { a += d * u; b += d * v; ... }

A product and a sum are one instruction then, where the product, a select and the sum were three. The guard is an
adjoint, which is rarely zero, and then mostly for whole warps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Function, If, Module, Op, Value
from ..ir.traverse import blocks, descend, free_values, operands, uses, with_body, with_ops
from ..ir.types import Type

_FEWEST = 4  # sums that are worth a branch


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Runs(uses(function.body)).block(function.body))


@dataclass(frozen=True)
class _Sum:
    """`other + value`, which counts where the guard is not zero. `parts`: what there is for it alone, the mask last."""

    op: Apply
    other: Value
    value: Value
    guard: Value
    parts: tuple[Apply, ...]


@dataclass
class _Run:
    """Sums of one guard, each of which may go on from one before."""

    sums: list[_Sum] = field(default_factory=list)

    @property
    def results(self) -> tuple[Value, ...]:
        return tuple(one.op.result for one in self.sums)

    def ops(self) -> tuple[Op, ...]:
        """All of them, where the last one stands."""
        guard, b = self.sums[0].guard, Builder(self.sums[0].op.span)
        some = b.apply("ne", guard, b.constant(0.0, guard.type))
        kept = dict[Value, Value]()
        for one in self.sums:
            kept[one.op.result] = kept.get(one.other, one.other)
        b.add(If(some, self._added(), Block((), (), tuple(kept.values())), results=self.results, span=b.span))
        return tuple(b.ops)

    def _added(self) -> Block:
        b, found = Builder(), dict[Value, Value]()
        for one in self.sums:
            b.span = one.op.span
            for part in one.parts[:-1]:
                b.add(part)
            found[one.op.result] = b.apply("add", found.get(one.other, one.other), one.value, name=one.op.result.name)
        return Block((), tuple(b.ops), tuple(found.values()))


class _Runs:
    def __init__(self, used: Mapping[Value, int]):
        self.used = used

    def block(self, block: Block) -> Block:
        runs = [run for run in self.runs(block) if len(run.sums) >= _FEWEST]
        gone = {op for run in runs for one in run.sums for op in (*one.parts, one.op)}
        last = {run.sums[-1].op: run for run in runs}
        ops: list[Op] = []
        for op in block.ops:
            if op in last:
                ops += last[op].ops()
            elif op not in gone:
                ops.append(descend(op, self.block))
        return with_ops(block, ops)

    def runs(self, block: Block) -> Iterator[_Run]:
        """A run ends where something else asks for a result of it."""
        definition = {result: op for op in block.ops for result in op.results}
        open_: dict[tuple[Value, Type], _Run] = {}
        for op in block.ops:
            sum_ = self.sum_of(op, definition)
            own = None if sum_ is None else (sum_.guard, op.result.type)
            wanted = {*operands(op), *(v for inner in blocks(op) for v in free_values(inner))}
            for key in [key for key, run in open_.items() if key != own and not wanted.isdisjoint(run.results)]:
                yield open_.pop(key)
            if own is not None and sum_ is not None:
                open_.setdefault(own, _Run()).sums.append(sum_)
        yield from open_.values()

    def sum_of(self, op: Op, definition: Mapping[Value, Op]) -> _Sum | None:
        if not isinstance(op, Apply) or op.fn != "add":
            return None
        for masked, other in (op.args, op.args[::-1]):
            mask = definition.get(masked)
            if isinstance(mask, Apply) and mask.fn == "masked" and self.used[masked] == 1:
                value, guard = mask.args
                product = definition.get(value)
                if isinstance(product, Apply) and product.fn == "mul" and self.used[value] == 1:
                    return _Sum(op, other, value, guard, (product, mask))
                return _Sum(op, other, value, guard, (mask,))
        return None
