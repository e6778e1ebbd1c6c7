"""`const` and `volatile` in declarations.

Which pointers come from a `const T *` parameter: C++ wants the same of every variable they pass through. And which
variables and parameters are `volatile` in the source: every access through them is. The IR marks accesses, not objects.
Where an object's accesses all agree its declaration says it once, as the source did; any other volatile access gets a
cast.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ...ir.ops import Apply, For, Function, GlobalRef, If, Load, Member, Offset, Op, PtrCast, Store, Value, While
from ...ir.traverse import operands, walk
from ...ir.types import Pointer, Scalar
from .folding import Folding


def const_pointers(function: Function) -> frozenset[Value]:
    const = {p.value for p in function.params if p.const}
    if not const:
        return frozenset()
    flows = [pair for op in walk(function.body) for pair in _flows(op) if isinstance(pair[0].type, Pointer)]
    size = 0
    while size != len(const):  # loops carry pointers backwards
        size = len(const)
        const.update(target for source, target in flows if source in const)
    return frozenset(const)


def _flows(op: Op) -> Iterator[tuple[Value, Value]]:
    """(source, target) pairs of pointers that C++ gives the same constness."""
    match op:
        case Offset(ptr) | Member(ptr) | PtrCast(ptr):
            yield ptr, op.result
        case Apply("select", (_, if_true, if_false)):
            yield if_true, op.result
            yield if_false, op.result
        case If(_, then, orelse):
            yield from zip(then.results, op.results, strict=True)
            yield from zip(orelse.results, op.results, strict=True)
        case For(inits=inits, body=body):
            for sources in (inits, body.results):
                yield from zip(sources, body.args[1:], strict=True)
            yield from zip(body.args[1:], op.results, strict=True)
        case While(inits=inits, before=before, body=body):
            for sources in (inits, body.results):
                yield from zip(sources, before.args, strict=True)
            yield from zip(before.results[1:], body.args, strict=True)
            yield from zip(body.args, op.results, strict=True)
        case _:
            pass


# ---- volatile -------------------------------------------------------------------------------------------------------


class Volatility:
    """`holds(ptr)`: whether the text of what `ptr` points to is volatile already."""

    def __init__(self, function: Function, folding: Folding):
        self._folding = folding
        self._params = {p.value for p in function.params}
        votes: dict[Hashable, bool] = {}
        for op in walk(function.body):
            for value in operands(op):
                root = self._root(value)
                if root is not None and not _passes_on(op, folding):
                    votes[root] = votes.get(root, True) and _is_volatile(op, value)
        self._roots = {root for root, volatile in votes.items() if volatile}

    def holds(self, ptr: Value) -> bool:
        return self._root(ptr) in self._roots

    def of_global(self, name: str) -> bool:
        return name in self._roots

    def _root(self, ptr: Value) -> Hashable | None:
        """The variable (its name) or parameter (its value) that the text of an address starts from."""
        while ptr in self._folding.inline:
            match self._folding.definition[ptr]:
                case GlobalRef(name):
                    return name
                case Offset(base) | Member(base) | PtrCast(base):
                    ptr = base
                case _:
                    return None
        return ptr if ptr in self._params else None


def _passes_on(op: Op, folding: Folding) -> bool:
    """An address computation that is part of another's text."""
    return isinstance(op, Offset | Member | PtrCast) and op.result in folding.inline


def _is_volatile(op: Op, ptr: Value) -> bool:
    match op:
        case Load(address, volatile):
            return volatile and address is ptr and isinstance(op.result.type, Scalar)
        case Store(address, value, volatile):
            return volatile and address is ptr and isinstance(value.type, Scalar)
        case _:
            return False
