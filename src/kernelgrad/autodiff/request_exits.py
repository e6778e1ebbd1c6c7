"""Threads that lack memory for a derivative leave the kernel, whose launch will be made again: Note [Left launches].

Before: marks, `if (lacks) Leave`, anywhere in a function without calls of its own. After: what follows them is skipped
by the threads that left, in the form of early returns (Note [Exit] in `ir.ops`).
"""

# Note [Left launches]
# A derivative that lacks memory has no value to go on with: any other may never end a loop (`while (x < 10) x += ...`)
# or be an index far outside. So the thread leaves. Others that are to meet it would go on without what it has not
# stored, or wait for a lock that it has: they leave behind the next barrier or exchange, where the launch's memory says
# that someone needed more. Who has left before that has said so there, since the fence comes before the exit.

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from ..errors import InternalError
from ..ir.builder import Builder
from ..ir.ops import (
    Apply,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Constant,
    Function,
    If,
    Leave,
    Load,
    Op,
    Value,
    Warp,
    While,
)
from ..ir.traverse import blocks, descend, walk, with_body
from ..ir.types import BOOL

_MEETINGS = (Barrier, BarrierReduce, Warp)
_DIVISIONS = ("div", "rem")

Lacks = Callable[[Builder], Value]  # whether some thread of the launch has left


def without(function: Function, marks: Set[Value]) -> Function:
    """In which all derivatives have memory."""

    def block(b: Block) -> Block:
        kept = (descend(op, block) for op in b.ops if not (isinstance(op, If) and op.cond in marks))
        return Block(b.args, tuple(kept), b.results)

    return with_body(function, block(function.body))


def run(function: Function, marks: Set[Value], lacks: Lacks) -> Function:
    if not any(_is_mark(op, marks) for op in walk(function.body)):
        return function
    work = _Exits(marks, lacks)
    body, _left = work.block(work.meeting(function.body))
    return with_body(function, body)


def _passes_on(op: Op) -> bool:
    """Whether others may say something to the thread here, or keep it waiting."""
    is_exchange = isinstance(op, Atomic) and op.kind in ("cas", "exch")
    return isinstance(op, _MEETINGS) or is_exchange or (isinstance(op, Load) and op.volatile)


def _is_mark(op: Op, marks: Set[Value]) -> bool:
    return isinstance(op, If) and op.exits and op.cond in marks


class _Exits:
    def __init__(self, marks: Set[Value], lacks: Lacks):
        self.marks, self.lacks = set(marks), lacks

    # ---- where threads meet

    def meeting(self, block: Block) -> Block:
        """With a mark behind all that threads meet in."""
        ops: list[Op] = []
        for op in block.ops:
            ops.append(descend(op, self.meeting))
            if _passes_on(op):
                ops += self.mark(op)
        return Block(block.args, tuple(ops), block.results)

    def mark(self, op: Op) -> list[Op]:
        b = Builder(op.span)
        left = self.lacks(b)
        self.marks.add(left)
        leave(b, left)
        return b.ops

    # ---- what follows a mark

    def leaves(self, op: Op) -> bool:
        return _is_mark(op, self.marks) or any(self.leaves(inner) for b in blocks(op) for inner in b.ops)

    def block(self, block: Block) -> tuple[Block, Value | None]:
        """And its value that says whether the thread left in it."""
        b = Builder()
        left, results = self.ops(b, block.ops, block.results)
        return Block(block.args, tuple(b.ops), results), left

    def ops(
        self, b: Builder, ops: tuple[Op, ...], results: tuple[Value, ...]
    ) -> tuple[Value | None, tuple[Value, ...]]:
        at = next((k for k, op in enumerate(ops) if self.leaves(op)), None)
        if at is None:
            b.ops += ops
            return None, results
        b.ops += ops[:at]
        b.span = ops[at].span
        left = self.op(b, ops[at])
        rest = ops[at + 1 :]
        if not rest and not results:
            return left, results
        with b.region() as gone:
            nothing = (b.constant(True, BOOL), *(b.undef(v.type) for v in results))
        with b.region() as stays:
            later, found = self.ops(b, rest, results)
            later = later or b.constant(False, BOOL)
        left, *found_results = b.if_(left, gone.block((), nothing), stays.block((), (later, *found)), exits=True)
        return left, tuple(found_results)

    def op(self, b: Builder, op: Op) -> Value:
        """Adds what leaves, and gives whether it did."""
        match op:
            case If() if _is_mark(op, self.marks):
                b.add(op)
                return op.cond
            case If():
                return self.branch(b, op)
            case While():
                return self.loop(b, op)
        raise InternalError(f"{type(op).__name__} has no place for an early return")

    def branch(self, b: Builder, op: If) -> Value:
        sides = []
        for side in (op.then, op.orelse):
            inner = Builder(op.span)
            left, results = self.ops(inner, side.ops, side.results)
            left = left or inner.constant(False, BOOL)
            sides.append(Block((), tuple(inner.ops), (*results, left)))
        left = Value(BOOL, "left")
        b.add(replace(op, then=sides[0], orelse=sides[1], results=(*op.results, left)))
        return left

    def loop(self, b: Builder, op: While) -> Value:
        """It ends where the thread leaves, in its condition or in its body."""
        left, carried, forwarded = (Value(BOOL, "left") for _ in range(3))
        before = self.before(op.before, carried)
        body = Builder(op.span)
        leaves, results = self.ops(body, op.body.ops, op.body.results)
        leaves = leaves or body.constant(False, BOOL)
        new = Block((*op.body.args, forwarded), tuple(body.ops), (*results, leaves))
        stays = b.constant(False, BOOL)
        inits, found = (*op.inits, stays), (*op.results, left)
        b.add(replace(op, inits=inits, before=before, body=new, results=found))
        return left

    def before(self, block: Block, carried: Value) -> Block:
        """A thread that left looks at nothing any more."""
        b = Builder(block.ops[0].span if block.ops else Builder().span)
        if all(isinstance(op, Apply | Constant) and getattr(op, "fn", "") not in _DIVISIONS for op in block.ops):
            b.ops += block.ops
            goes_on = b.apply("and", b.apply("not", carried), block.results[0])
            return Block((*block.args, carried), tuple(b.ops), (goes_on, *block.results[1:], carried))
        with b.region() as gone:
            undefined = tuple(b.undef(v.type) for v in block.results[1:])
            over = b.constant(False, BOOL), *undefined, b.constant(True, BOOL)
        with b.region() as stays:
            left, (condition, *results) = self.ops(b, block.ops, block.results)
            if left is not None:
                condition = b.apply("and", b.apply("not", left), condition)
            here = condition, *results, left or b.constant(False, BOOL)
        found = b.if_(carried, gone.block((), over), stays.block((), here), exits=True)
        return Block((*block.args, carried), tuple(b.ops), found)


def leave(b: Builder, condition: Value) -> None:
    """A mark: threads leave here."""
    with b.region() as region:
        b.effect(Leave)
    b.if_(condition, region.block(), exits=True)
