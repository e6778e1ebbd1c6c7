"""Trees over shared memory, in reverse: sums that all threads would pass on, level by level, to all others.

The reverse of a tree that adds up cells copies one cell to all of them, in log2(n) steps with a barrier each; and its
first cell is often one that all threads add to. `cells` plays a finished gradient through for a block's shape. What it
finds to be the same number for all threads that read it is not read from the cell that a tree has copied it to:

- what every thread can compute for itself, such as an element of an adjoint that the block picks, it does (`common`);
- what all threads added up atomically is a sum over the block, without a cell;
- what lies in another cell as well, for as long, is read there.

Stores that nobody reads then go, and with them their barriers (`transforms/barriers`). It is done only if some do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ..ir.builder import Builder
from ..ir.ops import Apply, Atomic, Barrier, BarrierReduce, Block, Function, GlobalRef, Load, Module, Op, Store, Value, Warp
from ..ir.traverse import rebuild, walk, with_body
from ..ir.types import I32, U32, Pointer, Type
from ..transforms import barriers, loops, promote, simplify, unread
from .cells import Access, Anything, Play, Unplayable, is_float, playable
from .common import Common
from .reductions import Reductions, Tree, Winner
from .shapes import unhurried, with_extents
from .sinks import Sinks
from .tape import linear_thread
from .terms import Combined, Leaf, Number, Total
from .warps import ALL, WARP

_MOST_TERMS = 8
_ROUNDS = 3
_ALIKE = ("add", "max", "min")  # of numbers of one type


def run(function: Function, module: Module, block: tuple[int, int, int], gathering: frozenset[str]) -> Function:
    """`gathering`: the variables that hold adjoints. What the kernel itself adds up keeps its order."""
    given, function = function, loops.run(function, module)
    shared = {n: g.type for n, g in module.globals.items() if g.space == "shared"}
    for changes in range(_ROUNDS):
        used = {op.name for op in walk(function.body) if isinstance(op, GlobalRef)}
        variables = playable({n: t for n, t in shared.items() if n in used})
        lanes = any(isinstance(op, Warp) for op in function.body.ops)
        changed = _once(function, variables, block, gathering) if variables or lanes else function
        if changed is function:
            break
        for step in (promote, simplify, unread, barriers):
            changed = step.run(changed, module)
        function = changed
    return unhurried(with_extents(function, block)) if changes else given


def _once(
    function: Function, variables: dict[str, Type], block: tuple[int, int, int], gathering: frozenset[str]
) -> Function:
    try:
        play = Play(function, variables, block, gathering)
    except Unplayable:
        return function
    choice = _Choice(play, Common(function, play))
    return _Rewrite(function, choice).run() if choice.pays else function


class _Choice:
    """`terms`: the loads that get their number without memory. `moved`: those that read another cell. `dead`: what is
    not stored any more. `parted`: loads behind which threads must meet, since others store there afterwards."""

    def __init__(self, play: Play, common: Common):
        self.play, self.common = play, common
        self.reductions = Reductions(play)
        self.sinks = Sinks(play.function)
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


class _Rewrite:
    def __init__(self, function: Function, choice: _Choice):
        self.function, self.choice, self.play, self.common = function, choice, choice.play, choice.common
        self.start = Builder(function.span)
        self.totals: dict[int, Value] = {}
        self.sums: dict[Op, Value] = {}  # where threads add up what they added atomically
        self.meeting: dict[int, list[Callable[[Builder], None]]] = {}  # what is to be done before barriers
        self.trees: dict[Tree, Value] = {}
        self.winners: dict[Tree, Value] = {}  # whether a thread is the winner
        self.mapping: dict[Value, Value] = {}

    def run(self) -> Function:
        for id in (*self.choice.terms.values(), *self.choice.told.values(), *(w.prize for w in self.choice.won.values())):
            self.find_totals(id)
        for tree in self.choice.trees():
            self.at_meeting(tree.phase, partial(self.combine, tree))
        body = self.block(self.function.body, top=True)
        whole = Block(body.args, (*self.common.ops, *self.start.ops, *body.ops), body.results)
        return with_body(self.function, whole)

    def find_totals(self, id: int) -> None:
        match self.play.terms[id]:
            case Total(number) if number not in self.totals:
                self.total(number)
            case Combined(_, args) if self.choice.reductions.tree(id) not in self.choice.trees():
                for arg in args:
                    self.find_totals(arg)

    def at_meeting(self, phase: int, work: Callable[[Builder], None]) -> None:
        self.meeting.setdefault(self.play.meetings[phase], []).append(work)

    def total(self, number: int) -> None:
        addition = self.play.additions[number]
        type, name = addition.type, f"{addition.variable}_sum"
        own = self.start.alloca(type, name)
        self.start.store(own, self.start.constant(-0.0, type))
        self.sums |= dict.fromkeys(addition.atomics, own)
        whole = self.play.count if self.play.count % WARP == 0 else 0
        self.totals[number] = total = Value(type, name)

        def add_up(b: Builder) -> None:
            b.add(BarrierReduce("sum", b.load(own), whole, results=(total,), span=b.span))

        self.at_meeting(addition.phase, add_up)

    def combine(self, tree: Tree, b: Builder) -> None:
        value, threads = self.mapping.get(tree.value, tree.value), self.play.count
        kind, type = f"tree_{tree.fn}", value.type
        top = b.emit(BarrierReduce, kind, value, threads, tree.rising, type=type, name=tree.value.name)
        self.trees[tree] = top
        if any(winner.tree == tree for winner in self.choice.won.values()):
            self.winners[tree] = self.has_won(tree, b, value, top)

    def has_won(self, tree: Tree, b: Builder, value: Value, top: Value) -> Value:
        """Whether this thread's number is the first, in the tree's order, that is the result. Where all are NaN, none
        is: the tree takes the first of them."""
        place = b.convert(linear_thread(b), U32)
        if not tree.rising:
            place = b.apply("shr", b.apply("brev", place), b.constant(WARP - len(tree.strides), U32))
        last = b.constant(self.play.count, U32)
        mine = b.apply("select", b.apply("eq", value, top), place, last)
        first = b.emit(BarrierReduce, "min", mine, self.play.count, type=U32)
        first = b.apply("select", b.apply("eq", first, last), b.constant(0, U32), first)
        return b.apply("eq", place, first)

    def block(self, block: Block, top: bool = False) -> Block:
        ops: list[Op] = []
        for k, op in enumerate(block.ops):
            for work in self.meeting.get(k, ()) if top else ():
                b = Builder(op.span)
                work(b)
                ops += b.ops
            ops += self.op(op)
        return Block(block.args, tuple(ops), tuple(self.mapping.get(v, v) for v in block.results))

    def op(self, op: Op) -> Iterator[Op]:
        b = Builder(op.span)
        if isinstance(op, Load) and op in self.choice.terms:
            self.mapping[op.result] = self.build(b, self.choice.terms[op], op.result.type)
        elif isinstance(op, Load) and op in self.choice.won:
            winner, type = self.choice.won[op], op.result.type
            prize, nothing = self.build(b, winner.prize, type), b.constant(-0.0, type)
            self.mapping[op.result] = b.apply("select", self.winners[winner.tree], prize, nothing)
        elif isinstance(op, Load) and op in self.choice.moved:
            self.mapping[op.result] = b.load(self.cell(b, op), name=op.result.name)
            if op in self.choice.parted:
                b.effect(Barrier, "block")
        elif isinstance(op, Atomic) and op in self.sums:
            own, (value,) = self.sums[op], op.args
            b.store(own, b.apply("add", b.load(own), self.mapping.get(value, value)))
        elif op in self.choice.ballots:
            self.mapping[op.result] = b.constant(self.choice.ballots[op], op.result.type)
        elif op not in self.choice.dead:
            b.add(rebuild(op, lambda v: self.mapping.get(v, v), self.block))
        for value in op.results:
            if value in self.choice.told:
                self.mapping[value] = self.build(b, self.choice.told[value], value.type)
            elif value in self.choice.shown:
                self.mapping[value] = self.shuffle(b, *self.choice.shown[value])
        yield from b.ops

    def build(self, b: Builder, id: int, type: Type) -> Value:
        match self.play.terms[id]:
            case Number(number):
                return b.constant(number, type)
            case Total(number):
                return self.totals[number]
            case Leaf(value):
                assert value is not None
                return self.common.value(value)
            case Combined(fn, args):
                tree = self.choice.reductions.tree(id)
                if tree in self.trees:
                    return self.trees[tree]
                return b.apply(fn, *(self.build(b, arg, type) for arg in args))

    def shuffle(self, b: Builder, value: Value, lane: int) -> Value:
        everyone, width = b.constant(ALL, U32), b.constant(WARP, I32)
        value = self.mapping.get(value, value)
        return b.emit(Warp, "shfl_idx", (everyone, value, b.constant(lane, I32), width), type=value.type)

    def cell(self, b: Builder, op: Load) -> Value:
        """The address of the cell to read, in the variable that the load is of."""
        name = self.play.aliases.variable(self.play.aliases.root(op.ptr))
        assert name is not None and isinstance(op.ptr.type, Pointer)
        base = b.global_ref(name, self.play.variables[name], "shared")
        return b.offset(b.cast_pointer(base, op.ptr.type), b.constant(self.choice.moved[op], I32))
