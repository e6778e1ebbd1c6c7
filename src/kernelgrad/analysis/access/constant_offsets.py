"""Addresses that differ by constants, as of `w[j * 16]`, `w[j * 16 + 1]`: told from each other by names alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ...ir.ops import Apply, Constant, Member, Offset, Op, PtrCast, Value
from ...ir.types import I32, I64, Pointer, Struct


class Spot(NamedTuple):
    """The address `root + sum of symbols * scales + bytes`."""

    root: Value
    terms: frozenset[tuple[Value, int]]
    bytes: int


def spot_of(ptr: Value, definition: Mapping[Value, Op]) -> Spot:
    terms: Counter[Value] = Counter()
    total = 0
    while True:
        op = definition.get(ptr)
        if isinstance(op, Member) and isinstance(op.ptr.type, Pointer) and isinstance(op.ptr.type.pointee, Struct):
            total += op.ptr.type.pointee.fields[op.index].offset
        elif isinstance(op, Offset) and isinstance(ptr.type, Pointer):
            size = ptr.type.pointee.size
            symbol, constant = symbol_and_constant(op.index, definition)
            total += constant * size
            if symbol is not None:
                terms[symbol] += size
        elif not isinstance(op, PtrCast) or not _is_view(op):
            return Spot(ptr, frozenset(terms.items()), total)
        ptr = op.ptr


def _is_view(op: PtrCast) -> bool:
    """Of the same memory: an array's first element, floats as vectors."""
    old, new = op.ptr.type, op.result.type
    return isinstance(old, Pointer) and isinstance(new, Pointer) and old.space == new.space


def symbol_and_constant(index: Value, definition: Mapping[Value, Op]) -> tuple[Value | None, int]:
    """A signed index as a symbol and a constant: it does not wrap."""
    op = definition.get(index)
    if isinstance(op, Constant):
        return None, int(op.value)
    if isinstance(op, Apply) and op.fn == "add" and index.type in (I32, I64):
        for one, other in (op.args, op.args[::-1]):
            if isinstance(constant := definition.get(other), Constant):
                return one, int(constant.value)
    return index, 0
