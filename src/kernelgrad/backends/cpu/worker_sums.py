"""Note [Worker sums]: small buffers that very many threads add to atomically.

Where nothing else is done to such a buffer in the kernel, a worker adds to memory of its own, plainly, while it runs
its blocks one after the other, and adds that to the buffer at the end. LLVM sees for itself whether neighbouring
threads add to different elements, and vectorises then. The launch tells where that memory lies in the worker's scratch
memory, and its bytes.

A long sum of floats loses what is added to it. So those of floats are added to doubles behind them, each time that so
many threads have run, and begin again at zero. In very large launches so are sums of registers (Note [Totals]).

A kernel may add outside of the buffer that it is given: to the array of which that is a slice. Where the launch does
not show that it does not (`ranges`), each addition looks whether it is inside, and is made atomically where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llvmlite import ir

from ...deep import deeply
from ...ir.builder import pointee
from ...ir.ops import Atomic, Function
from ...ir.types import F32, F64
from . import block_sums, totals
from . import llvm_types as lt
from .llvm_types import i64
from .loops import counted

if TYPE_CHECKING:
    from ...analysis.access.ranges import Indices, Ranges


_MOST_BYTES = 1 << 18
_CROWD = 64  # threads for each element, at least
_LENGTH = 512  # of a sum of floats: threads, and for each element
_LENGTH_EACH = 8
_MANY = 1 << 22  # threads: so many sums of registers lose something in a float
_FEW_BYTES = 256  # that are added to doubles each time
_LINE = 64  # bytes: where doubles begin
TOLD = (
    f"each core adds up in memory of its own, if the buffer has at most {_MOST_BYTES >> 10} KB and each element"
    f" {_CROWD} threads or more"
)


@dataclass(frozen=True)
class Candidate:
    """A parameter whose elements threads add to, other than in registers; `size` of an element."""

    indices: Indices
    size: int
    additions: tuple[Atomic, ...]
    in_registers: bool = False  # all of it: Note [Totals]

    def pays(self, nbytes: int, threads: int) -> bool:
        if self.in_registers:
            return 0 < nbytes <= _FEW_BYTES and nbytes % self.size == 0 and threads >= _MANY
        return pays(nbytes, self.size, threads)

    def stays_inside(self, ranges: Ranges, nbytes: int) -> bool:
        offsets = [ranges.offset(op.ptr) for op in self.additions]
        return all(o is not None and o[0] >= 0 and o[1] + self.size <= nbytes for o in offsets)


def candidates(function: Function) -> dict[str, Candidate]:
    """By the parameters' names."""
    return {name: own for name, own in all_candidates(function).items() if not own.in_registers}


@deeply
def all_candidates(function: Function) -> dict[str, Candidate]:
    """Also those that registers add up."""
    from ...analysis.access.ranges import Indices

    expanded = block_sums.run(totals.expanded(function))
    indices = Indices(expanded)
    once = set(totals.find(expanded, by_row=True))
    by_root = totals.additions_by_root(expanded)
    params = {p.value: p.name for p in function.params if p.variable in (None, p.name)}  # the launcher's own, too
    return {
        params[root]: Candidate(indices, pointee(root).size, tuple(ops), ops <= once)
        for root, ops in by_root.items()
        if root in params and pointee(root) in ((F32,) if ops <= once else (F32, F64))
        if all(op.result.type == pointee(root) for op in ops)
    }


def pays(nbytes: int, size: int, threads: int) -> bool:
    return 0 < nbytes <= _MOST_BYTES and nbytes % size == 0 and threads >= _CROWD * (nbytes // size)


def share(nbytes: int, size: int, threads: int) -> float:
    """Of the additions to a buffer, those that are made between two folds."""
    length = _LENGTH + nbytes * _LENGTH_EACH // F32.size
    return min(1.0, length / threads) if pays(nbytes, size, threads) else 1.0


def threads_between_folds(b: ir.IRBuilder, nbytes: ir.Value) -> ir.Value:
    return b.add(b.mul(nbytes, i64(_LENGTH_EACH // F32.size)), i64(_LENGTH))


def _doubles(b: ir.IRBuilder, memory: ir.Value, nbytes: ir.Value) -> ir.Value:
    return byte_offset_by(b, memory, b.and_(b.add(nbytes, i64(_LINE - 1)), i64(-_LINE)))


def clear(b: ir.IRBuilder, memory: ir.Value, nbytes: ir.Value, is_float: bool) -> None:
    doubles = [(_doubles(b, memory, nbytes), b.mul(nbytes, i64(2)))] if is_float else []
    for start, length in ((memory, nbytes), *doubles):
        with counted(b, i64(0), length, 4) as at:
            b.store(lt.i32(0), byte_offset_by(b, start, at), align=4)


def fold(b: ir.IRBuilder, memory: ir.Value, nbytes: ir.Value) -> None:
    """Adds sums of floats to the doubles behind them."""
    float_, double = lt.memory_type(F32), lt.memory_type(F64)
    doubles = _doubles(b, memory, nbytes)
    with counted(b, i64(0), nbytes, F32.size) as at:
        place, total = byte_offset_by(b, memory, at), byte_offset_by(b, doubles, b.mul(at, i64(2)))
        more = b.fpext(b.load(place, typ=float_, align=F32.size), double)
        b.store(b.fadd(b.load(total, typ=double, align=F64.size), more), total, align=F64.size)
        b.store(ir.Constant(float_, 0.0), place, align=F32.size)


def flush(b: ir.IRBuilder, memory: ir.Value, nbytes: ir.Value, target: ir.Value, type: ir.Type, size: int) -> None:
    """Adds what the worker has added up to the buffer."""
    is_float, double = size == F32.size, lt.memory_type(F64)
    if is_float:
        fold(b, memory, nbytes)
        memory = _doubles(b, memory, nbytes)
    with counted(b, i64(0), nbytes, size) as at:
        place = byte_offset_by(b, memory, b.mul(at, i64(F64.size // size)))
        whole = b.load(place, typ=double, align=F64.size)
        total = b.fptrunc(whole, type) if is_float else whole
        with b.if_then(b.fcmp_unordered("!=", total, ir.Constant(type, 0.0))):
            b.atomic_rmw("fadd", byte_offset_by(b, target, at), total, "monotonic")


def byte_offset_by(b: ir.IRBuilder, pointer: ir.Value, at: ir.Value) -> ir.Value:
    return b.gep(pointer, [at], inbounds=True, source_etype=lt.I8)
