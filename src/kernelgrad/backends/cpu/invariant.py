"""Which numbers are the same for all threads that a loop over threads runs, and can be computed before it."""

from __future__ import annotations

from ...ir.ops import Apply, Builtin, Constant, Function, Member, Offset, Op, PtrCast, Value
from ...ir.traverse import operands, walk
from ...ir.types import Scalar
from .frame import Frame
from .threads import emit_op

_CHEAP = frozenset("add sub mul neg convert".split())
_EXTENTS = frozenset(("block_dim", "grid_dim", "warp_size"))


class Invariants:
    """`by_row`: the loop runs over a row of blocks, else over one. `counters`: of loops, to be taken for constants."""

    def __init__(self, function: Function, by_row: bool, counters: frozenset[Value] = frozenset()):
        self.definitions = {v: op for op in walk(function.body) for v in op.results}
        self.params = {p.value for p in function.params}
        self.by_row, self.counters = by_row, counters

    def holds(self, value: Value) -> bool:
        if value in self.params or value in self.counters:
            return True
        op = self.definitions.get(value)
        return op is not None and self._is_fixed(op) and all(map(self.holds, operands(op)))

    def _is_fixed(self, op: Op) -> bool:
        match op:
            case Constant() | Offset() | Member() | PtrCast():
                return True
            case Builtin("block_idx", axis):
                return axis > 0 or not self.by_row
            case Builtin(name):
                return name in _EXTENTS
            case Apply(fn):
                type = op.result.type
                return fn in _CHEAP and isinstance(type, Scalar) and not type.is_float
        return False

    def emit(self, frame: Frame, value: Value) -> None:
        """Code for it where the frame stands, unless it is there already."""
        if value in frame.values:
            return
        op = self.definitions[value]
        for operand in operands(op):
            self.emit(frame, operand)
        emit_op(frame, op)
