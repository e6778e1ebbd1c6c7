"""Formulas in Python's own notation, for the derivative rules: `y * pow(x, y - 1.0)` is a tree, not yet a computation.

A tree can be asked what it depends on, and written as IR in any floating type: a rule is traced once and serves f16,
bf16, f32 and f64 alike. Comparisons give conditions for `where`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...ir.builder import Builder
from ...ir.functions import PURE
from ...ir.ops import Value
from ...ir.types import BF16, F16, F32, F64, I32, Scalar, Type

RESULT = -1  # the leaf that stands for the function's own result; the others are its arguments


class Expr:
    """A formula: a `Leaf`, a `Number` or a function `Applied` to others."""

    __slots__ = ()

    def __add__(self, other: Expr | float) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: float) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: Expr | float) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: float) -> Expr:
        return apply("sub", other, self)

    def __mul__(self, other: Expr | float) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: float) -> Expr:
        return apply("mul", other, self)

    def __truediv__(self, other: Expr | float) -> Expr:
        return apply("div", self, other)

    def __rtruediv__(self, other: float) -> Expr:
        return apply("div", other, self)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __lt__(self, other: Expr | float) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: Expr | float) -> Expr:
        return apply("le", self, other)

    def __gt__(self, other: Expr | float) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: Expr | float) -> Expr:
        return apply("ge", self, other)

    def __eq__(self, other: Expr | float) -> Expr:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: Expr | float) -> Expr:  # type: ignore[override]
        return apply("ne", self, other)

    def __and__(self, other: Expr) -> Expr:
        return apply("and", self, other)

    def __or__(self, other: Expr) -> Expr:
        return apply("or", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("a condition of a formula is not known in Python: use where(condition, a, b)")


@dataclass(frozen=True, eq=False, slots=True)
class Leaf(Expr):
    """An argument by its position, or the `RESULT`."""

    index: int


@dataclass(frozen=True, eq=False, slots=True)
class Number(Expr):
    """A literal. It takes the type of what it stands beside."""

    value: float


@dataclass(frozen=True, eq=False, slots=True)
class Applied(Expr):
    """A function of `ir.functions`. `given` is the result's type where the arguments do not say it; None: the float
    type that the formula is computed in."""

    fn: str
    args: tuple[Expr, ...]
    given: Type | None = None


def lift(x: Expr | float) -> Expr:
    return x if isinstance(x, Expr) else Number(x)


def apply(fn: str, *args: Expr | float, given: Type | None = None) -> Expr:
    return Applied(fn, tuple(map(lift, args)), given)


def where(condition: Expr, a: Expr | float, b: Expr | float) -> Expr:
    """`a` where the condition holds, else `b`. Both are computed."""
    return apply("select", condition, a, b)


def real(integer: Expr) -> Expr:
    """An integer as a number of the formula's type."""
    return apply("convert", integer)


def functions(names: str) -> Iterator[Callable[..., Expr]]:
    """The functions of formulas with these names in `ir.functions`."""
    return map(_function, names.split())


def _function(name: str) -> Callable[..., Expr]:
    arity = PURE[name].arity

    def function(*args: Expr | float) -> Expr:
        assert len(args) == arity, f"{name} takes {arity} arguments"
        return apply(name, *args)

    return function


def polynomial(x: Expr, *coefficients: float) -> Expr:
    """Horner's scheme; the constant term comes first."""
    *rest, last = coefficients
    total: Expr = Number(last)
    for coefficient in reversed(rest):
        total = apply("fma", x, total, coefficient)
    return total


def leaves(expr: Expr) -> frozenset[int]:
    """The indices of the leaves that a formula depends on."""
    match expr:
        case Leaf(index):
            return frozenset((index,))
        case Applied(_, args):
            return frozenset[int]().union(*map(leaves, args))
    return frozenset()


# ---- to IR --------------------------------------------------------------------------------------------------------

_PRECISION = {F16: 11, BF16: 8, F32: 24, F64: 53}  # bits of the significand


def rounded(value: float, type: Scalar) -> float:
    """The number of the type that is nearest to a value of ordinary size."""
    if not math.isfinite(value):
        return value
    bits = _PRECISION[type]
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


class Emitter:
    """Writes formulas as IR, computing in `type`: `known` gives the leaves, whose floats are converted to it. `drops`:
    a product with a formula that is zero is zero, whatever the factor."""

    def __init__(self, builder: Builder, type: Scalar, known: Mapping[int, Value], drops: bool = False):
        self.builder, self.type, self.known, self.drops = builder, type, known, drops
        self.done: dict[Expr, Value] = {}

    def value(self, expr: Expr, beside: Type | None = None) -> Value:
        """The formula's value; a literal's type is that of what it stands `beside`."""
        if isinstance(expr, Number):
            return self.number(expr.value, beside or self.type)
        if expr not in self.done:
            self.done[expr] = self.leaf(expr) if isinstance(expr, Leaf) else self.applied(expr)
        return self.done[expr]

    def number(self, value: float, type: Type) -> Value:
        assert isinstance(type, Scalar)
        return self.builder.constant(rounded(float(value), type) if type.is_float else int(value), type)

    def leaf(self, leaf: Leaf) -> Value:
        value = self.known[leaf.index]
        is_float = isinstance(value.type, Scalar) and value.type.is_float
        return self.builder.convert(value, self.type) if is_float else value

    def applied(self, expr: Expr) -> Value:
        assert isinstance(expr, Applied)
        args = self.arguments(expr)
        if PURE[expr.fn].result == "given":
            return self.builder.apply(expr.fn, *args, type=expr.given or self.type)
        return self.builder.apply(expr.fn, *args)

    def arguments(self, expr: Applied) -> list[Value]:
        """Mixed functions (jn, ldexp, select) have no literals beside arguments of another type but in known places."""
        if expr.fn in _PLACES:
            places = (place or self.type for place in _PLACES[expr.fn])
            return [self.value(arg, place) for arg, place in zip(expr.args, places, strict=True)]
        typed = next((self.value(arg) for arg in expr.args if not isinstance(arg, Number)), None)
        return [self.value(arg, typed.type if typed is not None else None) for arg in expr.args]

    def scaled(self, factor: Value, expr: Expr) -> Value:
        """factor * formula, without multiplying by 1 and -1."""
        b = self.builder
        match expr:
            case Number(value) if value == 0:
                return self.number(0.0, self.type)
            case Number(value) if abs(value) == 1:
                return factor if value > 0 else b.apply("neg", factor)
            case Applied("neg", (inner,)):
                return b.apply("neg", self.scaled(factor, inner))
            case Applied("mul", (Number(value), other)) if abs(math.frexp(value)[0]) == 0.5:
                # A power of two comes last, where it meets others.
                product = self.scaled(factor, other)
                return b.apply("mul", product, self.number(value, self.type))
            case Applied("div" | "fast_div" | "ldexp" as fn, (Number(value), other)) if abs(value) == 1:
                return self.quotient(fn, self.scaled(factor, Number(value)), self.value(other))
            case Applied("select", (condition, one, other)) if _is_number(one) or _is_number(other):
                chosen = self.value(condition)
                return b.apply("select", chosen, self.scaled(factor, one), self.scaled(factor, other))
        partial = self.value(expr)
        product = b.apply("mul", factor, partial)
        return b.apply("masked", product, partial) if self.drops else product

    def quotient(self, fn: str, factor: Value, by: Value) -> Value:
        b = self.builder
        found = b.apply(fn, factor, by)
        if not self.drops or fn == "ldexp":
            return found
        return b.apply("select", b.apply("isinf", by), self.number(0.0, self.type), found)


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Number)


# The types of arguments that differ from one another; None is the type the formula is computed in.
_PLACES: dict[str, tuple[Type | None, ...]] = {
    "jn": (I32, None),
    "yn": (I32, None),
    "ldexp": (None, I32),
    "select": (None, None, None),
}
