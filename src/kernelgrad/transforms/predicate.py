"""Early returns as predicates: every thread of a block reaches every barrier, and only the work between is guarded.

    if (i >= n) return; A; __syncthreads(); B;    becomes    if (i < n) A;  __syncthreads();  if (i < n) B;

A gradient needs this form where a thread that has left would have to come back: its reverse sweep begins after the
barriers of the threads that stayed. Values that cross a barrier become results of the guarded work, undefined for the
threads that left. A loop around a barrier goes on while any thread of the block wants to; where its bounds are the same
for all threads and cost nothing, it stays a `For` that all threads run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..analysis.machine import FULL_WARP
from ..errors import UnsupportedError
from ..ir.builder import Builder
from ..ir.effects import has_barrier
from ..ir.ops import (
    Alloca,
    Apply,
    Barrier,
    BarrierReduce,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    GlobalRef,
    If,
    Leave,
    Module,
    Op,
    Undef,
    Value,
    Warp,
    While,
)
from ..ir.traverse import blocks, descend, holds, rebuild, substitute, with_body
from ..ir.types import BOOL, I32, U32

_FREE = (Alloca, Builtin, Constant, GlobalRef, Undef)  # computed by all threads, whether they left or not
_NEUTRAL = {"count": 0, "or": 0, "and": 1}


def is_needed(function: Function, meets_at_end: bool) -> bool:
    """Whether a thread returns between two meetings with others. `meets_at_end`: there is one more at the very end."""
    return _returns_between(function.body.ops, meets_at_end)


def run(function: Function, module: Module) -> Function:
    work = _Predicated(function)
    with work.b.region() as region:
        work.ops(function.body.ops, None)
    return with_body(function, _all_stay(region.block()))


def _all_stay(block: Block) -> Block:
    """Nobody leaves any more."""
    ops = (op for op in block.ops if not isinstance(op, Leave))
    return Block(block.args, tuple(descend(op, _all_stay) for op in ops), block.results)


# ---- where threads meet -------------------------------------------------------------------------------------------


def _has_warp(op: Op) -> bool:
    return isinstance(op, Warp | Barrier) or holds(op, Warp, Barrier)


def _is_return(op: Op) -> bool:
    """An early return that others notice: those that stay meet at barriers, or talk within their warp."""
    if isinstance(op, If):
        return op.exits and (has_barrier(op) or _has_warp(op))
    return isinstance(op, For | While) and has_barrier(op) and _leaves((op,))


def _has_return(op: Op) -> bool:
    if not holds(op, BarrierReduce, Barrier, Warp):
        return False  # nobody notices
    return _is_return(op) or any(_has_return(nested) for inner in blocks(op) for nested in inner.ops)


def _leaves(ops: Iterable[Op]) -> bool:
    """Whether threads leave in these (Note [Exit] in `ir.ops`)."""
    return any(isinstance(op, Leave) or holds(op, Leave) for op in ops)


def _returns_between(ops: Iterable[Op], barriers_before: bool) -> bool:
    before, left = barriers_before, False
    for op in ops:
        if (isinstance(op, Leave) or _is_return(op)) and before:
            return True
        if left and has_barrier(op) and not (isinstance(op, If) and op.exits):
            return True
        # In a loop, the barriers of one iteration stand before the early returns of the next.
        again = isinstance(op, For | While) and has_barrier(op)
        if any(_returns_between(inner.ops, before or again) for inner in blocks(op)):
            return True
        before, left = before or has_barrier(op), left or _leaves((op,))
    return False


# ---- rewriting ----------------------------------------------------------------------------------------------------


class _Predicated:
    """Emits operations under a predicate: None while all threads are there."""

    def __init__(self, function: Function):
        self.b = Builder()
        self.map: dict[Value, Value] = {}
        self.uniform: dict[Value, Op | None] = {p.value: None for p in function.params}  # the same for all, no memory
        self.left = False  # whether threads may be gone although no predicate says so: their own conditions do

    def value(self, v: Value) -> Value:
        return self.map.get(v, v)

    def ops(self, ops: Iterable[Op], live: Value | None) -> None:
        segment: list[Op] = []
        for op in ops:
            self.note_uniform(op)
            self.left = self.left or _leaves((op,))
            if not (has_barrier(op) or _has_return(op)):
                segment.append(op)
                continue
            self.flush(segment, live)
            segment = []
            self.b.span = op.span
            self.meeting(op, live)
        self.flush(segment, live)

    def flush(self, segment: list[Op], live: Value | None) -> None:
        """Work without barriers. What it computes is there for what follows."""
        if live is None:
            self.add(segment)
            return
        self.add([op for op in segment if isinstance(op, _FREE)])
        guarded = [op for op in segment if not isinstance(op, _FREE)]
        if not guarded:
            return
        if any(map(_has_warp, guarded)):
            guarded = _among(guarded, self.present(live))
        made = [r for op in guarded for r in op.results]
        with self.b.region() as region:
            self.add(guarded)
        self.export(live, region.block((), tuple(made)), made)

    def add(self, ops: Iterable[Op]) -> None:
        for op in ops:
            self.b.add(rebuild(op, self.value, lambda inner: substitute(inner, self.map)))

    def export(self, live: Value, work: Block, made: list[Value]) -> None:
        with self.b.region() as nothing:
            missing = tuple(self.b.undef(v.type, v.name) for v in made)
        self.map.update(zip(made, self.b.if_(live, work, nothing.block((), missing)), strict=True))

    def present(self, live: Value) -> Value:
        """The lanes that are still there, found where the whole warp is."""
        return self.b.emit(Warp, "vote_ballot", (self.b.constant(FULL_WARP, U32), live), type=U32)

    # ---- meetings

    def meeting(self, op: Op, live: Value | None) -> None:
        match op:
            case _ if live is None and not _has_return(op) and not (self.left and isinstance(op, If)):
                self.add([op])
            case Barrier():
                self.b.add(op)
            case BarrierReduce(kind, value):
                given = self.value(value)
                if live is not None:
                    given = self.b.apply("select", live, given, self.b.constant(_NEUTRAL[kind], I32))
                self.b.add(replace(op, value=given))
            case If():
                self.if_(op, live)
            case For() if live is not None and self.same_bounds(op):
                self.counted(op, live)
            case For():
                self.while_(as_while(op), live)
            case While():
                self.while_(op, live)

    def if_(self, op: If, live: Value | None) -> None:
        """Both sides' barriers are met by all threads: more than needed, and harmless."""
        b, cond = self.b, self.value(op.cond)
        taken = cond if live is None else b.apply("and", live, cond)
        self.ops(op.then.ops, taken)
        if op.orelse.ops:
            other = b.apply("not", cond)
            self.ops(op.orelse.ops, other if live is None else b.apply("and", live, other))
        if op.results:
            then, orelse = (Block((), (), tuple(map(self.value, side.results))) for side in (op.then, op.orelse))
            self.map.update(zip(op.results, b.if_(taken, then, orelse), strict=True))

    def counted(self, op: For, live: Value) -> None:
        lower, upper = (self.recompute(v) for v in (op.lower, op.upper))
        iv, *carried = (Value(a.type, a.name) for a in op.body.args)
        self.map.update(zip(op.body.args, (iv, *carried), strict=True))
        with self.b.region() as region:
            self.ops(op.body.ops, live)
            following = self.kept(live, op.body.results, carried)
        inits = tuple(map(self.value, op.inits))
        body = region.block((iv, *carried), following)
        self.map.update(zip(op.results, self.b.for_(lower, upper, inits, op.step, body, op.unroll), strict=True))

    def while_(self, op: While, live: Value | None) -> None:
        """Goes on while any thread of the block does; a thread that is done keeps what it carries."""
        if any(has_barrier(inner) for inner in op.before.ops):
            raise UnsupportedError(
                "a barrier in a loop's condition, with an early return around it", op.span, "move it into the body"
            )
        b = self.b
        carried = [Value(a.type, a.name) for a in op.before.args]
        with b.region() as test:
            mine, forwarded = self.test(op.before, carried, live)
            go = b.emit(BarrierReduce, "or", b.convert(mine, I32), type=I32)
            some = b.apply("ne", go, b.constant(0, I32))
        passed = [Value(v.type, v.name) for v in (*forwarded, *carried)]
        state, old = passed[: len(forwarded)], passed[len(forwarded) :]
        working = Value(BOOL, "~working")
        self.map.update(zip(op.body.args, state, strict=True))
        with b.region() as region:
            self.ops(op.body.ops, working)
            following = self.kept(working, op.body.results, old)
        before = test.block(tuple(carried), (some, mine, *forwarded, *carried))
        body = region.block((working, *state, *old), following)
        inits = tuple(map(self.value, op.inits))
        results = b.while_(inits, before, body, op.unroll)
        self.map.update(zip(op.results, results[1 : 1 + len(forwarded)], strict=True))

    def test(self, before: Block, carried: list[Value], live: Value | None) -> tuple[Value, tuple[Value, ...]]:
        """Whether this thread wants another iteration, and what it passes on."""
        self.map.update(zip(before.args, carried, strict=True))
        self.ops(before.ops, live)
        cond, *forwarded = map(self.value, before.results)
        return cond if live is None else self.b.apply("and", live, cond), tuple(forwarded)

    def kept(self, live: Value, new: Iterable[Value], old: Iterable[Value]) -> tuple[Value, ...]:
        updated, unchanged = Block((), (), tuple(map(self.value, new))), Block((), (), tuple(old))
        return self.b.if_(live, updated, unchanged) if updated.results else ()

    # ---- bounds

    def note_uniform(self, op: Op) -> None:
        """Arithmetic that is the same for all threads, and safe for those that have left."""
        match op:
            case Constant() | Builtin(name="block_idx" | "block_dim" | "grid_dim"):
                known = True
            case Apply(fn, args):
                known = fn not in ("div", "rem") and all(a in self.uniform for a in args)
            case _:
                known = False
        if known:
            self.uniform[op.result] = op

    def same_bounds(self, op: For) -> bool:
        return op.lower in self.uniform and op.upper in self.uniform

    def recompute(self, value: Value) -> Value:
        """For all threads, also those that have left."""
        op = self.uniform[value]
        if op is None:
            return value
        if isinstance(op, Apply):
            op = replace(op, args=tuple(map(self.recompute, op.args)))
        result = Value(value.type, value.name)
        self.b.add(replace(op, results=(result,)))
        return result


def as_while(op: For) -> While:
    """The same loop, counting by hand."""
    iv, *carried = (Value(a.type, a.name) for a in op.body.args)
    inner = Builder(op.span)
    more = inner.apply("lt" if op.step > 0 else "gt", iv, op.upper)
    before = Block((iv, *carried), tuple(inner.ops), (more, iv, *carried))
    inner = Builder(op.span)
    following = inner.apply("add", op.body.args[0], inner.constant(op.step, iv.type))
    body = Block(op.body.args, (*op.body.ops, *inner.ops), (following, *op.body.results))
    results = (Value(iv.type, iv.name), *op.results)
    return While((op.lower, *op.inits), before, body, op.unroll, results=results, span=op.span)


def _among(ops: Iterable[Op], present: Value) -> list[Op]:
    """Warp-wide operations among the lanes that are still there."""
    found: list[Op] = []
    for op in ops:
        op = descend(op, lambda b: Block(b.args, tuple(_among(b.ops, present)), b.results))
        if isinstance(op, Warp | Barrier) and op.args:
            mask = Value(U32, "~mask")
            found.append(Apply("and", (op.args[0], present), results=(mask,), span=op.span))
            op = replace(op, args=(mask, *op.args[1:]))
        found.append(op)
    return found
