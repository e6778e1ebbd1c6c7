"""Note [Scaled slopes]: what derivatives that loops carry are held in.

A product of many partial derivatives leaves the range of floats long before the adjoint that it is multiplied with
would: 1e-20 times 1e54 is a float. `Scaled` holds a float in [0.5, 1) and an exponent, and never leaves a range; it
takes some twenty instructions for each product.

`Tracked` holds a float, and knows afterwards whether that was enough. All of it is times a power of two, the `bias`:
then a slope beyond 2^64 (for floats) is infinite and stays so, or becomes no number, and is found at the end. What a
slope loses where it is too small is not found at the end, if it grows again: so the least one is kept. Between both
limits, each factor of a slope is itself a normal number. Other derivatives within the loop's body are looked at too,
but for sums and for factors of 1.
"""

from __future__ import annotations

from ...ir.builder import Builder
from ...ir.ops import Apply, Value
from ...ir.types import F32, F64, I32, Scalar, Type
from ..calculus.expression import Applied, Expr, Number
from ..calculus.rules import Rule, scaled
from .forward_sweep import Slope

_BIAS: dict[Type, int] = {F32: 64, F64: 512}
_LEAST = 4.0  # such that least / 2^bias over what is infinite is the smallest normal number
_MOST = 1 << 28  # exponents stay below


def bias(type: Type) -> float:
    return float(2 ** _BIAS[type])


def is_unit(formula: Expr) -> bool:
    """Whether a partial derivative is 1, -1 or 0: a product with it is exact."""
    match formula:
        case Number(value):
            return abs(value) in (0.0, 1.0)
        case Applied("neg", (inner,)):
            return is_unit(inner)
        case Applied("select", (_, one, other)):
            return is_unit(one) and is_unit(other)
    return False


class Tracked:
    """Plain floats. `least`: the smallest that was looked at, times the bias. `unseen`: whose derivatives need not be
    looked at."""

    def __init__(self, least: Value, one: Value, biased: Value, unseen: Value):
        self.least, self.ones, self.biased, self.unseen = least, {one, biased}, {biased}, unseen
        self.rounded = set[Value]()  # products of which something may be lost

    def zero(self, b: Builder, type: Type) -> Slope:
        return (b.constant(0.0, type),)

    def times(self, b: Builder, slope: Slope, rule: Rule, k: int, op: Apply) -> Slope | None:
        product = scaled(b, slope[0], rule, k, op.result, op.args)
        if product is None:
            return None
        exact = is_unit(rule.formulas[k])
        self._note(product, slope, exact)
        if not exact and slope[0] not in self.ones:
            self.rounded.add(product)
        return (product,)

    def plus(self, b: Builder, left: Slope, right: Slope) -> Slope:
        total = b.apply("add", left[0], right[0])
        self._note(total, left, False)
        if left[0] in self.rounded or right[0] in self.rounded:
            self.rounded.add(total)
        return (total,)

    def _note(self, value: Value, came_from: Slope, exact: bool) -> None:
        for known in (self.biased, self.ones) if exact else (self.biased,):
            if came_from[0] in known:
                known.add(value)

    def product(self, b: Builder, left: Slope, right: Slope) -> Slope:
        return (b.apply("mul", left[0], right[0]),)

    def finished(self, b: Builder, op: Apply, slope: Slope) -> None:
        if slope[0] in self.rounded and op.result is not self.unseen:
            self.look(b, slope[0], slope[0] in self.biased)

    def fresh(self, value: Value) -> Slope:
        return (Value(value.type, value.name and f"{value.name}_slope"),)

    def look(self, b: Builder, value: Value, biased: bool = True) -> None:
        size = b.apply("abs", value)
        if not biased:
            size = b.apply("mul", size, b.constant(bias(value.type), value.type))
        self.least = b.apply("min", self.least, size, name="~least")

    @staticmethod
    def suffices(b: Builder, slopes: list[Slope], least: Value) -> Value:
        """Whether nothing was lost."""
        holds = b.apply("ge", least, b.constant(_LEAST, least.type))
        for (slope,) in slopes:
            holds = b.apply("and", holds, b.apply("isfinite", slope))
        return holds


class Scaled:
    """A float and an exponent: see Note [Scaled slopes]."""

    def zero(self, b: Builder, type: Type) -> Slope:
        return b.constant(0.0, type), b.constant(-_MOST, I32)

    def times(self, b: Builder, slope: Slope, rule: Rule, k: int, op: Apply) -> Slope | None:
        number, exponent = slope
        if is_unit(rule.formulas[k]):
            product = scaled(b, number, rule, k, op.result, op.args)
            return None if product is None else (product, exponent)
        assert isinstance(number.type, Scalar)
        partial = rule.partial(b, k, op.result, op.args, number.type)
        return None if partial is None else self.product(b, slope, self.normal(b, partial, b.constant(0, I32)))

    def plus(self, b: Builder, left: Slope, right: Slope) -> Slope:
        exponent = b.apply("max", self._exponent(b, left), self._exponent(b, right))
        parts = [b.apply("ldexp", m, b.apply("sub", e, exponent)) for m, e in (left, right)]
        return self.normal(b, b.apply("add", *parts), exponent)

    def _exponent(self, b: Builder, slope: Slope) -> Value:
        """Zero is smaller than any other."""
        is_zero = b.apply("eq", slope[0], b.constant(0.0, slope[0].type))
        return b.apply("select", is_zero, b.constant(-_MOST, I32), slope[1])

    def product(self, b: Builder, left: Slope, right: Slope) -> Slope:
        """A select's zero times what was infinite before is zero (rule 23); floats that found that run again so."""
        zero = b.constant(0.0, left[0].type)
        none = b.apply("or", b.apply("eq", left[0], zero), b.apply("eq", right[0], zero))
        both = b.apply("select", none, zero, b.apply("mul", left[0], right[0]))
        number, exponent = self.normal(b, both, b.apply("add", left[1], right[1]))
        return number, b.apply("min", b.apply("max", exponent, b.constant(-_MOST, I32)), b.constant(_MOST, I32))

    def finished(self, b: Builder, op: Apply, slope: Slope) -> None:
        """Nothing is lost."""

    def normal(self, b: Builder, number: Value, exponent: Value) -> Slope:
        more = b.apply("frexp_exponent", number, type=I32)
        return b.apply("frexp_mantissa", number), b.apply("add", exponent, more)

    def fresh(self, value: Value) -> Slope:
        name = value.name and f"{value.name}_slope"
        return Value(value.type, name), Value(I32, name and f"{name}_exponent")
