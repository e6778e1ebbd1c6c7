"""Buffers that are only read, but at places that compilers make one with reads of what is written.

Note [Merged loads]
`c ? q[i] : t[i]` becomes one load, at an address that is chosen. NVVM (12 and 13.0) asks of a load whether the memory
changes while the kernel runs; where one of the addresses is in a `__restrict__` buffer that nobody writes, it says no,
and loads of t, which is written, go through the read-only path, or before the stores. The same for the two sides of a
branch (what stands behind an early return is one), and for pointers that are chosen. So q is not `__restrict__` there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from ..ir.ops import Apply, Atomic, Block, For, Function, If, Load, Op, Store, Value, While
from ..ir.traverse import blocks, operands, walk
from ..ir.types import Pointer, Scalar

_DEEP = 8  # operations of one shape that are moved behind a choice
Roots = Callable[[Value], frozenset[Value]]


class MergedLoads:
    """`roots`: the parameters that a pointer may lead into; none of a variable of the module."""

    def __init__(self, function: Function, roots: Roots):
        self.roots, self.ops = roots, list(walk(function.body))
        self.definition = {v: op for op in self.ops for v in op.results}
        self.loads: dict[int, dict[object, Load]] = {}  # in a block and those in it, one of each kind
        targets = [roots(op.ptr) for op in self.ops if isinstance(op, Store | Atomic) and _is_global(op.ptr)]
        self.written = frozenset[Value]().union(*targets)
        self.variables_are_written = not all(targets)

    def found(self) -> frozenset[Value]:
        """The parameters that loads lead into which may become one with loads of what is written."""
        found = set[Value]()
        for op in reversed(self.ops):  # what stands inside before what is around
            self.loads.update((id(block), self._loads_in(block)) for block in blocks(op))
            if isinstance(op, Load) and self._changes(op):  # by a pointer that is chosen
                found |= self.roots(op.ptr)
            for one, other in self._pairs(op):
                if self._changes(one) != self._changes(other) and _alike(one, other):
                    found |= self.roots(one.ptr) | self.roots(other.ptr)
        return frozenset(found - self.written)

    def _changes(self, load: Load) -> bool:
        roots = self.roots(load.ptr)
        return bool(roots & self.written) or (not roots and self.variables_are_written)

    def _pairs(self, op: Op) -> Iterator[tuple[Load, Load]]:
        """Loads of which a thread makes one or the other."""
        if isinstance(op, If):
            yield from product(*(self.loads[id(block)].values() for block in (op.then, op.orelse)))
        for one, other in _choices(op):
            yield from self._same_shape(one, other, _DEEP)

    def _same_shape(self, one: Value, other: Value, deep: int) -> Iterator[tuple[Load, Load]]:
        first, second = self.definition.get(one), self.definition.get(other)
        if isinstance(first, Load) and isinstance(second, Load):
            if _is_global(first.ptr) and _is_global(second.ptr):
                yield first, second
        elif deep and type(first) is type(second) and isinstance(first, Apply) and isinstance(second, Apply):
            for pair in zip(operands(first), operands(second), strict=False) if first.fn == second.fn else ():
                yield from self._same_shape(*pair, deep - 1)

    def _loads_in(self, block: Block) -> dict[object, Load]:
        found = dict[object, Load]()
        for op in block.ops:
            for inner in blocks(op):
                found |= self.loads[id(inner)]
            if isinstance(op, Load) and _is_global(op.ptr):
                found[self.roots(op.ptr), op.result.type] = op
        return found


def _choices(op: Op) -> Iterator[tuple[Value, Value]]:
    match op:
        case If(_, then, orelse):
            yield from zip(then.results, orelse.results, strict=True)
        case Apply("select", (_, one, other)):
            yield one, other
        case For(inits=inits, body=body) | While(inits=inits, body=body):
            yield from zip(inits, body.results, strict=True)


def _is_global(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space not in ("shared", "local")


def _alike(one: Load, other: Load) -> bool:
    """Of one size, so that bits may be taken for one another's."""
    types = (one.result.type, other.result.type)
    return types[0].size == types[1].size or not all(isinstance(t, Scalar) for t in types)
