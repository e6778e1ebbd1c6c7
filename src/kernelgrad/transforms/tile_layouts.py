"""How the indices of a cell that is stored to are made of threads' indices and counters of loops.

Each index is a thread's index or a counter, which tells threads and iterations apart (its `core`), and something added
to it that all threads share; or nothing but that. Two more layouts are known: both numbers in one index,
`s[j * 34 + i]` where `i` is less than 34; and one number in two indices, `s[c / 34][c % 34]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..analysis.access.affine import Sums
from ..analysis.access.ranges import Range
from ..analysis.ownership.tile_rows import Cell
from ..ir.ops import Apply, Op, Value
from ..ir.types import Scalar
from .other_threads import NotACopy

_LARGEST = 2**31 - 1
_MOST = {"mul": _LARGEST, "shl": 31}  # that something is multiplied by, or shifted
_ANYTHING: Range = (-(2**64), 2**64)


class Core(NamedTuple):
    """What of an index tells threads or iterations apart, and what is added to it."""

    value: Value
    added: tuple[tuple[str, Value], ...]  # "add" or "sub"


class Digit(NamedTuple):
    """Where in a cell a core is found: in the index that counts so many bytes, or in what division leaves of it."""

    core: Core
    size: int
    part: Literal["whole", "quotient", "remainder"] = "whole"
    by: int = 1


class Number(NamedTuple):
    """A core that is found in two indices: its quotient by a number, and the remainder."""

    core: Core
    quotient: int
    remainder: int
    by: int


@dataclass
class Layout:
    """`shared`: by the bytes that an index counts, the parts of it, all of which all threads share."""

    digits: list[Digit] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    shared: dict[int, tuple[Value, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Indices:
    """What is known of a kernel's integers. `ranges`: of parts of stores' indices, where they are stored."""

    definition: Mapping[Value, Op]
    uniform: frozenset[Value]
    sums: Sums
    ranges: Mapping[Value, Range]

    def layout(self, cell: Cell) -> Layout:
        found = Layout()
        for size, parts in cell:
            split = [part for index in parts for part in self._parts(index)]
            varying = [part for part in split if part not in self.uniform]
            if not varying:
                found.shared[size] = parts
            elif len(varying) == 1:
                found.digits.append(Digit(self._core(varying[0], split), size))
            else:
                found.digits += self._in_one(varying, split, size)
        _join(found, self)
        return found

    def _parts(self, index: Value) -> Iterator[Value]:
        """What is added up to an index, as far as several parts of it differ between threads."""
        op = self.definition.get(self.same(index))
        if isinstance(op, Apply) and op.fn == "add" and index not in self.uniform:
            for arg in op.args:
                yield from self._parts(arg)
        else:
            yield index

    def _core(self, index: Value, parts: list[Value]) -> Core:
        """`parts`: those of the index, of which others are added."""
        added: list[tuple[str, Value]] = [("add", part) for part in parts if part in self.uniform]
        while index not in self.uniform:
            match self.definition.get(index):
                case Apply("convert", (inner,)) if is_widened(inner, index):
                    index = inner
                case Apply("add", (one, other)) if one in self.uniform or other in self.uniform:
                    index, more = (other, one) if one in self.uniform else (one, other)
                    added.append(("add", more))
                case Apply("sub", (one, other)) if other in self.uniform:
                    index = one
                    added.append(("sub", other))
                case _:
                    return Core(index, tuple(added))
        raise NotACopy

    def _in_one(self, varying: list[Value], parts: list[Value], size: int) -> Iterator[Digit]:
        """Both numbers in one index: what is not multiplied is less than what the other one is multiplied by."""
        multiplied = [(part, found) for part in varying if (found := self._product(part)) is not None]
        if len(varying) != 2 or len(multiplied) != 1:
            raise NotACopy
        (product, (factor, by)), (low,) = multiplied[0], [p for p in varying if p is not multiplied[0][0]]
        others = [part for part in parts if part is not product]
        if not self._is_below(others, by) or not self._is_below([factor], _LARGEST // by):
            raise NotACopy
        yield Digit(self._core(factor, []), size, "quotient", by)
        yield Digit(self._core(low, others), size, "remainder", by)

    def _is_below(self, parts: list[Value], end: int) -> bool:
        """Of a sum that does not wrap: whether it is from zero on, and less than that."""
        ranges = [self.ranges.get(part, _ANYTHING) for part in parts]
        return sum(low for low, _ in ranges) >= 0 and sum(high for _, high in ranges) < end

    def _product(self, part: Value) -> tuple[Value, int] | None:
        """A factor, and the number that it is multiplied by."""
        op = self.definition.get(self.same(part))
        if not isinstance(op, Apply) or op.fn not in ("mul", "shl"):
            return None
        for one, other in (op.args, op.args[::-1]) if op.fn == "mul" else (op.args,):
            number = self.number(other)
            if number is not None and 0 < number < _MOST[op.fn] and one not in self.uniform:
                return one, 1 << number if op.fn == "shl" else number
        return None

    def number(self, value: Value) -> int | None:
        """The same for all threads and launches of such blocks."""
        found = self.sums.of(value)
        return found.const if found is not None and not found.terms else None

    def same(self, value: Value) -> Value:
        """Without conversions that keep all bits."""
        while isinstance(op := self.definition.get(value), Apply) and op.fn == "convert":
            if not is_widened(op.args[0], value):
                break
            value = op.args[0]
        return value


def _join(layout: Layout, indices: Indices) -> None:
    """Digits that are a quotient and a remainder of one number are that number's."""
    divided = {digit: found for digit in layout.digits if (found := _division(digit, indices)) is not None}
    for high, (fn, number, by) in divided.items():
        low = next((d for d, found in divided.items() if found == ("rem", number, by)), None)
        if fn == "div" and low is not None and low in layout.digits:
            layout.digits.remove(high)
            layout.digits.remove(low)
            layout.numbers.append(Number(Core(number, ()), high.size, low.size, by))


def _division(digit: Digit, indices: Indices) -> tuple[str, Value, int] | None:
    op = indices.definition.get(digit.core.value)
    if digit.part != "whole" or digit.core.added or not isinstance(op, Apply) or op.fn not in ("div", "rem"):
        return None
    by = indices.number(op.args[1])
    return None if by is None or by <= 0 else (op.fn, indices.same(op.args[0]), by)


def is_widened(inner: Value, value: Value) -> bool:
    """Whether a conversion keeps all bits of an integer."""
    one, other = inner.type, value.type
    integers = isinstance(one, Scalar) and isinstance(other, Scalar) and not one.is_float and not other.is_float
    return integers and 4 <= one.size <= other.size
