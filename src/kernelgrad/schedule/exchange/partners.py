"""What a thread needs to know to compute what another thread adds in a loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...analysis.block_interpreter.lanes import Update
from ...ir.ops import Atomic, For, If, Op, Value
from ...ir.traverse import blocks, operands, walk


@dataclass
class Needs:
    """`ops`: those of the loop's body that the updates' values depend on, and whether they happen. `bare`: branches of
    which only the inside is needed. `outside`: values from before the loop. `carried`: whether one from an earlier
    iteration is among them."""

    ops: set[Op] = field(default_factory=set)
    bare: set[Op] = field(default_factory=set)
    outside: dict[Value, None] = field(default_factory=dict)
    carried: bool = False


def needs_of(updates: list[Update], loop: For) -> Needs:
    return _Search(loop).run(updates)


class _Search:
    def __init__(self, loop: For):
        self.loop = loop
        self.around: dict[Op, Op] = {}
        self.home: dict[Value, Op] = {}  # the operation that defines a value, or whose block's argument it is
        for op in walk(loop.body):
            self.home.update((v, op) for v in op.results)
            for inner in blocks(op):
                self.home.update((v, op) for v in inner.args)
                self.around.update((nested, op) for nested in inner.ops)
        self.found = Needs()
        self.queue: list[Op] = []

    def run(self, updates: list[Update]) -> Needs:
        for update in updates:
            self.found.ops.add(update.atomic)
            self.follow(update.value)
            self.enclose(update.guarded if update.guarded is not None else update.atomic)
        while self.queue:
            self.need(self.queue.pop())
        return self.found

    def follow(self, value: Value) -> None:
        if value in self.home:
            self.queue.append(self.home[value])
        elif value in self.loop.body.args[1:]:
            self.found.carried = True
        elif value is not self.loop.body.args[0]:
            self.found.outside.setdefault(value)

    def enclose(self, op: Op) -> None:
        """The branches around an operation, as far as they decide whether it runs."""
        outer = self.around.get(op)
        while outer is not None:
            if isinstance(outer, If) and outer not in self.found.ops:
                self.found.ops.add(outer)
                self.found.bare.add(outer)
                self.follow(outer.cond)
            elif not isinstance(outer, If):
                self.queue.append(outer)
            outer = self.around.get(outer)

    def need(self, op: Op) -> None:
        """An operation with all that is inside it."""
        if (op in self.found.ops and op not in self.found.bare) or isinstance(op, Atomic):
            return
        self.found.bare.discard(op)
        self.found.ops.add(op)
        self.enclose(op)
        for value in operands(op):
            self.follow(value)
        for inner in blocks(op):
            self.queue += inner.ops
            for value in inner.results:
                self.follow(value)
