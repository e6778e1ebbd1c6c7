"""The stores that a value flows into: what a load is good for, if it is only to compute what is stored elsewhere."""

from __future__ import annotations

from ...ir.ops import Apply, Block, Function, If, Op, Store, Value
from ...ir.traverse import blocks, operands


class FinalUses:
    def __init__(self, function: Function):
        self.users: dict[Value, list[Op]] = {}
        self.flows: dict[Value, list[Value]] = {}  # from the results of a branch to those of the If
        self.found: dict[Value, frozenset[Op] | None] = {}
        self._index(function.body)

    def _index(self, block: Block) -> None:
        for op in block.ops:
            for value in operands(op):
                self.users.setdefault(value, []).append(op)
            for inner in blocks(op):
                self._index(inner)
                if isinstance(op, If):
                    for value, result in zip(inner.results, op.results, strict=True):
                        self.flows.setdefault(value, []).append(result)
                else:
                    for value in inner.results:
                        self.users.setdefault(value, []).append(op)

    def need(self, value: Value, dead: set[Op]) -> bool:
        """Whether it is needed, when some stores are not."""
        sinks = self.of(value)
        return sinks is None or not sinks <= dead

    def of(self, value: Value) -> frozenset[Op] | None:
        """The stores that it is computed for; None if it is for something else, too."""
        if value not in self.found:
            self.found[value] = self._of(value)
        return self.found[value]

    def _of(self, value: Value) -> frozenset[Op] | None:
        total: frozenset[Op] = frozenset()
        further = list(self.flows.get(value, ()))
        for op in self.users.get(value, ()):
            match op:
                case Apply():
                    further.append(op.result)
                case Store(_, stored) if stored is value and op.ptr is not value:
                    total |= {op}
                case _:
                    return None
        for result in further:
            found = self.of(result)
            if found is None:
                return None
            total |= found
        return total
