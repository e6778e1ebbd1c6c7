"""What the rows of an exchange (see `row_exchange`) leave for the launches of its keys: the gradient without the
updates, and memory of the launch's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...ir.builder import Builder, pointee
from ...ir.ops import Block, For, Function, Op, Param, Value
from ...ir.traverse import rebuild, with_body
from ...ir.types import BOOL, I32, I64, Pointer, Scalar
from .row_exchange import Part

_C_TYPES = {"f32": "float", "f64": "double", "i32": "int", "u32": "unsigned int", "i64": "long long"}


@dataclass(frozen=True)
class Buffer:
    """Memory of the launch's own: so many numbers of a type for each thread. `zeroed`: before it."""

    name: str
    type: Scalar
    count: int
    zeroed: bool
    adjoint: bool = False


class Left:
    """What rows leave before loops, and where: one number after the other, each of all threads."""

    def __init__(self, values: dict[For, tuple[Value, ...]], adjoints: set[Value]):
        self.of, self.loops = values, {loop: number for number, loop in enumerate(values)}
        self.slots: dict[Value, tuple[str, int]] = {}
        self.buffers: dict[str, Buffer] = {}
        for value in dict.fromkeys(v for own in values.values() for v in own):
            type, is_adjoint = kept_as(value), value in adjoints
            name = f"_row_{'d_' if is_adjoint else ''}{type.name}"
            count = self.buffers[name].count if name in self.buffers else 0
            self.slots[value] = name, count
            self.buffers[name] = Buffer(name, type, count + 1, False, is_adjoint)
        for number in self.loops.values():
            self.buffers[keys_of(number)] = Buffer(keys_of(number), I32, 2, True)
        self.params = {
            name: Param(
                Value(Pointer(own.type, "global"), name), f"{_C_TYPES[own.type.name]} *", restrict=True, variable=name
            )
            for name, own in self.buffers.items()
        }

    def place(self, b: Builder, name: str, slot: int, threads: Value, thread: Value) -> Value:
        """Of a thread's number in a buffer, both 64 bits wide."""
        index = b.apply("add", b.apply("mul", threads, b.constant(slot, I64)), thread) if slot else thread
        return b.offset(self.params[name].value, index)


def keys_of(number: int) -> str:
    return f"_row_keys_{number}" if number else "_row_keys"


def first_of(number: int) -> str:
    return f"_first_key_{number}"


def count_of(number: int) -> str:
    return f"_keys_{number}"


def kept_as(value: Value) -> Scalar:
    assert isinstance(value.type, Scalar)
    return I32 if value.type == BOOL else value.type


def put(b: Builder, place: Value, value: Value) -> None:
    b.store(place, b.convert(value, pointee(place)))


def got(b: Builder, place: Value, of: Value) -> Value:
    """`of`: the value that was put there."""
    return as_was(b, b.load(place, name=of.name), of)


def as_was(b: Builder, found: Value, of: Value) -> Value:
    """`of`: the value that was left."""
    return b.apply("ne", found, b.constant(0, I32)) if of.type == BOOL else b.convert(found, of.type)


class Told:
    """Numbers that the launcher tells."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}

    def wide(self, name: str) -> Value:
        return self.values.setdefault(name, Value(I64, name))

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(Param(value, "long long", variable=name) for name, value in self.values.items())


# ---- the rows' own launch -------------------------------------------------------------------------------------------


def rows_function(function: Function, parts: Iterable[Part], left: Left) -> Function:
    """The function without the parts' updates, which leaves what they want."""
    gone = {id(update.atomic) for part in parts for update in part.updates}
    told = Told()

    def inner(block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, For) and op in left.loops:
                ops += _leaving(op, left, told)
            if id(op) not in gone:
                ops.append(rebuild(op, lambda v: v, inner))
        return Block(block.args, tuple(ops), block.results)

    body = inner(function.body)
    params = (*function.params, *left.params.values(), *told.params)
    return with_body(replace(function, params=params), body)


def _leaving(loop: For, left: Left, told: Told) -> list[Op]:
    b = Builder(loop.span)
    indices = {(n, a): b.convert(b.builtin(n, a), I64) for n in _INDICES for a in range(3)}
    thread = linear(b, indices, _THREAD)
    size = _product(b, [indices["block_dim", a] for a in range(3)])
    thread = b.apply("add", b.apply("mul", linear(b, indices, IN_GRID), size), thread)
    threads = b.apply("mul", _product(b, [indices["grid_dim", a] for a in range(3)]), size)
    for value in left.of[loop]:
        put(b, left.place(b, *left.slots[value], threads, thread), value)
    number = left.loops[loop]
    for slot, key in enumerate(_keys(b, loop, told, number)):
        put(b, left.place(b, keys_of(number), slot, threads, thread), key)
    return b.ops


_INDICES = ("thread_idx", "block_idx", "block_dim", "grid_dim")
_THREAD = tuple((("thread_idx", a), ("block_dim", a)) for a in range(3))
IN_GRID = tuple((("block_idx", a), ("grid_dim", a)) for a in range(3))
Indices = dict[tuple[str, int], Value]


def linear(b: Builder, at: Indices, axes: tuple[tuple[tuple[str, int], tuple[str, int]], ...]) -> Value:
    """One number for several, the first of them fastest."""
    (first, _), *others = axes
    total, size = at[first], at[axes[0][1]]
    for index, extent in others:
        total = b.apply("add", total, b.apply("mul", at[index], size))
        size = b.apply("mul", size, at[extent])
    return total


def _product(b: Builder, values: list[Value]) -> Value:
    first, *others = values
    for value in others:
        first = b.apply("mul", first, value)
    return first


def _keys(b: Builder, loop: For, told: Told, number: int) -> tuple[Value, Value]:
    """The number of the first key of a row's iterations, and how many there are."""
    lower, upper = (b.convert(v, I64) for v in (loop.lower, loop.upper))
    first, one, nothing = told.wide(first_of(number)), b.constant(1, I64), b.constant(0, I64)
    if abs(loop.step) != 1:
        some = b.apply("lt" if loop.step > 0 else "gt", lower, upper)
        return nothing, b.apply("select", some, told.wide(count_of(number)), nothing)
    low, high = (lower, upper) if loop.step > 0 else (b.apply("add", upper, one), b.apply("add", lower, one))
    count = b.apply("max", b.apply("sub", high, low), nothing)
    return b.apply("sub", low, first), count
