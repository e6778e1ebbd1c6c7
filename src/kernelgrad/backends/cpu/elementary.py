"""Math functions: the C library's where it has them, `special` where it has not. Rows take f32 or f64."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from ...ir.types import F64, I32
from . import llvm_types as lt
from . import special
from .convert import convert
from .expr import Real, library_call
from .llvm_types import intrinsic, register_type
from .scalars import ROWS as ARITHMETIC
from .scalars import Application, Row


def _real(call: Application, k: int = 0) -> Real:
    return Real(call.b, call.args[k])


def _reals(call: Application) -> list[Real]:
    return [Real(call.b, a) for a in call.args]


# ---- as LLVM and the C library have them ----------------------------------------------------------------------------


def _intrinsic(name: str) -> Row:
    """LLVM's own function: an instruction, or a call of the library that LLVM understands."""

    def row(call: Application) -> ir.Value:
        first = call.args[0].type
        return intrinsic(call.b, f"llvm.{name}", first, list(call.args), [first])

    return row


def _library(name: str) -> Row:
    return lambda call: library_call(call.b, name, register_type(call.result), list(call.args))


_INTRINSICS = {
    **{name: name for name in "sqrt exp exp2 exp10 log log2 log10 sin cos tan asin acos atan".split()},
    **{name: name for name in "sinh cosh tanh pow atan2 fma copysign floor ceil trunc round rint".split()},
    **{f"fast_{name}": name for name in "sin cos tan exp exp10 log log2 log10 tanh pow".split()},
}
_LIBRARY = (
    "cbrt expm1 log1p logb asinh acosh atanh erf erfc lgamma tgamma j0 j1 y0 y1 hypot fmod remainder fdim jn yn"
).split()


# ---- made of others -------------------------------------------------------------------------------------------------


def _of_reals(formula: Callable[..., Real]) -> Row:
    return lambda call: formula(*_reals(call)).value


def _in_double(formula: Callable[..., Real]) -> Row:
    """A formula made for f64; f32 goes through it."""

    def row(call: Application) -> ir.Value:
        wide = [Real(call.b, convert(call.b, a, call.scalar, F64)) for a in call.args]
        return convert(call.b, formula(*wide).value, F64, call.scalar)

    return row


def _function(formula: Callable[[Real], Real]) -> Row:
    """A long formula for f64, made a function of its own so that it is emitted once."""
    name = f"kg.{formula.__name__}"

    def row(call: Application) -> ir.Value:
        module = call.b.module
        if name not in module.globals:
            function = ir.Function(module, ir.FunctionType(lt.F64, [lt.F64]), name)
            function.linkage = "internal"
            b = ir.IRBuilder(function.append_basic_block("entry"))
            b.ret(formula(Real(b, function.args[0])).value)
        wide = convert(call.b, call.args[0], call.scalar, F64)
        return convert(call.b, call.b.call(module.globals[name], [wide]), F64, call.scalar)

    return row


def _norm(*args: Real) -> Real:
    """Through hypot, which does not overflow where the squares would."""
    total, *rest = args
    for part in rest:
        total = total.call("hypot", part)
    return total


def _saturate(x: Real) -> Real:
    clamped = x.call("llvm.minnum", x.lift(1.0))
    return clamped.select(x > 0.0, 0.0)


def _ldexp(call: Application) -> ir.Value:
    x, exponent = call.args
    exponent = convert(call.b, exponent, call.types[1], I32)
    return intrinsic(call.b, "llvm.ldexp", x.type, [x, exponent], [x.type, lt.I32])


def _powi(call: Application) -> ir.Value:
    x, exponent = call.args
    return intrinsic(call.b, "llvm.pow", x.type, [x, convert(call.b, exponent, call.types[1], call.scalar)], [x.type])


_FREXP = {32: (23, 25), 64: (52, 54)}  # bits of the fraction, and a power of two that makes small numbers normal


def _frexp(part: int) -> Row:
    """By bits: code for vectors of llvm.frexp is wrong, or not made at all, in LLVM 22.1. NaN and infinities are
    their own mantissas."""

    def row(call: Application) -> ir.Value:
        x, bits = _real(call), ir.IntType(call.scalar.bits)
        fraction, up = _FREXP[bits.width]
        is_small = abs(x) < 2.0 ** (2 - (1 << (bits.width - fraction - 2)))  # not normal
        raw = x.b.bitcast((x * 2.0**up).select(is_small, x).value, bits)
        is_whole = x.b.or_(x.equals(0.0), x.b.not_(x.is_finite()))
        return (_mantissa, _exponent)[part](x, raw, fraction, is_small, is_whole)

    return row


def _mantissa(x: Real, raw: ir.Value, fraction: int, is_small: ir.Value, is_whole: ir.Value) -> ir.Value:
    ones = (1 << (raw.type.width - fraction - 1)) - 1  # of the exponent
    kept = x.b.and_(raw, ir.Constant(raw.type, ~(ones << fraction)))
    half = x.b.or_(kept, ir.Constant(raw.type, (ones // 2 - 1) << fraction))
    return x.b.select(is_whole, x.value, x.b.bitcast(half, x.value.type))


def _exponent(x: Real, raw: ir.Value, fraction: int, is_small: ir.Value, is_whole: ir.Value) -> ir.Value:
    b, ones = x.b, (1 << (raw.type.width - fraction - 1)) - 1
    field = b.and_(b.lshr(raw, ir.Constant(raw.type, fraction)), ir.Constant(raw.type, ones))
    narrow = field if raw.type.width == lt.I32.width else b.trunc(field, lt.I32)
    bias = ones // 2 - 1
    beside = b.select(is_small, lt.i32(bias + _FREXP[raw.type.width][1]), lt.i32(bias))
    return b.select(is_whole, lt.i32(0), b.sub(narrow, beside))


def _ilogb(call: Application) -> ir.Value:
    return library_call(call.b, "ilogb", lt.I32, list(call.args))


def _signbit(call: Application) -> ir.Value:
    bits = ir.IntType(call.scalar.bits)
    value = call.b.bitcast(call.args[0], bits)
    return call.b.icmp_signed("<", value, ir.Constant(bits, 0))


ROWS: dict[str, Row] = {
    **{fn: _intrinsic(name) for fn, name in _INTRINSICS.items()},
    **{fn: _library(fn) for fn in _LIBRARY},
    "fast_div": ARITHMETIC["div"],
    "rsqrt": _of_reals(lambda x: 1.0 / x.sqrt()),
    "rcp": _of_reals(lambda x: 1.0 / x),
    "rcbrt": _of_reals(lambda x: 1.0 / x.call("cbrt")),
    "rhypot": _in_double(lambda x, y: 1.0 / x.call("hypot", y)),
    "norm3d": _in_double(_norm),
    "norm4d": _in_double(_norm),
    "rnorm3d": _in_double(lambda *args: 1.0 / _norm(*args)),
    "rnorm4d": _in_double(lambda *args: 1.0 / _norm(*args)),
    "saturate": _of_reals(_saturate),
    "ldexp": _ldexp,
    "powi": _powi,
    "ilogb": _ilogb,
    "frexp_mantissa": _frexp(0),
    "frexp_exponent": _frexp(1),
    "isnan": lambda call: _real(call).is_nan(),
    "isinf": lambda call: abs(_real(call)).equals(float("inf")),
    "isfinite": lambda call: _real(call).is_finite(),
    "signbit": _signbit,
    **{name: _function(formula) for name, formula in special.FORMULAS.items()},
}
