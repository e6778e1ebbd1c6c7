"""Amounts that depend on how often loops run: sums of products of names, such as `4 * n * steps + 8`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ..ir.ops import Apply, Builtin, Constant, For, Function, Value, While
from ..ir.types import Scalar
from .structure import Structure


@dataclass(frozen=True)
class Amount:
    """A number for each product of names."""

    terms: tuple[tuple[tuple[str, ...], float], ...] = ()

    @staticmethod
    def of(number: float) -> Amount:
        return Amount((((), number),) if number else ())

    @staticmethod
    def named(name: str) -> Amount:
        return Amount((((name,), 1),))

    def __add__(self, other: Amount) -> Amount:
        total = dict(self.terms)
        for names, number in other.terms:
            total[names] = total.get(names, 0) + number
        return _amount(total)

    def __mul__(self, other: Amount) -> Amount:
        total: dict[tuple[str, ...], float] = {}
        for one, a in self.terms:
            for two, b in other.terms:
                names = tuple(sorted((*one, *two)))
                total[names] = total.get(names, 0) + a * b
        return _amount(total)

    def times(self, number: float) -> Amount:
        return self * Amount.of(number)

    @property
    def number(self) -> float | None:
        """None where a name is in it."""
        return sum(n for _, n in self.terms) if not self.names else None

    @property
    def names(self) -> set[str]:
        return {name for names, _ in self.terms for name in names}

    @property
    def rough(self) -> float:
        """To compare amounts by, as if all loops were long alike."""
        return float(sum(number * _LONG ** len(names) for names, number in self.terms))

    def text(self, show: Callable[[float], str] | None = None) -> str:
        """`show` writes the numbers."""
        found = ""
        for names, number in sorted(self.terms, key=lambda term: (-len(term[0]), term[0])):
            sign = ("-" if number < 0 else "") if not found else (" - " if number < 0 else " + ")
            found += sign + (_term(names, abs(number)) if show is None else " * ".join((show(abs(number)), *names)))
        return found or "0"


_LONG = 16


def _term(names: tuple[str, ...], number: float) -> str:
    """`3 * n / 64`"""
    exact = Fraction(number).limit_denominator(4096)
    if not names or abs(exact - number) > 1e-9 * number:
        return " * ".join((f"{number:,.6g}", *names))
    above = ([f"{exact.numerator:,}"] if exact.numerator != 1 else []) + list(names)
    return " * ".join(above) + (f" / {exact.denominator:,}" if exact.denominator != 1 else "")


def _amount(terms: dict[tuple[str, ...], float]) -> Amount:
    return Amount(tuple((names, number) for names, number in terms.items() if number))


class Trips:
    """How often loops run, in terms of a function's scalar parameters; `unknown` names the loops of which that is not
    known, by where they are."""

    def __init__(self, function: Function, structure: Structure):
        self.structure = structure
        self.params = {p.value: p.name for p in function.params if _is_integer(p.value)}
        self.unknown: dict[str, str] = {}

    def of(self, loop: For | While) -> Amount:
        found = None
        if isinstance(loop, For):
            lower, upper = self.amount(loop.lower), self.amount(loop.upper)
            found = None if lower is None or upper is None else (upper + lower.times(-1)).times(1 / loop.step)
            number = found.number if found is not None else None
            found = found if number is None else Amount.of(max(0, -(-number // 1)))
        return found or self._named(loop)

    def _named(self, loop: For | While) -> Amount:
        where = str(loop.span)
        line = f"L{loop.span.line}"
        taken = {name for other, name in self.unknown.items() if other != where}
        self.unknown.setdefault(where, line if line not in taken else f"L{loop.span.line}_{loop.span.column}")
        return Amount.named(self.unknown[where])

    def amount(self, value: Value) -> Amount | None:
        op = self.structure.definition.get(value)
        match op:
            case None:
                return Amount.named(self.params[value]) if value in self.params else None
            case Constant(number):
                return Amount.of(number)
            case Builtin("block_dim" | "grid_dim" as name, axis):
                return Amount.named(f"{_SPELLED[name]}.{'xyz'[axis]}")
            case Apply(fn, args) if fn in _ARITHMETIC:
                parts = [self.amount(a) for a in args]
                found = [p for p in parts if p is not None]
                return _ARITHMETIC[fn](*found) if len(found) == len(parts) else None
            case Apply("max", (left, right)) if self._is_zero(right):  # lengths are not negative
                return self.amount(left)
            case Apply("div" | "shr" as fn, (left, right)):
                return _divided(self.amount(left), self.amount(right), fn)
            case While() if self._counts(op, value):
                return self.of(op)
        return None

    def _is_zero(self, value: Value) -> bool:
        op = self.structure.definition.get(value)
        return isinstance(op, Constant) and op.value == 0

    def _counts(self, loop: While, result: Value) -> bool:
        """Whether a result is the number of iterations."""
        k = loop.results.index(result)
        start = self.structure.definition.get(loop.inits[k]) if k < len(loop.inits) else None
        step = self.structure.definition.get(loop.body.results[k]) if k < len(loop.body.results) else None
        if not (isinstance(start, Constant) and start.value == 0 and isinstance(step, Apply) and step.fn == "add"):
            return False
        others = [a for a in step.args if a is not loop.body.args[k]]
        one = self.structure.definition.get(others[0]) if len(others) == 1 else None
        return isinstance(one, Constant) and one.value == 1


def _divided(whole: Amount | None, by: Amount | None, fn: str) -> Amount | None:
    """Rounded to multiples: in (n + 31) / 32, the 31 are for that."""
    number = by.number if by is not None else None
    if whole is None or not number:
        return None
    found = whole.times(1 / (number if fn == "div" else 1 << int(number)))
    return _amount({names: n if names else float(int(n)) for names, n in found.terms})


_SPELLED = {"block_dim": "blockDim", "grid_dim": "gridDim"}
_ARITHMETIC: dict[str, Callable[..., Amount]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a + b.times(-1),
    "mul": lambda a, b: a * b,
    "neg": lambda a: a.times(-1),
    "convert": lambda a: a,
}


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float
