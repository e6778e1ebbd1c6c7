"""Atomic operations: CUDA has each for some types only; others go through integers of the same size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InternalError
from ...ir.ops import Alloca, Apply, Atomic, Function, Value
from ...ir.traverse import kinds, uses, walk
from ...ir.types import BF16, F16, F32, F64, I32, I64, U16, U32, U64, Pointer, Scalar, Type
from .conversions import bitcast
from .expressions import Expressions
from .names import qualified
from .syntax import Expr, Prec, call

if TYPE_CHECKING:
    from .neighbours import Neighbours

_INTS = frozenset((I32, U32, U64))
_FUNCTIONS: dict[str, tuple[str, frozenset[Scalar]]] = {
    "add": ("atomicAdd", _INTS | {F16, BF16, F32, F64}),
    "sub": ("atomicSub", frozenset((I32, U32))),
    "exch": ("atomicExch", _INTS | {F32}),
    "min": ("atomicMin", _INTS | {I64}),
    "max": ("atomicMax", _INTS | {I64}),
    "inc": ("atomicInc", frozenset((U32,))),
    "dec": ("atomicDec", frozenset((U32,))),
    "and": ("atomicAnd", _INTS),
    "or": ("atomicOr", _INTS),
    "xor": ("atomicXor", _INTS),
    "cas": ("atomicCAS", _INTS | {U16}),
}
_SCOPES = {"block": "_block", "device": "", "system": "_system"}
# On these, the operation does the same to any type of the same size.
_ON_BITS = frozenset(("exch", "cas"))
_BITS = {16: U16, 32: U32, 64: U64}


def to_any_memory(function: Function) -> frozenset[Atomic]:
    """Updates of a gradient whose pointer may lead to an array of the thread's own. There are no atomics on those, and
    in all threads they have the same addresses."""
    if not kinds(function.body).issuperset((Alloca, Atomic)):
        return frozenset()
    used = uses(function.body)
    return frozenset(
        op for op in walk(function.body) if isinstance(op, Atomic) and _is_update(op, used) and _is_anywhere(op)
    )


def _is_anywhere(op: Atomic) -> bool:
    return isinstance(op.ptr.type, Pointer) and op.ptr.type.space == "generic"


def _is_update(op: Atomic, used: dict[Value, int]) -> bool:
    adds = op.kind == "add" and not used.get(op.result)
    return op.result.type in (F32, F64) and (adds or op.kind == "take")


def atomic(op: Atomic, expressions: Expressions) -> Expr:
    type = op.result.type
    args = expressions.values(op.args)
    if op in expressions.anywhere:
        given = [_address(op, expressions), *(args if op.kind == "add" else ())]
        return call(qualified(f"{op.kind}_anywhere"), given, type)
    if op.together or op.kind == "take":
        address = _address(op, expressions)
        if op.kind == "take":
            return call(qualified("take"), [address], type)
        return call(qualified("warp_add"), [address, _narrow(op.args[0], expressions)], type)
    function, native = _FUNCTIONS[op.kind]
    function += _SCOPES[op.scope]
    if op.kind == "sub" and type not in native:
        return _subtract_by_adding(op, expressions)
    stand_in = type if type in native else _stand_in(op, type, native)
    address = _address(op, expressions)
    if stand_in == type:
        return call(function, [address, *args], type)
    spelled = expressions.types.spell(Pointer(stand_in))
    address = Expr(f"({spelled}){address.at(Prec.UNARY)}", Pointer(stand_in), Prec.UNARY)
    bits = [bitcast(a, stand_in, expressions.types) for a in args]
    return bitcast(call(function, [address, *bits], stand_in), type, expressions.types)


def _narrow(value: Value, expressions: Expressions) -> Expr:
    """What lanes add up before it is added to a double: the float that it was."""
    op = expressions.folding.definition[value] if value in expressions.folding.inline else None
    if isinstance(op, Apply) and op.fn == "convert" and (op.args[0].type, value.type) == (F32, F64):
        return expressions.value(op.args[0])
    return expressions.value(value)


def atomics(group: Neighbours, expressions: Expressions) -> Expr:
    """Additions to neighbouring elements."""
    values = [expressions.value(op.args[0]) for op in group.adds]
    return call(qualified(group.helper), [_address(group.adds[0], expressions), *values], group.adds[0].result.type)


def _address(op: Atomic, expressions: Expressions) -> Expr:
    place = expressions.target(op.ptr)
    return place.pointer or Expr(f"&{place.at(Prec.UNARY)}", op.ptr.type, Prec.UNARY)


def _stand_in(op: Atomic, type: Type, native: frozenset[Scalar]) -> Scalar:
    """An unsigned integer of the same size, where its operation has the same effect on the bits."""
    bits = type.bits if isinstance(type, Scalar) else 64 if isinstance(type, Pointer) else 0
    integer = isinstance(type, Scalar) and type.kind in ("int", "uint") and op.kind not in ("min", "max")
    found = _BITS.get(bits)
    if found in native and (integer or op.kind in _ON_BITS) and found is not None:
        return found
    raise InternalError(f"CUDA has no atomic {op.kind} on {type} ({op.span})")


def _subtract_by_adding(op: Atomic, expressions: Expressions) -> Expr:
    function = _FUNCTIONS["add"][0] + _SCOPES[op.scope]
    type = op.result.type
    negative = expressions.unary("-", expressions.value(op.args[0]), type)
    address = _address(op, expressions)
    if type not in (I64, U64):
        return call(function, [address, negative], type)
    spelled = expressions.types.spell(Pointer(U64))
    address = Expr(f"({spelled}){address.at(Prec.UNARY)}", Pointer(U64), Prec.UNARY)
    return bitcast(call(function, [address, bitcast(negative, U64, expressions.types)], U64), type, expressions.types)
