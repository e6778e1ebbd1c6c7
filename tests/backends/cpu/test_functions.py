"""Pure functions: every row compiles; math against mpmath, bits against Python's integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from kernelgrad.backends.cpu.scalars import TABLE
from kernelgrad.ir.functions import GIVEN, ONLY_IN_REVERSE, PURE
from kernelgrad.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Pointer, Scalar, Type

_DTYPES: dict[Type, Any] = {
    BOOL: np.bool_, I8: np.int8, U8: np.uint8, I16: np.int16, U16: np.uint16, I32: np.int32, U32: np.uint32,
    I64: np.int64, U64: np.uint64, F16: np.float16, BF16: np.uint16, F32: np.float32, F64: np.float64,
}  # fmt: skip


def evaluate(make: Any, fn: str, types: list[Scalar], result: Scalar, *columns: Any) -> np.ndarray:
    """fn over columns of arguments, one thread per row."""
    arrays = [np.asarray(c, _DTYPES[t]) for c, t in zip(columns, types, strict=True)]
    n = len(arrays[0])
    out = np.zeros(n, _DTYPES[result])
    params = {f"x{k}": Pointer(t, "global") for k, t in enumerate(types)}
    k = make(out=Pointer(result, "global"), n=I32, **params)
    i = k.index()
    with k.when(k.op("lt", i, k.n)):
        args = [k.get(k.args[name], i) for name in params]
        k.put(k.args["out"], i, k.op(fn, *args, type=result))
    k.run((n + 31) // 32, 32, out=out, n=n, **{f"x{k}": a for k, a in enumerate(arrays)})
    return out


def test_every_function_has_a_row() -> None:
    assert all(map(TABLE.__getitem__, PURE.keys() - ONLY_IN_REVERSE - GIVEN))
    assert set(TABLE) == set(PURE) - ONLY_IN_REVERSE - GIVEN
    with pytest.raises(KeyError):
        TABLE["no such function"]


# ---- math ---------------------------------------------------------------------------------------------------------

_M = mpmath


def _cdf(x: Any) -> Any:
    return _M.erfc(-x / _M.sqrt(2)) / 2


def _erfcinv(z: Any) -> Any:
    if z > 0.1:
        return _M.erfinv(1 - z)
    guess = _M.sqrt(-_M.log(z))
    return _M.findroot(lambda y: _M.log(_M.erfc(y)) - _M.log(z), guess)


_REAL = [-30.0, -3.7, -1.0, -0.3, -1e-3, 1e-12, 0.25, 0.5, 1.0, 2.5, 9.0, 33.3]
_POSITIVE = [1e-30, 1e-3, 0.3, 1.0, 2.0, 7.5, 1e4, 1e30]
_UNIT = [-1.0, -0.99, -0.5, -1e-8, 0.1, 0.7, 1.0]
_INSIDE = [-0.9999, -0.51, -0.2, -1e-10, 1e-4, 0.49, 0.9, 0.9999999]

UNARY: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "sqrt": (_M.sqrt, _POSITIVE),
    "rsqrt": (lambda x: 1 / _M.sqrt(x), _POSITIVE),
    "cbrt": (lambda x: _M.sign(x) * _M.cbrt(abs(x)), _REAL),
    "rcbrt": (lambda x: _M.sign(x) / _M.cbrt(abs(x)), _REAL),
    "rcp": (lambda x: 1 / x, _REAL),
    "exp": (_M.exp, _REAL),
    "exp2": (lambda x: _M.power(2, x), _REAL),
    "exp10": (lambda x: _M.power(10, x), _REAL),
    "expm1": (_M.expm1, _REAL),
    "log": (_M.log, _POSITIVE),
    "log2": (lambda x: _M.log(x, 2), _POSITIVE),
    "log10": (_M.log10, _POSITIVE),
    "log1p": (_M.log1p, _POSITIVE),
    "sin": (_M.sin, _REAL),
    "cos": (_M.cos, _REAL),
    "tan": (_M.tan, _REAL),
    "sinpi": (_M.sinpi, _REAL),
    "cospi": (_M.cospi, _REAL),
    "tanpi": (lambda x: _M.tan(_M.pi * x), [-3.7, -0.3, 1e-12, 0.25, 9.125, 33.3]),
    "asin": (_M.asin, _UNIT),
    "acos": (_M.acos, _UNIT),
    "atan": (_M.atan, _REAL),
    "sinh": (_M.sinh, _REAL),
    "cosh": (_M.cosh, _REAL),
    "tanh": (_M.tanh, _REAL),
    "asinh": (_M.asinh, _REAL),
    "acosh": (_M.acosh, [1.0, 1.5, 10.0, 1e5]),
    "atanh": (_M.atanh, _INSIDE),
    "erf": (_M.erf, _REAL),
    "erfc": (_M.erfc, [-3.7, -1.0, -0.3, 0.25, 1.0, 2.5, 9.0]),
    "erfinv": (_M.erfinv, _INSIDE),
    "erfcinv": (_erfcinv, [1e-300, 1e-30, 1e-4, 0.3, 0.7, 0.999, 1.0 + 1e-6, 1.5, 1.9999]),
    "erfcx": (lambda x: _M.exp(x * x) * _M.erfc(x), [-5.0, -1.0, -0.1, 0.0, 0.5, 3.0, 9.9, 11.0, 30.0, 1e5]),
    "normcdf": (_cdf, [-37.0, -20.0, -8.5, -3.0, -0.5, 0.0, 1.0, 5.0]),
    "normcdfinv": (lambda p: -_M.sqrt(2) * _erfcinv(2 * p), [1e-300, 1e-10, 0.01, 0.3, 0.6, 0.99]),
    "lgamma": (lambda x: _M.log(abs(_M.gamma(x))), [0.1, 0.5, 1.5, 3.3, 50.0]),
    "tgamma": (_M.gamma, [-2.5, 0.1, 0.5, 1.5, 3.3, 20.0]),
    "j0": (lambda x: _M.besselj(0, x), [0.1, 1.0, 5.0, 20.0]),
    "j1": (lambda x: _M.besselj(1, x), [0.1, 1.0, 5.0, 20.0]),
    "y0": (lambda x: _M.bessely(0, x), [0.1, 1.0, 5.0, 20.0]),
    "y1": (lambda x: _M.bessely(1, x), [0.1, 1.0, 5.0, 20.0]),
    "cyl_bessel_i0": (lambda x: _M.besseli(0, x), [-3.0, 0.0, 1e-3, 1.0, 10.0, 19.9, 20.1, 80.0]),
    "cyl_bessel_i1": (lambda x: _M.besseli(1, x), [-3.0, 1e-3, 1.0, 10.0, 19.9, 20.1, 80.0]),
    "floor": (_M.floor, _REAL),
    "ceil": (_M.ceil, _REAL),
    "trunc": (lambda x: _M.sign(x) * _M.floor(abs(x)), _REAL),
    "round": (lambda x: _M.sign(x) * _M.floor(abs(x) + 0.5), _REAL),
    "rint": (lambda x: _M.nint(x), _REAL),
    "logb": (lambda x: _M.floor(_M.log(abs(x), 2)), [-30.0, -1.0, 0.3, 5.0, 8.0]),
    "saturate": (lambda x: min(max(x, _M.mpf(0)), _M.mpf(1)), _REAL),
    "abs": (abs, _REAL),
    "neg": (lambda x: -x, _REAL),
}  # fmt: skip
UNARY |= {f"fast_{fn}": UNARY[fn] for fn in "sin cos tan exp exp10 log log2 log10 tanh".split()}


def assert_close(got: np.ndarray, exact: list[Any], type: Scalar, ulps: float) -> None:
    info = np.finfo(_DTYPES[type])
    for value, want in zip(got, exact, strict=True):
        if abs(want) > info.max:
            assert value == math.copysign(math.inf, want)
            continue
        unit = max(abs(want) * float(info.eps), float(info.smallest_subnormal))
        assert abs(mpmath.mpf(float(value)) - want) <= ulps * unit, f"{value!r} instead of {want}"


@pytest.mark.parametrize("type", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", sorted(UNARY))
def test_math_of_one_argument(make: Any, fn: str, type: Scalar) -> None:
    reference, points = UNARY[fn]
    xs = np.array([p for p in points if type == F64 or abs(p) > 1e-38], _DTYPES[type])
    got = evaluate(make, fn, [type], type, xs)
    with mpmath.workdps(400 if fn in ("erfcinv", "normcdfinv", "sinpi", "cospi") else 60):
        assert_close(got, [reference(mpmath.mpf(float(x))) for x in xs], type, 6)


_PAIRS = ([-2.5, -1.0, 0.3, 3.0, 7.7], [2.0, -0.5, 0.7, -3.0, 7.7])

BINARY: dict[str, Callable[[float, float], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "fast_div": lambda x, y: x / y,
    "min": min,
    "max": max,
    "pow": lambda x, y: _M.power(abs(x), y),
    "fast_pow": lambda x, y: _M.power(abs(x), y),
    "atan2": _M.atan2,
    "hypot": _M.hypot,
    "rhypot": lambda x, y: 1 / _M.hypot(x, y),
    "fmod": lambda x, y: x - y * (_M.sign(x / y) * _M.floor(abs(x / y))),
    "remainder": lambda x, y: x - y * _M.nint(x / y),
    "copysign": lambda x, y: abs(x) * _M.sign(y),
    "fdim": lambda x, y: max(x - y, _M.mpf(0)),
}


@pytest.mark.parametrize("type", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", sorted(BINARY))
def test_math_of_two_arguments(make: Any, fn: str, type: Scalar) -> None:
    xs, ys = (np.array(c, _DTYPES[type]) for c in _PAIRS)
    xs = np.abs(xs) if "pow" in fn else xs
    exact = [BINARY[fn](mpmath.mpf(float(x)), mpmath.mpf(float(y))) for x, y in zip(xs, ys, strict=True)]
    assert_close(evaluate(make, fn, [type] * 2, type, xs, ys), exact, type, 4)


def test_norms_do_not_overflow(make: Any) -> None:
    big, ones = np.array([1e200, 3.0]), np.array([1e200, 4.0])
    zero = np.zeros(2)
    np.testing.assert_allclose(evaluate(make, "norm3d", [F64] * 3, F64, big, ones, zero), [math.sqrt(2) * 1e200, 5])
    np.testing.assert_allclose(evaluate(make, "rnorm4d", [F64] * 4, F64, big, ones, zero, zero)[1], 0.2)


def test_edges_of_the_inverse_error_functions(make: Any) -> None:
    got = evaluate(make, "erfinv", [F64], F64, [1.0, -1.0, 1.5, math.nan, 0.0, -0.0])
    assert got[0] == math.inf and got[1] == -math.inf and math.isnan(got[2]) and math.isnan(got[3])
    assert not math.copysign(1, got[4]) < 0 and math.copysign(1, got[5]) < 0
    got = evaluate(make, "erfcinv", [F64], F64, [0.0, 2.0, 1.0, -0.5])
    assert got[0] == math.inf and got[1] == -math.inf and got[2] == 0 and math.isnan(got[3])


@pytest.mark.parametrize("block", [2, 6, 32])
@pytest.mark.parametrize("type", [F64, F32])
def test_mantissa_and_exponent_of_every_size_of_number(make: Any, type: Scalar, block: int) -> None:
    """Also in loops over the threads of small blocks, whose vectors have two elements: LLVM cannot make code of
    llvm.frexp for these."""
    tiny, most = np.finfo(_DTYPES[type]).smallest_subnormal, np.finfo(_DTYPES[type]).max
    normal = np.finfo(_DTYPES[type]).tiny
    xs = np.array([0.75, -20, 1, 0, -0.0, tiny, -3 * tiny, normal, normal - tiny, most, -most, 1e-9, 3e9, 0.5, 2, -7.3])
    xs = xs.astype(_DTYPES[type])
    k = make(m=Pointer(type, "global"), e=Pointer(I32, "global"), x=Pointer(type, "global"))
    i = k.index()
    x = k.get(k.x, i)
    k.barrier()
    k.put(k.m, i, k.op("frexp_mantissa", x, type=type))
    k.put(k.e, i, k.op("frexp_exponent", x, type=I32))
    mantissa, exponent = np.zeros(96, xs.dtype), np.zeros(96, np.int32)
    xs = np.tile(xs, 6)
    k.run(96 // block, block, m=mantissa, e=exponent, x=xs)
    np.testing.assert_array_equal(mantissa, np.frexp(xs)[0])
    np.testing.assert_array_equal(np.signbit(mantissa), np.signbit(xs))
    np.testing.assert_array_equal(exponent, np.frexp(xs)[1])


def test_numbers_that_are_not_finite_are_their_own_mantissas(make: Any) -> None:
    xs = [math.inf, -math.inf, math.nan]
    for type in (F32, F64):
        np.testing.assert_array_equal(evaluate(make, "frexp_mantissa", [type], type, xs), xs)


def test_exponents(make: Any) -> None:
    xs = [0.75, -20.0, 1.0]
    np.testing.assert_array_equal(evaluate(make, "frexp_mantissa", [F64], F64, xs), np.frexp(xs)[0])
    np.testing.assert_array_equal(evaluate(make, "frexp_exponent", [F64], I32, xs), np.frexp(xs)[1])
    np.testing.assert_array_equal(evaluate(make, "ilogb", [F32], I32, xs), [-1, 4, 0])
    np.testing.assert_array_equal(evaluate(make, "ldexp", [F32, I32], F32, xs, [3, -1, 10]), [6, -10, 1024])
    np.testing.assert_allclose(evaluate(make, "powi", [F64, I32], F64, xs, [2, 3, 10]), [0.5625, -8000, 1])
    np.testing.assert_allclose(evaluate(make, "jn", [I32, F64], F64, [2], [1.0]), [float(_M.besselj(2, 1))])


def test_classification(make: Any) -> None:
    xs = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.5])
    for fn, reference in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite), ("signbit", np.signbit)):
        for type in (F32, F64, F16):
            np.testing.assert_array_equal(evaluate(make, fn, [type], BOOL, xs), reference(xs))


def test_extrema_ignore_nan(make: Any) -> None:
    for fn in ("min", "max"):
        got = evaluate(make, fn, [F32] * 2, F32, [math.nan, 1.0, math.nan], [2.0, math.nan, math.nan])
        assert got[0] == 2 and got[1] == 1 and math.isnan(got[2])


# ---- integers -----------------------------------------------------------------------------------------------------


def test_integer_division_never_traps(make: Any) -> None:
    low = -(2**31)
    got = evaluate(make, "div", [I32] * 2, I32, [7, -7, 5, low, 9], [2, 2, 0, -1, -1])
    np.testing.assert_array_equal(got, [3, -3, -1, low, -9])
    got = evaluate(make, "rem", [I32] * 2, I32, [7, -7, low, 5], [3, 3, -1, -3])
    np.testing.assert_array_equal(got, [1, -1, 0, 2])
    np.testing.assert_array_equal(evaluate(make, "div", [U32] * 2, U32, [7, 7], [2, 0]), [3, 2**32 - 1])
    np.testing.assert_array_equal(
        evaluate(make, "div", [I64] * 2, I64, [-(2**40), 2**40], [3, 0])[:1], [-(2**40) // 3 + 1]
    )


@pytest.mark.parametrize("amount", [I32, U32, U64, I8], ids=str)
def test_shifts_beyond_the_width(make: Any, amount: Scalar) -> None:
    by = [0, 1, 31, 32, 100]
    np.testing.assert_array_equal(evaluate(make, "shl", [U32, amount], U32, [3] * 5, by), [3, 6, 1 << 31, 0, 0])
    np.testing.assert_array_equal(evaluate(make, "shr", [I32, amount], I32, [-8] * 5, by), [-8, -4, -1, -1, -1])
    np.testing.assert_array_equal(evaluate(make, "shr", [U64, amount], U64, [2**40] * 3, by[:3]), [2**40, 2**39, 2**9])


def test_bit_functions(make: Any) -> None:
    xs = [0, 1, 0x80000000, 0xF0F0]
    np.testing.assert_array_equal(evaluate(make, "popc", [U32], I32, xs), [0, 1, 1, 8])
    np.testing.assert_array_equal(evaluate(make, "clz", [U32], I32, xs), [32, 31, 0, 16])
    np.testing.assert_array_equal(evaluate(make, "ffs", [U32], I32, xs), [0, 1, 32, 5])
    np.testing.assert_array_equal(evaluate(make, "clz", [I64], I32, [1, -1]), [63, 0])
    np.testing.assert_array_equal(evaluate(make, "brev", [U32], U32, xs), [0, 0x80000000, 1, 0x0F0F0000])
    np.testing.assert_array_equal(evaluate(make, "mulhi", [I32] * 2, I32, [-(2**31)], [2**30]), [-(2**29)])
    np.testing.assert_array_equal(evaluate(make, "mulhi", [U64] * 2, U64, [2**63], [6]), [3])
    np.testing.assert_array_equal(evaluate(make, "mul24", [I32] * 2, I32, [0x7F000003, 0xFFFFFF], [5, 2]), [15, -2])
    np.testing.assert_array_equal(
        evaluate(make, "hadd", [I32] * 2, I32, [2**31 - 1, -3], [2**31 - 3, 0]), [2**31 - 2, -2]
    )
    np.testing.assert_array_equal(evaluate(make, "rhadd", [U32] * 2, U32, [2**32 - 1], [2**32 - 2]), [2**32 - 1])
    np.testing.assert_array_equal(evaluate(make, "sad", [I32, I32, U32], U32, [5, -5], [9, 5], [1, 2]), [5, 12])


def test_words(make: Any) -> None:
    got = evaluate(make, "byte_perm", [U32] * 3, U32, [0x33221100] * 2, [0x77665584] * 2, [0x7531, 0x000C])
    np.testing.assert_array_equal(got, [0x77553311, 0x000000FF])
    low, high = [0x89ABCDEF] * 4, [0x01234567] * 4
    shifts = [0, 8, 32, 40]
    both = (high[0] << 32) | low[0]
    left = [(both << (s % 32)) >> 32 & 0xFFFFFFFF for s in shifts]
    right = [(both >> (s % 32)) & 0xFFFFFFFF for s in shifts]
    np.testing.assert_array_equal(evaluate(make, "funnel_left", [U32] * 3, U32, low, high, shifts), left)
    np.testing.assert_array_equal(evaluate(make, "funnel_right", [U32] * 3, U32, low, high, shifts), right)
    clamped = evaluate(make, "funnel_left_clamp", [U32] * 3, U32, low, high, shifts)
    np.testing.assert_array_equal(clamped[2:], [low[0]] * 2)
    clamped = evaluate(make, "funnel_right_clamp", [U32] * 3, U32, low, high, shifts)
    np.testing.assert_array_equal(clamped[2:], [high[0]] * 2)
    np.testing.assert_array_equal(
        evaluate(make, "dp4a", [I32] * 3, I32, [0x01FF0203], [0x02030405], [10]), [2 - 3 + 8 + 15 + 10]
    )
    np.testing.assert_array_equal(
        evaluate(make, "dp2a_hi", [U32] * 3, U32, [0x00020003], [0x05060000], [1]), [3 * 6 + 2 * 5 + 1]
    )


# ---- conversions --------------------------------------------------------------------------------------------------


def test_float_to_integer_saturates(make: Any) -> None:
    xs = [1.9, -1.9, 1e20, -1e20, math.nan]
    np.testing.assert_array_equal(evaluate(make, "convert", [F32], I32, xs), [1, -1, 2**31 - 1, -(2**31), 0])
    np.testing.assert_array_equal(evaluate(make, "convert", [F64], U8, xs), [1, 0, 255, 0, 0])
    np.testing.assert_array_equal(evaluate(make, "convert", [F16], I64, [1.5, -2.5]), [1, -2])


def test_integer_conversions(make: Any) -> None:
    np.testing.assert_array_equal(evaluate(make, "convert", [I8], U32, [-1, 5]), [2**32 - 1, 5])
    np.testing.assert_array_equal(evaluate(make, "convert", [U64], I16, [2**40 + 7]), [7])
    np.testing.assert_array_equal(evaluate(make, "convert", [I32], BOOL, [0, -3]), [False, True])
    np.testing.assert_array_equal(evaluate(make, "convert", [BOOL], F32, [False, True]), [0, 1])
    np.testing.assert_array_equal(evaluate(make, "convert", [U64], F64, [2**63]), [2.0**63])


def to_bf16(x: float) -> int:
    """Nearest, ties to even, by exact arithmetic."""
    bits = int(np.float32(x).view(np.uint32)) >> 16
    near = [b for b in (bits - 1, bits, bits + 1) if 0 <= b < 0x10000]
    error = {b: abs(Fraction(x) - Fraction(from_bf16(b))) for b in near if math.isfinite(from_bf16(b))}
    return min(error, key=lambda b: (error[b], b & 1))


def from_bf16(bits: int) -> float:
    return float(np.uint32(bits << 16).view(np.float32))


def test_short_floats_round_once(make: Any) -> None:
    xs = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-40, 0.1, -7.3, 1e30])
    np.testing.assert_array_equal(evaluate(make, "convert", [F64], BF16, xs), [to_bf16(float(x)) for x in xs])
    xs = np.array([1 + 2**-11, 1 + 2**-11 + 2**-40, 0.1, 65504.0, 65520.0, 1e-8, 6e-8])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(evaluate(make, "convert", [F64], F16, xs), xs.astype(np.float16))
    big = [2**53 + 2**45, 2**24 + 2**16 + 1, 257, 2**62 + 2**54 + 1]
    np.testing.assert_array_equal(evaluate(make, "convert", [I64], BF16, big), [to_bf16_int(v) for v in big])
    nan = evaluate(make, "convert", [F32], BF16, np.array([0x7F800001], np.uint32).view(np.float32))
    assert math.isnan(from_bf16(int(nan[0])))


def to_bf16_int(value: int) -> int:
    shift = value.bit_length() - 8
    if shift > 0:
        half, rest = 1 << (shift - 1), value & ((1 << shift) - 1)
        kept = value >> shift
        kept += rest > half or (rest == half and kept & 1)
        value = kept << shift
    return int(np.float32(value).view(np.uint32)) >> 16


def test_short_float_arithmetic(make: Any) -> None:
    x, y = np.array([1.0, 0.1, 300.0], np.float16), np.array([2**-11, 0.3, 300.0], np.float16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(evaluate(make, "add", [F16] * 2, F16, x, y), x + y)
        np.testing.assert_array_equal(evaluate(make, "mul", [F16] * 2, F16, x, y), x * y)
    np.testing.assert_array_equal(evaluate(make, "lt", [F16] * 2, BOOL, x, y), x < y)
    one, third = to_bf16(1.0), to_bf16(1 / 3)
    got = evaluate(make, "div", [BF16] * 2, BF16, [one], [third])
    assert got[0] == to_bf16(1 / from_bf16(third))


def test_bitcast(make: Any) -> None:
    np.testing.assert_array_equal(evaluate(make, "bitcast", [F32], U32, [1.0]), [0x3F800000])
    np.testing.assert_array_equal(evaluate(make, "bitcast", [U16], F16, [0x3C00]), [1.0])
    np.testing.assert_array_equal(evaluate(make, "bitcast", [BF16], U16, [0x3F80]), [0x3F80])


# ---- directed rounding --------------------------------------------------------------------------------------------


def directed(exact: Fraction, direction: str, dtype: Any) -> float:
    """The float next to `exact` in that direction, by search around the nearest."""
    near = dtype(float(exact))
    around = sorted({near, np.nextafter(near, dtype(np.inf)), np.nextafter(near, dtype(-np.inf))})
    below = [v for v in around if np.isfinite(v) and Fraction(float(v)) <= exact]
    above = [v for v in around if np.isfinite(v) and Fraction(float(v)) >= exact]
    downward = direction == "d" or (direction == "z" and exact > 0)
    return float(below[-1] if downward else above[0])


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
}


@pytest.mark.parametrize("direction", ["d", "u", "z"])
@pytest.mark.parametrize("type", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", sorted(_EXACT))
def test_directed_rounding(make: Any, fn: str, type: Scalar, direction: str) -> None:
    rng = np.random.default_rng(7)
    arity = 3 if fn == "fma" else 2
    columns = [(rng.standard_normal(40) * 10.0 ** rng.integers(-3, 4, 40)).astype(_DTYPES[type]) for _ in range(arity)]
    got = evaluate(make, f"{fn}_r{direction}", [type] * arity, type, *columns)
    for value, *args in zip(got, *columns, strict=True):
        want = directed(_EXACT[fn](*(Fraction(float(a)) for a in args)), direction, _DTYPES[type])
        assert value == want


def test_directed_overflow_and_roots(make: Any) -> None:
    top = np.finfo(np.float32).max
    assert evaluate(make, "add_rd", [F32] * 2, F32, [top], [top])[0] == top
    assert evaluate(make, "add_ru", [F32] * 2, F32, [top], [top])[0] == math.inf
    assert evaluate(make, "add_rz", [F32] * 2, F32, [-top], [-top])[0] == -top
    assert evaluate(make, "rcp_rz", [F32], F32, [0.0])[0] == math.inf
    assert evaluate(make, "add_rd", [F32] * 2, F32, [math.inf], [1.0])[0] == math.inf
    down, up = (evaluate(make, f"sqrt_r{d}", [F64], F64, [2.0])[0] for d in "du")
    assert Fraction(down) ** 2 < 2 < Fraction(up) ** 2 and np.nextafter(down, 2) == up


def test_directed_conversions(make: Any) -> None:
    xs = [1.5, 2.5, -1.5]
    for direction, want in {"n": [2, 2, -2], "d": [1, 2, -2], "u": [2, 3, -1], "z": [1, 2, -1]}.items():
        np.testing.assert_array_equal(evaluate(make, f"convert_r{direction}", [F32], I32, xs), want)
    for direction in "duz":
        (got,) = evaluate(make, f"convert_r{direction}", [F64], F32, [0.1])
        assert got == directed(Fraction(0.1), direction, np.float32)
        (got,) = evaluate(make, f"convert_r{direction}", [I64], F32, [-(2**40) - 1])
        assert got == directed(Fraction(-(2**40) - 1), direction, np.float32)
    assert evaluate(make, "convert_rz", [U64], F32, [2**64 - 1])[0] == np.nextafter(np.float32(2**64), np.float32(0))
    down, up = (float(evaluate(make, f"convert_r{d}", [F32], F16, [0.1])[0]) for d in "du")
    assert down < float(np.float32(0.1)) < up


@pytest.mark.parametrize("type", [F16, F32, F64], ids=str)
def test_nextafter(make: Any, type: Scalar) -> None:
    dtype = _DTYPES[type]
    x = np.array([1.0, -1.0, 0.0, 0.0, 2.0, math.nan], dtype)
    y = np.array([2.0, 0.0, 1.0, -1.0, 2.0, 1.0], dtype)
    np.testing.assert_array_equal(evaluate(make, "nextafter", [type] * 2, type, x, y), np.nextafter(x, y))
