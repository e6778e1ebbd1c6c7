"""Adjoint variables: one local variable per active value, zero at first, added to; promotion turns them into SSA."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.builder import Builder, pointee
from ...ir.ops import Apply, Constant, Op, Value
from ...ir.types import I32, Array, Scalar, Struct, Type
from .activity import holds_floats
from .shadows import ZERO, adjoint_type, shadow_name, zero_fill
from .tape import part_types


class Adjoints:
    def __init__(self, b: Builder):
        self.b = b
        self._variables: dict[Value, Value] = {}
        self._untouched: dict[Value, list[Op]] = {}  # still zero, if nothing but this region has run
        self._only: dict[Value, tuple[list[Op], Value]] = {}  # a single contribution, and its region
        self._factors: dict[Value, tuple[Value, float]] = {}  # of adjoints that are products with a number
        self.tested: Callable[[Value], None] | None = None  # what is done with each contribution, see `report_nan`

    def create(self, value: Value, name: str | None = None) -> None:
        variable = self.b.alloca(adjoint_type(value.type), name or shadow_name(value.name))
        zero_fill(self.b, variable)
        self._variables[value] = variable
        self._untouched[value] = self.b.ops

    def __contains__(self, value: Value) -> bool:
        return value in self._variables

    def variable(self, value: Value) -> Value:
        """Where the adjoint is, for adding to a part of it."""
        self._untouched.pop(value, None)
        self._only.pop(value, None)
        return self._variables[value]

    def is_zero(self, value: Value) -> bool:
        """Whether nothing was added to the adjoint."""
        return value in self._untouched

    def get(self, value: Value) -> Value:
        adjoint = self.b.load(self._variables[value])
        region, only = self._only.get(value, (None, None))
        if region is self.b.ops and only in self._factors:
            self._factors[adjoint] = self._factors[only]
        return adjoint

    def get_times(self, value: Value, number: float) -> Value:
        """The adjoint times a number, which goes with a number that the adjoint has as a factor itself."""
        adjoint = self.get(value)
        factor, own = self._factors.get(adjoint, (adjoint, 1.0))
        if abs(number * own) != 1:
            return self.b.apply("mul", factor, self.b.constant(number * own, factor.type))
        return factor if number * own > 0 else self.b.apply("neg", factor)

    def add(self, value: Value, contribution: Value) -> None:
        """adjoint(value) += contribution; nothing for a value that has no adjoint."""
        if value not in self._variables:
            return
        region = self._untouched.pop(value, None)
        self._only.pop(value, None)
        if region is self.b.ops:  # the first contribution is the sum so far
            self._only[value] = region, contribution
            self._note_factors(contribution)
            self.b.store(self._variables[value], contribution)
        else:
            add_into(self.b, self._variables[value], contribution)
        if self.tested is not None:
            self.tested(contribution)

    def _note_factors(self, made: Value) -> None:
        """Of a product that was just made with a power of two."""
        match self.b.ops[-2:]:
            case [Constant(float(number)) as constant, Apply("mul", (factor, other)) as product]:
                if product.result is made and other is constant.result and abs(math.frexp(number)[0]) == 0.5:
                    self._factors[made] = factor, number


def add_into(b: Builder, variable: Value, contribution: Value) -> None:
    """`*variable += contribution` for every float in it."""
    type = pointee(variable)
    if isinstance(type, Scalar):
        if type.is_float:
            b.store(variable, b.apply("add", b.load(variable), contribution))
        return
    if isinstance(type, Struct | Array):
        for k, part in enumerate(part_types(type)):
            if holds_floats(part):
                add_into(b, part_of(b, variable, k), b.extract(contribution, k))


def part_of(b: Builder, ptr: Value, index: int) -> Value:
    if isinstance(pointee(ptr), Struct):
        return b.member(ptr, index)
    return b.offset(b.decay(ptr), b.constant(index, I32))


def zero(b: Builder, type: Type) -> Value:
    """A zero of any type; pointers inside are null."""
    if isinstance(type, Struct | Array):
        return b.aggregate(type, tuple(zero(b, part) for part in part_types(type)))
    is_float = isinstance(type, Scalar) and type.is_float
    return b.constant(ZERO if is_float else (False if str(type) == "bool" else 0), type)
