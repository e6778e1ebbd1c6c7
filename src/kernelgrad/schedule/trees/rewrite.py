"""Rewrites a gradient as `choice` has it: sums over the block where threads added to a cell, trees in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ...analysis.block_interpreter.terms import Combined, Leaf, Number, Total
from ...analysis.block_interpreter.warps import ALL
from ...analysis.machine import WARP
from ...autodiff.winners.trees import has_won
from ...ir.builder import Builder
from ...ir.ops import Atomic, Barrier, BarrierReduce, Block, Function, Load, Op, Value, Warp
from ...ir.traverse import rebuild, with_body
from ...ir.types import I32, U32, Pointer, Type
from .choice import Choice
from .reductions import Tree


class Rewrite:
    def __init__(self, function: Function, choice: Choice):
        self.function, self.choice, self.play, self.common = function, choice, choice.play, choice.common
        self.start = Builder(function.span)
        self.totals: dict[int, Value] = {}
        self.sums: dict[Op, Value] = {}  # where threads add up what they added atomically
        self.meeting: dict[int, list[Callable[[Builder], None]]] = {}  # what is to be done before barriers
        self.trees: dict[Tree, Value] = {}
        self.winners: dict[Tree, Value] = {}  # whether a thread is the winner
        self.mapping: dict[Value, Value] = {}

    def run(self) -> Function:
        for id in (
            *self.choice.terms.values(),
            *self.choice.told.values(),
            *(w.prize for w in self.choice.won.values()),
        ):
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
            self.winners[tree] = has_won(b, value, top, threads, tree.rising)

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
