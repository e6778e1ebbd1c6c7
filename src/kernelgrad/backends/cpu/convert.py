"""Conversions between scalar types, the 16-bit floats' included."""

from __future__ import annotations

from llvmlite import ir

from ...errors import InternalError
from ...ir.types import BF16, F16, F32, F64, Pointer, Scalar, Type
from . import llvm_types as lt
from .llvm_types import intrinsic, register_type


def is_short_float(type: Type) -> bool:
    return type in (F16, BF16)


# ---- 16-bit floats: computed with as f32 --------------------------------------------------------------------------


def widen(b: ir.IRBuilder, value: ir.Value, type: Type) -> ir.Value:
    """A 16-bit float as f32, exactly."""
    if type == F16:
        return b.fpext(value, lt.F32)
    bits = b.shl(b.zext(value, lt.I32), lt.i32(16))
    return b.bitcast(bits, lt.F32)


def narrow(b: ir.IRBuilder, value: ir.Value, type: Type) -> ir.Value:
    """An f32 rounded to the nearest 16-bit float, ties to even."""
    if type == F16:
        return b.fptrunc(value, register_type(F16))
    bits = b.bitcast(value, lt.I32)
    odd = b.and_(b.lshr(bits, lt.i32(16)), lt.i32(1))
    rounded = b.add(bits, b.add(odd, lt.i32(0x7FFF)))
    # Rounding could carry a NaN's payload into infinity, so a NaN becomes the quiet one.
    kept = b.select(b.fcmp_unordered("uno", value, value), lt.i32(0x7FC00000), rounded)
    return b.trunc(b.lshr(kept, lt.i32(16)), lt.I16)


def round_to_odd(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """An f64 as f32 such that rounding the result once more, to a 16-bit float, gives what rounding once would."""
    near = b.fptrunc(value, lt.F32)
    back = b.fpext(near, lt.F64)
    bits = b.bitcast(near, lt.I32)
    inexact = b.fcmp_ordered("one", back, value)
    # Step back towards zero if `near` was rounded away from it, then set the last bit.
    grew = b.fcmp_ordered("ogt", _fabs(b, back), _fabs(b, value))
    toward_zero = b.sub(bits, b.zext(grew, lt.I32))
    odd = b.or_(toward_zero, lt.i32(1))
    return b.bitcast(b.select(inexact, odd, bits), lt.F32)


def _fabs(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.fabs", value.type, [value], [value.type])


# ---- convert ------------------------------------------------------------------------------------------------------


def convert(b: ir.IRBuilder, value: ir.Value, source: Type, target: Type) -> ir.Value:
    if source == target:
        return value
    if isinstance(source, Pointer) or isinstance(target, Pointer):
        return _pointer(b, value, source, target)
    if not (isinstance(source, Scalar) and isinstance(target, Scalar)):
        raise InternalError(f"conversion from {source} to {target}")
    if source.is_float:
        return _from_float(b, value, source, target)
    if target.is_float:
        return _int_to_float(b, value, source, target)
    return resize(b, value, source, target)


def resize(b: ir.IRBuilder, value: ir.Value, source: Scalar, target: Scalar) -> ir.Value:
    """Between integers (and bool) of any widths."""
    if target.kind == "bool":
        return value if source.kind == "bool" else b.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
    if target.bits <= source.bits:
        return b.trunc(value, register_type(target)) if target.bits < source.bits else value
    grow = b.sext if source.kind == "int" else b.zext
    return grow(value, register_type(target))


def _pointer(b: ir.IRBuilder, value: ir.Value, source: Type, target: Type) -> ir.Value:
    if isinstance(source, Pointer) and isinstance(target, Pointer):
        return value
    if isinstance(source, Pointer):
        assert isinstance(target, Scalar)
        if target.kind == "bool":
            return b.icmp_unsigned("!=", value, ir.Constant(lt.PTR, None))
        return b.ptrtoint(value, register_type(target))
    return b.inttoptr(value, lt.PTR)


def _int_to_float(b: ir.IRBuilder, value: ir.Value, source: Scalar, target: Scalar) -> ir.Value:
    to_float = b.sitofp if source.kind == "int" else b.uitofp
    if target == F16:  # whole numbers that an f16 can hold are exact in f32, and the others give infinity
        return narrow(b, to_float(value, lt.F32), F16)
    if target == BF16:
        return narrow(b, round_to_odd(b, _exactly_odd(b, value, source)), BF16)
    return to_float(value, register_type(target))


def _exactly_odd(b: ir.IRBuilder, value: ir.Value, source: Scalar) -> ir.Value:
    """An integer as f64; the low bits of a 64-bit one that do not fit are kept as one sticky bit."""
    to_float = b.sitofp if source.kind == "int" else b.uitofp
    if source.bits < 64:
        return to_float(value, lt.F64)
    sticky = b.icmp_unsigned("!=", b.and_(value, lt.i64(0xFFF)), lt.i64(0))
    cleared = b.and_(value, lt.i64(~0xFFF))
    small = b.icmp_unsigned("<", _magnitude(b, value, source), lt.i64(1 << 53))
    return to_float(b.select(small, value, b.or_(cleared, b.shl(b.zext(sticky, lt.I64), lt.i64(11)))), lt.F64)


def _magnitude(b: ir.IRBuilder, value: ir.Value, source: Scalar) -> ir.Value:
    if source.kind != "int":
        return value
    return intrinsic(b, "llvm.abs", value.type, [value, ir.Constant(lt.I1, 0)], [value.type])


def _from_float(b: ir.IRBuilder, value: ir.Value, source: Scalar, target: Scalar) -> ir.Value:
    if is_short_float(source):
        value, source = widen(b, value, source), F32
    if target == source:
        return value
    if target.kind == "bool":
        return b.fcmp_unordered("une", value, ir.Constant(value.type, 0.0))
    if not target.is_float:
        return float_to_int(b, value, target)
    if is_short_float(target):
        return narrow(b, round_to_odd(b, value) if source == F64 else value, target)
    return b.fpext(value, lt.F64) if target == F64 else b.fptrunc(value, lt.F32)


def float_to_int(b: ir.IRBuilder, value: ir.Value, target: Scalar) -> ir.Value:
    """Towards zero, saturating, NaN to 0. `value` is f32 or f64."""
    name = "llvm.fptosi.sat" if target.kind == "int" else "llvm.fptoui.sat"
    result = register_type(target)
    return intrinsic(b, name, result, [value], [result, value.type])


# ---- bitcast ------------------------------------------------------------------------------------------------------


def bitcast(b: ir.IRBuilder, value: ir.Value, source: Type, target: Type) -> ir.Value:
    """The same bits as another scalar or pointer type of the same size."""
    goal = register_type(target)
    if value.type == goal:
        return value
    if isinstance(source, Pointer):
        return b.ptrtoint(value, goal)
    if isinstance(target, Pointer):
        return b.inttoptr(value, goal)
    if not (isinstance(source, Scalar) and isinstance(target, Scalar)):
        raise InternalError(f"bitcast from {source} to {target}")
    if source.bits != target.bits:  # bool and a byte
        return resize(b, value, source, target)
    return b.bitcast(value, goal)
