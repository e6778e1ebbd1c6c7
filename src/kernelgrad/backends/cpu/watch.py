"""Watched code, for check mode: every access of the IR is logged, and one out of bounds is led astray.

The log is a growing array of records that `runtime.check` reads with NumPy; `RECORD` and `CONTEXT` describe the memory
both sides share. An access's region is the buffer its pointer was made from, where that can be seen (`root_name`), or
any buffer; outside of it, a load reads zeros and a store goes to waste.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from llvmlite import ir

from ...ir.ops import Alloca, Extract, Function, GlobalRef, Member, Offset, Op, PtrCast, Value
from ...ir.traverse import walk
from ...ir.types import Pointer, Struct
from . import llvm_types as lt
from .llvm_types import I32, I64, PTR, byte_offset, i32, i64

# u64 address, u32 operation (its number in the order of `walk`), u32 thread, u32 epoch (block barriers so far),
# u32 phase (meetings of any kind so far), i32 region or -1, u8 size, u8 kind, u8 outside, u8 unused.
RECORD = (("address", 0), ("op", 8), ("thread", 12), ("epoch", 16), ("phase", 20), ("region", 24))
_SIZE, _KIND, _OUTSIDE, RECORD_BYTES = 28, 29, 30, 32

# ptr records, u64 used, u64 capacity, ptr grow(context), ptr regions, u64 how many, ptr the threads' order (u32),
# u32 epoch, u32 phase, u64 whether records were lost.
CONTEXT = {"records": 0, "used": 8, "capacity": 16, "grow": 24, "regions": 32, "region_count": 40, "order": 48}
CONTEXT |= {"epoch": 56, "phase": 60, "lost": 64}

# A region: u64 begin, u64 length, u64 stride, u64 size: of every `stride` bytes the first `size` may be accessed.
REGION_BYTES = 32

RED_ZONE = 64  # between shared variables and between threads' local arrays


class Access(IntEnum):
    READ = 0
    WRITE = 1
    ATOMIC = 2


Guard = Callable[[ir.Value, int], ir.Value]


@dataclass(frozen=True)
class Watch:
    """`context` is the shared memory's address; `numbers` and `regions` number operations and regions."""

    context: ir.Value
    numbers: Mapping[Op, int]
    regions: Mapping[str, int]
    roots: Mapping[Value, str]

    def guard(self, b: ir.IRBuilder, op: Op, ptr: Value, kind: Access, thread: ir.Value) -> Guard:
        """For each part of an access: logs it and gives the address to use, which is harmless if out of bounds."""
        region = self.regions.get(self.roots.get(ptr, ""), -1)

        def safe(address: ir.Value, size: int) -> ir.Value:
            numbers = [i32(n) for n in (size, kind, self.numbers[op], region)]
            inside = b.call(_watch_function(b.module), [self.context, address, *numbers, thread])
            return b.select(inside, address, _elsewhere(b.module, kind))

        return safe

    def meet(self, b: ir.IRBuilder, whole_block: bool) -> None:
        """Count a meeting of the block's threads, or of their warps."""
        for name in ("epoch", "phase") if whole_block else ("phase",):
            counter = byte_offset(b, self.context, CONTEXT[name])
            b.store(b.add(b.load(counter, typ=I32, align=4), i32(1)), counter, align=4)

    def thread_at(self, b: ir.IRBuilder, position: ir.Value) -> ir.Value:
        """The linear id of the thread that comes at this position (i64)."""
        order = b.load(byte_offset(b, self.context, CONTEXT["order"]), typ=PTR, align=8)
        return b.zext(b.load(b.gep(order, [position], source_etype=I32), typ=I32, align=4), I64)


def _elsewhere(module: ir.Module, kind: Access) -> ir.Value:
    """Zeros to read, or memory to waste a write on."""
    name = "kg.zeros" if kind == Access.READ else "kg.sink"
    if name not in module.globals:
        memory = ir.GlobalVariable(module, ir.ArrayType(I64, 2), name)
        memory.linkage, memory.align, memory.initializer = "internal", 16, ir.Constant(ir.ArrayType(I64, 2), None)
        memory.global_constant = kind == Access.READ
        memory.type = PTR
    return module.globals[name]


# ---- which buffer a pointer was made from ---------------------------------------------------------------------------


def root_names(function: Function) -> dict[Value, str]:
    """For each pointer whose origin can be seen, the parameter ("p"), the pointer in a struct parameter ("s.p"), the
    module variable or the local array it points into."""
    roots = {p.value: p.variable or p.name for p in function.params}
    for op in walk(function.body):
        match op:
            case Offset(ptr) | Member(ptr) | PtrCast(ptr) if ptr in roots and isinstance(ptr.type, Pointer):
                roots[op.result] = roots[ptr]
            case Extract(aggregate, index) if aggregate in roots and isinstance(aggregate.type, Struct):
                roots[op.result] = f"{roots[aggregate]}.{aggregate.type.fields[index].name}"
            case GlobalRef(name):
                roots[op.result] = name
            case Alloca():
                roots[op.result] = local_name(op, len(roots))
    return roots


def local_name(op: Alloca, number: int) -> str:
    """Local arrays of one name are told apart by a number that nobody sees."""
    return f"{op.result.name or 'local'}#{number}"


# ---- the function that logs -----------------------------------------------------------------------------------------


def _watch_function(module: ir.Module) -> ir.Function:
    """(context, address, size, kind, operation, region, thread) -> whether the access is in bounds."""
    name = "kg.watch"
    if name in module.globals:
        return module.globals[name]
    types = [PTR, PTR, I32, I32, I32, I32, I64]
    function = ir.Function(module, ir.FunctionType(lt.I1, types), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    context, pointer, size, kind, op, region, thread = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    address = b.ptrtoint(pointer, I64)
    inside = b.call(_bounds_function(module), [context, address, b.zext(size, I64), region])
    record = _new_record(b, context)
    counters = [b.load(byte_offset(b, context, CONTEXT[name]), typ=I32, align=4) for name in ("epoch", "phase")]
    fields = [address, op, b.trunc(thread, I32), *counters, region]
    for value, (_, offset) in zip(fields, RECORD, strict=True):
        b.store(value, byte_offset(b, record, offset), align=4)
    for value, offset in ((size, _SIZE), (kind, _KIND), (b.zext(b.not_(inside), I32), _OUTSIDE)):
        b.store(b.trunc(value, lt.I8), byte_offset(b, record, offset), align=1)
    b.ret(inside)
    return function


def _new_record(b: ir.IRBuilder, context: ir.Value) -> ir.Value:
    """Where no memory could be had (it is used up, or Ctrl-C came), the log begins anew, and is known to be lost."""
    used_at = byte_offset(b, context, CONTEXT["used"])
    capacity_at = byte_offset(b, context, CONTEXT["capacity"])

    def is_full() -> ir.Value:
        return b.icmp_unsigned("==", b.load(used_at, typ=I64, align=8), b.load(capacity_at, typ=I64, align=8))

    with b.if_then(is_full()):
        grow = b.load(byte_offset(b, context, CONTEXT["grow"]), typ=PTR, align=8)
        grow.type = ir.FunctionType(lt.VOID, [PTR]).as_pointer()
        b.call(grow, [context])
        with b.if_then(is_full()):
            b.store(i64(0), used_at, align=8)
            b.store(i64(1), byte_offset(b, context, CONTEXT["lost"]), align=8)
    used = b.load(used_at, typ=I64, align=8)
    b.store(b.add(used, i64(1)), used_at, align=8)
    records = b.load(byte_offset(b, context, CONTEXT["records"]), typ=PTR, align=8)
    return byte_offset(b, records, b.mul(used, i64(RECORD_BYTES)))


def _bounds_function(module: ir.Module) -> ir.Function:
    """(context, address, size, region) -> whether it lies in the region, or in any if that is -1."""
    types = [PTR, I64, I64, I32]
    function = ir.Function(module, ir.FunctionType(lt.I1, types), "kg.inside")
    function.linkage = "internal"
    context, address, size, region = function.args
    entry, loop, test, done = (function.append_basic_block(n) for n in ("entry", "loop", "test", "done"))
    b = ir.IRBuilder(entry)
    regions = b.load(byte_offset(b, context, CONTEXT["regions"]), typ=PTR, align=8)
    count = b.load(byte_offset(b, context, CONTEXT["region_count"]), typ=I64, align=8)
    known = b.icmp_signed(">=", region, i32(0))
    first = b.select(known, b.sext(region, I64), i64(0))
    end = b.select(known, b.add(first, i64(1)), count)
    b.branch(loop)
    b.position_at_end(loop)
    k = b.phi(I64)
    k.add_incoming(first, entry)
    b.cbranch(b.icmp_unsigned("<", k, end), test, done)
    b.position_at_end(test)
    row = byte_offset(b, regions, b.mul(k, i64(REGION_BYTES)))
    begin, length, stride, extent = (b.load(byte_offset(b, row, 8 * n), typ=I64, align=8) for n in range(4))
    offset = b.sub(address, begin)
    fits = b.icmp_unsigned("<=", b.add(b.urem(offset, stride), size), extent)
    found = b.and_(b.icmp_unsigned("<", offset, length), fits)
    k.add_incoming(b.add(k, i64(1)), test)
    b.cbranch(found, done, loop)
    b.position_at_end(done)
    result = b.phi(lt.I1)
    result.add_incoming(ir.Constant(lt.I1, 0), loop)
    result.add_incoming(ir.Constant(lt.I1, 1), test)
    b.ret(result)
    return function
