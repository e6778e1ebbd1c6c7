"""Evaluates `Apply` on constants, exactly as the device would, or not at all.

Integers wrap around in their own width, division truncates, floats are rounded to their own precision after every
operation. Division by zero, overflowing division and functions whose last bit may differ between devices are left
alone. Not a pass: `simplify` and `promote` use it.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable

import numpy as np

from ..ir.types import F16, F32, F64, Scalar, limits

Number = int | float | bool

_ROUND: dict[Scalar, Callable[[float], float]] = {
    F64: float,
    F32: lambda x: float(np.float32(x)),
    F16: lambda x: float(np.float16(x)),
}
_EXACT_DOUBLE = 1 << 53  # integers up to here go through f64 without rounding


def evaluate(fn: str, args: tuple[Number, ...], types: tuple[Scalar, ...], result: Scalar) -> Number | None:
    """The value of `fn` on constants of the given types, or None where it must be computed on the device."""
    table = _FLOAT if types[0].is_float else _INT
    if fn in _CONVERSIONS:
        return _CONVERSIONS[fn](args[0], types[0], result)
    rule = table.get(fn)
    if rule is None or (types[0].is_float and types[0] not in _ROUND):
        return None
    with np.errstate(all="ignore"):
        try:
            value = rule(*args, types[0]) if fn in _NEEDS_TYPE else rule(*args)
        except OverflowError:
            return None
        return None if value is None else canonical(value, result)


def canonical(value: Number, type: Scalar) -> Number | None:
    """The number as a constant of the type: wrapped or rounded."""
    if type.kind == "bool":
        return bool(value)
    if type.is_float:
        return _ROUND[type](value) if type in _ROUND else None
    return wrap(int(value), type)


def wrap(value: int, type: Scalar) -> int:
    value &= (1 << type.bits) - 1
    return value - (1 << type.bits) if type.kind == "int" and value >> (type.bits - 1) else value


# ---- integers


def _divide(a: int, b: int, type: Scalar) -> int | None:
    if b == 0 or (b == -1 and a == -(1 << (type.bits - 1))):
        return None
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int, type: Scalar) -> int | None:
    quotient = _divide(a, b, type)
    return None if quotient is None else a - quotient * b


def _shift_left(a: int, amount: int, type: Scalar) -> int:
    return 0 if not 0 <= amount < type.bits else a << amount


def _shift_right(a: int, amount: int, type: Scalar) -> int:
    return a >> (amount if 0 <= amount < type.bits else type.bits)


_COMPARE: dict[str, Callable[..., Number | None]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
_INT: dict[str, Callable[..., Number | None]] = {
    **_COMPARE,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "rem": _remainder,
    "neg": operator.neg,
    "abs": abs,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": lambda a, type: not a if type.kind == "bool" else ~a,
    "shl": _shift_left,
    "shr": _shift_right,
}
_NEEDS_TYPE = frozenset(("div", "rem", "not", "shl", "shr"))

# ---- floats: f64 holds every f32 and f16, and rounding its sum, product or quotient again is exact for those


def _divide_floats(a: float, b: float, _: Scalar) -> float | None:
    return None if b == 0 else a / b


def _pick(choose: Callable[[float, float], float]) -> Callable[[float, float], float | None]:
    def pick(a: float, b: float) -> float | None:
        if math.isnan(a) or math.isnan(b):
            return b if math.isnan(a) else a
        return None if a == b == 0 else choose(a, b)  # the sign of min(-0, 0) is open

    return pick


def _integral(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: x if not math.isfinite(x) else math.copysign(float(function(x)), x)


_FLOAT: dict[str, Callable[..., Number | None]] = {
    **_COMPARE,
    **dict.fromkeys(("add", "add_rn"), operator.add),
    **dict.fromkeys(("sub", "sub_rn"), operator.sub),
    **dict.fromkeys(("mul", "mul_rn"), operator.mul),
    "div": _divide_floats,
    "neg": operator.neg,
    "abs": abs,
    "min": _pick(min),
    "max": _pick(max),
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else None,
    "floor": _integral(math.floor),
    "ceil": _integral(math.ceil),
    "trunc": _integral(math.trunc),
    "rint": _integral(round),
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "signbit": lambda x: math.copysign(1.0, x) < 0,
}

# ---- conversions


def _convert(value: Number, source: Scalar, target: Scalar) -> Number | None:
    if target.kind == "bool":
        return value != 0
    if target.is_float:
        return _to_float(value, source, target)
    if not source.is_float:
        return wrap(int(value), target)
    if math.isnan(value):
        return 0
    low, high = limits(target)
    return low if value < low else high if value > high else int(value)


def _to_float(value: Number, source: Scalar, target: Scalar) -> float | None:
    if target not in _ROUND or (target != F64 and not source.is_float and abs(value) > _EXACT_DOUBLE):
        return None
    with np.errstate(all="ignore"):
        return _ROUND[target](float(value))


_CODES = {"i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"}
_CODES |= {"f16": "e", "f32": "f", "f64": "d"}


def _bitcast(value: Number, source: Scalar, target: Scalar) -> Number | None:
    if source.name not in _CODES or target.name not in _CODES or source.size != target.size:
        return None
    if source.is_float and math.isnan(value):
        return None  # its payload is not kept in a Python float
    raw = struct.pack("<" + _CODES[source.name], value)
    (result,) = struct.unpack("<" + _CODES[target.name], raw)
    return None if target.is_float and math.isnan(result) else result


_CONVERSIONS: dict[str, Callable[[Number, Scalar, Scalar], Number | None]] = {"convert": _convert, "bitcast": _bitcast}
