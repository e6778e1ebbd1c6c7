"""The code of one thread: every operation that concerns that thread alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ...errors import InternalError
from ...ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Assert,
    Atomic,
    Block,
    Builtin,
    Constant,
    Extract,
    Fence,
    For,
    GlobalRef,
    If,
    Insert,
    Leave,
    Load,
    Member,
    Offset,
    Op,
    Print,
    PtrCast,
    PtrDiff,
    Store,
    Trap,
    Undef,
    Value,
    While,
)
from ...ir.types import I32, Array, Pointer, Scalar, Struct, Type
from . import llvm_types as lt
from .convert import narrow, resize, widen
from .frame import Failing, Failure, Frame
from .llvm_types import byte_offset, i64, register_type
from .memory import emit_atomic, emit_load, emit_store, extract_part, insert_part
from .metadata import unrolled
from .scalars import TABLE, Application, apply
from .workarounds import masks, opaque, settled

WARP_SIZE = 32
_DIVISIONS = ("div", "rem")


def emit_ops(frame: Frame, ops: tuple[Op, ...] | list[Op]) -> None:
    for op in ops:
        emit_op(frame, op)


def emit_op(frame: Frame, op: Op) -> None:
    emitter = _EMITTERS.get(type(op))
    if emitter is None:
        raise InternalError(f"the CPU backend has no code for {type(op).__name__} here")
    emitter(frame, op)


# ---- values -------------------------------------------------------------------------------------------------------


def _constant(frame: Frame, op: Constant) -> None:
    frame.values[op.result] = constant(frame.b, op.value, op.result.type)


def constant(b: ir.IRBuilder, value: int | float | bool, type: Type) -> ir.Value:
    if isinstance(type, Pointer):
        return lt.zero(type) if value == 0 else b.inttoptr(i64(int(value)), lt.PTR)
    assert isinstance(type, Scalar)
    if not type.is_float:
        return ir.Constant(register_type(type), int(value))
    if type.bits == 16:
        return narrow(b, ir.Constant(lt.F32, float(value)), type)
    return ir.Constant(register_type(type), float(value))


def _undef(frame: Frame, op: Undef) -> None:
    frame.values[op.result] = lt.zero(op.result.type)


def _divide(frame: Frame, op: Apply, call: Application) -> ir.Value:
    from .divisions import divide, is_division

    return divide(frame, op, call) if is_division(op) else apply(TABLE, op.fn, call)


def _apply(frame: Frame, op: Apply) -> None:
    if op.result in frame.known:
        frame.values[op.result] = frame.known[op.result]
        return
    args = tuple(frame.get(a) for a in op.args)
    types = tuple(a.type for a in op.args)
    call = Application(frame.b, args, types, op.result.type, op in frame.nowrap)
    result = _divide(frame, op, call) if op.fn in _DIVISIONS else apply(TABLE, op.fn, call)
    if op.result in frame.address_parts and masks(op, args) and not isinstance(result, ir.Constant):
        result = opaque(frame.b, result)  # Note [Masked indices]
    frame.values[op.result] = result


def _aggregate(frame: Frame, op: Aggregate) -> None:
    type = _aggregate_type(op.result)
    whole: ir.Value = lt.zero(type)
    for k, part in enumerate(op.args):
        whole = insert_part(frame, whole, frame.get(part), type, k)
    frame.values[op.result] = whole


def _extract(frame: Frame, op: Extract) -> None:
    frame.values[op.result] = extract_part(frame, frame.get(op.aggregate), _aggregate_type(op.aggregate), op.index)


def _insert(frame: Frame, op: Insert) -> None:
    whole, part = frame.get(op.aggregate), frame.get(op.value)
    frame.values[op.result] = insert_part(frame, whole, part, _aggregate_type(op.result), op.index)


def _aggregate_type(value: Value) -> Struct | Array:
    assert isinstance(value.type, Struct | Array)
    return value.type


def _builtin(frame: Frame, op: Builtin) -> None:
    result = op.result.type
    assert isinstance(result, Scalar)
    raw = builtin(frame, op.name, op.axis)
    source = Scalar("", "uint", raw.type.width)
    frame.values[op.result] = resize(frame.b, raw, source, result)


def builtin(frame: Frame, name: str, axis: int) -> ir.Value:
    """An unsigned number of 32 or 64 bits."""
    match name:
        case "thread_idx":
            assert frame.thread is not None
            return frame.thread.index[axis]
        case "block_idx":
            return frame.block_idx[axis]
        case "block_dim":
            return frame.block_dim[axis]
        case "grid_dim":
            return frame.grid_dim[axis]
        case "warp_size":
            return lt.i32(WARP_SIZE)
        case "lane_id":
            assert frame.thread is not None
            return frame.b.trunc(frame.b.and_(frame.thread.linear, i64(WARP_SIZE - 1)), lt.I32)
        case "clock" | "clock64" | "globaltimer":
            return lt.intrinsic(frame.b, "llvm.readcyclecounter", lt.I64, [], [])
    raise InternalError(f"unknown builtin '{name}'")


# ---- addresses ----------------------------------------------------------------------------------------------------


def _alloca(frame: Frame, op: Alloca) -> None:
    if op.result in frame.own_memory:
        frame.values[op.result] = frame.own_memory[op.result]()
        return
    type = op.result.type
    assert isinstance(type, Pointer)
    frame.values[op.result] = frame.stack(type.pointee.size, type.pointee.align)


def _global_ref(frame: Frame, op: GlobalRef) -> None:
    if op.name not in frame.shared:
        raise InternalError(f"'{op.name}' is not shared memory: transforms.globals has not run")
    frame.values[op.result] = frame.shared[op.name]


def _offset(frame: Frame, op: Offset) -> None:
    b, ptr, index, type = frame.b, frame.get(op.ptr), frame.get(op.index), op.index.type
    assert isinstance(type, Scalar) and isinstance(op.ptr.type, Pointer)
    wide = resize(b, index, type, Scalar("", type.kind, 64))
    pointee = op.ptr.type.pointee
    if isinstance(pointee, Scalar | Pointer):
        frame.values[op.result] = b.gep(ptr, [wide], inbounds=True, source_etype=lt.memory_type(pointee))
    else:
        element = ir.ArrayType(lt.I8, pointee.size)
        frame.values[op.result] = b.gep(ptr, [wide], inbounds=True, source_etype=element)


def _member(frame: Frame, op: Member) -> None:
    assert isinstance(op.ptr.type, Pointer) and isinstance(op.ptr.type.pointee, Struct)
    field = op.ptr.type.pointee.fields[op.index]
    frame.values[op.result] = byte_offset(frame.b, frame.get(op.ptr), field.offset)


def _ptr_cast(frame: Frame, op: PtrCast) -> None:
    frame.values[op.result] = frame.get(op.ptr)


def _ptr_diff(frame: Frame, op: PtrDiff) -> None:
    b = frame.b
    left, right = (b.ptrtoint(frame.get(p), lt.I64) for p in (op.left, op.right))
    assert isinstance(op.left.type, Pointer)
    size = max(1, op.left.type.pointee.size)
    frame.values[op.result] = b.sdiv(b.sub(left, right), i64(size), flags=("exact",))


# ---- effects ------------------------------------------------------------------------------------------------------


def _fence(frame: Frame, op: Fence) -> None:
    if op.scope != "block":  # a block's threads share one core
        frame.b.fence("seq_cst")


def _print(frame: Frame, op: Print) -> None:
    b, module = frame.b, frame.b.module
    if "printf" not in module.globals:
        ir.Function(module, ir.FunctionType(lt.I32, [lt.PTR], var_arg=True), "printf")
    text = _string(module, op.format)
    args = [_promoted(b, frame.get(a), a.type) for a in op.args]
    b.call(module.globals["printf"], [text, *args])


def _string(module: ir.Module, text: str) -> ir.Value:
    data = bytearray(text.encode() + b"\0")
    type = ir.ArrayType(lt.I8, len(data))
    variable = ir.GlobalVariable(module, type, module.get_unique_name("format"))
    variable.global_constant, variable.linkage, variable.initializer = True, "private", ir.Constant(type, data)
    variable.type = lt.PTR
    return variable


def _promoted(b: ir.IRBuilder, value: ir.Value, type: Type) -> ir.Value:
    """C's default argument promotions."""
    if isinstance(type, Scalar) and type.is_float:
        if type.bits == 64:
            return value
        return b.fpext(widen(b, value, type) if type.bits == 16 else value, lt.F64)
    if isinstance(type, Scalar) and type.bits < 32:
        return resize(b, value, type, I32)
    return value


def _assert(frame: Frame, op: Assert) -> None:
    frame.fail_if(frame.b.not_(frame.get(op.cond)), Failing(Failure.ASSERT, op))


def _trap(frame: Frame, op: Trap) -> None:
    frame.fail_if(ir.Constant(lt.I1, 1), Failing(Failure.TRAP, op))


def _leave(frame: Frame, op: Leave) -> None:
    if frame.leave is not None:
        frame.leave()


# ---- control ------------------------------------------------------------------------------------------------------


def _if(frame: Frame, op: If) -> None:
    b = frame.b
    then, orelse, merge = (b.append_basic_block(name) for name in ("then", "else", "endif"))
    b.cbranch(frame.get(op.cond), then, orelse)
    sides: list[tuple[list[ir.Value], ir.Block]] = []
    for start, region in ((then, op.then), (orelse, op.orelse)):
        b.position_at_end(start)
        results = settled(b, emit_block(frame, region, ()), region)
        sides.append((results, b.block))
        b.branch(merge)
    b.position_at_end(merge)
    for k, result in enumerate(op.results):
        phi = b.phi(register_type(result.type))
        for values, block in sides:
            phi.add_incoming(values[k], block)
        frame.values[result] = phi


def emit_block(frame: Frame, block: Block, args: tuple[ir.Value, ...] | list[ir.Value]) -> list[ir.Value]:
    """A nested block's code at the current position; gives its results."""
    with frame.scope():
        frame.values.update(zip(block.args, args, strict=True))
        emit_ops(frame, block.ops)
        return [frame.get(v) for v in block.results]


def _for(frame: Frame, op: For) -> None:
    b = frame.b
    lower, upper, type = frame.get(op.lower), frame.get(op.upper), op.lower.type
    assert isinstance(type, Scalar)
    header, body, end = (b.append_basic_block(name) for name in ("for", "for.body", "for.end"))
    before = b.block
    b.branch(header)
    b.position_at_end(header)
    phis = [b.phi(register_type(v.type)) for v in op.body.args]
    for phi, start in zip(phis, [lower, *map(frame.get, op.inits)], strict=True):
        phi.add_incoming(start, before)
    b.cbranch(for_condition(b, phis[0], upper, type, op.step), body, end)
    b.position_at_end(body)
    carried = settled(b, emit_block(frame, op.body, phis), op.body)
    for phi, value in zip(phis, [for_next(b, phis[0], type, op.step), *carried], strict=True):
        phi.add_incoming(value, b.block)
    unrolled(b.branch(header), op.unroll)
    b.position_at_end(end)
    frame.values.update(zip(op.results, phis[1:], strict=True))


def for_condition(b: ir.IRBuilder, iv: ir.Value, upper: ir.Value, type: Scalar, step: int) -> ir.Value:
    compare = b.icmp_signed if type.kind == "int" else b.icmp_unsigned
    return compare("<" if step > 0 else ">", iv, upper)


def for_next(b: ir.IRBuilder, iv: ir.Value, type: Scalar, step: int) -> ir.Value:
    # An unsigned counter below its bound cannot wrap by one step; by larger ones it can.
    flags = ("nsw",) if type.kind == "int" else ("nuw",) if step == 1 else ()
    return b.add(iv, ir.Constant(iv.type, step), flags=flags)


def _while(frame: Frame, op: While) -> None:
    b = frame.b
    header, body, end = (b.append_basic_block(name) for name in ("while", "while.body", "while.end"))
    before = b.block
    b.branch(header)
    b.position_at_end(header)
    phis = [b.phi(register_type(v.type)) for v in op.before.args]
    for phi, start in zip(phis, op.inits, strict=True):
        phi.add_incoming(frame.get(start), before)
    condition, *forwarded = emit_block(frame, op.before, phis)
    b.cbranch(condition, body, end)
    b.position_at_end(body)
    for phi, value in zip(phis, settled(b, emit_block(frame, op.body, forwarded), op.body), strict=True):
        phi.add_incoming(value, b.block)
    unrolled(b.branch(header), op.unroll)
    b.position_at_end(end)
    frame.values.update(zip(op.results, forwarded, strict=True))


_EMITTERS: dict[type[Op], Callable[[Frame, Any], None]] = {
    Constant: _constant,
    Undef: _undef,
    Apply: _apply,
    Aggregate: _aggregate,
    Extract: _extract,
    Insert: _insert,
    Builtin: _builtin,
    Alloca: _alloca,
    GlobalRef: _global_ref,
    Offset: _offset,
    Member: _member,
    PtrCast: _ptr_cast,
    PtrDiff: _ptr_diff,
    Load: emit_load,
    Store: emit_store,
    Atomic: emit_atomic,
    Fence: _fence,
    Print: _print,
    Assert: _assert,
    Trap: _trap,
    Leave: _leave,
    If: _if,
    For: _for,
    While: _while,
}
