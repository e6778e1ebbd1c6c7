"""Conversions between types: by value, by rounding mode, by bit pattern."""

from __future__ import annotations

from dataclasses import replace

from ...errors import InternalError
from ...ir.ops import Apply
from ...ir.types import BF16, BOOL, F16, F32, F64, I16, I32, I64, U16, U32, U64, Pointer, Scalar, Type
from .names import qualified
from .syntax import Expr, call, cast, infix
from .types import Types

_SHORT = {F16: "half", BF16: "bfloat16", F32: "float", F64: "double", I32: "int", U32: "uint", I64: "ll", U64: "ull"}
_SHORT |= {I16: "short", U16: "ushort"}
_SUFFIX: dict[Type, str] = {U32: "u", U64: "ULL"}  # unsigned integers wrap: adding one is subtracting its opposite
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
    if not small or type not in _SUFFIX:
        return found
    assert value.negative is not None
    return replace(found, negative=Expr(value.negative.text.removesuffix("LL") + _SUFFIX[type], type))


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
