"""Arithmetic and conversions with a rounding direction, without touching the processor's rounding mode.

The nearest result is computed first, then its error exactly (or at least the error's sign), and the result moves by
one step where the direction asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from ...ir.types import F32, F64, Scalar
from . import llvm_types as lt
from .convert import convert, float_to_int, is_short_float, widen
from .expr import Real
from .llvm_types import intrinsic, register_type
from .scalars import Application, Row

_DIRECTIONS = ("d", "u", "z")


# ---- steps ----------------------------------------------------------------------------------------------------------


def next_toward(b: ir.IRBuilder, value: ir.Value, up: ir.Value, bits: int) -> ir.Value:
    """The bits of the neighbouring float above (or below), for the bits of a float of any width; NaN stays."""
    type = ir.IntType(bits)
    zero, one = ir.Constant(type, 0), ir.Constant(type, 1)
    sign = ir.Constant(type, 1 << (bits - 1))
    negative = b.icmp_signed("<", value, zero)
    away = b.icmp_unsigned("!=", up, negative)  # from zero: the bit pattern grows
    moved = b.select(away, b.add(value, one), b.sub(value, one))
    is_zero = b.icmp_unsigned("==", b.shl(value, one), zero)
    return b.select(is_zero, b.select(up, one, b.or_(sign, one)), moved)


def _step(x: Real, up: bool) -> Real:
    """The neighbour, or infinity itself where there is none."""
    bits = {lt.F32: 32, lt.F64: 64}[x.type]
    pattern = x.b.bitcast(x.value, ir.IntType(bits))
    moved = x.of(x.b.bitcast(next_toward(x.b, pattern, ir.Constant(lt.I1, up), bits), x.type))
    end = float("inf") if up else float("-inf")
    return x.select(x.equals(end), moved)


def _directed(near: Real, error: Real, direction: str, finite_inputs: ir.Value) -> Real:
    """`near` moved in the direction, where `error` = exact - near says that it rounded the other way.

    A sum that overflowed has no usable error: with finite inputs, infinity is beyond the exact result."""
    b = near.b
    overflow = b.and_(finite_inputs, abs(near).equals(float("inf")))
    too_high = b.or_(error < 0.0, b.and_(overflow, near > 0.0))
    too_low = b.or_(error > 0.0, b.and_(overflow, near < 0.0))
    if direction == "z":
        too_high, too_low = b.and_(too_high, near > 0.0), b.and_(too_low, near < 0.0)
    result = near
    if direction in "dz":
        result = _step(near, up=False).select(too_high, result)
    if direction in "uz":
        result = _step(near, up=True).select(too_low, result)
    return result


# ---- arithmetic: the nearest result, and a number with the sign of its error ----------------------------------------

Approximation = tuple[Real, Real]


def _add(x: Real, y: Real) -> Approximation:
    """Knuth's exact error of a sum."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _mul(x: Real, y: Real) -> Approximation:
    product = x * y
    return product, x.fma(y, -product)


def _div(x: Real, y: Real) -> Approximation:
    quotient = x / y
    rest = (-quotient).fma(y, x)
    return quotient, rest.select(y > 0.0, -rest)


def _sqrt(x: Real) -> Approximation:
    root = x.sqrt()
    return root, (-root).fma(root, x)


def _fma(x: Real, y: Real, z: Real) -> Approximation:
    """Boldo and Muller's error of a fused multiply-add; only its sign is needed, so the last sum may round."""
    result = x.fma(y, z)
    product, product_rest = _mul(x, y)
    low, low_rest = _add(z, product_rest)
    high, high_rest = _add(product, low)
    return result, ((high - result) + high_rest) + low_rest


_OPERATIONS: dict[str, Callable[..., Approximation]] = {
    "add": _add,
    "sub": lambda x, y: _add(x, -y),
    "mul": _mul,
    "div": _div,
    "sqrt": _sqrt,
    "rcp": lambda x: _div(x.lift(1.0), x),
    "fma": _fma,
}


def _arithmetic(operation: Callable[..., Approximation], direction: str, divides: bool) -> Row:
    def row(call: Application) -> ir.Value:
        b, args = call.b, [Real(call.b, a) for a in call.args]
        near, error = operation(*args)
        finite: ir.Value = ir.Constant(lt.I1, 1)
        for arg in args:
            finite = b.and_(finite, arg.is_finite())
        if divides:  # x / 0 is infinite by itself
            finite = b.and_(finite, b.not_(args[-1].equals(0.0)))
        return _directed(near, error, direction, finite).value

    return row


# ---- conversions ----------------------------------------------------------------------------------------------------

_TO_WHOLE = {"n": "llvm.rint", "d": "llvm.floor", "u": "llvm.ceil", "z": "llvm.trunc"}


def _convert(direction: str) -> Row:
    def row(call: Application) -> ir.Value:
        b, source, target = call.b, call.scalar, call.result
        assert isinstance(target, Scalar)
        (value,) = call.args
        if is_short_float(source):
            value, source = widen(b, value, source), F32
        if source.is_float and not target.is_float:
            whole = intrinsic(b, _TO_WHOLE[direction], value.type, [value], [value.type])
            return float_to_int(b, whole, target)
        if direction == "n" or (source.is_float and target.bits >= source.bits):
            return convert(b, value, source, target)
        if source.is_float:
            return _narrowed(b, value, source, target, direction)
        return _from_integer(b, value, source, target, direction)

    return row


def _narrowed(b: ir.IRBuilder, value: ir.Value, source: Scalar, target: Scalar, direction: str) -> ir.Value:
    """To a narrower float: compare the nearest one with what it came from."""
    near = convert(b, value, source, target)
    back = Real(b, convert(b, near, target, source))
    exact = Real(b, value)
    too_high, too_low = back > exact, back < exact
    if direction == "z":
        too_high, too_low = b.and_(too_high, exact > 0.0), b.and_(too_low, exact < 0.0)
    # One step inwards from an infinity that stands for "too large" is the largest number, as it should be.
    return _moved(b, near, target, direction, too_high, too_low)


def _moved(
    b: ir.IRBuilder, near: ir.Value, target: Scalar, direction: str, too_high: ir.Value, too_low: ir.Value
) -> ir.Value:
    pattern = b.bitcast(near, ir.IntType(target.bits))
    down, up = (next_toward(b, pattern, ir.Constant(lt.I1, upward), target.bits) for upward in (False, True))
    if direction in "dz":
        pattern = b.select(too_high, down, pattern)
    if direction in "uz":
        pattern = b.select(too_low, up, pattern)
    return b.bitcast(pattern, register_type(target))


def _from_integer(b: ir.IRBuilder, value: ir.Value, source: Scalar, target: Scalar, direction: str) -> ir.Value:
    """An integer as a float. Back as an integer, the nearest float compares exactly; only at the very top, where it
    is one more than the largest integer, converting back saturates, and there it is too high for sure."""
    near = convert(b, value, source, target)
    wide = Real(b, convert(b, near, target, F64))
    back = float_to_int(b, wide.value, source)
    compare = b.icmp_signed if source.kind == "int" else b.icmp_unsigned
    top = 2.0 ** (source.bits - (source.kind == "int"))
    beyond = b.not_(wide < top)
    too_high = b.or_(beyond, compare(">", back, value))
    too_low = b.and_(b.not_(beyond), compare("<", back, value))
    if direction == "z":
        zero = ir.Constant(value.type, 0)
        too_high, too_low = b.and_(too_high, compare(">", value, zero)), b.and_(too_low, compare("<", value, zero))
    return _moved(b, near, target, direction, too_high, too_low)


# ---- nextafter ------------------------------------------------------------------------------------------------------


def _nextafter(call: Application) -> ir.Value:
    b, type = call.b, call.scalar
    x, y = (Real(b, widen(b, a, type) if is_short_float(type) else a) for a in call.args)
    pattern = b.bitcast(call.args[0], ir.IntType(type.bits))
    moved = next_toward(b, pattern, x < y, type.bits)
    result = b.select(x.equals(y), b.bitcast(call.args[1], pattern.type), moved)
    unordered = b.or_(x.is_nan(), y.is_nan())
    nan = b.select(x.is_nan(), pattern, b.bitcast(call.args[1], pattern.type))
    return b.bitcast(b.select(unordered, nan, result), register_type(type))


ROWS: dict[str, Row] = {
    **{
        f"{name}_r{direction}": _arithmetic(operation, direction, divides=name in ("div", "rcp"))
        for name, operation in _OPERATIONS.items()
        for direction in _DIRECTIONS
    },
    **{f"convert_r{direction}": _convert(direction) for direction in ("n", *_DIRECTIONS)},
    "nextafter": _nextafter,
}
