"""Adjoint variables: one local variable per active value, zero at first, added to; promotion turns them into SSA."""

from __future__ import annotations

from ..ir.builder import Builder, pointee
from ..ir.ops import Op, Value
from ..ir.types import I32, Array, Scalar, Struct, Type
from .activity import holds_floats
from .shadows import ZERO, adjoint_type, shadow_name, zero_fill
from .tape import part_types


class Adjoints:
    def __init__(self, b: Builder):
        self.b = b
        self._variables: dict[Value, Value] = {}
        self._untouched: dict[Value, list[Op]] = {}  # still zero, if nothing but this region has run

    def create(self, value: Value) -> None:
        variable = self.b.alloca(adjoint_type(value.type), shadow_name(value.name))
        zero_fill(self.b, variable)
        self._variables[value] = variable
        self._untouched[value] = self.b.ops

    def __contains__(self, value: Value) -> bool:
        return value in self._variables

    def variable(self, value: Value) -> Value:
        """Where the adjoint is, for adding to a part of it."""
        self._untouched.pop(value, None)
        return self._variables[value]

    def get(self, value: Value) -> Value:
        return self.b.load(self._variables[value])

    def add(self, value: Value, contribution: Value) -> None:
        """adjoint(value) += contribution; nothing for a value that has no adjoint."""
        if value not in self._variables:
            return
        region = self._untouched.pop(value, None)
        if region is self.b.ops:  # the first contribution is the sum so far
            self.b.store(self._variables[value], contribution)
        else:
            add_into(self.b, self._variables[value], contribution)


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
