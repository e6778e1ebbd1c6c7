"""Between which numbers an index lies in one launch: from the launch's shape, integer arguments and loops' bounds.

Branches are not looked at, and arithmetic that could wrap tells nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir.layout import param_layout
from ...ir.ops import Apply, Builtin, Constant, For, Function, Member, Offset, Op, PtrCast, Value
from ...ir.traverse import walk
from ...ir.types import Pointer, Scalar, Struct
from ...locks import cached_property

Dim3 = tuple[int, int, int]
Range = tuple[int, int]  # the least and the largest

BUILTINS: dict[str, Callable[[int, int], Range]] = {
    "thread_idx": lambda grid, block: (0, block - 1),
    "block_idx": lambda grid, block: (0, grid - 1),
    "block_dim": lambda grid, block: (block, block),
    "grid_dim": lambda grid, block: (grid, grid),
    "warp_size": lambda grid, block: (32, 32),
    "lane_id": lambda grid, block: (0, 31),
}


def _div(x: Range, y: Range) -> Range | None:
    return (x[0] // y[1], x[1] // y[0]) if x[0] >= 0 and y[0] > 0 else None


def _rem(x: Range, y: Range) -> Range | None:
    return (0, min(x[1], y[1] - 1)) if x[0] >= 0 and y[0] > 0 else None


def _mul(x: Range, y: Range) -> Range:
    products = [a * b for a in x for b in y]
    return min(products), max(products)


COMBINED: dict[str, Callable[[Range, Range], Range | None]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": _mul,
    "div": _div,
    "rem": _rem,
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "and": lambda x, y: (0, min(x[1], y[1])) if x[0] >= 0 and y[0] >= 0 else None,
    "shl": lambda x, y: (x[0] << y[0], x[1] << y[1]) if x[0] >= 0 and y[0] >= 0 and y[1] < 64 else None,
    "shr": lambda x, y: (x[0] >> y[1], x[1] >> y[0]) if x[0] >= 0 and y[0] >= 0 and y[1] < 64 else None,
}


@dataclass(frozen=True)
class Indices:
    """A kernel's definitions, to ask about launch by launch."""

    function: Function

    @cached_property
    def definitions(self) -> Mapping[Value, Op]:
        return {v: op for op in walk(self.function.body) for v in op.results}

    @cached_property
    def counters(self) -> Mapping[Value, For]:
        return {op.body.args[0]: op for op in walk(self.function.body) if isinstance(op, For)}

    @cached_property
    def _ints(self) -> tuple[tuple[Value, int, str], ...]:
        offsets, _ = param_layout(self.function)
        found = []
        for param, offset in zip(self.function.params, offsets, strict=True):
            type = param.type
            if isinstance(type, Scalar) and type.kind in ("int", "uint"):
                code = "bhiq"[type.bits.bit_length() - 4]
                found.append((param.value, offset, "<" + (code if type.kind == "int" else code.upper())))
        return tuple(found)

    def ints(self, packed: bytes) -> dict[Value, int]:
        """The integer arguments of a launch."""
        return {value: int(struct.unpack_from(code, packed, offset)[0]) for value, offset, code in self._ints}


class Answers(Mapping[Value, int]):
    """Integers among a launch's arguments, each asked for only where something depends on it."""

    def __init__(self, known: Callable[[Any], Any]):
        self._known = known

    def __contains__(self, value: object) -> bool:
        return self._known(value) is not None

    def __getitem__(self, value: Value) -> int:
        return int(self._known(value))

    def __iter__(self) -> Iterator[Value]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Ranges:
    indices: Indices
    grid: Dim3
    block: Dim3
    ints: Mapping[Value, int]
    _known: dict[Value, Range | None] = field(default_factory=dict)

    def offset(self, pointer: Value) -> Range | None:
        """How many bytes behind the parameter that it comes from."""
        match self.indices.definitions.get(pointer):
            case None:
                return (0, 0)
            case PtrCast(ptr):
                return self.offset(ptr)
            case Member(ptr, index) if isinstance(ptr.type, Pointer) and isinstance(ptr.type.pointee, Struct):
                at = ptr.type.pointee.fields[index].offset
                return _both(COMBINED["add"], self.offset(ptr), (at, at))
            case Offset(ptr, index) if isinstance(ptr.type, Pointer):
                size = ptr.type.pointee.size
                steps = _both(_mul, self.of(index), (size, size))
                return _both(COMBINED["add"], self.offset(ptr), steps)
        return None

    def of(self, value: Value) -> Range | None:
        if value not in self._known:
            self._known[value] = None  # while it is looked for
            self._known[value] = _fitting(self._found(value), value)
        return self._known[value]

    def _found(self, value: Value) -> Range | None:
        if value in self.ints:
            return self.ints[value], self.ints[value]
        if value in self.indices.counters:
            return self._counted(self.indices.counters[value])
        match self.indices.definitions.get(value):
            case Constant(number) if isinstance(number, int):
                return number, number
            case Builtin(name, axis) if name in BUILTINS:
                return BUILTINS[name](self.grid[axis], self.block[axis])
            case Apply("convert", (source,)):
                return self.of(source)
            case Apply("neg", (arg,)):
                return _both(COMBINED["sub"], (0, 0), self.of(arg))
            case Apply("select", (_, one, other)):
                return _both(lambda x, y: (min(x[0], y[0]), max(x[1], y[1])), self.of(one), self.of(other))
            case Apply(fn, (left, right)) if fn in COMBINED:
                return _both(COMBINED[fn], self.of(left), self.of(right))
        return None

    def _counted(self, loop: For) -> Range | None:
        lower, upper = self.of(loop.lower), self.of(loop.upper)
        if lower is None or upper is None:
            return None
        return (lower[0], max(lower[0], upper[1] - 1)) if loop.step > 0 else (min(lower[1], upper[0] + 1), lower[1])


def _both(combine: Callable[[Range, Range], Range | None], x: Range | None, y: Range | None) -> Range | None:
    return None if x is None or y is None else combine(x, y)


def _fitting(found: Range | None, value: Value) -> Range | None:
    """What its type can hold."""
    type = value.type
    if found is None or not isinstance(type, Scalar) or type.kind not in ("int", "uint"):
        return None
    least = -(2 ** (type.bits - 1)) if type.kind == "int" else 0
    return found if least <= found[0] and found[1] < least + 2**type.bits else None
