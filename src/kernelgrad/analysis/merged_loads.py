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

from collections.abc import Callable, Iterator
from itertools import product

from ..ir.ops import Atomic, Block, Function, If, Load, Store, Value
from ..ir.traverse import blocks, walk
from ..ir.types import Pointer, Scalar
from .chosen_values import ChosenValues

_Params = frozenset[Value]
_Kind = tuple[_Params, object]


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
