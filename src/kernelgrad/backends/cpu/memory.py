"""Loads, stores and atomics of typed values. Structs and arrays are accessed part by part, padding untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from ...ir.ops import Atomic, Load, Store
from ...ir.types import BF16, F16, F32, F64, Array, Pointer, Scalar, Struct, Type, element_types
from . import llvm_types as lt
from .convert import narrow, widen
from .frame import Frame
from .llvm_types import byte_offset, memory_type, register_type
from .scalars import TABLE, Application, apply

if TYPE_CHECKING:
    from .watch import Guard

_ORDER = "monotonic"  # CUDA's atomics order nothing but themselves


# ---- plain memory -------------------------------------------------------------------------------------------------


def parts(type: Struct | Array) -> list[tuple[int, Type]]:
    """Byte offset and type of each direct part."""
    if isinstance(type, Struct):
        return [(f.offset, f.type) for f in type.fields]
    return [(k * type.element.size, type.element) for k in range(type.count)]


def _unguarded(ptr: ir.Value, size: int) -> ir.Value:
    return ptr


def load(b: ir.IRBuilder, ptr: ir.Value, type: Type, group: Any = None, guard: Guard = _unguarded) -> ir.Value:
    if isinstance(type, Scalar | Pointer):
        loaded = _grouped(b.load(guard(ptr, type.size), typ=memory_type(type), align=type.align), group)
        return from_memory(b, loaded, type)
    if isinstance(type, Struct) and type.is_union:
        return _grouped(b.load(guard(ptr, type.size), typ=register_type(type), align=1), group)
    whole = ir.Constant(register_type(type), ir.Undefined)
    for k, (offset, part) in enumerate(parts(type)):
        whole = b.insert_value(whole, load(b, byte_offset(b, ptr, offset), part, group, guard), k)
    return whole


def store(
    b: ir.IRBuilder, ptr: ir.Value, value: ir.Value, type: Type, group: Any = None, guard: Guard = _unguarded
) -> None:
    if isinstance(type, Scalar | Pointer):
        _grouped(b.store(to_memory(b, value, type), guard(ptr, type.size), align=type.align), group)
    elif isinstance(type, Struct) and type.is_union:
        _grouped(b.store(value, guard(ptr, type.size), align=1), group)
    else:
        for k, (offset, part) in enumerate(parts(type)):
            store(b, byte_offset(b, ptr, offset), b.extract_value(value, k), part, group, guard)


def from_memory(b: ir.IRBuilder, value: ir.Value, type: Type) -> ir.Value:
    return b.trunc(value, lt.I1) if value.type != register_type(type) else value


def to_memory(b: ir.IRBuilder, value: ir.Value, type: Scalar | Pointer) -> ir.Value:
    return b.zext(value, memory_type(type)) if value.type != memory_type(type) else value


def _grouped(instruction: ir.Instruction, group: Any) -> ir.Instruction:
    if group is not None:
        instruction.set_metadata("llvm.access.group", group)
    return instruction


# ---- the IR's operations ------------------------------------------------------------------------------------------


def emit_load(frame: Frame, op: Load) -> None:
    b, ptr, type, guard = frame.b, frame.get(op.ptr), op.result.type, _guard(frame, op)
    if _other_blocks_matter(op) and isinstance(type, Scalar | Pointer):
        bits = b.load_atomic(guard(ptr, type.size), _ORDER, type.align, typ=_integer(type))
        frame.values[op.result] = _from_integer(b, bits, type)
    else:
        frame.values[op.result] = load(b, ptr, type, _group(frame, op), guard)


def emit_store(frame: Frame, op: Store) -> None:
    b, ptr, type, guard = frame.b, frame.get(op.ptr), op.value.type, _guard(frame, op)
    if _other_blocks_matter(op) and isinstance(type, Scalar | Pointer):
        # An exchange whose old value nobody wants: llvmlite's atomic store does not take opaque pointers.
        b.atomic_rmw("xchg", guard(ptr, type.size), _to_integer(b, frame.get(op.value), type), _ORDER)
    else:
        store(b, ptr, frame.get(op.value), type, _group(frame, op), guard)


def _guard(frame: Frame, op: Load | Store | Atomic) -> Guard:
    if frame.watch is None:
        return _unguarded
    from .watch import Access

    kind = Access.READ if isinstance(op, Load) else Access.WRITE if isinstance(op, Store) else Access.ATOMIC
    assert frame.thread is not None
    return frame.watch.guard(frame.b, op, op.ptr, kind, frame.thread.linear)


def _group(frame: Frame, op: Load | Store) -> Any:
    """Thread-private memory is reused by thread after thread, so its accesses are not independent."""
    assert isinstance(op.ptr.type, Pointer)
    grouped = op.ptr.type.space in ("global", "shared", "constant") and op not in frame.ordered
    return frame.access_group if grouped else None


def _other_blocks_matter(op: Load | Store) -> bool:
    """A volatile access to memory that blocks on other cores see. The threads of a block need no more than their
    phases, so volatile shared memory is plain memory."""
    assert isinstance(op.ptr.type, Pointer)
    return op.volatile and op.ptr.type.space in ("global", "generic")


# ---- atomics ------------------------------------------------------------------------------------------------------

_RMW: dict[tuple[str, str], str] = {
    ("add", "int"): "add",
    ("add", "uint"): "add",
    ("add", "float"): "fadd",
    ("sub", "int"): "sub",
    ("sub", "uint"): "sub",
    ("sub", "float"): "fsub",
    ("min", "int"): "min",
    ("min", "uint"): "umin",
    ("min", "float"): "fmin",
    ("max", "int"): "max",
    ("max", "uint"): "umax",
    ("max", "float"): "fmax",
    ("inc", "uint"): "uinc_wrap",
    ("dec", "uint"): "udec_wrap",
    **{(kind, sign): kind for kind in ("and", "or", "xor") for sign in ("int", "uint", "bool")},
}


def emit_atomic(frame: Frame, op: Atomic) -> None:
    if op in frame.totals:
        _add_to_total(frame, op)
        return
    args = [frame.get(a) for a in op.args]
    if op in frame.strays:
        add_to_own(frame, op, args[0])
        return
    guard = _guard(frame, op)
    assert isinstance(op.ptr.type, Pointer)
    alone = op.ptr.type.space == "shared" or op in frame.alone
    update = _update_shared if alone else _update
    frame.values[op.result] = _elementwise(frame.b, update, op.kind, frame.get(op.ptr), args, op.result.type, guard)


def _add_to_total(frame: Frame, op: Atomic) -> None:
    """Note [Totals]. The order is the compiler's choice, made once, so that the loop over threads can be vectorised."""
    b, cell, type, added = frame.b, frame.totals[op], register_type(F64), frame.get(op.args[0])
    added = b.fpext(added, type) if op.result.type == F32 else added
    total = b.fadd(b.load(cell, typ=type, align=F64.size), added, flags=("reassoc", "contract"))
    b.store(total, cell, align=F64.size)
    frame.values[op.result] = lt.zero(op.result.type)


def add_to_own(frame: Frame, op: Atomic, value: ir.Value) -> None:
    """Note [Worker sums]: plainly if it is inside, else to where it would have been."""
    b, own, size = frame.b, frame.strays[op], op.result.type.size
    begin, end, at = (b.ptrtoint(p, lt.I64) for p in (own.begin, own.end, frame.get(op.ptr)))
    distance = b.sub(at, begin)
    inside = b.icmp_unsigned("<=", distance, b.sub(b.sub(end, begin), lt.i64(size)))
    with b.if_else(inside) as (plainly, elsewhere):
        with plainly:
            total = b.fadd(b.load(frame.get(op.ptr), typ=value.type, align=size), value)
            b.store(total, frame.get(op.ptr), align=size)
        with elsewhere:
            target = b.gep(own.target, [distance], source_etype=lt.I8)
            b.atomic_rmw("fadd", target, value, _ORDER)
    frame.values[op.result] = lt.zero(op.result.type)


# (builder, kind, address, arguments, type) -> the old contents
Update = Callable[[ir.IRBuilder, str, ir.Value, list[ir.Value], Scalar | Pointer], ir.Value]


def _elementwise(
    b: ir.IRBuilder, update: Update, kind: str, ptr: ir.Value, args: list[ir.Value], type: Type, guard: Guard
) -> ir.Value:
    """float2 and float4: each element is atomic, the whole is not, as on the GPU."""
    if isinstance(type, Scalar | Pointer):
        return update(b, kind, guard(ptr, type.size), args, type)
    old = ir.Constant(register_type(type), ir.Undefined)
    for k, (offset, part) in enumerate(parts(type)):
        pieces = [b.extract_value(a, k) for a in args]
        old = b.insert_value(old, _elementwise(b, update, kind, byte_offset(b, ptr, offset), pieces, part, guard), k)
    return old


def _update(b: ir.IRBuilder, kind: str, ptr: ir.Value, args: list[ir.Value], type: Scalar | Pointer) -> ir.Value:
    if kind in ("exch", "take"):
        old = b.atomic_rmw("xchg", ptr, _to_integer(b, args[0], type), _ORDER)
        return _from_integer(b, old, type)
    if kind == "cas":
        expected, desired = (_to_integer(b, a, type) for a in args)
        return _from_integer(b, b.extract_value(b.cmpxchg(ptr, expected, desired, _ORDER), 0), type)
    assert isinstance(type, Scalar)
    if type in (F16, BF16):
        return _short_float(b, kind, ptr, args[0], type)
    return b.atomic_rmw(_RMW[kind, type.kind], ptr, args[0], _ORDER)


def _update_shared(b: ir.IRBuilder, kind: str, ptr: ir.Value, args: list[ir.Value], type: Scalar | Pointer) -> ir.Value:
    """A block's threads run one after another on one core, so its shared memory needs no locking; nor does memory of
    the core's own (Note [Worker sums])."""
    old = load(b, ptr, type)
    store(b, ptr, _updated(b, kind, old, args, type), type)
    return old


def _updated(b: ir.IRBuilder, kind: str, old: ir.Value, args: list[ir.Value], type: Scalar | Pointer) -> ir.Value:
    value = args[-1]
    match kind:
        case "exch" | "take":
            return value
        case "cas":
            same = b.icmp_unsigned("==", _to_integer(b, old, type), _to_integer(b, args[0], type))
            return b.select(same, value, old)
        case "inc":
            wraps = b.icmp_unsigned(">=", old, value)
            return b.select(wraps, ir.Constant(old.type, 0), b.add(old, ir.Constant(old.type, 1)))
        case "dec":
            zero = b.icmp_unsigned("==", old, ir.Constant(old.type, 0))
            wraps = b.or_(zero, b.icmp_unsigned(">", old, value))
            return b.select(wraps, value, b.sub(old, ir.Constant(old.type, 1)))
    assert isinstance(type, Scalar)
    if kind in ("add", "sub") and type.kind == "int":  # atomics wrap
        type = Scalar(type.name, "uint", type.bits)
    return apply(TABLE, kind, Application(b, (old, value), (type, type), type))


_SHORT_FLOAT: dict[str, Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]] = {
    "add": lambda b, x, y: b.fadd(x, y),
    "sub": lambda b, x, y: b.fsub(x, y),
    "min": lambda b, x, y: lt.intrinsic(b, "llvm.minnum", lt.F32, [x, y], [lt.F32]),
    "max": lambda b, x, y: lt.intrinsic(b, "llvm.maxnum", lt.F32, [x, y], [lt.F32]),
}


def _short_float(b: ir.IRBuilder, kind: str, ptr: ir.Value, arg: ir.Value, type: Scalar) -> ir.Value:
    """A compare-and-swap loop on the bits; the arithmetic in f32."""
    operand = widen(b, arg, type)
    first = b.load_atomic(ptr, _ORDER, 2, typ=lt.I16)
    before, loop, done = b.block, b.append_basic_block("cas"), b.append_basic_block("cas.done")
    b.branch(loop)
    b.position_at_end(loop)
    old = b.phi(lt.I16)
    old.add_incoming(first, before)
    new = narrow(b, _SHORT_FLOAT[kind](b, widen(b, _from_integer(b, old, type), type), operand), type)
    swapped = b.cmpxchg(ptr, old, _to_integer(b, new, type), _ORDER)
    old.add_incoming(b.extract_value(swapped, 0), loop)
    b.cbranch(b.extract_value(swapped, 1), done, loop)
    b.position_at_end(done)
    return _from_integer(b, old, type)


def _integer(type: Scalar | Pointer) -> ir.Type:
    return ir.IntType(type.size * 8)


def _to_integer(b: ir.IRBuilder, value: ir.Value, type: Scalar | Pointer) -> ir.Value:
    value = to_memory(b, value, type)
    if isinstance(type, Pointer):
        return b.ptrtoint(value, lt.I64)
    return b.bitcast(value, _integer(type))


def _from_integer(b: ir.IRBuilder, value: ir.Value, type: Scalar | Pointer) -> ir.Value:
    if isinstance(type, Pointer):
        return b.inttoptr(value, lt.PTR)
    return from_memory(b, b.bitcast(value, memory_type(type)), type)


# ---- struct values ------------------------------------------------------------------------------------------------


def extract_part(frame: Frame, value: ir.Value, type: Struct | Array, index: int) -> ir.Value:
    if isinstance(type, Struct) and type.is_union:
        memory = frame.stack(type.size, type.align)
        store(frame.b, memory, value, type)
        return load(frame.b, byte_offset(frame.b, memory, type.fields[index].offset), element_types(type)[index])
    return frame.b.extract_value(value, index)


def insert_part(frame: Frame, value: ir.Value, part: ir.Value, type: Struct | Array, index: int) -> ir.Value:
    if isinstance(type, Struct) and type.is_union:
        memory = frame.stack(type.size, type.align)
        store(frame.b, memory, value, type)
        store(frame.b, byte_offset(frame.b, memory, type.fields[index].offset), part, element_types(type)[index])
        return load(frame.b, memory, type)
    return frame.b.insert_value(value, part, index)
