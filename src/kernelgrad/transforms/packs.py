"""Packs of numbers as arrays of them, and pointers to their memory that count in numbers: what `bit_moves` found.

A pointer is its base, an index and a constant, so that all numbers of a pack are at one offset and a constant.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

from ..ir.builder import Builder, pointee
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Block,
    Constant,
    Extract,
    Function,
    GlobalRef,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Undef,
    Value,
    Warp,
)
from ..ir.traverse import rebuild, with_body
from ..ir.types import BF16, F16, F32, F64, I64, Array, Pointer, Scalar, Struct, Type

CODES = {F16: "e", F32: "f", F64: "d"}  # of the struct module


@dataclass(frozen=True)
class _Spot:
    """`base + index + const`, in numbers."""

    base: Value
    index: Value | None = None
    const: int = 0

    def plus(self, b: Builder, index: Value | None, const: int) -> _Spot:
        if index is None or self.index is None:
            return _Spot(self.base, index or self.index, self.const + const)
        total = b.apply("add", b.convert(self.index, I64), b.convert(index, I64))
        return _Spot(self.base, total, self.const + const)

    def pointer(self, b: Builder) -> Value:
        if self.index is None:
            return b.offset(self.base, b.constant(self.const, I64)) if self.const else self.base
        index = self.index
        if self.const:
            index = b.apply("add", b.convert(index, I64), b.constant(self.const, I64))
        return b.offset(self.base, index)


class Retyped:
    def __init__(self, number: dict[Value, Scalar], definitions: dict[Value, Op]):
        self.number, self.definitions = number, definitions
        self._values: dict[Value, Value] = {}
        self._spots: dict[Value, _Spot] = {}  # by the old pointers

    def function(self, function: Function) -> Function:
        b = Builder(function.span)
        for param in function.params:
            if param.value in self.number:
                self._values[param.value] = self._counting(b, param.value)
        body = self.block(function.body)
        return with_body(function, Block(body.args, (*b.ops, *body.ops), body.results))

    def _counting(self, b: Builder, ptr: Value, old: Value | None = None) -> Value:
        """A pointer as one to numbers. `old`: whose place it takes."""
        type = (old or ptr).type
        assert isinstance(type, Pointer)
        return b.cast_pointer(ptr, Pointer(self.number[old or ptr], type.space))

    def value(self, v: Value) -> Value:
        number = self.number.get(v)
        if number is None:
            return self._values.get(v, v)
        if v not in self._values:
            new: Type = Array(number, v.type.size // number.size)
            if isinstance(v.type, Pointer):
                new = Pointer(number, v.type.space)
            self._values[v] = Value(new, v.name)
        return self._values[v]

    def block(self, block: Block) -> Block:
        ops = [new for op in block.ops for new in self.op(op)]
        return Block(tuple(map(self.value, block.args)), tuple(ops), tuple(map(self.value, block.results)))

    def op(self, op: Op) -> list[Op]:
        b = Builder(op.span)
        match op:
            case Alloca() | GlobalRef() | PtrCast() | Offset() | Member() if op.result in self.number:
                self._values[op.result] = self._pointer(b, op)
            case Constant() | Undef() if op.result in self.number and isinstance(op.result.type, Pointer):
                self._values[op.result] = self._pointer(b, op)
            case Load(ptr) if op.result in self.number:
                self._put(b, op.result, [b.load(at) for at in self._places(b, ptr, op.result)])
            case Store(ptr, value) if value in self.number:
                for k, at in enumerate(self._places(b, ptr, value)):
                    b.store(at, b.extract(self.value(value), k))
            case Undef() if op.result in self.number:
                self._put(b, op.result, [b.undef(t) for t in self._types(op.result)])
            case Constant(constant) if op.result in self.number:
                numbers = unpacked(constant, op.result.type, self.number[op.result])
                self._put(
                    b, op.result, [b.constant(n, t) for n, t in zip(numbers, self._types(op.result), strict=True)]
                )
            case Aggregate(args) if op.result in self.number:
                self._put(b, op.result, [part for a in args for part in self._parts(b, a)])
            case Extract(aggregate, index) if op.result in self.number:
                first = self._at(aggregate, index)
                self._put(b, op.result, self._parts(b, aggregate)[first : first + len(self._types(op.result))])
            case Insert(aggregate, value, index) if op.result in self.number:
                parts, first = self._parts(b, aggregate), self._at(aggregate, index)
                parts[first : first + len(self._types(value))] = self._parts(b, value)
                self._put(b, op.result, parts)
            case Apply("select", (cond, yes, no)) if op.result in self.number:
                pairs = zip(self._parts(b, yes), self._parts(b, no), strict=True)
                self._put(b, op.result, [b.apply("select", cond, x, y) for x, y in pairs])
            case Apply("bitcast" | "convert", (arg,)) if op.result in self.number or arg in self.number:
                self._recast(b, op, arg)
            case Warp(fn, (mask, value, *rest)) if op.result in self.number:
                shuffled = [b.emit(Warp, fn, (mask, part, *rest), type=part.type) for part in self._parts(b, value)]
                self._put(b, op.result, shuffled)
            case _:
                results = tuple(map(self.value, op.results))
                return [rebuild(op, self.value, self.block, results=results)]
        return b.ops

    def _pointer(self, b: Builder, op: Op) -> Value:
        number = self.number[op.result]
        match op:
            case Alloca():
                memory = b.alloca(Array(number, pointee(op.result).size // number.size), op.result.name)
                return self._counting(b, memory, op.result)
            case PtrCast(ptr) if ptr.type.space == op.result.type.space:  # type: ignore[union-attr]
                self._spots[op.result] = self._spot(ptr)
                return self.value(ptr)
            case PtrCast(ptr):
                return self._counting(b, self.value(ptr), op.result)
            case Offset() | Member():
                spot = self._spots[op.result] = self._moved(b, op, number)
                return spot.pointer(b)
            case Constant(null):
                return b.constant(null, self.value(op.result).type)
            case Undef():
                return b.undef(self.value(op.result).type)
        b.add(op)
        return self._counting(b, op.result)

    def _spot(self, ptr: Value) -> _Spot:
        return self._spots.get(ptr) or _Spot(self.value(ptr))

    def _moved(self, b: Builder, op: Offset | Member, number: Scalar) -> _Spot:
        type, spot = pointee(op.ptr), self._spot(op.ptr)
        if isinstance(op, Member):
            return spot.plus(b, None, type.fields[op.index].offset // number.size)  # type: ignore[union-attr]
        scale, known = type.size // number.size, self.definitions.get(op.index)
        if isinstance(known, Constant):
            return spot.plus(b, None, scale * int(known.value))
        index = self.value(op.index)
        if scale != 1:
            index = b.apply("mul", b.convert(index, I64), b.constant(scale, I64))
        return spot.plus(b, index, 0)

    def _types(self, pack: Value) -> list[Type]:
        number = self.number[pack]
        return [number] * (pack.type.size // number.size)

    def _places(self, b: Builder, ptr: Value, pack: Value) -> list[Value]:
        spot = self._spot(ptr)
        return [spot.plus(b, None, k).pointer(b) for k in range(len(self._types(pack)))]

    def _at(self, aggregate: Value, index: int) -> int:
        """Where a part begins, in numbers."""
        type = aggregate.type
        nbytes = type.fields[index].offset if isinstance(type, Struct) else index * type.element.size  # type: ignore[union-attr]
        return nbytes // self.number[aggregate].size

    def _parts(self, b: Builder, pack: Value) -> list[Value]:
        return [b.extract(self.value(pack), k) for k in range(len(self._types(pack)))]

    def _put(self, b: Builder, pack: Value, parts: list[Value]) -> None:
        new = self.value(pack)
        made = b.aggregate(new.type, tuple(parts))  # type: ignore[arg-type]
        b.ops[-1] = replace(b.ops[-1], results=(new,))
        assert made is not new

    def _recast(self, b: Builder, op: Op, arg: Value) -> None:
        if op.result not in self.number:
            self._values[op.result] = b.extract(self.value(arg), 0)
        elif arg not in self.number:
            self._put(b, op.result, [self.value(arg)])
        else:
            self._put(b, op.result, self._parts(b, arg))


def unpacked(constant: Any, type: Type, number: Scalar) -> list[float]:
    """The numbers whose bits a constant has."""
    assert isinstance(type, Scalar)
    if type.is_float:
        data = struct.pack("<" + CODES[type], constant)
    else:
        data = (int(constant) % (1 << type.bits)).to_bytes(type.size, "little")
    parts = [data[at : at + number.size] for at in range(0, type.size, number.size)]
    if number == BF16:  # the upper half of a float
        return [struct.unpack("<f", b"\0\0" + part)[0] for part in parts]
    return [struct.unpack("<" + CODES[number], part)[0] for part in parts]
