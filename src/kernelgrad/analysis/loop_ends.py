"""What is certain where a loop goes on to another iteration: the branches that would have ended it were not taken.

    while (go) { ...; broke = n == 256; if (!broke) { ... }; go = !broke && i < rounds; }

Where `go` is true, so is `n != 256`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.ops import Apply, Op, Value, While
from ..ir.types import Scalar

_OPPOSITES = {"eq": "ne", "lt": "ge", "gt": "le"}
_OPPOSITES |= {other: one for one, other in _OPPOSITES.items()}
_Test = tuple[str, tuple[Value, ...]]


class GoingOn:
    """For a loop whose condition is a carried bool (see `transforms/rotate`)."""

    def __init__(self, loop: While, definition: Mapping[Value, Op]):
        self.definition = definition
        self._values: dict[Value, bool] = {}
        self._tests: dict[_Test, bool] = {}
        self._learn(loop.body.results[0], True)

    def _learn(self, value: Value, truth: bool) -> None:
        self._values[value] = truth
        op = self.definition.get(value)
        if not isinstance(op, Apply):
            return
        if op.fn in _OPPOSITES and _are_whole(op.args):
            self._tests[op.fn, op.args] = truth
            self._tests[_OPPOSITES[op.fn], op.args] = not truth
        elif op.fn == "not" or (op.fn in ("and", "or") and (op.fn == "and") == truth):
            for arg in op.args:
                self._learn(arg, truth != (op.fn == "not"))

    def truth(self, value: Value) -> bool | None:
        """What a bool of the body is, given that another iteration follows; None where that is not certain."""
        if value in self._values:
            return self._values[value]
        op = self.definition.get(value)
        if not isinstance(op, Apply):
            return None
        if op.fn == "not":
            inner = self.truth(op.args[0])
            return None if inner is None else not inner
        if op.fn in ("and", "or"):
            found = [self.truth(arg) for arg in op.args]
            decides = op.fn == "or"
            return decides if decides in found else None if None in found else not decides
        return self._tests.get((op.fn, op.args))


def _are_whole(args: tuple[Value, ...]) -> bool:
    """Of floats, neither of two opposite comparisons may hold."""
    return all(isinstance(arg.type, Scalar) and not arg.type.is_float for arg in args)
