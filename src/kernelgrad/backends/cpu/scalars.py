"""`Apply` in LLVM: arithmetic, comparison and bit operations, one row per function; `elementary`, `rounding` and `bits`
hold the rest, and are imported for who uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from llvmlite import ir

from ...ir.functions import UNFUSED
from ...ir.types import F32, Pointer, Scalar, Type
from . import llvm_types as lt
from .convert import bitcast, convert, is_short_float, narrow, widen
from .llvm_types import intrinsic


@dataclass(frozen=True)
class Application:
    """One use of a pure function. `nowrap`: an unsigned sum or product known to stay below 2**31."""

    b: ir.IRBuilder
    args: tuple[ir.Value, ...]
    types: tuple[Type, ...]
    result: Type
    nowrap: bool = False

    @property
    def scalar(self) -> Scalar:
        """The first operand's type, where it is a number."""
        type = self.types[0]
        assert isinstance(type, Scalar)
        return type


Row = Callable[[Application], ir.Value]


def apply(table: dict[str, Row], fn: str, call: Application) -> ir.Value:
    """16-bit floats go through f32, and are rounded after every function."""
    if fn in _ANY_WIDTH or not any(map(is_short_float, call.types)):
        return table[fn](call)
    short = [is_short_float(t) for t in call.types]
    args = tuple(widen(call.b, a, t) if s else a for a, t, s in zip(call.args, call.types, short, strict=True))
    types = tuple(F32 if s else t for t, s in zip(call.types, short, strict=True))
    wide = replace(call, args=args, types=types, result=F32 if is_short_float(call.result) else call.result)
    result = table[fn](wide)
    return narrow(call.b, result, call.result) if is_short_float(call.result) else result


_ANY_WIDTH = frozenset(
    "select convert bitcast address nextafter convert_rn convert_rd convert_ru convert_rz signbit".split()
)


# ---- arithmetic ---------------------------------------------------------------------------------------------------

_INSTRUCTIONS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    # Products and sums may fuse, as they do on the GPU; nothing else about floats is relaxed.
    "add": {"int": ("add", ("nsw",)), "uint": ("add", ()), "float": ("fadd", ("contract",))},
    "sub": {"int": ("sub", ("nsw",)), "uint": ("sub", ()), "float": ("fsub", ("contract",))},
    "mul": {"int": ("mul", ("nsw",)), "uint": ("mul", ()), "float": ("fmul", ("contract",))},
}


def _arithmetic(fn: str) -> Row:
    by_kind = _INSTRUCTIONS[fn]

    def row(call: Application) -> ir.Value:
        name, flags = by_kind[call.scalar.kind]
        result: ir.Value = getattr(call.b, name)(*call.args, flags=("nuw", "nsw") if call.nowrap else flags)
        return result

    return row


def _unfused(fn: str) -> Row:
    name, _ = _INSTRUCTIONS[fn]["float"]
    return lambda call: getattr(call.b, name)(*call.args)


def _div(call: Application) -> ir.Value:
    b, (x, y), kind = call.b, call.args, call.scalar.kind
    if kind == "float":
        return b.fdiv(x, y)
    # The GPU does not trap where x86 does: x / 0 is all ones there, and the smallest number / -1 wraps.
    zero, ones = ir.Constant(x.type, 0), ir.Constant(x.type, -1)
    by_zero = b.icmp_unsigned("==", y, zero)
    if kind == "uint":
        return b.select(by_zero, ones, b.udiv(x, _guard(b, y, by_zero)))
    by_minus_one = b.icmp_unsigned("==", y, ones)
    quotient = b.sdiv(x, _guard(b, y, b.or_(by_zero, by_minus_one)))
    return b.select(by_zero, ones, b.select(by_minus_one, b.sub(zero, x), quotient))


def _rem(call: Application) -> ir.Value:
    b, (x, y) = call.b, call.args
    zero, ones = ir.Constant(x.type, 0), ir.Constant(x.type, -1)
    by_zero = b.icmp_unsigned("==", y, zero)
    if call.scalar.kind == "uint":
        return b.select(by_zero, x, b.urem(x, _guard(b, y, by_zero)))
    by_minus_one = b.icmp_unsigned("==", y, ones)
    rest = b.srem(x, _guard(b, y, b.or_(by_zero, by_minus_one)))
    return b.select(by_zero, x, rest)


def _guard(b: ir.IRBuilder, divisor: ir.Value, bad: ir.Value) -> ir.Value:
    return b.select(bad, ir.Constant(divisor.type, 1), divisor)


def _neg(call: Application) -> ir.Value:
    b, (x,) = call.b, call.args
    if call.scalar.is_float:
        return b.fneg(x)
    return b.sub(ir.Constant(x.type, 0), x, flags=("nsw",) if call.scalar.kind == "int" else ())


def _abs(call: Application) -> ir.Value:
    (x,) = call.args
    if call.scalar.is_float:
        return intrinsic(call.b, "llvm.fabs", x.type, [x], [x.type])
    if call.scalar.kind == "uint":
        return x
    return intrinsic(call.b, "llvm.abs", x.type, [x, ir.Constant(lt.I1, 0)], [x.type])


_EXTREMA = {
    ("min", "int"): "llvm.smin",
    ("min", "uint"): "llvm.umin",
    ("min", "float"): "llvm.minnum",
    ("max", "int"): "llvm.smax",
    ("max", "uint"): "llvm.umax",
    ("max", "float"): "llvm.maxnum",
}


def _extremum(fn: str) -> Row:
    def row(call: Application) -> ir.Value:
        x, y = call.args
        return intrinsic(call.b, _EXTREMA[fn, call.scalar.kind], x.type, [x, y], [x.type])

    return row


# ---- bits ---------------------------------------------------------------------------------------------------------


def _shl(call: Application) -> ir.Value:
    b, (x, amount) = call.b, call.args
    inside, amount = _shift_amount(call)
    return b.select(inside, b.shl(x, amount), ir.Constant(x.type, 0))


def _shr(call: Application) -> ir.Value:
    b, (x, amount) = call.b, call.args
    inside, amount = _shift_amount(call)
    if call.scalar.kind == "uint":
        return b.select(inside, b.lshr(x, amount), ir.Constant(x.type, 0))
    return b.ashr(x, b.select(inside, amount, ir.Constant(x.type, call.scalar.bits - 1)))


def _shift_amount(call: Application) -> tuple[ir.Value, ir.Value]:
    """Whether the amount is below the width, and the amount in the operand's type (0 where it is not below)."""
    b, (x, amount) = call.b, call.args
    type = call.types[1]
    assert isinstance(type, Scalar)
    inside = b.icmp_unsigned("<", amount, ir.Constant(amount.type, call.scalar.bits))
    fitted = amount
    if type.bits != call.scalar.bits:
        fitted = (b.zext if type.bits < call.scalar.bits else b.trunc)(amount, x.type)
    return inside, b.select(inside, fitted, ir.Constant(x.type, 0))


# ---- comparison ---------------------------------------------------------------------------------------------------

_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _compare(fn: str) -> Row:
    sign = _COMPARE[fn]

    def row(call: Application) -> ir.Value:
        b, (x, y), type = call.b, call.args, call.types[0]
        if isinstance(type, Pointer) or (isinstance(type, Scalar) and type.kind in ("uint", "bool")):
            return b.icmp_unsigned(sign, x, y)
        assert isinstance(type, Scalar)
        if type.kind == "int":
            return b.icmp_signed(sign, x, y)
        return b.fcmp_unordered(sign, x, y) if fn == "ne" else b.fcmp_ordered(sign, x, y)

    return row


def _masked(call: Application) -> ir.Value:
    value, guard = call.args
    some = call.b.fcmp_unordered("!=", guard, ir.Constant(guard.type, 0.0))
    return call.b.select(some, value, ir.Constant(value.type, 0.0))


ROWS: dict[str, Row] = {
    **{fn: _arithmetic(fn) for fn in _INSTRUCTIONS},
    **{unfused: _unfused(fn) for fn, unfused in UNFUSED.items()},
    "div": _div,
    "rem": _rem,
    "neg": _neg,
    "abs": _abs,
    "min": _extremum("min"),
    "max": _extremum("max"),
    "and": lambda c: c.b.and_(*c.args),
    "or": lambda c: c.b.or_(*c.args),
    "xor": lambda c: c.b.xor(*c.args),
    "not": lambda c: c.b.not_(*c.args),
    "shl": _shl,
    "shr": _shr,
    **{fn: _compare(fn) for fn in _COMPARE},
    "select": lambda c: c.b.select(*c.args),
    "masked": _masked,
    "convert": lambda c: convert(c.b, c.args[0], c.types[0], c.result),
    "bitcast": lambda c: bitcast(c.b, c.args[0], c.types[0], c.result),
    "address": lambda c: c.b.ptrtoint(c.args[0], lt.register_type(c.result)),
}


class _Table(dict[str, Row]):
    """Every pure function's row."""

    def __missing__(self, fn: str) -> Row:
        from . import bits, elementary, rounding

        rows = {**elementary.ROWS, **rounding.ROWS, **bits.ROWS}
        self.update(rows)
        return rows[fn]


TABLE = _Table(ROWS)
