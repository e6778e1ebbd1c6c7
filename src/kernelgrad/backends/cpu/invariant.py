"""Which numbers are the same for all threads that a loop over threads runs, and can be computed before it."""

from __future__ import annotations

from ...ir.ops import Apply, Builtin, Constant, Function, Member, Offset, Op, PtrCast, Value
from ...ir.traverse import operands, settle, walk
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
        self._picked: dict[Value, frozenset[Value] | None] = {}

    def holds(self, value: Value) -> bool:
        return self._counters(value) is not None

    def counters_of(self, value: Value) -> frozenset[Value]:
        """Those that a value depends on; it `holds`."""
        return self._counters(value) or frozenset()

    def _counters(self, value: Value) -> frozenset[Value] | None:
        settle(value, self._picked, self._needs, self._note)
        return self._picked[value]

    def _needs(self, value: Value) -> tuple[Value, ...]:
        op = None if value in self.params or value in self.counters else self.definitions.get(value)
        return operands(op) if op is not None and self._is_fixed(op) else ()

    def _note(self, value: Value) -> None:
        op = self.definitions.get(value)
        if value in self.params or value in self.counters:
            self._picked[value] = frozenset((value,)) & self.counters
        elif op is None or not self._is_fixed(op):
            self._picked[value] = None
        else:
            parts = [self._picked[operand] for operand in operands(op)]
            known = [part for part in parts if part is not None]
            self._picked[value] = frozenset().union(*known) if len(known) == len(parts) else None

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
        settle(
            value,
            frame.values,
            lambda v: operands(self.definitions[v]),
            lambda v: emit_op(frame, self.definitions[v]),
        )
