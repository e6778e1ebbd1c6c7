"""What every thread of a block can compute for itself, though the kernel has one of them do it: arithmetic on the
block's index and on parameters, and loads at addresses that are the same for all.

It is computed at the start of the kernel, where its loads need not wait for anything. Memory that the kernel writes
must be written later: behind the place where it was loaded, and with a barrier in between, since others load it now.
"""

from __future__ import annotations

from dataclasses import replace

from ...analysis.block_interpreter.cells import Play
from ...ir.effects import PURE
from ...ir.ops import Atomic, Block, Builtin, Function, Load, Op, Store, Value
from ...ir.traverse import operands, rebuild, walk

_SAME = ("block_idx", "block_dim", "grid_dim", "warp_size")
_MOST_OPS = 24
_MOST_LOADS = 1


class Common:
    def __init__(self, function: Function, play: Play):
        self.play = play
        self.params = {p.value for p in function.params}
        self.order: dict[Op, int] = {op: k for k, op in enumerate(walk(function.body))}
        self.writes = [op for op in self.order if isinstance(op, Store | Atomic)]
        met = [self.order[function.body.ops[at]] for at in play.meetings]
        self.met = min(met, default=len(self.order))
        self.found: dict[Value, tuple[Op, ...] | None] = {}
        self.copies: dict[Value, Value] = {}
        self.ops: list[Op] = []

    def has(self, value: Value) -> bool:
        return self.slice(value) is not None

    def slice(self, value: Value) -> tuple[Op, ...] | None:
        if value not in self.found:
            self.found[value] = self._slice(value)
        return self.found[value]

    def _slice(self, value: Value) -> tuple[Op, ...] | None:
        ops: set[Op] = set()
        todo = [value]
        while todo:
            wanted = todo.pop()
            op = self.play.structure.definition.get(wanted)
            if wanted in self.params or (op is not None and op in ops):
                continue
            if op is None or not self.is_same(op) or len(ops) >= _MOST_OPS:
                return None
            ops.add(op)
            todo += operands(op)
        if sum(isinstance(op, Load) for op in ops) > _MOST_LOADS:
            return None
        return tuple(sorted(ops, key=self.order.__getitem__))

    def is_same(self, op: Op) -> bool:
        match op:
            case Builtin(name):
                return name in _SAME
            case Load(_, volatile):
                return not volatile and self.is_early(op)
        return isinstance(op, PURE)

    def is_early(self, load: Load) -> bool:
        root = self.play.aliases.root(load.ptr)
        if root not in self.params:
            return False
        written = [
            self.order[w] for w in self.writes if self.play.aliases.may_share(self.play.aliases.root(w.ptr), root)
        ]
        return all(at > max(self.order[load], self.met) for at in written)

    def value(self, value: Value) -> Value:
        """The value that a thread computes for itself, at the start."""
        for op in self.slice(value) or ():
            if op.results[0] not in self.copies:
                copied = rebuild(op, lambda v: self.copies.get(v, v), lambda b: b)
                fresh = tuple(Value(r.type, r.name) for r in op.results)
                self.copies |= dict(zip(op.results, fresh, strict=True))
                self.ops.append(replace(copied, results=fresh))
        return self.copies.get(value, value)

    def at_start(self, block: Block) -> Block:
        return Block(block.args, (*self.ops, *block.ops), block.results)
