"""Copies of the adjoint of a small input that very many threads read: each block adds to one of them, so that fewer
wait at one address. A finishing step adds the copies up."""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.machine import COPIES
from ...ir.builder import Builder, linear_block
from ...ir.ops import Offset, Param, PtrCast, Value
from ...ir.types import I64, Type
from ..calculus.flat_numbers import as_numbers

NEIGHBOURS = 8


@dataclass(frozen=True)
class Copies:
    """They lie one behind the other, each of so many numbers. `pointer`: to the one of this block."""

    memory: Param
    length: Param
    pointer: Value
    count: int = COPIES

    @property
    def params(self) -> tuple[Param, Param]:
        return self.memory, self.length

    def emit(self, b: Builder) -> None:
        # Neighbours share one: a thread that does the work of several blocks adds up for them (`unroll_and_jam`).
        group = b.apply("div", linear_block(b), b.constant(NEIGHBOURS, I64))
        number = b.apply("rem", group, b.constant(self.count, I64))
        at = b.apply("mul", number, self.length.value)
        first = as_numbers(b, self.memory.value)
        if first is self.memory.value:
            b.add(Offset(first, at, results=(self.pointer,)))
        else:
            b.add(PtrCast(b.offset(first, at), results=(self.pointer,)))


def spread(adjoint: Param, type: Type, count: int) -> Copies:
    """`type`: of the pointer to them."""
    memory = Param(Value(type, f"_copies{adjoint.name}"), adjoint.c_type, restrict=True)
    length = Param(Value(I64, f"_length{adjoint.name}"), "long long")
    return Copies(memory, length, Value(type, adjoint.name), count)
