"""Functions the C math library lacks, as formulas in f64."""

from __future__ import annotations

import math
from collections.abc import Callable

from .expr import Real, iterate, polynomial

_SQRT_PI = math.sqrt(math.pi)


# ---- sin, cos, tan of multiples of pi -------------------------------------------------------------------------------


def _quarter_turn(x: Real) -> tuple[Real, Real]:
    """x = n/2 + r with n whole and |r| <= 1/4, both exact; n is given modulo 4 as -2, -1, 0, 1 or 2."""
    n = (x * 2.0).call("llvm.rint")
    r = n.fma(-0.5, x)
    turns = n - (n * 0.25).call("llvm.rint") * 4.0
    return turns, r * math.pi


def _sinpi(x: Real) -> Real:
    turns, r = _quarter_turn(x)
    sine, cosine = r.call("llvm.sin"), r.call("llvm.cos")
    odd = abs(turns).equals(1.0)
    magnitude = cosine.select(odd, sine)
    # sin(n pi/2 + r) is s, c, -s, -c for n = 0, 1, 2, 3.
    flip = x.b.or_(turns.equals(-1.0), abs(turns).equals(2.0))
    return _whole_is_zero(x, (-magnitude).select(flip, magnitude))


def _whole_is_zero(x: Real, y: Real) -> Real:
    """At whole numbers sinpi is zero with the argument's sign."""
    whole = x.b.and_(x.call("llvm.trunc").equals(x), x.is_finite())
    return x.lift(0.0).call("llvm.copysign", x).select(whole, y)


def _cospi(x: Real) -> Real:
    turns, r = _quarter_turn(x)
    sine, cosine = r.call("llvm.sin"), r.call("llvm.cos")
    odd = abs(turns).equals(1.0)
    magnitude = sine.select(odd, cosine)
    flip = x.b.or_(turns.equals(1.0), abs(turns).equals(2.0))
    # At odd multiples of a half r is zero, and so must the result be, without a sign.
    signed = (-magnitude).select(flip, magnitude)
    return x.lift(0.0).select(x.b.and_(odd, r.equals(0.0)), signed)


def _tanpi(x: Real) -> Real:
    turns, r = _quarter_turn(x)
    tangent = r.call("llvm.tan")
    odd = abs(turns).equals(1.0)
    return _whole_is_zero(x, (-1.0 / tangent).select(odd, tangent))


# ---- the error function's relatives ---------------------------------------------------------------------------------


def _inverse_guess(log_term: Real) -> Real:
    """erfinv(x) within 0.4 % for ln(1 - x*x) = log_term: Winitzki's formula."""
    a = 0.147
    half = log_term * 0.5 + 2.0 / (math.pi * a)
    return ((half * half - log_term / a).sqrt() - half).sqrt()


def _halley_erf(y: Real, x: Real) -> Real:
    """A better solution of erf(y) = x."""
    error = (y.call("erf") - x) * (0.5 * _SQRT_PI) * (y * y).exp()
    return y - error / (1.0 + y * error)


def _halley_erfc(y: Real, z: Real) -> Real:
    """A better solution of erfc(y) = z; the error is measured against z, so that tiny z are solved as well."""
    density = (-(y * y)).exp() * (2.0 / _SQRT_PI)
    error = (z - y.call("erfc")) / density
    return y - error / (1.0 + y * error)


def _erfinv(x: Real) -> Real:
    size = abs(x)
    guess = _inverse_guess((-size).call("log1p") + size.call("log1p"))
    middle = guess
    tail = guess
    for _ in range(3):
        middle = _halley_erf(middle, size)
        tail = _halley_erfc(tail, 1.0 - size)
    near_zero = size * (0.5 * _SQRT_PI)
    y = middle.select(size < 0.5, tail)
    y = near_zero.select(size < 1e-9, y)
    y = x.lift(math.inf).select(size.equals(1.0), y)
    y = x.lift(math.nan).select(size > 1.0, y)
    return y.call("llvm.copysign", x).select(x.b.not_(x.is_nan()), x)


def _erfcinv(z: Real) -> Real:
    """By symmetry, erfcinv(z) = -erfcinv(2 - z), so z is at most 1; there erfinv(1 - z) is well conditioned."""
    flipped = z > 1.0
    small = (2.0 - z).select(flipped, z)
    log_term = small.call("llvm.log") + (2.0 - small).call("llvm.log")
    y = _inverse_guess(log_term)
    near_one = 1.0 - small
    middle = y
    for _ in range(4):
        y = _halley_erfc(y, small)
        middle = _halley_erf(middle, near_one)
    y = middle.select(small > 0.5, y)
    y = (near_one * (0.5 * _SQRT_PI)).select(near_one < 1e-9, y)
    y = z.lift(math.inf).select(small.equals(0.0), y)
    y = z.lift(math.nan).select(small < 0.0, y)
    return (-y).select(flipped, y)


def _erfcx(x: Real) -> Real:
    """exp(x^2) erfc(x); beyond 10, where rounding x^2 would show, a continued fraction."""
    square = x * x
    rounding = x.fma(x, -square)
    grown = square.exp()
    direct = grown.fma(rounding, grown) * x.call("erfc")
    fraction = x
    for k in range(30, 0, -1):
        fraction = x + (0.5 * k) / fraction
    far = 1.0 / (fraction * _SQRT_PI)
    result = far.select(x > 10.0, direct)
    return x.lift(math.inf).select(x < -27.0, result)


_INV_SQRT2 = math.sqrt(0.5)
_INV_SQRT2_REST = -4.8336466567264567e-17  # sqrt(1/2) minus the double above


def _normcdf(x: Real) -> Real:
    """erfc(-x / sqrt 2) / 2, with the rounding of x / sqrt 2 put back, which far out would show."""
    a = x * -_INV_SQRT2
    rest = x.fma(-_INV_SQRT2, -a) - x * _INV_SQRT2_REST
    slope = (-(a * a)).exp() * (-2.0 / _SQRT_PI)
    corrected = a.call("erfc") + slope * rest
    return (corrected * 0.5).select(abs(x) < 40.0, a.call("erfc") * 0.5)


def _normcdfinv(p: Real) -> Real:
    return _erfcinv(p * 2.0) * -math.sqrt(2.0)


# ---- modified Bessel functions --------------------------------------------------------------------------------------


def _bessel_series(x: Real, first: Real, order: float) -> Real:
    """Sum of (x/2)^(2k + order) / (k! (k + order)!): all terms are positive, so nothing cancels."""
    quarter = x * x * 0.25

    def step(k: Real, carried: tuple[Real, ...]) -> tuple[object, tuple[Real, ...]]:
        total, term = carried
        term = term * quarter / (k * (k + order))
        following = total + term
        return term > following * 1e-17, (following, term)

    return iterate(x, (first, first), step)[0]


_BESSEL_TERMS = 24  # at |x| >= 20 the terms of the asymptotic series shrink below 1e-17 by then


def _bessel_far(x: Real, order: float) -> Real:
    """e^x / sqrt(2 pi x) times Hankel's asymptotic series; e^x in two halves, since it overflows before the result."""
    coefficients = [1.0]
    for k in range(1, _BESSEL_TERMS):
        coefficients.append(coefficients[-1] * -(4.0 * order * order - (2 * k - 1) ** 2) / (8.0 * k))
    series = polynomial(1.0 / x, tuple(coefficients))
    half = (x * 0.5).exp()
    return half * (series / (x * (2.0 * math.pi)).sqrt()) * half


def _cyl_bessel_i0(x: Real) -> Real:
    size = abs(x)
    near = _bessel_series(size.call("llvm.minnum", x.lift(20.0)), x.lift(1.0), 0.0)
    return _bessel_far(size, 0.0).select(size > 20.0, near).select(x.b.not_(x.is_nan()), x)


def _cyl_bessel_i1(x: Real) -> Real:
    size = abs(x)
    inside = size.call("llvm.minnum", x.lift(20.0))
    near = _bessel_series(inside, inside * 0.5, 1.0)
    y = _bessel_far(size, 1.0).select(size > 20.0, near)
    return y.call("llvm.copysign", x).select(x.b.not_(x.is_nan()), x)


FORMULAS: dict[str, Callable[[Real], Real]] = {
    "sinpi": _sinpi,
    "cospi": _cospi,
    "tanpi": _tanpi,
    "erfinv": _erfinv,
    "erfcinv": _erfcinv,
    "erfcx": _erfcx,
    "normcdf": _normcdf,
    "normcdfinv": _normcdfinv,
    "cyl_bessel_i0": _cyl_bessel_i0,
    "cyl_bessel_i1": _cyl_bessel_i1,
}
