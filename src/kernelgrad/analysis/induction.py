"""Integers that a loop changes in the same way every time: known in every iteration without a tape.

for (int i = t; i < n; i += stride)   i = t + k * stride          for (int d = w; d > 0; d >>= 1)   d = w >> k

What comes round after a few iterations (`cycles`) is known likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.builder import Builder
from ..ir.ops import Apply, Constant, For, Value, While
from ..ir.types import BOOL, I64, Scalar, Type
from .structure import Structure, carried_as, is_rotated

if TYPE_CHECKING:
    from .cycles import Cycle


@dataclass(frozen=True)
class Induction:
    """`fn`: add, sub (of `by`, or of `amount`), shl, shr, div (by 2 to the `amount`), or going (a loop's condition,
    inside it true)."""

    fn: str
    type: Scalar
    start: Value | None = None
    by: Value | None = None
    amount: int = 0

    @property
    def needs(self) -> tuple[Value, ...]:
        return tuple(v for v in (self.start, self.by) if v is not None)

    def at(self, b: Builder, given: Mapping[Value, Value], iteration: Value, name: str | None) -> Value:
        """The value in iteration `iteration` (i64), counted from zero, under the name that it has in the source.
        `given`: what stands for `needs`."""
        start, by = (None if v is None else given[v] for v in (self.start, self.by))
        return value_at(b, self, start, by, iteration, name)


def find(loop: For | While, arg: Value, structure: Structure) -> Induction | Cycle | None:
    return find_step(loop, arg, structure) or _find_cycle(loop, arg, structure)


def _find_cycle(loop: For | While, arg: Value, structure: Structure) -> Cycle | None:
    from . import cycles

    return cycles.find(loop, arg, structure)


def find_step(loop: For | While, arg: Value, structure: Structure) -> Induction | None:
    """Of an integer that each iteration moves on."""
    if isinstance(loop, While) and arg is loop.body.args[0] and is_rotated(loop):
        return Induction("going", BOOL)
    if not _is_integer(arg.type) or (isinstance(loop, For) and arg is loop.body.args[0]):
        return None
    index = carried_as(loop, loop.body.args.index(arg))
    if index is None:
        return None
    bits = arg.type.bits if isinstance(arg.type, Scalar) else 0
    following = structure.definition.get(unconverted(loop.body.results[index], bits, structure))
    if not isinstance(following, Apply) or len(following.args) != 2:
        return None
    left, right = following.args
    if following.fn in ("add", "mul") and unconverted(right, bits, structure) is arg:
        left, right = right, left
    if unconverted(left, bits, structure) is not arg:
        return None
    if following.fn == "add" and unconverted(right, bits, structure) is arg:  # doubled
        start = loop.inits[index]
        return Induction("shl", start.type, start, amount=1) if left.type == right.type == start.type else None  # type: ignore[arg-type]
    return _step(following.fn, loop, loop.inits[index], right, left.type, structure)


def _step(
    fn: str, loop: For | While, start: Value, by: Value, computed_in: Type, structure: Structure
) -> Induction | None:
    assert isinstance(start.type, Scalar)
    constant = structure.definition.get(by)
    number = constant.value if isinstance(constant, Constant) and isinstance(constant.value, int) else None
    if fn in ("add", "sub"):
        if number is not None:
            return Induction(fn, start.type, start, amount=number)
        invariant = _is_integer(by.type) and not structure.is_inside(by, loop)
        return Induction(fn, start.type, start, by) if invariant else None
    if number is None or computed_in != start.type:
        return None
    if fn in ("shl", "shr") and 0 < number < start.type.bits:
        return Induction(fn, start.type, start, amount=number)
    if fn in ("div", "mul") and number > 1 and number & (number - 1) == 0:
        divided = "shr" if _is_positive(start, loop, structure) else "div"
        return Induction({"div": divided, "mul": "shl"}[fn], start.type, start, amount=number.bit_length() - 1)
    return None


def _is_positive(start: Value, loop: For | While, structure: Structure) -> bool:
    """Whether the value is positive whenever the loop runs at all: dividing it is shifting it."""
    if isinstance(start.type, Scalar) and start.type.kind == "uint":
        return True
    constant = structure.definition.get(start)
    if isinstance(constant, Constant):
        return constant.value >= 0
    return isinstance(loop, While) and _implies_positive(loop.inits[0], start, structure)


def _implies_positive(test: Value, value: Value, structure: Structure) -> bool:
    match structure.definition.get(test):
        case Apply("and", args):
            return any(_implies_positive(arg, value, structure) for arg in args)
        case Apply("gt" | "ge", (found, end)) | Apply("lt" | "le", (end, found)) if found is value:
            least = structure.definition.get(end)
            return isinstance(least, Constant) and least.value >= 0
        case _:
            return False


def value_at(
    b: Builder,
    induction: Induction,
    start: Value | None,
    by: Value | None,
    iteration: Value,
    name: str | None = None,
) -> Value:
    type = induction.type
    if induction.fn == "going":
        return b.constant(True, BOOL)
    assert start is not None
    if induction.fn in ("add", "sub"):
        step = b.constant(induction.amount, type) if by is None else b.convert(by, type)
        return b.apply(induction.fn, start, b.apply("mul", b.convert(iteration, type), step), name=name)
    shift = b.convert(b.apply("mul", iteration, b.constant(induction.amount, I64)), type)
    if induction.fn in ("shl", "shr"):  # by the width or more, everything is shifted out
        return b.apply(induction.fn, start, shift, name=name)
    # Dividing again and again rounds to the same as dividing once, also towards zero.
    most = b.constant(type.bits - 2, type)
    divided = b.apply("div", start, b.apply("shl", b.constant(1, type), b.apply("min", shift, most)))
    return b.apply("select", b.apply("le", shift, most), divided, b.constant(0, type), name=name)


def _is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint") and type.bits >= 32


def unconverted(value: Value, bits: int, structure: Structure) -> Value:
    """Through conversions between integers of at least so many bits, which keep those: all that sums depend on."""

    def is_wide(v: Value) -> bool:
        return isinstance(v.type, Scalar) and _is_integer(v.type) and v.type.bits >= bits

    op = structure.definition.get(value)
    while isinstance(op, Apply) and op.fn == "convert" and is_wide(value) and is_wide(op.args[0]):
        value = op.args[0]
        op = structure.definition.get(value)
    return value
