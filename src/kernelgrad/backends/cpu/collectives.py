"""Functions of a whole warp or block: each thread's operands lie in slots by now, and so will the results.

A warp is 32 threads that follow one another by linear id; the last may be partial. A function sees the lanes that are
both active and named in the caller's mask. Lanes a mask names that are not active count as absent, and reading one
gives the caller its own value (CUDA leaves it open). Lanes that name each other have the same mask; where they do not,
they are in different iterations of a loop, and a GPU would have one wait for the other: that is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llvmlite import ir

from ...analysis.machine import WARP
from ...errors import InternalError
from ...ir.ops import BarrierReduce, Value, Warp
from ...ir.types import BOOL, Scalar
from . import llvm_types as lt
from .block_trees import block_least, block_tree
from .frame import Active, Failing, Failure, Step
from .llvm_types import i32, i64
from .loops import counted
from .scalars import TABLE, Application, Row

if TYPE_CHECKING:
    from .blocks import BlockCode


def emit_collective(code: BlockCode, op: BarrierReduce | Warp, active: Active) -> None:
    if isinstance(op, BarrierReduce):
        code.barrier(op, active)
        _block_reduce(code, op, active)
    elif op.fn in _SHUFFLES:
        _shuffle(code, op, active)
    elif op.fn in _REDUCTIONS:
        _warp_reduce(code, op, active)
    else:
        raise InternalError(f"unknown warp function '{op.fn}'")


# ---- block reductions -----------------------------------------------------------------------------------------------


def _block_reduce(code: BlockCode, op: BarrierReduce, active: Active) -> None:
    """The result is the same for all threads, so it is a scalar."""
    if op.kind == "sum":
        _block_sum(code, op, active)
        return
    if op.kind == "min":
        block_least(code, op, active)
        return
    if op.kind.startswith("tree_"):
        block_tree(code, op, active)
        return
    b, zero = code.b, i32(0)
    start = i32(1 if op.kind == "and" else 0)
    total = code.frame.stack(4, 4)
    b.store(start, total, align=4)

    def add() -> None:
        holds = b.zext(b.icmp_signed("!=", code.frame.get(op.value), zero), lt.I32)
        combine = {"count": b.add, "and": b.and_, "or": b.or_}[op.kind]
        b.store(combine(b.load(total, typ=lt.I32, align=4), holds), total, align=4)

    code.phase([], active, [Step((op.value,), add)])
    code.frame.values[op.result] = b.load(total, typ=lt.I32, align=4)


def _block_sum(code: BlockCode, op: BarrierReduce, active: Active) -> None:
    b, type = code.b, lt.register_type(op.result.type)
    size = op.result.type.size
    total = code.frame.stack(size, size)
    b.store(ir.Constant(type, -0.0), total, align=size)

    def add() -> None:
        # The order is the compiler's choice, made once, so that the loop over the threads can be vectorised.
        more = b.fadd(b.load(total, typ=type, align=size), code.frame.get(op.value), flags=("reassoc",))
        b.store(more, total, align=size)

    code.phase([], active, [Step((op.value,), add)])
    code.frame.values[op.result] = b.load(total, typ=type, align=size)


# ---- shuffles -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lane:
    """Where a shuffle stands: its lane, the first and the last lane of its segment, and the operand; all i32."""

    b: ir.IRBuilder
    lane: ir.Value
    first: ir.Value
    last: ir.Value
    operand: ir.Value


def _idx(s: _Lane) -> tuple[ir.Value, ir.Value]:
    width_mask = s.b.sub(s.last, s.first)
    return s.b.or_(s.first, s.b.and_(s.operand, width_mask)), ir.Constant(lt.I1, 1)


def _up(s: _Lane) -> tuple[ir.Value, ir.Value]:
    source = s.b.sub(s.lane, s.operand)
    return source, s.b.icmp_signed(">=", source, s.first)


def _down(s: _Lane) -> tuple[ir.Value, ir.Value]:
    source = s.b.add(s.lane, s.operand)
    return source, s.b.icmp_unsigned("<=", source, s.last)


def _xor(s: _Lane) -> tuple[ir.Value, ir.Value]:
    source = s.b.xor(s.lane, s.operand)
    return source, s.b.icmp_unsigned("<=", source, s.last)


# Each gives the source lane, and whether it is one that may be read.
_SHUFFLES: dict[str, Callable[[_Lane], tuple[ir.Value, ir.Value]]] = {
    "shfl_idx": _idx,
    "shfl_up": _up,
    "shfl_down": _down,
    "shfl_xor": _xor,
}


def _shuffle(code: BlockCode, op: Warp, active: Active) -> None:
    b, frame = code.b, code.frame
    mask, value, operand, width = op.args

    def exchange() -> None:
        assert frame.thread is not None
        own = frame.thread.linear
        lane = b.trunc(b.and_(own, i64(WARP - 1)), lt.I32)
        inside = b.sub(frame.get(width), i32(1))
        first = b.and_(lane, b.not_(inside))
        by = b.and_(frame.get(operand), i32(WARP - 1))  # the hardware looks at five bits
        source, readable = _SHUFFLES[op.fn](_Lane(b, lane, first, b.or_(first, inside), by))
        start = b.and_(own, i64(-WARP))
        other = b.add(start, b.zext(source, lt.I64))
        readable = b.and_(readable, b.icmp_unsigned("<", other, frame.threads))
        other = b.select(readable, other, own)
        if active.mask is not None:
            other = b.select(code.test(active.mask, other), other, own)
        if not _names_all(frame.get(mask)):
            other = b.select(_is_named(b, frame.get(mask), b.sub(other, start)), other, own)
            _check_same_mask(code, op, active, other)
        code.put(op.result, _value_of(code, value, other))

    if code.plan.has_slot(op.result):
        code.phase([], active, [Step((mask, value, operand, width), exchange)])


def _names_all(mask: ir.Value) -> bool:
    return isinstance(mask, ir.Constant) and mask.constant in (-1, 2**WARP - 1)


def _is_named(b: ir.IRBuilder, mask: ir.Value, lane: ir.Value) -> ir.Value:
    return b.icmp_unsigned("!=", b.and_(mask, b.shl(i32(1), b.trunc(lane, lt.I32))), i32(0))


def _check_same_mask(code: BlockCode, op: Warp, active: Active, other: ir.Value) -> None:
    """Fails if a lane that this one exchanges with has another mask."""
    mask = op.args[0]
    if active.parted and mask in code.plan.varying:
        differs = code.b.icmp_unsigned("!=", code.frame.get(mask), code.fetch(mask, other))
        code.frame.fail_if(differs, Failing(Failure.OTHER_MASK, op))


def _value_of(code: BlockCode, value: Value, thread: ir.Value) -> ir.Value:
    """Another thread's value: from its slot, unless all threads have the same."""
    return code.fetch(value, thread) if value in code.plan.varying else code.frame.get(value)


# ---- votes, matches, reductions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reduction:
    """Results combined over the lanes that take part. `start` and `step` say how: step(call, totals, lane bit, value)
    with `own` the calling thread's value; `finish` turns the totals into the results."""

    start: Callable[[ir.Type], list[ir.Value]]
    step: Callable[[_Call, list[ir.Value], ir.Value, ir.Value], list[ir.Value]]
    finish: Callable[[_Call, list[ir.Value]], list[ir.Value]] = lambda call, totals: totals
    needs_own: bool = False  # whether threads of a warp with the same mask may get different results


@dataclass(frozen=True)
class _Call:
    b: ir.IRBuilder
    type: Scalar
    own: ir.Value | None
    members: ir.Value  # the lanes that take part, found so far


def _boolean(start: int, combine: str) -> _Reduction:
    return _Reduction(
        lambda type: [ir.Constant(lt.I1, start)],
        lambda call, totals, bit, value: [getattr(call.b, combine)(totals[0], value)],
    )


def _uniform_vote() -> _Reduction:
    """All or none."""
    return _Reduction(
        lambda type: [ir.Constant(lt.I1, 1), ir.Constant(lt.I1, 0)],
        lambda call, totals, bit, value: [call.b.and_(totals[0], value), call.b.or_(totals[1], value)],
        lambda call, totals: [call.b.or_(totals[0], call.b.not_(totals[1]))],
    )


def _ballot() -> _Reduction:
    return _Reduction(
        lambda type: [i32(0)],
        lambda call, totals, bit, value: [call.b.or_(totals[0], call.b.select(value, bit, i32(0)))],
    )


def _matching(call: _Call, totals: list[ir.Value], bit: ir.Value, value: ir.Value) -> list[ir.Value]:
    assert call.own is not None
    mine, theirs = (_bits(call.b, v) for v in (call.own, value))
    same = call.b.icmp_unsigned("==", mine, theirs)
    return [call.b.or_(totals[0], call.b.select(same, bit, i32(0)))]


def _bits(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Matching compares bit patterns, of floats too."""
    sizes = {lt.F32: lt.I32, lt.F64: lt.I64}
    return b.bitcast(value, sizes[value.type]) if value.type in sizes else value


def _all_match(call: _Call, totals: list[ir.Value]) -> list[ir.Value]:
    all_same = call.b.icmp_unsigned("==", totals[0], call.members)
    return [call.b.select(all_same, totals[0], i32(0)), all_same]


_IDENTITIES: dict[str, Callable[[int, bool], int]] = {
    "add": lambda bits, signed: 0,
    "and": lambda bits, signed: -1,
    "or": lambda bits, signed: 0,
    "xor": lambda bits, signed: 0,
    "min": lambda bits, signed: 2 ** (bits - 1) - 1 if signed else 2**bits - 1,
    "max": lambda bits, signed: -(2 ** (bits - 1)) if signed else 0,
}


def _float_sum() -> _Reduction:
    return _Reduction(
        lambda llvm_type: [ir.Constant(llvm_type, -0.0)],
        lambda call, totals, bit, value: [call.b.fadd(totals[0], value)],
    )


def _integer(fn: str) -> Callable[[Scalar], _Reduction]:
    def make(type: Scalar) -> _Reduction:
        if type.is_float:
            return _float_sum()
        identity = _IDENTITIES[fn](type.bits, type.kind == "int")
        row: Row = TABLE[fn]
        unsigned = Scalar(type.name, "uint", type.bits) if fn == "add" else type  # sums of a warp wrap
        return _Reduction(
            lambda llvm_type: [ir.Constant(llvm_type, identity)],
            lambda call, totals, bit, value: [row(Application(call.b, (totals[0], value), (unsigned,) * 2, type))],
        )

    return make


_REDUCTIONS: dict[str, Callable[[Scalar], _Reduction]] = {
    "vote_any": lambda type: _boolean(0, "or_"),
    "vote_all": lambda type: _boolean(1, "and_"),
    "vote_uni": lambda type: _uniform_vote(),
    "vote_ballot": lambda type: _ballot(),
    "activemask": lambda type: _ballot(),
    "match_any": lambda type: _Reduction(lambda t: [i32(0)], _matching, needs_own=True),
    "match_all": lambda type: _Reduction(lambda t: [i32(0)], _matching, _all_match, needs_own=True),
    **{f"reduce_{fn}": _integer(fn) for fn in _IDENTITIES},
}


def _warp_reduce(code: BlockCode, op: Warp, active: Active) -> None:
    """Once per warp where every thread gets the same answer, else once per thread."""
    frame = code.frame
    mask, value = op.args if op.args else (None, None)
    type = value.type if value is not None else BOOL
    assert isinstance(type, Scalar)
    reduction = _REDUCTIONS[op.fn](type)
    own_mask = mask is not None and mask in code.plan.varying
    if not own_mask and not reduction.needs_own:
        members = frame.get(mask) if mask is not None else i32(-1)
        with _each_warp(code) as start:
            results = _combine(code, active, reduction, type, value, start, members, None)
            _hand_out(code, op, start, results)
        return

    def per_thread() -> None:
        assert frame.thread is not None and mask is not None and value is not None
        start = code.b.and_(frame.thread.linear, i64(-WARP))
        own = frame.get(value)

        def check(thread: ir.Value) -> None:
            _check_same_mask(code, op, active, thread)

        results = _combine(code, active, reduction, type, value, start, frame.get(mask), own, check)
        for result, content in zip(op.results, results, strict=True):
            if code.plan.has_slot(result):
                code.put(result, content)

    uses = tuple(v for v in (mask, value) if v is not None)
    code.phase([], active, [Step(uses, per_thread)])


@contextmanager
def _each_warp(code: BlockCode) -> Iterator[ir.Value]:
    with counted(code.b, i64(0), code.frame.threads, WARP) as start:
        yield start


def _warp_end(code: BlockCode, start: ir.Value) -> ir.Value:
    b = code.b
    full = b.add(start, i64(WARP))
    return b.select(b.icmp_unsigned("<", full, code.frame.threads), full, code.frame.threads)


def _combine(
    code: BlockCode,
    active: Active,
    reduction: _Reduction,
    type: Scalar,
    value: Value | None,
    start: ir.Value,
    mask: ir.Value,
    own: ir.Value | None,
    check: Callable[[ir.Value], None] = lambda thread: None,
) -> list[ir.Value]:
    """The reduction over the lanes of the warp that begins at thread `start`; `check` looks at each."""
    b, frame = code.b, code.frame
    totals = [frame.stack(8, 8) for _ in reduction.start(lt.register_type(type))]
    members = frame.stack(4, 4)
    b.store(i32(0), members, align=4)
    starts = reduction.start(lt.register_type(type))
    for total, first in zip(totals, starts, strict=True):
        b.store(first, total, align=8)
    with counted(b, start, _warp_end(code, start), 1) as thread:
        bit = b.shl(i32(1), b.trunc(b.sub(thread, start), lt.I32))
        taking_part = b.icmp_unsigned("!=", b.and_(mask, bit), i32(0))
        if active.mask is not None:
            taking_part = b.and_(taking_part, code.test(active.mask, thread))
        with b.if_then(taking_part):
            check(thread)
            seen = b.or_(b.load(members, typ=lt.I32, align=4), bit)
            b.store(seen, members, align=4)
            theirs = ir.Constant(lt.I1, 1) if value is None else _value_of(code, value, thread)
            current = [b.load(t, typ=s.type, align=8) for t, s in zip(totals, starts, strict=True)]
            call = _Call(b, type, own, seen)
            for total, following in zip(totals, reduction.step(call, current, bit, theirs), strict=True):
                b.store(following, total, align=8)
    final = [b.load(t, typ=s.type, align=8) for t, s in zip(totals, starts, strict=True)]
    call = _Call(b, type, own, b.load(members, typ=lt.I32, align=4))
    return reduction.finish(call, final)


def _hand_out(code: BlockCode, op: Warp, start: ir.Value, results: list[ir.Value]) -> None:
    """Give every lane of the warp the results."""
    b = code.b
    with counted(b, start, _warp_end(code, start), 1) as thread:
        for result, content in zip(op.results, results, strict=True):
            if code.plan.has_slot(result):
                code.put(result, content, thread)
