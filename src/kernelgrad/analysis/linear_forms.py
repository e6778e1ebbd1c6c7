"""Floats as linear combinations of others, `2 * a - b / 3 + 1`: which differences are the same but for a factor.

`2 * a - 2 * b`, `(b - a) / 3` and `a + (-b)` are all a factor times `a - b`, so that all are zero at the same kink, and
their signs there are known. Rounding and conversions between floats are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from ..ir.ops import Apply, Constant, Op, Value
from ..ir.types import Scalar

Terms = dict[Value | None, Fraction]  # None: the number one
Key = tuple[tuple[Value | None, Fraction], ...]

_MOST_TERMS = 4
_MOST_BITS = 512  # of a coefficient: products of many constants are not followed further
_EXACT = {f"{fn}{rounded}": fn for fn in ("add", "sub", "mul", "div", "fma") for rounded in ("", "_rn")}


class Difference(NamedTuple):
    """`factor` times the sum `key`, in which the first value has the coefficient 1."""

    key: Key
    factor: Fraction

    @property
    def is_positive(self) -> bool:
        return self.factor > 0


class LinearForms:
    """Those of all floats that the operations compute, which come in order."""

    def __init__(self, ops: Iterable[Op]):
        self._forms: dict[Value, Terms] = {}
        self._order: dict[Value, int] = {}  # of terms: as values were first asked for
        for op in ops:
            terms = self._terms(op)
            if terms is not None and _is_short(terms):
                self._forms[op.results[0]] = terms

    def of(self, value: Value) -> Terms:
        return self._forms.get(value) or ({} if value in self._forms else {value: Fraction(1)})

    def difference(self, one: Value, other: Value) -> Difference | None:
        """`one - other`; None if that is a constant."""
        return self._normal(_sum(self.of(one), self.of(other), Fraction(-1)))

    def itself(self, value: Value) -> Difference | None:
        """`value - 0`; None if that is a constant."""
        return self._normal(self.of(value))

    def _normal(self, terms: Terms) -> Difference | None:
        values = [v for v in terms if v is not None]
        if not values:
            return None
        values.sort(key=lambda v: self._order.setdefault(v, len(self._order)))
        factor = terms[values[0]]
        constant = (None,) if None in terms else ()
        return Difference(tuple((v, terms[v] / factor) for v in (*values, *constant)), factor)

    def _terms(self, op: Op) -> Terms | None:
        match op:
            case Constant(value) if _is_float(op.result):
                return _number(value) if isinstance(value, int | float) and math.isfinite(value) else None
            case Apply("neg" | "convert", (value,)) if _is_float(op.result) and _is_float(value):
                return _scaled(self.of(value), Fraction(1 if op.fn == "convert" else -1))
            case Apply(fn, args) if fn in _EXACT and _is_float(op.result):
                return self._computed(_EXACT[fn], [self.of(v) for v in args])
        return None

    def _computed(self, fn: str, forms: list[Terms]) -> Terms | None:
        one, other, *rest = forms
        match fn:
            case "add" | "sub":
                return _sum(one, other, Fraction(1 if fn == "add" else -1))
            case "div":
                by = _constant(other)
                return _scaled(one, 1 / by) if by else None
            case _:
                for form, factor in ((one, _constant(other)), (other, _constant(one))):
                    if factor is not None:
                        return _sum(rest[0] if rest else {}, form, factor)
        return None


def _sum(one: Terms, other: Terms, factor: Fraction) -> Terms:
    found = dict(one)
    for value, coefficient in other.items():
        found[value] = found.get(value, Fraction(0)) + coefficient * factor
    return {value: coefficient for value, coefficient in found.items() if coefficient}


def _scaled(form: Terms, factor: Fraction) -> Terms:
    return _sum({}, form, factor)


def _is_short(form: Terms) -> bool:
    bits = (factor.numerator.bit_length() + factor.denominator.bit_length() for factor in form.values())
    return len(form) <= _MOST_TERMS and max(bits, default=0) <= _MOST_BITS


def _number(value: float) -> Terms:
    return {None: Fraction(value)} if value else {}


def _constant(form: Terms) -> Fraction | None:
    return form.get(None, Fraction(0)) if not form.keys() - {None} else None


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float
