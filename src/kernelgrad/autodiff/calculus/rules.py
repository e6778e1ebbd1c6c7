"""The derivative table: one row per function, for all widths; forward and reverse mode both work from it.

A row gives the partial derivatives; `r` is the function's result. The chain rule is applied in one place, `scaled`.
What a partial needs (result, arguments) is found by looking at its formula.

Conventions, where there is no derivative or more than one:

- abs, copysign and fdim: 0 at the kink, the middle of what lies on both sides.
- min, max: at a tie the first argument gets it all, so that nothing is counted twice or lost and `fmaxf(x, 0)` passes
  a derivative at 0 as saturate does at 0 and 1. A NaN argument is the one that was not chosen.
- floor, ceil, trunc, round, rint, logb: 0 everywhere, jumps included. fmod, remainder: the jumps are left out as well.
- sqrt and its kind: infinite at 0, +inf for sqrt(-0.0) too. hypot, norm3d, ..., atan2 at the origin, and their
  reciprocals: 0. Infinite arguments: the limit, so that norms grow as the infinite one does and atan2 stays.
- pow: by the exponent, 0 for bases that are not positive; by the base, 0 where the exponent is 0. Infinite arguments:
  0 where the power is 0.
- nextafter: the step is left out. Rounding modes: as without.

An adjoint of exactly zero contributes exactly zero, whatever it is multiplied by: Note [Masks] in `transforms/masks`.
`singular` marks the rows whose partial can be infinite or NaN at finite arguments. There, that holds also for a zero
that is no mask, but the partial of a function after it: `1 / (1 + expf(-x))` has the derivative 0 at -100, not NaN.
`regular_from` says from which argument on there is nothing to fear: `rsqrtf(x * x + 1e-3f)` needs no such care.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import InternalError
from ...ir.builder import Builder
from ...ir.functions import PURE
from ...ir.ops import Value
from ...ir.types import I32, Scalar
from ...locks import cached_property
from .expression import RESULT, Emitter, Expr, Leaf, Number, apply, functions, leaves, lift, polynomial, real, where

sqrt, abs_of, rsqrt, exp, log, sin, cos, sinpi, cospi, tanpi, sinh, cosh = functions(
    "sqrt abs rsqrt exp log sin cos sinpi cospi tanpi sinh cosh"
)
fast_sin, fast_cos, fast_exp, fast_div = functions("fast_sin fast_cos fast_exp fast_div")
pow, hypot, rhypot, copysign, rint, isinf, isnan = functions("pow hypot rhypot copysign rint isinf isnan")
j0, j1, y0, y1, cyl_bessel_i0, cyl_bessel_i1 = functions("j0 j1 y0 y1 cyl_bessel_i0 cyl_bessel_i1")
jn, yn, ldexp = functions("jn yn ldexp")

PI, LN2, LN10 = math.pi, math.log(2), math.log(10)
SQRT_PI, SQRT_2PI = math.sqrt(math.pi), math.sqrt(2 * math.pi)


# ---- rows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """The numbers between `low` and `high` that an argument may be; tests take their samples there."""

    low: float = -math.inf
    high: float = math.inf
    integer: bool = False


REAL, POSITIVE, ABOVE_ONE = Domain(), Domain(0.0), Domain(1.0)
UNIT, PROBABILITY, TO_TWO = Domain(-1.0, 1.0), Domain(0.0, 1.0), Domain(0.0, 2.0)
INTEGER, ORDER = Domain(integer=True), Domain(0, 20, integer=True)

Partials = tuple[Expr | float, ...]


class Needs(NamedTuple):
    """What a partial derivative is computed from: the result, and arguments by position."""

    result: bool
    args: frozenset[int]


@dataclass(frozen=True, eq=False)
class Rule:
    """`partials(r, *args)` gives one partial derivative per argument; 0 for integers and where there is none."""

    name: str
    partials: Callable[..., Partials] = field(repr=False)
    domain: tuple[Domain, ...] = (REAL,)
    singular: bool = False
    regular_from: float = math.inf

    @cached_property
    def formulas(self) -> tuple[Expr, ...]:
        arity = PURE[self.name].arity
        given = self.partials(Leaf(RESULT), *map(Leaf, range(arity)))
        assert len(given) == arity, f"{self.name} has {arity} arguments"
        return tuple(map(lift, given))

    def is_zero(self, k: int) -> bool:
        formula = self.formulas[k]
        return isinstance(formula, Number) and formula.value == 0

    def needs(self, k: int) -> Needs:
        used = leaves(self.formulas[k])
        return Needs(RESULT in used, used - {RESULT})

    def partial(
        self, builder: Builder, k: int, result: Value | None, args: tuple[Value | None, ...], type: Scalar | None = None
    ) -> Value | None:
        """The partial derivative by argument k; None where it is exactly zero. What it does not need may be None.
        It is computed in `type`, by default that of the values given."""
        if self.is_zero(k):
            return None
        return self.emitter(builder, type, result, args).value(self.formulas[k])

    def emitter(
        self,
        builder: Builder,
        type: Scalar | None,
        result: Value | None,
        args: tuple[Value | None, ...],
        drops: bool = False,
    ) -> Emitter:
        known = {k: v for k, v in ((RESULT, result), *enumerate(args)) if v is not None}
        floats = (v.type for v in known.values() if isinstance(v.type, Scalar) and v.type.is_float)
        type = type or next(floats, None)
        if type is None:
            raise InternalError(f"nothing says in which type to compute the derivative of '{self.name}'")
        return Emitter(builder, type, known, drops)


class Zero(Rule):
    """A function whose derivative is zero wherever it has one."""

    def __init__(self, name: str, *domain: Domain):
        super().__init__(name, lambda r, *args: (0.0,) * len(args), domain or (REAL,))


def rule_for(fn: str) -> Rule | None:
    """The function's row, or None where no derivative is known. `select` has none: it is control flow."""
    return RULES.get(fn) or _OWN.get(fn)


def forward_rule_for(fn: str) -> Rule | None:
    """The same for forward mode, where a function may have another derivative, given by the user."""
    return _IN_FORWARD_MODE.get(fn) or rule_for(fn)


def scaled(
    builder: Builder,
    adjoint: Value,
    rule: Rule,
    k: int,
    result: Value | None,
    args: tuple[Value | None, ...],
    singular: bool | None = None,
) -> Value | None:
    """The chain rule: adjoint times partial k, in the adjoint's type; None where it is exactly zero.
    `singular`: whether the partial may be infinite here, where more is known than the rule says."""
    if rule.is_zero(k):
        return None
    assert isinstance(adjoint.type, Scalar)
    formula = rule.formulas[k]
    product = rule.emitter(builder, adjoint.type, result, args).scaled(adjoint, formula)
    if not (rule.singular if singular is None else singular) or isinstance(formula, Number):
        return product
    return builder.apply("masked", product, adjoint)


def pushed(
    builder: Builder, tangent: Value, rule: Rule, k: int, result: Value, args: tuple[Value, ...]
) -> Value | None:
    """The chain rule in forward mode: a partial of zero drops the tangent, be it infinite. That a tangent of zero stays
    zero is left to Note [Masks]."""
    if rule.is_zero(k):
        return None
    assert isinstance(tangent.type, Scalar)
    return rule.emitter(builder, tangent.type, result, args, drops=True).scaled(tangent, rule.formulas[k])


# ---- longer formulas ----------------------------------------------------------------------------------------------


def _sign(x: Expr) -> Expr:
    return where(x > 0.0, 1.0, where(x < 0.0, -1.0, 0.0))


def _chosen(x: Expr, y: Expr, first: Expr) -> Partials:
    """The partials of a function that gives its first argument under that condition, else its second."""
    takes_first = first | isnan(y)
    return where(takes_first, 1.0, 0.0), where(takes_first, 0.0, 1.0)


def _at_origin_zero(r: Expr, *partials: Expr) -> Partials:
    """A norm `r` is zero at the origin alone."""
    return tuple(where(r == 0.0, 0.0, partial) for partial in partials)


def _norm(r: Expr, *args: Expr) -> Partials:
    return _at_origin_zero(r, *(where(isinf(x), copysign(1.0, x), x / r) for x in args))


def _reciprocal_norm(r: Expr, *args: Expr) -> Partials:
    """-x r^3, with the factors in an order that keeps x r at most 1."""
    return tuple(where((x == 0.0) | isinf(x), 0.0, -(x * r * r * r)) for x in args)


def _atan2(r: Expr, y: Expr, x: Expr) -> Partials:
    h = hypot(y, x)
    return tuple(where((h == 0.0) | isinf(a), 0.0, partial) for a, partial in ((x, x / h / h), (y, -(y / h / h))))


def _pow(r: Expr, x: Expr, y: Expr) -> Partials:
    """y x^(y-1) is 0 * infinity where the constant x^0 is meant, and where x^y is 0 for infinite y; elsewhere y = 0
    needs no care, which keeps the mixed second derivative right. An exponent so large that y - 1 is rounded is even:
    there the slope has the sign of x, which x^(y-1) has lost."""
    lower = y - 1.0
    power = pow(x, lower)
    below = where(y - lower == 1.0, power, copysign(power, x))
    constant = ((y == 0.0) & isinf(below)) | ((below == 0.0) & isinf(y))
    by_base = where(constant, 0.0, y * below)
    return by_base, where((x > 0.0) & (r != 0.0), r * log(x), 0.0)


def _powi(r: Expr, x: Expr, n: Expr) -> Partials:
    """With the exponent below as an integer: as a float, a large one might be even where it is odd."""
    below = apply("powi", x, n - 1)
    return where((n == 0) & isinf(below), 0.0, real(n) * below), 0.0


def _squared_sech(exponential: Callable[..., Expr]) -> Callable[..., Partials]:
    """For tanh, whose 1 - r^2 cancels: sech is 2 t / (1 + t^2) for t = exp(-|x|), and its square comes last, so that
    nothing underflows before it does."""

    def partials(r: Expr, x: Expr) -> Partials:
        t = exponential(-abs_of(x))
        sech = 2.0 * t / (1.0 + t * t)
        return (sech * sech,)

    return partials


def _quotient(r: Expr, x: Expr, y: Expr) -> Expr:
    """The whole number n with r = x - n y, whichever way x / y would round."""
    return rint((x - r) / y)


def _digamma(x: Expr) -> Expr:
    """Seven steps up, then the asymptotic series, whose first term left out is below 1.5e-14; for negative x by
    reflection."""
    reflected = x <= 0.0
    z = where(reflected, 1.0 - x, x)
    steps = 1.0 / z
    for k in range(1, 7):
        steps = steps + 1.0 / (z + float(k))
    inverse = 1.0 / (z + 7.0)
    square = inverse * inverse
    series = square * polynomial(square, 1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
    above = log(z + 7.0) - 0.5 * inverse - series - steps
    return above - where(reflected, PI / tanpi(x), 0.0)


def _erfcx(r: Expr, x: Expr) -> Partials:
    """2 x r - 2 / sqrt(pi), which cancels for large x: there the derivative of the asymptotic series."""
    inverse = 1.0 / (x * x)
    terms = [1.0]
    for n in range(1, 11):
        terms.append(terms[-1] * -(2 * n + 1) / 2)
    far = inverse * polynomial(inverse, *terms) * (-1 / SQRT_PI)
    return (where(x > 10.0, far, 2.0 * x * r - 2 / SQRT_PI),)


def _between(below: Expr, above: Expr) -> Expr:
    """From the functions of the orders below and above, of which the latter grows faster where both do."""
    return where(isinf(above), -above, 0.5 * (below - above))


def _bessel_order(function: Callable[..., Expr]) -> Callable[..., Partials]:
    """For jn and yn, whose order may not be negative on a GPU."""

    def partials(r: Expr, n: Expr, x: Expr) -> Partials:
        above = function(n + 1, x)
        return 0.0, where(n == 0, -above, _between(function(n - 1, x), above))

    return partials


def _cyl_bessel_i1(r: Expr, x: Expr) -> Partials:
    """i0 - r / x: r may be subnormal for small x, and infinite where i0 is."""
    i0 = cyl_bessel_i0(x)
    return (where(abs_of(x) < 1e-9, 0.5, where(isinf(r), i0, i0 - r / x)),)


def _unscaled(r: Expr, x: Expr) -> Partials:
    """frexp's mantissa is x times a power of two."""
    return (ldexp(1.0, -apply("frexp_exponent", x, given=I32)),)


_SMALL = 1e-20  # such that the partials of roots and logarithms are finite, in float too

# ---- the table ----------------------------------------------------------------------------------------------------


def _alike(names: str, *args: object, **options: object) -> list[Rule]:
    """Rows of functions that differ in how they round."""
    return [Rule(name, *args, **options) for name in names.split()]  # type: ignore[arg-type]


_TWO, _THREE, _FOUR = (REAL,) * 2, (REAL,) * 3, (REAL,) * 4

_TABLE: list[Rule] = [
    # Arithmetic, with all rounding modes.
    *_alike("add add_rn add_rd add_ru add_rz", lambda r, x, y: (1.0, 1.0), _TWO),
    *_alike("sub sub_rn sub_rd sub_ru sub_rz", lambda r, x, y: (1.0, -1.0), _TWO),
    *_alike("mul mul_rn mul_rd mul_ru mul_rz", lambda r, x, y: (y, x), _TWO),
    *_alike("div div_rd div_ru div_rz", lambda r, x, y: (1.0 / y, -(r / y)), _TWO, singular=True),
    Rule("fast_div", lambda r, x, y: (fast_div(1.0, y), -fast_div(r, y)), _TWO, singular=True),
    *_alike("fma fma_rd fma_ru fma_rz", lambda r, x, y, z: (y, x, 1.0), _THREE),
    Rule("neg", lambda r, x: (-1.0,)),
    Rule("abs", lambda r, x: (_sign(x),)),
    Rule("min", lambda r, x, y: _chosen(x, y, x <= y), _TWO),
    Rule("max", lambda r, x, y: _chosen(x, y, x >= y), _TWO),
    Rule("saturate", lambda r, x: (where((x >= 0.0) & (x <= 1.0), 1.0, 0.0),)),
    Rule("fdim", lambda r, x, y: (where(x > y, 1.0, 0.0), where(x > y, -1.0, 0.0)), _TWO),
    Rule("copysign", lambda r, x, y: (where(x == 0.0, 0.0, copysign(1.0, x) * copysign(1.0, y)), 0.0), _TWO),
    Rule("fmod", lambda r, x, y: (1.0, -_quotient(r, x, y)), _TWO, singular=True),
    Rule("remainder", lambda r, x, y: (1.0, -_quotient(r, x, y)), _TWO, singular=True),
    Rule("nextafter", lambda r, x, y: (1.0, 0.0), _TWO),
    # Conversions between floats; those from and to integers have no active side.
    *_alike("convert convert_rn convert_rd convert_ru convert_rz", lambda r, x: (1.0,)),
    *(Zero(name) for name in "floor ceil trunc round rint logb".split()),
    # Roots and powers.
    *_alike(
        "sqrt sqrt_rd sqrt_ru sqrt_rz", lambda r, x: (0.5 / abs_of(r),), (POSITIVE,), singular=True, regular_from=_SMALL
    ),
    Rule("rsqrt", lambda r, x: (-0.5 * (r * r * r),), (POSITIVE,), singular=True, regular_from=_SMALL),
    Rule("cbrt", lambda r, x: (1.0 / (3.0 * r * r),), singular=True),
    Rule("rcbrt", lambda r, x: (r / (-3.0 * x),), singular=True),
    *_alike("rcp rcp_rd rcp_ru rcp_rz", lambda r, x: (-(r * r),), singular=True),
    *_alike("pow fast_pow", _pow, (POSITIVE, REAL), singular=True),
    Rule("powi", _powi, (REAL, INTEGER), singular=True),
    Rule("ldexp", lambda r, x, n: (ldexp(1.0, n), 0.0), (REAL, INTEGER)),
    Rule("frexp_mantissa", _unscaled),
    # Exponentials and logarithms.
    *_alike("exp fast_exp", lambda r, x: (r,), singular=True),
    Rule("exp2", lambda r, x: (LN2 * r,), singular=True),
    *_alike("exp10 fast_exp10", lambda r, x: (LN10 * r,), singular=True),
    Rule("expm1", lambda r, x: (exp(x),), singular=True),
    *_alike("log fast_log", lambda r, x: (1.0 / x,), (POSITIVE,), singular=True, regular_from=_SMALL),
    *_alike("log2 fast_log2", lambda r, x: (1 / LN2 / x,), (POSITIVE,), singular=True, regular_from=_SMALL),
    *_alike("log10 fast_log10", lambda r, x: (1 / LN10 / x,), (POSITIVE,), singular=True, regular_from=_SMALL),
    Rule("log1p", lambda r, x: (1.0 / (1.0 + x),), (Domain(-1.0),), singular=True),
    # Trigonometry.
    Rule("sin", lambda r, x: (cos(x),)),
    Rule("cos", lambda r, x: (-sin(x),)),
    Rule("fast_sin", lambda r, x: (fast_cos(x),)),
    Rule("fast_cos", lambda r, x: (-fast_sin(x),)),
    *_alike("tan fast_tan", lambda r, x: (1.0 + r * r,), singular=True),
    Rule("sinpi", lambda r, x: (PI * cospi(x),)),
    Rule("cospi", lambda r, x: (-PI * sinpi(x),)),
    Rule("tanpi", lambda r, x: (PI * (1.0 + r * r),), singular=True),
    Rule("asin", lambda r, x: (1.0 / sqrt((1.0 - x) * (1.0 + x)),), (UNIT,), singular=True),
    Rule("acos", lambda r, x: (-1.0 / sqrt((1.0 - x) * (1.0 + x)),), (UNIT,), singular=True),
    Rule("atan", lambda r, x: (1.0 / (1.0 + x * x),)),
    Rule("atan2", _atan2, _TWO, singular=True),
    # Hyperbolic functions.
    Rule("sinh", lambda r, x: (cosh(x),), singular=True),
    Rule("cosh", lambda r, x: (sinh(x),), singular=True),
    Rule("tanh", _squared_sech(exp)),
    Rule("fast_tanh", _squared_sech(fast_exp)),
    Rule("asinh", lambda r, x: (rhypot(x, 1.0),)),
    Rule("acosh", lambda r, x: (1.0 / (sqrt(x - 1.0) * sqrt(x + 1.0)),), (ABOVE_ONE,), singular=True),
    Rule("atanh", lambda r, x: (1.0 / ((1.0 - x) * (1.0 + x)),), (UNIT,), singular=True),
    # The error function's family.
    Rule("erf", lambda r, x: (2 / SQRT_PI * exp(-(x * x)),)),
    Rule("erfc", lambda r, x: (-2 / SQRT_PI * exp(-(x * x)),)),
    Rule("erfinv", lambda r, x: (SQRT_PI / 2 * exp(r * r),), (UNIT,), singular=True),
    Rule("erfcinv", lambda r, x: (-SQRT_PI / 2 * exp(r * r),), (TO_TWO,), singular=True),
    Rule("erfcx", _erfcx, singular=True),
    Rule("normcdf", lambda r, x: (1 / SQRT_2PI * exp(-0.5 * x * x),)),
    Rule("normcdfinv", lambda r, x: (SQRT_2PI * exp(0.5 * r * r),), (PROBABILITY,), singular=True),
    # Gamma and Bessel functions.
    Rule("lgamma", lambda r, x: (_digamma(x),), singular=True),
    Rule("tgamma", lambda r, x: (r * _digamma(x),), singular=True),
    Rule("j0", lambda r, x: (-j1(x),)),
    Rule("j1", lambda r, x: (0.5 * (j0(x) - jn(2, x)),)),
    Rule("jn", _bessel_order(jn), (ORDER, REAL), singular=True),
    Rule("y0", lambda r, x: (-y1(x),), (POSITIVE,), singular=True),
    Rule("y1", lambda r, x: (_between(y0(x), yn(2, x)),), (POSITIVE,), singular=True),
    Rule("yn", _bessel_order(yn), (ORDER, POSITIVE), singular=True),
    Rule("cyl_bessel_i0", lambda r, x: (cyl_bessel_i1(x),), singular=True),
    Rule("cyl_bessel_i1", _cyl_bessel_i1, singular=True),
    # Norms.
    Rule("hypot", _norm, _TWO),
    Rule("norm3d", _norm, _THREE),
    Rule("norm4d", _norm, _FOUR),
    Rule("rhypot", _reciprocal_norm, _TWO, singular=True),
    Rule("rnorm3d", _reciprocal_norm, _THREE, singular=True),
    Rule("rnorm4d", _reciprocal_norm, _FOUR, singular=True),
]

RULES: dict[str, Rule] = {row.name: row for row in _TABLE}

# What derivatives themselves put into functions: no functions of numbers.
_OWN = {
    "detach": Zero("detach"),
    "masked": Rule("masked", lambda r, v, g: (where(g != 0.0, 1.0, 0.0), 0.0), _TWO),
    "along": Rule("along", lambda r, v, x, slope: (1.0, slope, 0.0), _THREE, singular=True),
    "at_end": Zero("at_end", *_TWO),
    "in_reverse": Zero("in_reverse", *_THREE),
    # What the source gives.
    "stop": Zero("stop"),
    "custom": Rule("custom", lambda r, v, x, slope: (1.0, slope, 0.0), _THREE, singular=True),
    "custom_reverse": Rule("custom_reverse", lambda r, v, x, slope: (1.0, slope, 0.0), _THREE, singular=True),
    "custom_forward": Rule("custom_forward", lambda r, v, x, slope: (1.0, 0.0, 0.0), _THREE),
}
_IN_FORWARD_MODE = {"custom_reverse": _OWN["custom_forward"], "custom_forward": _OWN["custom_reverse"]}
