"""Trees forward: what a cell holds that all threads' numbers were combined into, by halves or neighbours first.

Such a number needs one barrier: every warp can combine all of it by itself, in the order of the tree, so that it is the
same bit for bit. Of a maximum or minimum, the reverse of the tree gives the adjoint to one thread, the winner: the
first, in the tree's order, whose number is the result. What the levels would have passed to each thread is compared
with what `cells` found, id by id: a tree that does anything else is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...analysis.block_interpreter.accesses import Access
from ...analysis.block_interpreter.cells import Play
from ...analysis.block_interpreter.terms import NOTHING, Combined, Ids
from ...analysis.machine import WARP
from ...ir.ops import Load, Store, Value

_FIRST = {"max": "ge", "min": "le"}  # how the reverse tells that the first is taken, as in `branch_bits`
_TREES = ("add", "max", "min")


@dataclass(frozen=True)
class Tree:
    """Of the threads' `value`, stored in `phase`. `strides`: of its levels, in order."""

    fn: str
    value: Value
    strides: tuple[int, ...]
    stored: Store
    phase: int

    @property
    def rising(self) -> bool:
        return self.strides[0] == 1


@dataclass(frozen=True)
class Winner:
    """The thread whose number won gets what has the id `prize`, the others nothing."""

    tree: Tree
    prize: int


class Reductions:
    def __init__(self, play: Play):
        self.play, self.terms = play, play.terms
        fills = [a for a in play.accesses if isinstance(a, Access) and self._is_fill(a)]
        self.fills = {int(self._stored(a)[0]): a for a in fills}  # by what the first thread stores
        self._trees: dict[int, Tree | None] = {}

    def _is_fill(self, access: Access) -> bool:
        """Whether all threads store, each in its cell."""
        every = isinstance(access.op, Store) and access.sure and len(access.mask) == self.play.count
        if not every or not access.mask.all() or access.op not in self.play.function.body.ops:
            return False
        return bool((access.cells == np.arange(self.play.count)).all())

    def _stored(self, fill: Access) -> Ids:
        assert isinstance(fill.op, Store)
        return self.play.ids(fill.op.value)

    def tree(self, id: int) -> Tree | None:
        if id not in self._trees:
            self._trees[id] = self._tree(id)
        return self._trees[id]

    def _tree(self, id: int) -> Tree | None:
        term, rights, at = self.terms[id], list[int](), id
        if not isinstance(term, Combined) or term.fn not in _TREES or self.play.count % WARP:
            return None
        while at not in self.fills and isinstance(inner := self.terms[at], Combined) and inner.fn == term.fn:
            at = inner.args[0]
            rights.append(inner.args[1])
        if at not in self.fills or 1 << len(rights) != self.play.count:
            return None
        fill = self.fills[at]
        strides = tuple(self._first_thread(r, fill) for r in reversed(rights))
        powers = tuple(1 << k for k in range(len(strides)))
        if strides not in (powers, powers[::-1]):
            return None
        assert isinstance(fill.op, Store)
        tree = Tree(term.fn, fill.op.value, strides, fill.op, fill.phase)
        return tree if self._levels(tree)[-1][0] == id else None

    def _first_thread(self, id: int, fill: Access) -> int:
        """Whose number comes first in what was combined."""
        stored = self._stored(fill)
        while not (found := np.flatnonzero(stored == id)).size and isinstance(term := self.terms[id], Combined):
            id = term.args[0]
        return int(found[0]) if found.size else -1

    def _levels(self, tree: Tree) -> list[Ids]:
        """What the cells hold before each level, and at the end."""
        found = [self.play.ids(tree.value)]
        for d, taking in self._steps(tree):
            cells = found[-1].copy()
            for t in taking:
                cells[t] = self.terms.combined(tree.fn, int(cells[t]), int(cells[t + d]))
            found.append(cells)
        return found

    def _steps(self, tree: Tree) -> list[tuple[int, list[int]]]:
        """Each level's stride, and the threads that take another's number."""
        there, found = list(range(self.play.count)), list[tuple[int, list[int]]]()
        for d in tree.strides:
            there = [t for t in there if not t & d]
            found.append((d, there))
        return found

    # ---- the reverse of a maximum

    def winner(self, read: Access) -> Winner | None:
        """What a load of each thread's own cell finds, if it is that."""
        assert isinstance(read.op, Load) and read.found is not None
        own = np.arange(self.play.count)
        if not read.mask.any() or (read.cells != own)[read.mask].any():
            return None
        start = self._innermost(int(read.found[read.mask][0]))
        if start is None:
            return None
        tree, prize = start
        expected = self._passed(tree, prize)
        same = (expected == read.found)[read.mask].all()
        return Winner(tree, prize) if same and tree.phase < read.phase else None

    def _innermost(self, id: int) -> tuple[Tree, int] | None:
        """What the first step of the reverse decides by, and what it hands on."""
        found = None
        while isinstance(term := self.terms[id], Combined) and term.fn == "select" and NOTHING in term.args[1:]:
            found, id = term.args[0], term.args[2 if term.args[1] == NOTHING else 1]
        match None if found is None else self.terms[found]:
            case Combined("or", (first, _)):
                compared = self.terms[first]
                for fn, order in _FIRST.items():
                    if isinstance(compared, Combined) and compared.fn == order:
                        tree = self.tree(self.terms.combined(fn, *compared.args))
                        return None if tree is None else (tree, id)
        return None

    def _passed(self, tree: Tree, prize: int) -> Ids:
        """What the reverse leaves in each cell."""
        cells, levels = np.full(self.play.count, NOTHING), self._levels(tree)
        cells[0] = prize
        combined = self.terms.combined
        for (d, taking), before in reversed(list(zip(self._steps(tree), levels, strict=False))):
            for t in taking:
                one, other, adjoint = int(before[t]), int(before[t + d]), int(cells[t])
                first = combined("or", combined(_FIRST[tree.fn], one, other), combined("isnan", other))
                cells[t + d] = combined("add", int(cells[t + d]), combined("select", first, NOTHING, adjoint))
                cells[t] = combined("select", first, adjoint, NOTHING)
        return cells
