"""IR types in LLVM: as values in registers, and how values lie in memory.

A bool is i1 in a register and a byte in memory; bf16 is an i16 that holds its bits in both (LLVM's own bfloat needs
library calls on most machines). A union's value is its bytes, since its fields overlap.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir

from ...ir.types import BF16, Array, Pointer, Scalar, Struct, Type

PTR = ir.PointerType()
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()

_FLOATS: dict[int, ir.Type] = {16: ir.HalfType(), 32: F32, 64: F64}


def register_type(type: Type) -> ir.Type:
    match type:
        case Scalar():
            return _scalar(type)
        case Pointer():
            return PTR
        case Array(element, count):
            return ir.ArrayType(register_type(element), count)
        case Struct() if type.is_union:
            return ir.ArrayType(I8, type.size)
        case Struct():
            return ir.LiteralStructType([register_type(field.type) for field in type.fields])


@cache
def _scalar(type: Scalar) -> ir.Type:
    if type.is_float and type != BF16:
        return _FLOATS[type.bits]
    return ir.IntType(type.bits)


def memory_type(type: Scalar | Pointer) -> ir.Type:
    return I8 if isinstance(type, Scalar) and type.kind == "bool" else register_type(type)


def zero(type: Type) -> ir.Constant:
    return ir.Constant(register_type(type), None)


def i32(value: int) -> ir.Constant:
    return ir.Constant(I32, value)


def i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def byte_offset(b: ir.IRBuilder, ptr: ir.Value, offset: int | ir.Value) -> ir.Value:
    """`ptr` plus a number of bytes."""
    if isinstance(offset, int):
        if offset == 0:
            return ptr
        offset = i64(offset)
    return b.gep(ptr, [offset], inbounds=True, source_etype=I8)


def intrinsic(b: ir.IRBuilder, name: str, result: ir.Type, args: list[Any], overload: list[ir.Type]) -> ir.Value:
    """Call an LLVM intrinsic; `overload` are the types that its mangled name carries."""
    function_type = ir.FunctionType(result, [a.type for a in args])
    return b.call(b.module.declare_intrinsic(name, overload, function_type), args)
