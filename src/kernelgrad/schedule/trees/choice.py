"""What threads need not read from shared memory, or tell each other lane by lane (see `trees`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...analysis.block_interpreter.accesses import Access, Anything
from ...analysis.block_interpreter.cells import Play, is_float
from ...analysis.block_interpreter.terms import Combined, Leaf, Number, Total
from ...analysis.machine import WARP
from ...ir.ops import Apply, Atomic, Load, Op, Store, Value, Warp
from .common import Common
from .final_uses import FinalUses
from .reductions import Reductions, Tree, Winner

_MOST_TERMS = 8
_ALIKE = ("add", "max", "min")  # of numbers of one type


class Choice:
    """`terms`: the loads that get their number without memory. `moved`: those that read another cell; `won`: those by
    which the winner of a tree gets its prize. `told`: what lanes exchange and all threads have anyway; `shown`: what
    one lane shows to the others. `ballots`: those whose outcome is known, and what follows. `dead`: what is not stored
    any more. `parted`: loads behind which threads must meet, since others store there afterwards."""

    def __init__(self, play: Play, common: Common):
        self.play, self.common = play, common
        self.reductions = Reductions(play)
        self.sinks = FinalUses(play.function)
        self.refused: set[Op | Total | Tree] = set()
        self.parted: set[Op] = set()
        self.top = set(play.function.body.ops)
        self.ballots = dict(self.known_ballots())
        while True:
            self.terms: dict[Load, int] = {}
            self.moved: dict[Load, int] = {}
            self.won: dict[Load, Winner] = {}
            for access in play.accesses:
                if isinstance(access, Access) and isinstance(access.op, Load) and access.op not in self.refused:
                    self.choose(access, access.op)
            self.told = {v: id for v, id in self.exchanged() if self.can_have(id, self.play.phases[v])}
            self.shown = dict(self.of_lanes())
            self.dead = self.unread()
            refused = set(self.wrong())
            if not refused:
                break
            self.refused |= refused

    @property
    def pays(self) -> bool:
        return bool(self.dead or self.told or self.shown or self.ballots)

    def choose(self, read: Access, op: Load) -> None:
        assert read.found is not None
        ids = np.unique(read.found[read.mask])
        if len(ids) != 1:
            winner = self.reductions.winner(read)
            if winner is not None and winner.tree not in self.refused and self.can_have(winner.prize, read.phase):
                self.won[op] = winner
            return
        id = int(ids[0])
        if self.can_have(id, read.phase):
            self.terms[op] = id
            return
        cells = np.flatnonzero(self.play.at_start[read.phase][read.variable] == id)
        if len(cells) and (read.touched != cells[0]).any():
            self.moved[op] = int(cells[0])

    def exchanged(self) -> Iterator[tuple[Value, int]]:
        """What lanes exchange, if all threads have the same in the end."""
        for op in self.play.function.body.ops:
            for value in op.results:
                if value in self.play.exchanges:
                    ids = np.unique(self.play.values[value])
                    if len(ids) == 1:
                        yield value, int(ids[0])

    def of_lanes(self) -> Iterator[tuple[Value, tuple[Value, int]]]:
        """What lanes exchange, if all of them have in the end what one of them had before: which one, and as what."""
        before: list[Value] = []
        for value in (v for op in self.play.function.body.ops for v in op.results if v in self.play.values):
            steps, ids = self.play.exchanges.get(value, 0), self.play.values[value]
            if not steps:
                before.append(value)
            elif steps > 1 and value not in self.told and (np.repeat(ids[::WARP], WARP) == ids).all():
                for shown in before:
                    lanes = (self.play.values[shown].reshape(-1, WARP) == ids[::WARP, None]).all(axis=0)
                    if lanes.any() and shown.type == value.type:
                        yield value, (shown, int(np.argmax(lanes)))
                        break

    def known_ballots(self) -> Iterator[tuple[Op, int]]:
        """Which lanes vote for something, where that is the same in every warp; and what follows from it."""
        counts = {v for op in self.play.function.body.ops if isinstance(op, Warp) for v in op.results}
        for op in self.play.function.body.ops:
            follows = isinstance(op, Warp) and op.fn == "vote_ballot"
            if isinstance(op, Apply) and not is_float(op.result.type):
                follows = any(a in counts for a in op.args)
            numbers = self.play.threads.value(op.result) if follows else None
            if follows:
                counts.add(op.result)
            if numbers is not None and len(np.unique(numbers)) == 1:
                yield op, numbers[0].item()

    def can_have(self, id: int, phase: int, most: int = _MOST_TERMS) -> bool:
        """Whether every thread can, when a phase begins."""
        match term := self.play.terms[id]:
            case Number():
                return True
            case Total():
                return term not in self.refused
            case Leaf(value):
                return value is not None and self.common.has(value)
            case Combined(fn, args):
                tree = self.reductions.tree(id)
                if tree is not None and tree.phase < phase and tree not in self.refused:
                    return True
                few = fn in _ALIKE and most > len(args)
                return few and all(self.can_have(a, phase, most // len(args)) for a in args)

    def unread(self) -> set[Op]:
        """The stores and atomics whose cells nobody reads before they are stored again."""
        live = {name: np.zeros(size, bool) for name, size in self.play.sizes.items()}
        dead: set[Op] = set()
        combined: set[Op] = {tree.stored for tree in self.trees()}  # what is stored there is needed all the same
        for access in reversed(self.play.accesses):
            if isinstance(access, Anything):
                for name in access.variables:
                    live[name][:] = True
                continue
            cells = live[access.variable]
            match access.op:
                case Load() if access.op in self.moved:
                    cells[self.moved[access.op]] = True
                case Load() if access.op in self.terms or access.op in self.won:
                    pass
                case Load() if self.sinks.need(access.op.result, dead - combined):
                    cells[access.touched] = True
                case Store() if not cells[access.touched].any():
                    dead.add(access.op)
                case Store() if access.sure:
                    cells[access.touched] = False
                case Atomic() if any(self.play.used.get(r) for r in access.op.results):
                    cells[access.touched] = True
                case Atomic() if not cells[access.touched].any():
                    dead.add(access.op)
        return dead

    def wrong(self) -> Iterator[Op | Total | Tree]:
        """Sums of which a part must stay in memory; reads of cells that others store in the same phase."""
        for tree in self.trees():
            if tree not in self.refused and tree.stored not in self.dead:
                yield tree
        for number, addition in enumerate(self.play.additions):
            if Total(number) not in self.refused and not all(op in self.dead for op in addition.atomics):
                yield Total(number)
        self.parted.clear()
        for read in self.play.accesses:
            if isinstance(read, Access) and isinstance(read.op, Load) and read.op in self.moved:
                others = [other.at for other in self.play.accesses if self.disturbs(other, read, self.moved[read.op])]
                if any(at <= read.at for at in others) or (others and read.op not in self.top):
                    yield read.op
                elif others:
                    self.parted.add(read.op)

    def trees(self) -> dict[Tree, None]:
        """Those that are asked for."""
        found = dict.fromkeys(winner.tree for winner in self.won.values())
        todo = [*self.terms.values(), *self.told.values(), *(winner.prize for winner in self.won.values())]
        while todo:
            id = todo.pop()
            tree, term = self.reductions.tree(id), self.play.terms[id]
            if tree is not None and tree not in self.refused:
                found[tree] = None
            elif isinstance(term, Combined):
                todo += term.args
        return found

    def disturbs(self, other: Access | Anything, read: Access, cell: int) -> bool:
        if other.phase != read.phase:
            return False
        if isinstance(other, Anything):
            return read.variable in other.variables
        writes = not isinstance(other.op, Load) and other.op not in self.dead
        return writes and other.variable == read.variable and bool((other.touched == cell).any())
