"""The loops over threads.

Note [Rows]
Threads that never meet may run in any order, also threads of different blocks. A kernel without meetings and without
shared memory therefore runs a row of blocks (those that differ in blockIdx.x alone) at a time, and for each threadIdx.z
and .y goes through the whole row: memory is then read in long runs, whatever the block's shape. If threadIdx.x and
blockIdx.x are used in `blockIdx.x * blockDim.x + threadIdx.x` alone, that number is the loop's counter.

Note [Whole iterations]
LLVM is told that the iterations of a loop over threads are independent. That is true as long as an iteration is one
thread, and LLVM does not keep it so: where it finds that one side of a branch inside is the last iteration (`if
(threadIdx.x + 1 < blockDim.x)`, by jump threading or because the loop ends by the same comparison), that side leaves
the loop, and loop rotation then has what a thread does before the branch run together with what the thread before it
does after the branch. The vectoriser still believes what it was told, and moves stores of one thread before loads of
the next. So loops over threads do not end by their counter, but when as many iterations were run as there are: nothing
that a branch asks of the counter tells LLVM, before it vectorises, which iteration is the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from llvmlite import ir

from ...ir.ops import Apply, Builtin, Constant, Fence, Function, GlobalRef, Load, Op, Print, Store, Value
from ...ir.traverse import operands, walk
from . import llvm_types as lt
from .frame import Frame, Thread
from .llvm_types import i32, i64
from .metadata import access_group, never_unrolled, parallel
from .sections import Bound, Invariants, Middle
from .sections import middle as middle_of

if TYPE_CHECKING:
    from .watch import Watch


@dataclass(frozen=True)
class Row:
    """The blocks [begin, end) of a row. `indices` are the values that are the thread's index in the whole row,
    `bounds` what branches ask of it (Note [Sections] in `sections`)."""

    begin: ir.Value
    end: ir.Value
    indices: frozenset[Value]
    bounds: tuple[Bound, ...]
    invariants: Invariants


Section = Literal["all", "middle", "ends"]


def sections(frame: Frame) -> tuple[Section, ...]:
    """The loops in which all threads of a phase are run."""
    return ("middle", "ends") if frame.row is not None and frame.row.bounds else ("all",)


@contextmanager
def each_thread(frame: Frame, section: Section = "all", narrow: Middle | None = None) -> Iterator[None]:
    """A loop over the block's threads (or the row's) around what is emitted inside; values defined there stay there.
    `narrow`: the part of threadIdx.x that will do (Note [Narrow phases])."""
    known = dict(frame.known)
    with frame.scope():
        if frame.watch is not None:
            loop = _shuffled(frame, frame.watch)
        elif frame.row is not None:
            loop = _row(frame, frame.row, section)
        elif narrow is not None:
            loop = _narrow_block(frame, narrow)
        else:
            loop = _block(frame, i32(0), frame.block_dim[0])
        with loop:
            yield
        frame.thread = frame.access_group = None
        frame.known = known


@contextmanager
def _block(frame: Frame, begin: ir.Value, end: ir.Value) -> Iterator[None]:
    group = access_group(frame.b.module)
    with _axis(frame, 2) as z, _axis(frame, 1) as y:
        first = _first_of_row(frame, y, z)
        with _counter(frame.b, "threads.x", begin, end, group) as x:
            linear = frame.b.add(first, frame.b.zext(x, lt.I64), flags=("nuw", "nsw"))
            frame.thread, frame.access_group = Thread((x, y, z), linear), group
            yield


@contextmanager
def _narrow_block(frame: Frame, narrow: Middle) -> Iterator[None]:
    frame.known.update(narrow.known)
    with frame.b.if_then(frame.b.icmp_unsigned("<", narrow.begin, narrow.end)), _block(frame, narrow.begin, narrow.end):
        yield


@contextmanager
def _row(frame: Frame, row: Row, section: Section) -> Iterator[None]:
    b, group, first_block = frame.b, access_group(frame.b.module), frame.linear_block
    with _axis(frame, 2) as z, _axis(frame, 1) as y:
        first = _first_of_row(frame, y, z)
        if row.indices:
            width = frame.block_dim[0]
            begin, end = (b.mul(limit, width, flags=("nuw", "nsw")) for limit in (row.begin, row.end))
            with _part(frame, row, section, begin, end, group) as i:
                frame.known.update(dict.fromkeys(row.indices, i))
                _enter(frame, row, b.udiv(i, width), (b.urem(i, width), y, z), first, group)
                yield
        else:
            with _counter(b, "blocks", row.begin, row.end) as block, _axis(frame, 0, group) as x:
                _enter(frame, row, block, (x, y, z), first, group)
                yield
    frame.linear_block = first_block


@contextmanager
def _part(
    frame: Frame, row: Row, section: Section, begin: ir.Value, end: ir.Value, group: ir.MDValue
) -> Iterator[ir.Value]:
    """A loop over the indices of a section."""
    b = frame.b
    if section == "all":
        with _counter(b, "row", begin, end, group) as i:
            yield i
        return
    middle = middle_of(frame, row.bounds, row.invariants, begin, end)
    if section == "middle":
        frame.known.update(middle.known)
        some = b.icmp_unsigned("<", middle.begin, middle.end)
        with b.if_then(some), _counter(b, "middle", middle.begin, middle.end, group) as i:
            yield i
        return
    with _counter(b, "ends", i32(0), i32(2)) as which:
        before = b.icmp_unsigned("==", which, i32(0))
        first, last = b.select(before, begin, middle.end), b.select(before, middle.begin, end)
        with b.if_then(b.icmp_unsigned("<", first, last)), _counter(b, "end", first, last, group) as i:
            yield i


def _enter(
    frame: Frame, row: Row, block: ir.Value, index: tuple[ir.Value, ...], first: ir.Value, group: ir.MDValue
) -> None:
    """Set the frame for a thread of a row; what the thread does not use, LLVM drops."""
    b, (x, y, z) = frame.b, index
    frame.thread = Thread((x, y, z), b.add(first, b.zext(x, lt.I64), flags=("nuw", "nsw")))
    frame.block_idx = (block, frame.block_idx[1], frame.block_idx[2])
    frame.linear_block = b.add(frame.linear_block, b.zext(b.sub(block, row.begin), lt.I64))
    frame.access_group = group


@contextmanager
def _shuffled(frame: Frame, watch: Watch) -> Iterator[None]:
    """In the order that check mode gives."""
    b = frame.b
    with counted(b, i64(0), frame.threads, 1) as position:
        linear = watch.thread_at(b, position)
        x, y, _ = (b.zext(d, lt.I64) for d in frame.block_dim)
        row = b.udiv(linear, x)
        index = [b.trunc(v, lt.I32) for v in (b.urem(linear, x), b.urem(row, y), b.udiv(row, y))]
        frame.thread = Thread((index[0], index[1], index[2]), linear)
        yield


# ---- parts ----------------------------------------------------------------------------------------------------------


def _first_of_row(frame: Frame, y: ir.Value, z: ir.Value) -> ir.Value:
    """The linear id of thread (0, y, z)."""
    b = frame.b
    width, height = (b.zext(d, lt.I64) for d in frame.block_dim[:2])
    return b.mul(b.add(b.mul(b.zext(z, lt.I64), height), b.zext(y, lt.I64)), width)


@contextmanager
def _axis(frame: Frame, axis: int, group: ir.MDValue | None = None) -> Iterator[ir.Value]:
    with _counter(frame.b, f"threads.{'xyz'[axis]}", i32(0), frame.block_dim[axis], group) as index:
        yield index


@contextmanager
def _counter(
    b: ir.IRBuilder, name: str, begin: ir.Value, end: ir.Value, group: ir.MDValue | None = None
) -> Iterator[ir.Value]:
    """`for (k = begin; k < end; k++)` in 32 bits, with begin < end. With a group, its iterations are independent; such
    a loop ends by a count of its own (Note [Whole iterations])."""
    count = None if group is None else b.sub(end, begin)
    before, loop, done = b.block, b.append_basic_block(name), b.append_basic_block(f"{name}.done")
    b.branch(loop)
    b.position_at_end(loop)
    k, left = b.phi(lt.I32), None if count is None else b.phi(lt.I32)
    k.add_incoming(begin, before)
    yield k
    following = b.add(k, i32(1), flags=("nuw", "nsw"))
    k.add_incoming(following, b.block)
    if group is None or left is None:
        never_unrolled(b.cbranch(b.icmp_unsigned("<", following, end), loop, done))
    else:
        left.add_incoming(count, before)
        fewer = b.sub(left, i32(1), flags=("nuw", "nsw"))
        left.add_incoming(fewer, b.block)
        parallel(b.cbranch(b.icmp_unsigned("!=", fewer, i32(0)), loop, done), group, isinstance(end, ir.Constant))
    b.position_at_end(done)


@contextmanager
def counted(b: ir.IRBuilder, begin: ir.Value, end: ir.Value, step: int) -> Iterator[ir.Value]:
    """`for (k = begin; k < end; k += step)` in 64 bits, with begin < end."""
    before, loop, done = b.block, b.append_basic_block("counted"), b.append_basic_block("counted.done")
    b.branch(loop)
    b.position_at_end(loop)
    k = b.phi(lt.I64)
    k.add_incoming(begin, before)
    yield k
    following = b.add(k, i64(step), flags=("nuw", "nsw"))
    k.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, end), loop, done)
    b.position_at_end(done)


# ---- whether rows will do -------------------------------------------------------------------------------------------


def runs_by_row(function: Function) -> bool:
    """For a kernel without meetings: whether its blocks share no memory, do not wait for one another, and do not care
    in which order they print."""
    return not any(_wants_order(op) for op in walk(function.body))


def _wants_order(op: Op) -> bool:
    if isinstance(op, Load | Store):
        return op.volatile
    return isinstance(op, GlobalRef | Fence | Print)


def row_indices(function: Function, width: int | None) -> frozenset[Value]:
    """The values `blockIdx.x * blockDim.x + threadIdx.x`, if they are all that threadIdx.x and blockIdx.x are used for.
    `width` is blockDim.x where it is known, so that the number itself may stand for it."""
    definitions = {v: op for op in walk(function.body) for v in op.results}

    def is_builtin(value: Value, name: str) -> bool:
        op = definitions.get(value)
        return isinstance(op, Builtin) and op.name == name and op.axis == 0

    def is_width(value: Value) -> bool:
        op = definitions.get(value)
        return is_builtin(value, "block_dim") or (isinstance(op, Constant) and op.value == width)

    def is_start(value: Value) -> bool:
        op = definitions.get(value)
        if not isinstance(op, Apply) or op.fn != "mul":
            return False
        return any(is_builtin(x, "block_idx") and is_width(y) for x, y in (op.args, op.args[::-1]))

    indices, starts = set(), set()
    for op in walk(function.body):
        if isinstance(op, Apply) and op.fn == "add":
            for start, thread in (op.args, op.args[::-1]):
                if is_start(start) and is_builtin(thread, "thread_idx"):
                    indices.add(op.result)
                    starts.add(start)
    for op in walk(function.body):
        inside = isinstance(op, Apply) and (op.result in indices or op.result in starts)
        for value in operands(op):
            escapes = value in starts or is_builtin(value, "block_idx") or is_builtin(value, "thread_idx")
            if escapes and not inside:
                return frozenset()
    return frozenset(indices)
