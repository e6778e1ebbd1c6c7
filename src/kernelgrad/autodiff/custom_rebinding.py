"""Pullbacks whose pointers to adjoints are made to point to something else: refused, since nothing would come of it.

`d_x = &local; *d_x += ...` adds to a variable that is gone when the pullback ends. A pointer may walk through its own
adjoint, and lead to that of another argument.
"""

from __future__ import annotations

from ..errors import UnsupportedError
from ..ir.ops import Alloca, Function, Load, Member, Offset, Op, PtrCast, Store, Value
from ..ir.traverse import walk
from ..ir.types import Pointer

_MOVES = (Offset, Member, PtrCast)
_HINT = "add to what it points to, as in `*{0} += ...`"


def refuse_rebinding(pullback: Function, first: int) -> None:
    """`first`: the first of its parameters that points to an adjoint. The function is as the frontend gives it: its
    parameters are variables that it may assign to."""
    adjoints = {p.value: p.name for p in pullback.params[first:] if isinstance(p.type, Pointer)}
    places = _Places(pullback)
    stores = [op for op in places.stores if op.value in adjoints]
    variables = {op.ptr: adjoints[op.value] for op in stores}
    for op in places.stores:
        if op.ptr in variables and not places.of(op.value) <= adjoints.keys():
            name = variables[op.ptr]
            problem = f"a custom derivative has its '{name}' point to something else here: what is added is lost"
            raise UnsupportedError(problem, op.span, _HINT.format(name))


class _Places:
    """What pointers of a function may lead to: parameters, variables, or a pointer of unknown origin itself."""

    def __init__(self, function: Function):
        ops = list(walk(function.body))
        self.definition: dict[Value, Op] = {v: op for op in ops for v in op.results}
        self.variables = {op.result for op in ops if isinstance(op, Alloca)}
        self.stores = [op for op in ops if isinstance(op, Store) and isinstance(op.value.type, Pointer)]
        self.held: dict[Value, set[Value]] = {}
        before = -1
        while before != (before := sum(map(len, self.held.values()))):
            for store in self.stores:
                self.held.setdefault(store.ptr, set()).update(self.of(store.value))

    def of(self, pointer: Value) -> set[Value]:
        op = self.definition.get(pointer)
        while isinstance(op, _MOVES):
            pointer = op.ptr
            op = self.definition.get(pointer)
        if isinstance(op, Load) and op.ptr in self.variables:
            return self.held.get(op.ptr, set())
        return {pointer}
