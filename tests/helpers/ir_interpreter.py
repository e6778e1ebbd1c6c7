"""A reference interpreter of IR for tests: one thread, plain Python, written without regard to speed.

Scalars are Python numbers, structs and arrays tuples, pointers integers (buffer number << 32 | byte offset) into
buffers of bytes. Undefined values and fresh memory are zero. What a run did to the outside is its `results`, the bytes
of the buffers it was given, and `printed`.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelgrad.ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Assert,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Builtin,
    Call,
    Constant,
    Extract,
    Fence,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Leave,
    Load,
    Member,
    Module,
    Offset,
    Op,
    Print,
    PtrCast,
    PtrDiff,
    Store,
    Trap,
    Undef,
    Value,
    While,
)
from kernelgrad.ir.types import Array, Pointer, Scalar, Struct, Type, element_types


class Trapped(Exception):
    """The program did what no correct program does: division by zero, access out of bounds, a failed assertion."""


class TooLong(Exception):
    """More steps than allowed: most likely an endless loop."""


@dataclass
class Machine:
    module: Module = field(default_factory=Module)
    builtins: dict[tuple[str, int], int] = field(default_factory=dict)
    limit: int = 200_000
    printed: list[tuple[Any, ...]] = field(default_factory=list)
    memory: dict[int, bytearray] = field(default_factory=dict)
    variables: dict[str, int] = field(default_factory=dict)

    # ---- memory

    def allocate(self, content: bytes | int) -> int:
        number = len(self.memory) + 1
        self.memory[number] = bytearray(content)
        return number << 32

    def at(self, address: int, size: int) -> tuple[bytearray, int]:
        number, offset = address >> 32, address & 0xFFFFFFFF
        buffer = self.memory.get(number)
        if buffer is None or offset + size > len(buffer):
            raise Trapped(f"access of {size} bytes at {number}+{offset}")
        return buffer, offset

    def load(self, address: int, type: Type) -> Any:
        if isinstance(type, Struct | Array):
            return tuple(self.load(address + at, part) for at, part in parts(type))
        buffer, offset = self.at(address, type.size)
        (value,) = struct.unpack_from("<" + code(type), buffer, offset)
        return value

    def store(self, address: int, type: Type, value: Any) -> None:
        if isinstance(type, Struct | Array):
            for (at, part), item in zip(parts(type), value, strict=True):
                self.store(address + at, part, item)
            return
        buffer, offset = self.at(address, type.size)
        struct.pack_into("<" + code(type), buffer, offset, value)

    # ---- running

    def run(self, function: Function, *args: Any) -> tuple[Any, ...]:
        env = dict(zip((p.value for p in function.params), args, strict=True))
        return self.block(function.body, env, ())

    def block(self, block: Block, env: dict[Value, Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        env.update(zip(block.args, args, strict=True))
        for op in block.ops:
            self.limit -= 1
            if self.limit < 0:
                raise TooLong
            results = self.execute(op, env)
            env.update(zip(op.results, results, strict=True))
        return tuple(env[v] for v in block.results)

    def execute(self, op: Op, env: dict[Value, Any]) -> tuple[Any, ...]:
        match op:
            case Constant(value):
                return (normal(value, op.result.type),)
            case Undef():
                return (zero(op.result.type),)
            case Apply(fn, args):
                return (apply(fn, [env[a] for a in args], [a.type for a in args], op.result.type),)
            case Aggregate(args):
                return (tuple(env[a] for a in args),)
            case Extract(aggregate, index):
                return (env[aggregate][index],)
            case Insert(aggregate, value, index):
                old = env[aggregate]
                return ((*old[:index], env[value], *old[index + 1 :]),)
            case Builtin(name, axis):
                return (self.builtins.get((name, axis), 0),)
            case Alloca():
                return (self.allocate(pointee(op.result).size),)
            case GlobalRef(name):
                return (self.variable(name),)
            case Offset(ptr, index):
                return (env[ptr] + env[index] * pointee(ptr).size,)
            case Member(ptr, index):
                return (env[ptr] + pointee(ptr).fields[index].offset,)  # type: ignore[union-attr]
            case PtrCast(ptr):
                return (env[ptr],)
            case PtrDiff(left, right):
                return ((env[left] - env[right]) // pointee(left).size,)
            case Load(ptr):
                return (self.load(env[ptr], op.result.type),)
            case Store(ptr, value):
                self.store(env[ptr], value.type, env[value])
                return ()
            case Atomic(kind, ptr, args):
                return (self.atomic(kind, env[ptr], op.result.type, [env[a] for a in args]),)
            case Barrier() | Fence() | Leave():
                return ()
            case BarrierReduce(_, value):
                return (int(env[value] != 0),)
            case Print(format, args):
                self.printed.append((format, *(env[a] for a in args)))
                return ()
            case Assert(cond, message):
                if not env[cond]:
                    raise Trapped(message)
                return ()
            case Trap():
                raise Trapped("trap")
            case Call(callee, args):
                return self.run(self.module.functions[callee], *(env[a] for a in args))
            case If(cond, then, orelse):
                return self.block(then if env[cond] else orelse, env, ())
            case For():
                return self.counted(op, env)
            case While():
                return self.loop(op, env)
        raise NotImplementedError(type(op).__name__)

    def counted(self, op: For, env: dict[Value, Any]) -> tuple[Any, ...]:
        carried = tuple(env[v] for v in op.inits)
        iv, upper = env[op.lower], env[op.upper]
        while iv < upper if op.step > 0 else iv > upper:
            carried = self.block(op.body, env, (iv, *carried))
            iv += op.step
        return carried

    def loop(self, op: While, env: dict[Value, Any]) -> tuple[Any, ...]:
        carried = tuple(env[v] for v in op.inits)
        while True:
            condition, *forwarded = self.block(op.before, env, carried)
            if not condition:
                return tuple(forwarded)
            carried = self.block(op.body, env, tuple(forwarded))

    def variable(self, name: str) -> int:
        if name not in self.variables:
            g = self.module.globals[name]
            self.variables[name] = self.allocate(g.init if g.init is not None else g.type.size)
        return self.variables[name]

    def atomic(self, kind: str, address: int, type: Type, args: list[Any]) -> Any:
        old = self.load(address, type)
        if kind == "cas":
            new = args[1] if old == args[0] else old
        elif kind in ("exch", "take"):
            new = args[0]
        else:
            new = apply(kind, [old, args[0]], [type, type], type)
        self.store(address, type, new)
        return old


def pointee(ptr: Value) -> Type:
    assert isinstance(ptr.type, Pointer)
    return ptr.type.pointee


def parts(type: Struct | Array) -> list[tuple[int, Type]]:
    if isinstance(type, Array):
        return [(k * type.element.size, type.element) for k in range(type.count)]
    return [(f.offset, f.type) for f in type.fields]


_CODES = {"i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"}
_CODES |= {"f16": "e", "f32": "f", "f64": "d", "bool": "?"}


def code(type: Type) -> str:
    return "Q" if isinstance(type, Pointer) else _CODES[type.name]  # type: ignore[union-attr]


def zero(type: Type) -> Any:
    if isinstance(type, Struct | Array):
        return tuple(zero(t) for t in element_types(type))
    return normal(0, type)


# ---- scalars


def normal(value: Any, type: Type) -> Any:
    """The number as a value of the type: wrapped around or rounded."""
    if isinstance(type, Pointer):
        return int(value)
    assert isinstance(type, Scalar)
    if type.kind == "bool":
        return bool(value)
    if type.is_float:
        with np.errstate(all="ignore"):
            return float({16: np.float16, 32: np.float32, 64: np.float64}[type.bits](value))
    value = int(value) % (1 << type.bits)
    return value - (1 << type.bits) if type.kind == "int" and value >= 1 << (type.bits - 1) else value


def truncated(a: int, b: int) -> int:
    if b == 0:
        raise Trapped("division by zero")
    return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


def divide(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


_SIMPLE: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in "add sub mul neg lt le gt ge eq ne xor".split()},
    "and": operator.and_,
    "or": operator.or_,
    "abs": abs,
    "min": min,
    "max": max,
    "rem": lambda a, b: a - truncated(a, b) * b,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "fma": lambda a, b, c: a * b + c,
    "isnan": math.isnan,
}


def apply(fn: str, args: list[Any], types: list[Type], result: Type) -> Any:
    if fn == "select":
        return args[1] if args[0] else args[2]
    if fn == "convert":
        return convert(args[0], types[0], result)
    if fn == "bitcast":
        return struct.unpack("<" + code(result), struct.pack("<" + code(types[0]), args[0]))[0]
    first = types[0]
    assert isinstance(first, Scalar | Pointer)
    if fn == "not":
        return normal(not args[0] if first.name == "bool" else ~args[0], result)  # type: ignore[union-attr]
    if fn in ("shl", "shr"):
        amount = args[1] if 0 <= args[1] < first.size * 8 else 64
        return normal(args[0] << amount if fn == "shl" else args[0] >> amount, result)
    if fn == "div":
        whole = isinstance(first, Scalar) and not first.is_float
        return normal(truncated(*args) if whole else divide(*args), result)
    return normal(_SIMPLE[fn](*args), result)


def convert(value: Any, source: Type, target: Type) -> Any:
    assert isinstance(source, Scalar) and isinstance(target, Scalar)
    if target.kind == "bool":
        return value != 0
    if source.is_float and not target.is_float:
        if math.isnan(value):
            return 0
        signed = target.kind == "int"
        low = -(1 << (target.bits - 1)) if signed else 0
        high = (1 << (target.bits - 1 if signed else target.bits)) - 1
        return low if value < low else high if value > high else int(value)
    return normal(value, target)
