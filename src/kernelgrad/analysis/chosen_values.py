"""Loads of which a value may be any: by branches, conditional expressions and loops that carry values.

Values that are chosen from one another are in one class, whatever chooses. Operations of one kind in a class have
operands that are chosen from one another, too: compilers move an operation behind the choice, if nothing else uses what
it gives (`c ? 2 * a : 2 * b` becomes `2 * (c ? a : b)`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator

from ..ir.ops import Aggregate, Apply, Block, Extract, For, If, Insert, Load, Op, Value, While
from ..ir.traverse import uses, walk

Kind = Hashable
_Loads = dict[Kind, Load]  # one of each kind
_Operands = dict[str, tuple[Value, ...]]  # of one operation of each kind


class ChosenValues:
    """`kind`: loads that are alike have one; None of those that do not count."""

    def __init__(self, body: Block, kind: Callable[[Load], Kind | None]):
        self._parent: dict[Value, Value] = {}
        self._loads: dict[Value, _Loads] = {}
        self._operands: dict[Value, _Operands] = {}
        used, pairs = uses(body), list[tuple[Value, Value]]()
        for op in walk(body):
            self._enter(op, kind, used)
            pairs.extend(_choices(op))
        while pairs:
            pairs.extend(self._join(*pairs.pop()))

    def loads(self, value: Value) -> Collection[Load]:
        return self._loads.get(self._class(value), {}).values()

    def groups(self) -> Iterator[Collection[Load]]:
        return (loads.values() for loads in self._loads.values())

    def _enter(self, op: Op, kind: Callable[[Load], Kind | None], used: dict[Value, int]) -> None:
        match op:
            case Load():
                found = kind(op)
                self._loads[op.result] = {} if found is None else {found: op}
            case Extract(aggregate) if aggregate in self._loads:
                self._loads[op.result] = dict(self._loads[aggregate])
            case Aggregate(args):
                self._operands[op.result] = {"aggregate": args}
            case Apply(fn, args) if used.get(op.result) == 1:
                self._operands[op.result] = {fn: args}

    def _class(self, value: Value) -> Value:
        parent = self._parent
        while value in parent:
            above = parent[value]
            if above in parent:
                parent[value] = parent[above]
            value = above
        return value

    def _join(self, one: Value, other: Value) -> Iterator[tuple[Value, Value]]:
        """The pairs of operands that are to be joined then."""
        one, other = self._class(one), self._class(other)
        if one is other:
            return
        self._parent[other] = one
        if loads := self._loads.pop(other, None):
            self._loads.setdefault(one, {}).update(loads)
        operands = self._operands.setdefault(one, {})
        for fn, args in self._operands.pop(other, {}).items():
            yield from zip(operands.setdefault(fn, args), args, strict=False)


def _choices(op: Op) -> Iterator[tuple[Value, Value]]:
    groups: tuple[tuple[Value, ...], ...]
    match op:
        case If(_, then, orelse):
            groups = (op.results, then.results, orelse.results)
        case For(inits=inits, body=body):
            groups = (op.results, inits, body.results, body.args[1:])
        case While(inits=inits, before=before, body=body):
            yield from zip(before.args, inits, strict=True)
            yield from zip(before.args, body.results, strict=True)
            groups = (op.results, before.results[1:], body.args)
        case Apply("select", (_, one, other)):
            groups = (op.results, (one,), (other,))
        case Apply("bitcast", args):
            groups = (op.results, args)
        case Extract(aggregate) | Insert(aggregate):
            groups = (op.results, (aggregate,))
        case _:
            return
    first, *others = groups
    for group in others:
        yield from zip(first, group, strict=True)
