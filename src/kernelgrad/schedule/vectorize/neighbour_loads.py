"""Neighbours that a thread loads, sixteen bytes at a time: k[32 * j], k[32 * j + 1], ... of a buffer that begins at a
multiple of that, and that nobody writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...analysis.machine import VECTORS
from ...analysis.roots import analyse as roots_of
from ...ir.builder import Builder
from ...ir.ops import Apply, Block, Constant, Function, Load, Module, Offset, Op, Value
from ...ir.traverse import descend, substitute, walk, with_body
from ...ir.types import I64, Pointer, Scalar

_Key = tuple[Value, ...]  # a parameter, and what is added to it


class _Place(NamedTuple):
    key: _Key
    at: int  # elements on from there


def run(function: Function, module: Module, aligned: frozenset[str]) -> Function:
    """`aligned`: the parameters."""
    return _Pass(function, aligned).run()


class _Pass:
    def __init__(self, function: Function, aligned: frozenset[str]):
        self.function = function
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        written = roots_of(function).written()
        self.params = {p.value for p in function.params if p.name in aligned and p.value not in written}
        self.found: dict[Value, Value] = {}

    def run(self) -> Function:
        body = self.block(self.function.body)
        return with_body(self.function, substitute(body, self.found)) if self.found else self.function

    def block(self, block: Block) -> Block:
        groups = {id(first): group for group in self.groups(block) for first in [_first(block, group)]}
        gone = {id(op) for group in groups.values() for op in group}
        ops: list[Op] = []
        for op in block.ops:
            if id(op) in groups:
                ops += self.together(op, groups[id(op)])
            if id(op) not in gone:
                ops.append(descend(op, self.block))
        return Block(block.args, tuple(ops), block.results)

    def groups(self, block: Block) -> Iterator[list[Load]]:
        """Loads of neighbours that fill a vector."""
        found: dict[tuple[_Key, Scalar], dict[int, Load]] = {}
        for op in block.ops:
            type = op.result.type if isinstance(op, Load) and not op.volatile else None
            if not isinstance(op, Load) or not isinstance(type, Scalar) or type not in VECTORS:
                continue
            place = self.place(op.ptr)
            if place is not None and self.is_multiple(place.key, _each(type)):
                found.setdefault((place.key, type), {}).setdefault(place.at, op)
        for (_, type), loads in found.items():
            each = _each(type)
            for start in loads:
                if start % each == 0 and all(start + k in loads for k in range(each)):
                    yield [loads[start + k] for k in range(each)]

    def together(self, first: Op, group: list[Load]) -> list[Op]:
        assert isinstance(first, Load) and isinstance(first.ptr.type, Pointer)
        b, type = Builder(first.span), VECTORS[first.result.type]  # type: ignore[index]
        before = group.index(first)
        ptr = b.offset(first.ptr, b.constant(-before, I64)) if before else first.ptr
        loaded = b.load(b.cast_pointer(ptr, Pointer(type, first.ptr.type.space)))
        self.found.update((op.result, b.extract(loaded, k)) for k, op in enumerate(group))
        return b.ops

    # ---- addresses

    def place(self, ptr: Value) -> _Place | None:
        if ptr in self.params:
            return _Place((ptr,), 0)
        op = self.definition.get(ptr)
        if not isinstance(op, Offset):
            return None
        before, (base, at) = self.place(op.ptr), self.index(op.index)
        if before is None or before.at:
            return None
        return _Place((*before.key, *(() if base is None else (base,))), at)

    def index(self, value: Value) -> tuple[Value | None, int]:
        """As something and a constant: a multiple of four, and up to three, never come round."""
        match self.definition.get(value):
            case Constant(number) if isinstance(number, int):
                return None, number
            case Apply("add", (left, right)):
                op = self.definition.get(right)
                if isinstance(op, Constant) and isinstance(op.value, int):
                    base, at = self.index(left)
                    return (base, at + op.value) if at == 0 else (value, 0)
        return value, 0

    def is_multiple(self, key: _Key, of: int) -> bool:
        return all(self.divides(of, v) for v in key[1:])

    def divides(self, by: int, value: Value) -> bool:
        """Also of numbers that come round: `by` is a power of two."""
        match self.definition.get(value):
            case Constant(number) if isinstance(number, int):
                return number % by == 0
            case Apply("mul", args):
                return any(self.divides(by, v) for v in args)
            case Apply("add" | "sub", args):
                return all(self.divides(by, v) for v in args)
            case Apply("convert", (source,)) if isinstance(source.type, Scalar):
                return not source.type.is_float and source.type.bits >= 32 and self.divides(by, source)
        return False


def _each(type: Scalar) -> int:
    """Numbers of a vector."""
    return VECTORS[type].size // type.size


def _first(block: Block, group: list[Load]) -> Load:
    members = {id(op): op for op in group}
    return next(members[id(op)] for op in block.ops if id(op) in members)
