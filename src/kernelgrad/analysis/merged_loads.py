"""Buffers that are only read, but at places that compilers make one with reads of what is written.

Note [Merged loads]
`c ? q[i] : t[i]` becomes one load, at an address that is chosen. NVVM (12 and 13.0) asks of a load whether the memory
changes while the kernel runs; where one of the addresses is in a `__restrict__` buffer that nobody writes, it says no,
and loads of t, which is written, go through the read-only path, or before the stores. The same for the two sides of a
branch (what stands behind an early return is one), for pointers that are chosen, and for several choices in a row. So q
is not `__restrict__` there; nor if t is not written itself, but may overlap what is.

It says no as well of memory that is not `__restrict__` and not written by its own name, if a statement `y[i] = q[i]`
copies from it to a y that is `__restrict__`. If q becomes one with t, or may overlap what is written, neither is y.

Note [Chosen pointers]
`p = c ? u : y; *p = 1;` leads into u, but NVVM takes it that it does not if u is `__restrict__`, and moves loads of u
over the store; the same if y is shared or local memory, or null. Only if all that is chosen from lies in u it knows
better. So neither is `__restrict__` then, unless nobody writes any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import product

from ..ir.ops import Aggregate, Apply, Atomic, Block, Extract, For, Function, If, Insert, Load, Op, Store, Value, While
from ..ir.traverse import blocks, uses, walk
from ..ir.types import Pointer, Scalar

_Params = frozenset[Value]
_Kind = tuple[_Params, object]
_Loads = dict[_Kind, Load]  # one of each kind
_Operands = dict[str, tuple[Value, ...]]  # of one operation of each kind


class MergedLoads:
    """`roots`: the parameters that a pointer may lead into, or something that stands for other memory. `apart`: the
    parameters that overlap no other memory."""

    def __init__(self, function: Function, roots: Callable[[Value], _Params], apart: _Params):
        self.roots, self.apart, self.ops = roots, apart, list(walk(function.body))
        self.loads: dict[int, dict[_Kind, Load]] = {}  # in a block and those in it, one of each kind
        self.targets = [roots(op.ptr) for op in self.ops if isinstance(op, Store | Atomic) and _is_global(op.ptr)]
        self.written = _Params().union(*self.targets)
        self.mixed = self._mixed()
        self.chosen = ChosenValues(function.body, self._kind)
        self.found = self._find()

    def targets_of_copies(self, printed: _Params) -> _Params:
        """The parameters to which is copied what compilers then take to be only read, if these are `__restrict__`."""
        stores = [op for op in self.ops if isinstance(op, Store) and _is_global(op.ptr)]
        return _Params().union(
            *(
                self.roots(op.ptr)
                for op in stores
                if any(self._is_hidden(x, printed) for x in self.chosen.loads(op.value))
            )
        )

    def _mixed(self) -> _Params:
        """What pointers lead into of which nobody knows which, if some of it is written."""
        pointers = {op.ptr for op in self.ops if isinstance(op, Load | Store | Atomic)}
        roots = [self.roots(ptr) for ptr in pointers]
        return _Params().union(*(r for r in roots if len(r) > 1 and r & self.written))

    def _find(self) -> _Params:
        """The parameters that loads lead into which may become one with loads of what is written."""
        found = set[Value]()
        for op in reversed(self.ops):  # what stands inside before what is around
            self.loads.update((id(block), self._loads_in(block)) for block in blocks(op))
            if isinstance(op, Load) and self._changes(op):  # by a pointer that is chosen
                found |= self.roots(op.ptr)
        for one, other in self._pairs():
            if self._changes(one) != self._changes(other) and _alike(one, other):
                found |= self.roots(one.ptr) | self.roots(other.ptr)
        return frozenset(found - self.written)

    def _changes(self, load: Load) -> bool:
        roots = self.roots(load.ptr)
        return bool(roots & self.written) or self._may_overlap(roots, self.apart)

    def _is_hidden(self, load: Load, printed: _Params) -> bool:
        """Whether the memory may change, but is not written by its own name."""
        roots = self.roots(load.ptr)
        is_named = bool(roots) and roots <= self.written
        return bool(roots & self.found) or (not is_named and self._may_overlap(roots, printed))

    def _may_overlap(self, roots: _Params, apart: _Params) -> bool:
        """Whether there may be something that is written, by another name."""
        return not (roots and roots <= apart) and not all(target and target <= apart for target in self.targets)

    def _pairs(self) -> Iterator[tuple[Load, Load]]:
        """Loads of which a thread makes one or the other."""
        for op in self.ops:
            if isinstance(op, If):
                yield from product(*(self.loads[id(block)].values() for block in (op.then, op.orelse)))
        for loads in self.chosen.groups():
            yield from product(loads, loads)

    def _loads_in(self, block: Block) -> dict[_Kind, Load]:
        found = dict[_Kind, Load]()
        for op in block.ops:
            for inner in blocks(op):
                found |= self.loads[id(inner)]
            if isinstance(op, Load) and (kind := self._kind(op)):
                found[kind] = op
        return found

    def _kind(self, load: Load) -> _Kind | None:
        return (self.roots(load.ptr), load.result.type) if _is_global(load.ptr) else None


def _is_global(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space not in ("shared", "local")


def _alike(one: Load, other: Load) -> bool:
    """Of one size, so that bits may be taken for one another's."""
    types = (one.result.type, other.result.type)
    return types[0].size == types[1].size or not all(isinstance(t, Scalar) for t in types)


# ---- loads of which a value may be any -------------------------------------------------------------------------------


class ChosenValues:
    """Values that are chosen from one another are in one class, whatever chooses: branches, conditional expressions and
    loops that carry values. Operations of one kind in a class have operands that are chosen from one another, too:
    compilers move an operation behind the choice, if nothing else uses what it gives (`c ? 2 * a : 2 * b` becomes
    `2 * (c ? a : b)`).

    `kind`: loads that are alike have one; None of those that do not count."""

    def __init__(self, body: Block, kind: Callable[[Load], _Kind | None]):
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

    def _enter(self, op: Op, kind: Callable[[Load], _Kind | None], used: dict[Value, int]) -> None:
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
