"""Random expressions over the variables in scope, with a bound on their size so that nothing overflows.

Written memory is only touched at elements of the thread's own, read-only memory anywhere: a kernel has no race, its
adjoint has contention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")

BOUNDED = 8.0  # of ordinary variables and buffers
SUMS = 2000.0  # of those that are only added to
INTEGERS = 50  # of integer variables


class Choices(Protocol):
    """Where a generator's choices come from."""

    def below(self, n: int) -> int:
        """A number from 0 to n - 1; smaller is simpler."""


class Real(NamedTuple):
    text: str
    bound: float


class Int(NamedTuple):
    text: str
    bound: int
    negative: bool = False  # whether it may be


@dataclass(frozen=True)
class Variable:
    """kind: real, int, array (of reals), pointer (to one real), record, records (an array), table (read-only buffer),
    slots (a buffer of the thread's own elements), record_slots, record_table, shared (an array that the threads of a
    block share). `size`: elements; `level`: nesting depth of its scope."""

    name: str
    kind: str
    bound: float = BOUNDED
    size: int = 0
    writable: bool = True
    level: int = 0
    negative: bool = False
    elements: tuple[str, ...] = ()  # indices of the thread's own elements
    columns: int = 0  # of a shared array that has rows
    members: tuple[str, ...] = ()  # of a shared array of structs
    readable: bool = True  # False: only stored to


class Expressions:
    """`scopes` hold what may be named here."""

    def __init__(self, choices: Choices, narrow: str, features: frozenset[str]):
        self.choices, self.narrow, self.features = choices, narrow, features
        self.scopes: list[list[Variable]] = [[]]

    # ---- choices

    def below(self, n: int) -> int:
        return self.choices.below(n)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent

    def visible(self, *kinds: str) -> list[Variable]:
        return [v for scope in self.scopes for v in scope if v.kind in kinds]

    # ---- integers

    def integer(self, depth: int = 2) -> Int:
        if depth == 0 or self.chance(40):
            return self.integer_atom()
        options = [self._add, self._multiply, self._remainder, self._divide, self._int_choice]
        if "int_of_real" in self.features:
            options.append(self._int_of_real)
        return self.pick(options)(depth - 1)

    def integer_atom(self) -> Int:
        names = self.visible("int")
        tables = self.visible("int_table")
        records = self.visible("record", "record_table", "record_slots")
        kind = self.below(10)
        if kind < 3 or not names:
            return Int(str(self.below(6)), 5)
        if kind == 8 and tables:
            return Int(f"{tables[0].name}[{self.index('n')}]", 20)
        if kind == 9 and records:
            return Int(f"{self.record(self.pick(records))}.k", INTEGERS, True)
        chosen = self.pick(names)
        return Int(chosen.name, int(chosen.bound), chosen.negative)

    def _add(self, depth: int) -> Int:
        left, right = self.integer(depth), self.integer(depth)
        op = self.pick("+-")
        return Int(
            f"({left.text} {op} {right.text})", left.bound + right.bound, left.negative or right.negative or op == "-"
        )

    def _multiply(self, depth: int) -> Int:
        left, right = self.integer(depth), self.integer(depth)
        if left.bound * right.bound > 10_000:
            return left
        return Int(f"({left.text} * {right.text})", left.bound * right.bound, left.negative or right.negative)

    def _remainder(self, depth: int) -> Int:
        size = 2 + self.below(5)
        return Int(self.within(self.integer(depth), str(size)), size - 1)

    def _divide(self, depth: int) -> Int:
        left = self.integer(depth)
        return Int(f"({left.text} / {2 + self.below(3)})", left.bound, left.negative)

    def _int_choice(self, depth: int) -> Int:
        left, right = self.integer(depth), self.integer(depth)
        return Int(
            f"({self.truth(depth)} ? {left.text} : {right.text})",
            max(left.bound, right.bound),
            left.negative or right.negative,
        )

    def _int_of_real(self, depth: int) -> Int:
        value = self.limited(self.real(depth), BOUNDED)
        return Int(f"(int)(3.0 * {value.text})", 25, True)

    def within(self, value: Int, size: str) -> str:
        if not value.negative:
            return f"({value.text} % {size})"
        return f"(abs({value.text}) % {size})" if self.chance(60) else f"(int)((unsigned)({value.text}) % {size})"

    def index(self, size: str) -> str:
        if size == "n" and self.chance(30):
            return "i" if any(v.name == "i" for v in self.visible("int")) else "0"
        if size.isdigit() and self.chance(35):
            return str(self.below(int(size)))
        if "bool_index" in self.features and size in ("n", "2", "3", "4", "8") and self.chance(25):
            return self.truth(0)
        return self.within(self.integer(2), size)

    # ---- conditions

    def truth(self, depth: int = 2) -> str:
        kind = self.below(8)
        if depth > 0 and kind >= 6 and "short_circuit" in self.features:
            return f"({self.truth(depth - 1)} {self.pick(('&&', '||'))} {self.truth(depth - 1)})"
        if depth > 0 and kind == 5:
            return f"!({self.truth(depth - 1)})"
        if kind < 3:
            return f"({self.integer(1).text} {self.pick(('<', '>=', '==', '!='))} {self.integer(1).text})"
        if "boundary" in self.features and self.chance(25):
            return self.rounded_truth()
        return f"({self.real(min(depth, 1)).text} {self.pick('<>')} {self.real(min(depth, 1)).text})"

    def rounded_truth(self) -> str:
        """A condition that hangs on the rounding of a product: fused with the subtraction, it comes out otherwise."""
        left, right, step = self.real_atom().text, self.real_atom().text, self.integer_atom().text
        rows = (
            f"({left} * {right} - {right} * {left} >= 0.0)",
            f"({left} * {right} - {right} * {left} < 0.0)",
            f"((0.01f * (float)({step})) * 100.0f - (float)({step}) >= 0.0f)",
            f"((0.1 * {step}) * 10.0 - {step} < 0.0)",
        )
        return self.pick(rows)

    # ---- reals

    def real(self, depth: int = 3) -> Real:
        if depth == 0 or self.chance(35):
            return self.real_atom()
        return self.pick(self._operations())(depth - 1)

    def _operations(self):  # type: ignore[no-untyped-def]
        found = [self._sum, self._product, self._product, self._function, self._function, self._quotient]
        if "ternary" in self.features:
            found.append(self._choice)
        if "kinks" in self.features:
            found.append(self._kink)
        if "equal" in self.features:
            found += [self._tied] * 2
        if "casts" in self.features:
            found.append(self._cast)
        return found

    def real_atom(self) -> Real:
        kind = self.below(12)
        if kind == 0:
            return Real(self.pick(("0.5", "1.0", "-0.7", "1.3", "0.25")), 1.3)
        if kind == 1:
            value = self.integer(1)
            return Real(f"(0.1 * {value.text})", 0.1 * value.bound) if value.bound <= 200 else Real("0.3", 0.3)
        places = self.visible("real", "array", "pointer", "record", "records", "slots", "record_slots")
        places = [v for v in places if v.readable]
        tables = self.visible("table", "record_table", "shared")
        if kind < 5 and tables:
            return self.place_in(self.pick(tables))
        return self.place_in(self.pick(places or tables)) if places or tables else Real("0.9", 0.9)

    def _sum(self, depth: int) -> Real:
        left, right = self.real(depth), self.real(depth)
        return Real(f"({left.text} {self.pick('+-')} {right.text})", left.bound + right.bound)

    def _product(self, depth: int) -> Real:
        left, right = self.limited(self.real(depth), 30), self.limited(self.real(depth), 30)
        return Real(f"({left.text} * {right.text})", left.bound * right.bound)

    def _quotient(self, depth: int) -> Real:
        left, right = self.real(depth), self.real(depth)
        return Real(f"({left.text} / (2.0 + {self.pick(('sin', 'cos', 'tanh'))}({right.text})))", left.bound)

    def _function(self, depth: int) -> Real:
        text = self.real(depth)
        x, small = text.text, self.limited(text, 3).text
        y = self.limited(self.real(depth), 3).text
        rows = (
            (f"sin({x})", 1.0),
            (f"cos({x})", 1.0),
            (f"tanh({x})", 1.0),
            (f"exp({small})", 21.0),
            (f"exp(-fabs({x}))", 1.0),
            (f"sqrt(1.0 + {x} * {x})", 1 + text.bound),
            (f"log(1.5 + fabs({x}))", 1 + text.bound),
            (f"pow(fabs({small}) + 0.5, 1.5)", 7.0),
            (f"pow(1.5 + 0.5 * sin({x}), {y})", 8.0),
            (f"pow({small}, 2.0)", 9.0),
            (f"hypot({x}, 1.0 + {y} * {y})", 11 + text.bound),
            (f"atan2({x}, 2.0 + cos({y}))", 1.6),
            (f"fma({small}, {y}, {x})", 9 + text.bound),
            (f"fmod({x}, 1.7)", 1.7),
        )
        return Real(*self.pick(rows))

    def _kink(self, depth: int) -> Real:
        left, right = self.real(depth), self.real(depth)
        rows = (
            (f"fmax({left.text}, {right.text})", left.bound + right.bound),
            (f"fmin({left.text}, {right.text})", left.bound + right.bound),
            (f"fabs({left.text})", left.bound),
            (f"floor({left.text})", 1 + left.bound),
            (f"copysign({left.text}, {right.text})", left.bound),
        )
        return Real(*self.pick(rows))

    def _tied(self, _: int) -> Real:
        """Maxima, minima, clamps and the like of numbers that are often equal."""
        left, right = self.real_atom(), self.pick((self.real_atom(), Real("0.0", 0), Real("0.5", 0.5)))
        a, b, bound = left.text, right.text, left.bound + right.bound
        rows = (
            (f"fmax({a}, {b})", bound),
            (f"({a} < {b} ? {a} : {b})", bound),
            (f"({a} >= {b} ? {a} : {b})", bound),
            (f"(fmax({a}, {b}) + 0.3 * fmin({a}, {b}))", 2 * bound),
            (f"(0.5 * ({a} + {b} + fabs({a} - {b})))", bound),
            (f"({b} + fmax({a} - {b}, 0.0))", 2 * bound),
            (f"fmin(fmax({a}, -0.5), 0.5)", 0.5),
            (f"fmax(0.0, 1.0 - {a})", 1 + bound),
            (f"(fmax({a}, {b}) + log1p(exp(-fabs({a} - {b}))))", 1 + bound),
            (f"(fabs({a}) <= 0.5 ? {a} * {a} : fabs({a}) - 0.25)", 1 + bound),
        )
        return Real(*self.pick(rows))

    def _choice(self, depth: int) -> Real:
        left, right = self.real(depth), self.real(depth)
        return Real(f"({self.truth(1)} ? {left.text} : {right.text})", max(left.bound, right.bound))

    def _cast(self, depth: int) -> Real:
        value = self.real(depth)
        return Real(f"(double)({self.narrow})({value.text})", value.bound)

    def limited(self, value: Real, bound: float) -> Real:
        """The value itself if it is small enough, else something bounded made of it."""
        if value.bound <= bound:
            return value
        rows = (
            (f"sin({value.text})", 1.0),
            (f"tanh({value.text})", 1.0),
            (f"({value.text} / (1.0 + fabs({value.text})))", 1.0),
            (f"(2.0 * cos(0.1 * {value.text}))", 2.0),
        )
        return Real(*self.pick(rows))

    # ---- places

    def place_in(self, variable: Variable) -> Real:
        """A real that is, or is part of, the variable."""
        name, bound = variable.name, variable.bound
        match variable.kind:
            case "real":
                return Real(name, bound)
            case "pointer":
                return Real(self.pick((f"*{name}", f"{name}[0]")), bound)
            case "array":
                return Real(f"{name}[{self.index(str(variable.size))}]", bound)
            case "slots":
                return Real(f"{name}[{self.own(variable)}]", bound)
            case "table":
                return Real(f"{name}[{self.index('n')}]", bound)
            case _:
                return Real(f"{self.record(variable)}.{self.pick('uv')}", bound)

    def own(self, variable: Variable) -> str:
        """The index of an element of the thread's own."""
        first, second, either = variable.elements
        kind = self.below(6)
        if kind < 3:
            return first
        return second if kind < 5 else either.format(f"({self.integer(1).text} & 1)")

    def record(self, variable: Variable) -> str:
        match variable.kind:
            case "record":
                return variable.name
            case "records":
                return f"{variable.name}[{self.index(str(variable.size))}]"
            case "record_slots":
                return f"{variable.name}[{variable.elements[0]}]"
            case _:
                return f"{variable.name}[{self.index('n')}]"
