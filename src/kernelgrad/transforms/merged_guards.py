"""One load in place of several of the same element, each in a branch of its own:

    v = t == 0 ? (x > 0 ? u[i - 1] : 0) : u[i - 1];

where `x > 0` holds whenever `t == 0` does not, is `x > 0 ? u[i - 1] : 0`. In general: all branches load one element, or
give zero, as some condition does not hold; and all of these conditions hold wherever it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from ..analysis import structure
from ..analysis.access.affine import Shape, Sums
from ..analysis.access.affine import Known as KnownValues
from ..analysis.access.intervals import Intervals
from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import Apply, Block, Constant, For, Function, If, Load, Module, Offset, Op, PtrCast, Value, While
from ..ir.traverse import descend, walk, with_body, with_ops
from ..ir.types import BOOL
from . import interval_tests, simplify

Merged = tuple[int, ...]  # numbers of branches, in the order of the function


class _Leaf(NamedTuple):
    """`path`: the conditions on the way, and whether they hold. `ptr`: what is loaded; None for zero."""

    path: tuple[tuple[Value, bool], ...]
    ptr: Value | None


def find(function: Function, intervals: Intervals, shape: Shape, known: KnownValues) -> Merged:
    """The branches that are one load in a launch."""
    found = _Finder(function, intervals, Sums(structure.analyse(function, apart=False), shape, known))
    found.visit(function.body)
    return tuple(k for k, op in enumerate(walk(function.body)) if id(op) in found.merged)


def with_merged(function: Function, module: Module, merged: Merged) -> Function:
    numbers = {id(op) for k, op in enumerate(walk(function.body)) if k in set(merged)}
    definition = {v: op for op in walk(function.body) for v in op.results}

    def block(inner: Block) -> Block:
        ops: list[Op] = []
        for op in inner.ops:
            ops += _merged(op, definition) if isinstance(op, If) and id(op) in numbers else (descend(op, block),)
        return with_ops(inner, ops)

    return simplify.run(with_body(function, block(function.body)), module)


def _merged(op: If, definition: dict[Value, Op]) -> tuple[Op, ...]:
    leaves = list(_leaves(op, definition))
    ptr = next(leaf.ptr for leaf in leaves if leaf.ptr is not None)
    build = Builder(op.span)
    for one in _before(op):
        build.add(one)
    test = build.constant(True, BOOL)
    for cond, holds in _conditions(leaves, definition):
        test = build.apply("and", test, cond if holds else build.apply("not", cond))
    with build.region() as then:
        value = build.load(ptr)
    with build.region() as orelse:
        zero = build.constant(0, value.type)
    sides = then.block(results=(value,)), orelse.block(results=(zero,))
    return (*build.ops, If(test, *sides, results=op.results, span=op.span))


def _conditions(leaves: list[_Leaf], definition: dict[Value, Op]) -> dict[tuple[Value, bool], None]:
    """Those for want of which it is zero, and how they must be."""
    return {(leaf.path[-1][0], not leaf.path[-1][1]): None for leaf in leaves if leaf.ptr is None}


def _leaves(op: If, definition: dict[Value, Op], path: tuple[tuple[Value, bool], ...] = ()) -> Iterator[_Leaf]:
    for side, holds in ((op.then, True), (op.orelse, False)):
        here = (*path, (op.cond, holds))
        match [one for one in side.ops if not _is_free(one)]:
            case [Load(ptr, volatile=False) as load] if side.results == load.results:
                yield _Leaf(here, ptr)
            case [If() as inner] if side.results == inner.results:
                yield from _leaves(inner, definition, here)
            case [] if _is_zero(side.results[0], definition):
                yield _Leaf(here, None)
            case _:
                raise ValueError


def _is_free(op: Op) -> bool:
    """Whether it may be computed where the branch is not taken."""
    return is_pure(op) and not (isinstance(op, Apply) and op.fn in ("div", "rem"))


def _before(op: If) -> Iterator[Op]:
    """What is computed in its branches, besides loads."""
    for side in (op.then, op.orelse):
        for one in side.ops:
            if isinstance(one, If):
                yield from _before(one)
            elif _is_free(one):
                yield one


def _is_zero(value: Value, definition: dict[Value, Op]) -> bool:
    op = definition.get(value)
    return isinstance(op, Constant) and op.value == 0 and str(op.value) in ("0", "0.0")


class _Finder:
    def __init__(self, function: Function, intervals: Intervals, sums: Sums):
        self.intervals, self.sums = intervals, sums
        self.definition = sums.structure.definition
        self.merged: set[int] = set()

    def visit(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case If(cond, then, orelse):
                    if len(op.results) == 1 and self._is_one_load(op):
                        self.merged.add(id(op))
                        continue
                    for side, holds in ((then, True), (orelse, False)):
                        with self.intervals.assuming(cond, holds) as happens:
                            if happens:
                                self.visit(side)
                case For(body=body):
                    with self.intervals.counting(op) as happens:
                        if happens:
                            self.visit(body)
                case While(before=before, body=body):
                    with self.intervals.repeating(op):
                        self.visit(before)
                        with self.intervals.entering(op) as happens:
                            if happens:
                                self.visit(body)

    def _is_one_load(self, op: If) -> bool:
        try:
            leaves = list(_leaves(op, self.definition))
        except ValueError:
            return False
        loaded = [leaf for leaf in leaves if leaf.ptr is not None]
        if len(loaded) < 2 or not self._is_same([leaf.ptr for leaf in loaded if leaf.ptr is not None]):
            return False
        wanted = _conditions(leaves, self.definition)
        return all(self._hold(leaf, wanted) for leaf in loaded)

    def _is_same(self, pointers: list[Value]) -> bool:
        if all(p is pointers[0] for p in pointers):
            return True
        roots = [self._root(p) for p in pointers]
        places = [self.sums.address(p, r) for p, r in zip(pointers, roots, strict=True)]
        return all(r is roots[0] for r in roots) and all(p is not None and p == places[0] for p in places)

    def _root(self, ptr: Value) -> Value:
        while True:
            match self.definition.get(ptr):
                case Offset(inner) | PtrCast(inner):
                    ptr = inner
                case _:
                    return ptr

    def _hold(self, leaf: _Leaf, wanted: dict[tuple[Value, bool], None]) -> bool:
        """Whether conditions hold where a leaf is."""
        with ExitStack() as places:
            if not all(places.enter_context(self.intervals.assuming(cond, holds)) for cond, holds in leaf.path):
                return True  # nobody gets there
            return all((cond, holds) in leaf.path or self._holds(cond, holds) for cond, holds in wanted)

    def _holds(self, cond: Value, wanted: bool) -> bool:
        match self.definition.get(cond):
            case Apply("and", args):
                sides = [self._holds(a, wanted) for a in args]
                return all(sides) if wanted else any(sides)
            case Apply(fn, (one, other)):
                return interval_tests.outcome(self.intervals, fn, one, other) is wanted
        return False
