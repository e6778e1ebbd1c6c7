"""Algebraic identities of `Apply`, one small rule per function, each exact for every argument.

For floats that means also for NaN, infinities and negative zero: `x * 1.0` is `x`, but `x + 0.0` is not when x is -0.0.
A rule gets the maker (constants, definitions, new operations) and the arguments, and gives the value that serves
instead, or None. Not a pass: `simplify` uses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from ..analysis.fold import Number
from ..ir.ops import Apply, Op, Undef, Value
from ..ir.types import BOOL, F32, F64, Pointer, Scalar, Type


class Maker(Protocol):
    def constant_of(self, value: Value) -> Number | None: ...
    def definition_of(self, value: Value) -> Op | None: ...
    def constant(self, value: Number, type: Type) -> Value: ...
    def apply(self, fn: str, *args: Value, type: Type | None = None) -> Value: ...


Rule = Callable[..., Value | None]
_MOST_PARTS = 128  # of a conjunction, that are looked at


def simpler(make: Maker, op: Apply, args: tuple[Value, ...]) -> Value | None:
    if op.fn == "convert" or op.fn == "bitcast":
        return _CONVERSIONS[op.fn](make, args[0], op.result.type)
    rule = _RULES.get(op.fn)
    return rule(make, *args) if rule is not None else None


def _is(make: Maker, value: Value, number: Number) -> bool:
    """Whether the value is that constant; the sign of zero counts."""
    constant = make.constant_of(value)
    return constant is not None and constant == number and math.copysign(1, constant) == math.copysign(1, number)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


def _is_bool(value: Value) -> bool:
    return value.type == BOOL


def _all_ones(value: Value) -> Number:
    assert isinstance(value.type, Scalar)
    if value.type.kind == "bool":
        return True
    return -1 if value.type.kind == "int" else (1 << value.type.bits) - 1


def _as_apply(make: Maker, value: Value, fn: str) -> Apply | None:
    op = make.definition_of(value)
    return op if isinstance(op, Apply) and op.fn == fn else None


# ---- arithmetic


def _add(make: Maker, a: Value, b: Value) -> Value | None:
    zero = -0.0 if _is_float(a) else 0
    if _is(make, b, zero):
        return a
    if _is(make, a, zero):
        return b
    for x, y in ((a, b), (b, a)):
        if (back := _moved_back(make, x, make.constant_of(y))) is not None:
            return back
    return None


def _sub(make: Maker, a: Value, b: Value) -> Value | None:
    if a is b and not _is_float(a):
        return make.constant(0, a.type)
    if _is(make, b, 0):
        return a
    by = make.constant_of(b)
    return None if by is None else _moved_back(make, a, -by)


def _moved_back(make: Maker, value: Value, by: Number | None) -> Value | None:
    """Of `x - 2 + 2`, where integers wrap: x."""
    op = make.definition_of(value)
    if by is None or _is_float(value) or not isinstance(op, Apply) or op.fn not in ("add", "sub"):
        return None
    pairs = (op.args,) if op.fn == "sub" else (op.args, op.args[::-1])
    sign = -1 if op.fn == "sub" else 1
    bits = value.type.bits if isinstance(value.type, Scalar) else 0
    for x, y in pairs:
        moved = make.constant_of(y)
        if moved is not None and (sign * int(moved) + int(by)) % (1 << bits) == 0:
            return x
    return None


def _mul(make: Maker, a: Value, b: Value) -> Value | None:
    for x, y in ((a, b), (b, a)):
        if _is(make, y, 1):
            return x
        if _is(make, y, 0) and not _is_float(x):
            return y
    return None


def _div(make: Maker, a: Value, b: Value) -> Value | None:
    return a if _is(make, b, 1) else None


def _rem(make: Maker, a: Value, b: Value) -> Value | None:
    return make.constant(0, a.type) if _is(make, b, 1) else None


def _neg(make: Maker, a: Value) -> Value | None:
    inner = _as_apply(make, a, "neg")
    return inner.args[0] if inner else None


def _min_max(make: Maker, a: Value, b: Value) -> Value | None:
    return a if a is b else None


def _shift(make: Maker, a: Value, amount: Value) -> Value | None:
    return a if _is(make, amount, 0) else None


# ---- logic


def _and(make: Maker, a: Value, b: Value) -> Value | None:
    if a is b:
        return a
    for x, y in ((a, b), (b, a)):
        if _is(make, y, _all_ones(y)):
            return x
        if _is(make, y, 0):
            return y
    return a if _parts(make, b) <= _parts(make, a) else None


def _parts(make: Maker, value: Value) -> set[Value]:
    """What it is the conjunction of."""
    found: set[Value] = set()
    pending = [value]
    while pending and len(found) < _MOST_PARTS:
        part = pending.pop()
        op = _as_apply(make, part, "and")
        found.add(part)
        pending += () if op is None else op.args
    return found


def _or(make: Maker, a: Value, b: Value) -> Value | None:
    if a is b:
        return a
    for x, y in ((a, b), (b, a)):
        if _is(make, y, _all_ones(y)):
            return y
        if _is(make, y, 0):
            return x
    return None


def _xor(make: Maker, a: Value, b: Value) -> Value | None:
    for x, y in ((a, b), (b, a)):
        if _is(make, y, 0):
            return x
        if _is(make, y, _all_ones(y)):
            return make.apply("not", x)
    return None


_OPPOSITE = {"eq": "ne", "ne": "eq"}
_OPPOSITE_ORDER = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}  # not for floats: NaN


def _not(make: Maker, a: Value) -> Value | None:
    inner = make.definition_of(a)
    if not isinstance(inner, Apply):
        return None
    if inner.fn == "not":
        return inner.args[0]
    opposite = _OPPOSITE.get(inner.fn)
    if opposite is None and inner.fn in _OPPOSITE_ORDER and not _is_float(inner.args[0]):
        opposite = _OPPOSITE_ORDER[inner.fn]
    return make.apply(opposite, *inner.args) if opposite else None


def _equal(make: Maker, a: Value, b: Value) -> Value | None:
    if a is b and not _is_float(a):
        return make.constant(True, BOOL)
    return _truth(make, a, b, equal=True)


def _unequal(make: Maker, a: Value, b: Value) -> Value | None:
    if a is b and not _is_float(a):
        return make.constant(False, BOOL)
    return _truth(make, a, b, equal=False)


def _truth(make: Maker, a: Value, b: Value, equal: bool) -> Value | None:
    """A bool, or one converted to a number, compared with 0, false or true."""
    for x, y in ((a, b), (b, a)):
        inner = _as_apply(make, x, "convert")
        if inner is not None and _is_bool(inner.args[0]):
            x = inner.args[0]
        number = make.constant_of(y)
        if _is_bool(x) and number is not None and number in (0, 1):
            return x if bool(number) == equal else make.apply("not", x)
    return None


def _reflexive(result: bool) -> Rule:
    def rule(make: Maker, a: Value, b: Value) -> Value | None:
        return make.constant(result, BOOL) if a is b and not _is_float(a) else None

    return rule


def _select(make: Maker, cond: Value, a: Value, b: Value) -> Value | None:
    known = make.constant_of(cond)
    if known is not None:
        return a if known else b
    if a is b or isinstance(make.definition_of(b), Undef):
        return a
    if isinstance(make.definition_of(a), Undef):
        return b
    inverted = _as_apply(make, cond, "not")
    if inverted is not None:
        return make.apply("select", inverted.args[0], b, a)
    return _select_bool(make, cond, a, b) if _is_bool(a) else _select_narrow(make, cond, a, b)


def _select_narrow(make: Maker, cond: Value, a: Value, b: Value) -> Value | None:
    """`c ? (double)x : 0.0` is `(double)(c ? x : 0.0f)`."""
    if a.type != F64:
        return None
    narrow = []
    for side in (a, b):
        made, number = _as_apply(make, side, "convert"), make.constant_of(side)
        if made is not None and made.args[0].type == F32:
            narrow.append(made.args[0])
        elif number == 0:
            narrow.append(make.constant(number, F32))
        else:
            return None
    return make.apply("convert", make.apply("select", cond, *narrow), type=F64)


def _select_bool(make: Maker, cond: Value, a: Value, b: Value) -> Value | None:
    """`c ? true : b` is `c || b`, and so on: both sides are computed already."""
    if _is(make, a, True):
        return make.apply("or", cond, b)
    if _is(make, b, False):
        return make.apply("and", cond, a)
    if _is(make, a, False):
        return make.apply("and", make.apply("not", cond), b)
    if _is(make, b, True):
        return make.apply("or", make.apply("not", cond), a)
    if cond is a or cond is b:
        return make.apply("or" if cond is a else "and", a, b)
    return None


def _masked(make: Maker, value: Value, guard: Value) -> Value | None:
    number = make.constant_of(guard)
    if number is not None:
        return value if number != 0 else make.constant(0.0, value.type)
    wide = _as_apply(make, value, "convert") if value.type == F64 else None
    if wide is not None and wide.args[0].type == F32:
        return make.apply("convert", make.apply("masked", wide.args[0], guard), type=F64)
    inner = _as_apply(make, value, "masked")
    return value if value is guard or (inner is not None and inner.args[1] is guard) else None


# ---- conversion


def _convert(make: Maker, value: Value, target: Type) -> Value | None:
    if value.type == target:
        return value
    inner = _as_apply(make, value, "convert")
    if inner is None:
        return None
    source, middle = inner.args[0].type, value.type
    assert isinstance(source, Scalar) and isinstance(middle, Scalar) and isinstance(target, Scalar)
    if _lossless(source, middle) or _truncates(source, middle, target):
        return make.apply("convert", inner.args[0], type=target)
    return None


def _lossless(source: Scalar, target: Scalar) -> bool:
    """Whether every value of one type is one of the other."""
    if source.kind == "float" or target.kind == "float":
        return source.kind == target.kind and source.bits < target.bits
    if source.kind == "bool":
        return True
    if target.kind == "bool":
        return False
    return source.bits < target.bits and (source.kind == "uint" or target.kind == "int")


def _truncates(source: Scalar, middle: Scalar, target: Scalar) -> bool:
    """Integers all the way, and the last step keeps only bits that the first one kept."""
    integers = all(t.kind in ("int", "uint") for t in (source, middle, target))
    return integers and target.bits <= middle.bits


def _bitcast(make: Maker, value: Value, target: Type) -> Value | None:
    if value.type == target:
        return value
    inner = _as_apply(make, value, "bitcast")
    return make.apply("bitcast", inner.args[0], type=target) if inner is not None else None


_CONVERSIONS: dict[str, Callable[[Maker, Value, Type], Value | None]] = {"convert": _convert, "bitcast": _bitcast}

_RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "add_rn"), _add),
    **dict.fromkeys(("sub", "sub_rn"), _sub),
    **dict.fromkeys(("mul", "mul_rn"), _mul),
    "div": _div,
    "rem": _rem,
    "neg": _neg,
    "min": _min_max,
    "max": _min_max,
    "shl": _shift,
    "shr": _shift,
    "and": _and,
    "or": _or,
    "xor": _xor,
    "not": _not,
    "eq": _equal,
    "ne": _unequal,
    "le": _reflexive(True),
    "ge": _reflexive(True),
    "lt": _reflexive(False),
    "gt": _reflexive(False),
    "select": _select,
    "masked": _masked,
}

_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
_CHEAP = frozenset("add sub mul neg min max and or xor not shl shr select convert".split())


def is_cheap(op: Apply) -> bool:
    """Integer work that is as well done on an untaken path: it cannot trap and has no derivative."""
    if op.fn in _COMPARISONS:
        return True
    return op.fn in _CHEAP and all(_is_integer(v.type) for v in (*op.args, op.result))


def _is_integer(type: Type) -> bool:
    return not isinstance(type, Pointer) and isinstance(type, Scalar) and not type.is_float
