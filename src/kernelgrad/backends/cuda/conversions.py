"""Constants as C++ literals that give exactly the same bits, and initialisers from bytes; conversions between types: by
value, by rounding mode, by bit pattern."""

from __future__ import annotations

import math
import struct as binary
from dataclasses import replace

import numpy as np

from ...errors import InternalError
from ...ir.ops import Apply
from ...ir.types import BF16, BOOL, F16, F32, F64, I16, I32, I64, U16, U32, U64, Array, Pointer, Scalar, Struct, Type
from .names import qualified
from .syntax import Expr, Prec, call, cast, infix, prefix
from .types import Types

_SUFFIX = {I32: "", U32: "u", I64: "LL", U64: "ULL"}
_INFINITY = {F32: "__int_as_float(0x7f800000)", F64: "__longlong_as_double(0x7ff0000000000000LL)"}
_NAN = {F32: "__int_as_float(0x7fffffff)", F64: "__longlong_as_double(0x7fffffffffffffffLL)"}
_RAW = {F16: "__half_raw", BF16: "__nv_bfloat16_raw"}


def literal(value: int | float | bool, type: Type, types: Types) -> Expr:
    match type:
        case Pointer():
            return Expr("nullptr", type) if value == 0 else cast(types.spell(type), _integer(int(value), U64), type)
        case Scalar(kind="float"):
            return _float(float(value), type, types)
        case Scalar(kind="bool"):
            return Expr("true" if value else "false", type)
        case Scalar() if type.bits < 32:
            return cast(types.spell(type), _integer(_wrapped(int(value), type), I32), type)
        case Scalar():
            return _integer(_wrapped(int(value), type), type)
    raise InternalError(f"no literal of type {type}")


def zero(type: Type, types: Types) -> Expr:
    if isinstance(type, Struct | Array):
        return Expr(f"{types.spell(type)}{{}}", type)
    return literal(0, type, types)


def _wrapped(value: int, type: Scalar) -> int:
    value &= (1 << type.bits) - 1
    return value - (1 << type.bits) if type.kind == "int" and value >> (type.bits - 1) else value


def _integer(value: int, type: Scalar) -> Expr:
    """With a suffix; `uncast` is the plain literal, which C++ converts by itself beside a wider operand."""
    found = _suffixed(value, type)
    fits = type != I32 and -(1 << 31) < value < 1 << 16
    return replace(found, uncast=_suffixed(value, I32)) if fits else found


def _suffixed(value: int, type: Scalar) -> Expr:
    suffix = _SUFFIX[type]
    if type.kind == "int" and value == -(1 << (type.bits - 1)):
        return Expr(f"-{-(value + 1)}{suffix} - 1", type, Prec.SUM)
    if type.kind == "uint" and value >= 1 << 16:
        return Expr(f"0x{value:x}{suffix}", type)  # masks and magic numbers read better so
    if value >= 0:
        return Expr(f"{value}{suffix}", type)
    return Expr(f"{value}{suffix}", type, Prec.UNARY, negative=_integer(-value, type))


def _float(value: float, type: Scalar, types: Types) -> Expr:
    if type.bits == 16:
        return cast(types.spell(type), _float(value, F32, types), type)
    if not math.isfinite(value) or (type == F32 and not np.isfinite(_single(value))):
        return _special(value, type)
    text = str(_single(value)) if type == F32 else repr(value)
    if not any(c in text for c in ".e"):
        text += ".0"
    negative = math.copysign(1.0, value) < 0
    text += "f" if type == F32 else ""
    if not negative or value == 0:
        return Expr(text, type, Prec.UNARY if negative else Prec.POSTFIX)
    return Expr(text, type, Prec.UNARY, negative=Expr(text[1:], type))


def _single(value: float) -> np.float32:
    with np.errstate(over="ignore", under="ignore"):
        return np.float32(value)


def _special(value: float, type: Scalar) -> Expr:
    """Infinities and NaNs have no literal that needs no header; their bit patterns do."""
    if math.isnan(value):
        return Expr(_NAN[type], type)
    infinity = Expr(_INFINITY[type], type)
    return prefix("-", infinity, type) if value < 0 else infinity


# ---- initialisers --------------------------------------------------------------------------------------------------

_FORMATS = {
    "bool": "?", "i8": "b", "u8": "B", "i16": "<h", "u16": "<H", "i32": "<i", "u32": "<I", "i64": "<q", "u64": "<Q",
    "f32": "<f", "f64": "<d",
}  # fmt: skip


def initialiser(data: bytes, type: Type, types: Types) -> str:
    """A variable's initial bytes as what stands after its `=`."""
    match type:
        case Array(element, count):
            parts = [data[k * element.size : (k + 1) * element.size] for k in range(count)]
            return "{" + ", ".join(initialiser(part, element, types) for part in parts) + "}"
        case Struct():
            ends = [(f.offset, f.offset + f.type.size, f.type) for f in type.fields]
            # The first member of overlapping ones carries the bytes of a union.
            first = [e for k, e in enumerate(ends) if all(e[0] >= other[1] for other in ends[:k])]
            return "{" + ", ".join(initialiser(data[a:b], t, types) for a, b, t in first) + "}"
        case Pointer():
            if any(data):
                raise InternalError("a variable's initial value holds an address")
            return "nullptr"
        case Scalar() if type in _RAW:
            return f"{_RAW[type]}{{0x{int.from_bytes(data, 'little'):04x}}}"
    (value,) = binary.unpack(_FORMATS[type.name], data)
    constant = literal(value, type, types)
    return (constant.uncast or constant).text if type != BOOL else constant.text


# ---- conversions ----------------------------------------------------------------------------------------------------


_SHORT = {F16: "half", BF16: "bfloat16", F32: "float", F64: "double", I32: "int", U32: "uint", I64: "ll", U64: "ull"}
_SHORT |= {I16: "short", U16: "ushort"}
_UNSIGNED: dict[Type, str] = {U32: "u", U64: "ULL"}  # unsigned integers wrap: adding one is subtracting its opposite
# Every int is a double: no rounding mode has anything to do, and CUDA has no function for most of them.
_EXACT = {(I32, F64), (U32, F64), (F32, F64), (F16, F32), (BF16, F32), (F16, F64), (BF16, F64)}

_BITCASTS: dict[tuple[Type, Type], str] = {
    (F32, I32): "__float_as_int",
    (I32, F32): "__int_as_float",
    (F32, U32): "__float_as_uint",
    (U32, F32): "__uint_as_float",
    (F64, I64): "__double_as_longlong",
    (I64, F64): "__longlong_as_double",
    (F16, U16): "__half_as_ushort",
    (U16, F16): "__ushort_as_half",
    (F16, I16): "__half_as_short",
    (I16, F16): "__short_as_half",
    (BF16, U16): "__bfloat16_as_ushort",
    (U16, BF16): "__ushort_as_bfloat16",
    (BF16, I16): "__bfloat16_as_short",
    (I16, BF16): "__short_as_bfloat16",
}


def convert(value: Expr, type: Type, types: Types) -> Expr:
    """`(type)value`, and what C++ needs instead where a plain cast means something else."""
    source = value.type
    if source == type:
        return value
    if type == BOOL:
        zero = "nullptr" if isinstance(source, Pointer) else _zero(source)
        return infix("!=", value, Expr(zero, source), BOOL)
    if {source, type} == {F16, BF16}:
        value = cast(types.spell(F32), value, F32)
    found = cast(types.spell(type), value, type)
    small = value.negative is not None and value.negative.text.removesuffix("LL").isdigit()
    if not small or type not in _UNSIGNED:
        return found
    assert value.negative is not None
    return replace(found, negative=Expr(value.negative.text.removesuffix("LL") + _UNSIGNED[type], type))


def _zero(type: Type) -> str:
    if not isinstance(type, Scalar):
        raise InternalError(f"no truth value of {type}")
    return {F32: "0.0f", F64: "0.0", F16: "(__half)0.0f", BF16: "(__nv_bfloat16)0.0f"}.get(type, "0")


def convert_rounded(value: Expr, type: Type, mode: str, types: Types) -> Expr:
    source = value.type
    if not isinstance(source, Scalar) or not isinstance(type, Scalar) or source not in _SHORT or type not in _SHORT:
        raise InternalError(f"no conversion with a rounding mode from {source} to {type}")
    if (source, type) in _EXACT:
        return convert(value, type, types)
    return call(f"__{_SHORT[source]}2{_SHORT[type]}_{mode}", [value], type)


def bitcast(value: Expr, type: Type, types: Types) -> Expr:
    source = value.type
    if source == type:
        return value
    named = _BITCASTS.get((source, type))
    if named is not None:
        return call(named, [value], type)
    if (source, type) == (F64, U64):
        return cast(types.spell(U64), call("__double_as_longlong", [value], I64), U64)
    if (source, type) == (U64, F64):
        return call("__longlong_as_double", [cast(types.spell(I64), value, I64)], F64)
    integral = all(isinstance(t, Pointer) or (isinstance(t, Scalar) and not t.is_float) for t in (source, type))
    if integral:
        return cast(types.spell(type), value, type)
    return call(qualified(f"bit_cast<{types.spell(type)}>"), [value], type)


def needs_bit_cast(source: Type, type: Type) -> bool:
    """Whether `bitcast` uses the helper of that name."""
    return "bit_cast<" in bitcast(Expr("", source), type, Types({})).text if _plain(source, type) else source != type


def _plain(*types: Type) -> bool:
    return all(isinstance(t, Scalar | Pointer) for t in types)


def is_free(op: Apply) -> bool:
    """A conversion between integers: written at every use."""
    types = (op.args[0].type, op.result.type)
    return op.fn == "convert" and all(isinstance(t, Scalar) and t.kind in ("int", "uint") for t in types)
