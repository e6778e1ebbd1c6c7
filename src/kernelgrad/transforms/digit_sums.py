"""Quotients and remainders of what is put together of digits: `(36 * a + b) / 36` is a where 0 <= b < 36, and
`i / 16 * 16 + i % 16` is i.

Where a derivative reads memory in place of a tile, a cell's number is put together, and taken apart again to tell which
element was there. Each division takes about as long as a load.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..analysis.access.bounds import Bounds, Sum, is_integer, is_within, type_range
from ..ir.ops import Apply, Block, For, Function, Module, Op, Value
from ..ir.traverse import with_body
from ..ir.types import Scalar, Type
from .dce import eliminate
from .simplify import Simplifier

_MOST_TERMS = 3  # that are added up in place of a division
_Part = tuple[Value | None, int]  # a value so many times, or a number


def run(function: Function, module: Module) -> Function:
    rewriter = _Digits()
    body = rewriter.block(function.body)
    return with_body(function, eliminate(body, rewriter.names)) if rewriter.found else function


class _Digits(Simplifier):
    def __init__(self) -> None:
        super().__init__()
        self.divided = self.found = False
        self.bounds = Bounds(self.definitions.get)

    def block(self, block: Block, facts: dict[Value, bool] | None = None) -> Block:
        with self.bounds.where(facts or {}):
            return super().block(block, facts)

    def for_(self, op: For) -> None:
        self.bounds.enter(op, self.use(op.lower), self.use(op.upper))
        super().for_(op)

    def shortened(self, op: Op) -> Value | None:
        found = super().shortened(op)
        if found is not None or not isinstance(op, Apply) or not is_integer(op.result.type):
            return found
        if op.fn in ("div", "rem"):
            self.divided, found = True, self.digit(op)
        elif op.fn in ("add", "sub") and self.divided:
            found = self.whole(op)
        self.found |= found is not None
        return found

    def digit(self, op: Apply) -> Value | None:
        """Of a sum, whose multiples of the divisor are the quotient, and the rest is the remainder."""
        dividend, divisor = op.args
        by, whole = self.constant_of(divisor), self.bounds.exact(dividend)
        if not isinstance(by, int) or by <= 1 or whole is None or self.bounds.range_of(whole)[0] < 0:
            return None
        multiples = whole.only(lambda v: whole.terms[v] % by == 0)
        rest = Sum(whole.constant) + whole.only(lambda v: v not in multiples.terms)
        least, most = (end // by for end in self.bounds.range_of(rest))
        if least != most:
            return None
        if op.fn == "div":
            quotient = Sum(least, {v: n // by for v, n in multiples.terms.items()})
            return self.sum(quotient, op.result.type)
        return dividend if rest == whole and not least else self.sum(rest + Sum(-least * by), op.result.type)

    def whole(self, op: Apply) -> Value | None:
        """Of which both digits are added up."""
        left, right = map(self.bounds.sum_of, op.args)
        sum_ = left + (right if op.fn == "add" else right.times(-1))
        quotients = {v: found for v in sum_.terms if (found := self.division(v, "div"))}
        for value, times in sum_.terms.items():
            remainder = self.division(value, "rem")
            for quotient, own in quotients.items():
                if own == remainder and sum_.terms[quotient] == times * own[1]:
                    rest = sum_.only(lambda v, parts=(value, quotient): v not in parts)  # type: ignore[misc]
                    return self.sum(Sum(sum_.constant, {own[0]: times}) + rest, op.result.type)
        return None

    def division(self, value: Value, fn: str) -> tuple[Value, int] | None:
        """Of what, and by which number."""
        op = self.definitions.get(value)
        if not isinstance(op, Apply) or op.fn != fn:
            return None
        by = self.constant_of(op.args[1])
        return (op.args[0], by) if isinstance(by, int) and by > 0 else None

    def sum(self, sum_: Sum, type: Type) -> Value | None:
        """None where it is long, or might wrap on its way to a number that fits: no signed sum may."""
        assert isinstance(type, Scalar)
        if len(sum_.terms) > _MOST_TERMS:
            return None
        order = next((parts for parts in self.orders(sum_) if self.fits_on_the_way(parts, type)), None)
        if order is None:
            return None
        total = None
        for value, times in order:
            term = self.product(value, abs(times), type)
            if total is None:
                total = term if times >= 0 else self.apply("neg", term)
            else:
                total = self.apply("add" if times > 0 else "sub", total, term)
        return total

    def product(self, value: Value | None, times: int, type: Scalar) -> Value:
        if value is None:
            return self.constant(times, type)
        term = self.apply("convert", value, type=type)
        return term if times == 1 else self.apply("mul", term, self.constant(times, type))

    def orders(self, sum_: Sum) -> Iterator[list[_Part]]:
        """As it is read best; and with what may be largest at the end."""
        constant: list[_Part] = [(None, sum_.constant)] if sum_.constant or not sum_.terms else []
        terms: list[_Part] = sorted(sum_.terms.items(), key=lambda term: term[1] < 0)
        yield terms + constant
        terms.sort(key=self.size)
        yield terms[:1] + constant + terms[1:]

    def fits_on_the_way(self, parts: list[_Part], type: Scalar) -> bool:
        """Everything but the whole."""
        if len(parts) == 1 or not type.is_signed:
            return True
        found, total = list[Sum](), Sum()
        for value, times in parts:
            one = Sum(1) if value is None else Sum(0, {value: 1})
            total += one.times(times)
            found += one.times(abs(times)), total
        return all(is_within(self.bounds.range_of(part), type_range(type)) for part in found[:-1])

    def size(self, part: _Part) -> int:
        value, times = part
        return max(map(abs, self.bounds.range_of(Sum(times) if value is None else Sum(0, {value: times}))))
