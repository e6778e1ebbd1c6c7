"""Integers that a user differentiates by, as the real numbers that they stand for.

Before: a kernel or function ready for the backends, and names of its parameters that are integers or lead to them.
After: they are doubles, or lead to them; so does the memory that numbers computed from them are stored to, be it that
of other parameters, shared, or a thread's own, and what is computed from them is computed in doubles. Only additions,
subtractions and multiplications have the same meaning in both; what else touches such an integer is an error there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from ..errors import UnsupportedError
from ..ir.builder import Builder
from ..ir.ops import (
    Alloca,
    Apply,
    Atomic,
    Block,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Module,
    Offset,
    Op,
    Param,
    PtrCast,
    Store,
    Undef,
    Value,
    While,
)
from ..ir.traverse import operands, rebuild, walk, with_body
from ..ir.types import F64, Array, Pointer, Scalar, Type

ARITHMETIC = frozenset(("add", "sub", "mul", "neg"))
MORE = "an integer that is differentiated by is more than added, subtracted and multiplied here"
HINT = "use float or double for what is differentiated"


def are_integers(type: Type) -> bool:
    """Whether a parameter leads to integers."""
    return isinstance(type, Pointer) and is_integer(type.pointee)


def is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint")


def keeps_integers(of: Type, to: Type) -> bool:
    """Whether a conversion leaves each integer what it is."""
    if not isinstance(of, Scalar) or not isinstance(to, Scalar) or not is_integer(to):
        return False
    return (of.kind == to.kind and of.bits <= to.bits) or (of.kind == "uint" and of.bits < to.bits)


class Reals(NamedTuple):
    """`names`: the parameters that are doubles now, or lead to them."""

    module: Module
    names: frozenset[str]


def as_reals(module: Module, name: str, names: Iterable[str]) -> Reals:
    """The function of that name, and the shared variables that it uses."""
    function = module.functions[name]
    found = _Reals(function, frozenset(names))
    made = found.run()
    shared = {v: replace(g, type=_real(g.type)) for v, g in module.globals.items() if v in found.variables}
    if any(g.space != "shared" or g.type.size == 0 for g in shared.values()):
        spot = next(op for op in walk(function.body) if isinstance(op, GlobalRef) and op.name in shared)
        raise UnsupportedError("an integer that is differentiated by is kept in a variable here", spot.span, HINT)
    changed = replace(module, functions={name: made}, globals={**module.globals, **shared})
    return Reals(changed, frozenset(p.name for p in function.params if p.value in found.touched))


def _real(type: Type) -> Type:
    """The same with doubles for integers."""
    if isinstance(type, Pointer):
        return Pointer(_real(type.pointee), type.space)
    return Array(_real(type.element), type.count) if isinstance(type, Array) else F64


def _leaf(type: Type) -> Type:
    while isinstance(type, Array):
        type = type.element
    return type


def _is_decay(op: PtrCast) -> bool:
    """Of an array of integers to its elements, or of a pointer to them to another space."""
    of, to = op.ptr.type, op.result.type
    assert isinstance(of, Pointer) and isinstance(to, Pointer)
    return is_integer(_leaf(to.pointee)) and _leaf(of.pointee) == _leaf(to.pointee)


class _Reals:
    """`touched`: such numbers, what is computed from them, and what leads to them."""

    def __init__(self, function: Function, names: frozenset[str]):
        self.function, self.names = function, names
        self.touched = {p.value for p in function.params if p.name in names}
        self.variables: set[str] = set()
        size = -1
        while size != len(self.touched):
            size = len(self.touched)
            for op in walk(function.body):
                self.flow(op)
        self.new: dict[Value, Value] = {}

    # ---- which they are

    def flow(self, op: Op) -> None:
        match op:
            case Offset(ptr, _):
                self.join((ptr, op.result))
            case PtrCast(ptr) if _is_decay(op):
                self.join((ptr, op.result))
            case Load(ptr) if ptr in self.touched and is_integer(op.result.type):
                self.touched.add(op.result)
            case Store(ptr, value) if value in self.touched and is_integer(value.type):
                self.touched.add(ptr)
            case Atomic("add" | "sub", ptr, (value,)) if {ptr, value} & self.touched:
                self.touched.add(ptr)
            case GlobalRef(name) if op.result in self.touched or name in self.variables:
                self.variables.add(name)
                self.touched.add(op.result)
            case Apply("select", (_, one, other)) if isinstance(op.result.type, Pointer):
                self.join((one, other, op.result))
            case Apply(fn, args) if fn in ARITHMETIC or fn in ("convert", "select"):
                if is_integer(op.result.type) and any(a in self.touched for a in args[fn == "select" :]):
                    self.touched.add(op.result)
        for own, incoming in joined_values(op):
            if isinstance(own[0].type, Pointer):
                self.join((*own, *incoming))
            elif is_integer(own[0].type) and any(v in self.touched for v in (*own, *incoming)):
                self.touched.update(own)

    def join(self, pointers: tuple[Value, ...]) -> None:
        """All of them lead to the same memory."""
        if any(p in self.touched for p in pointers):
            self.touched.update(pointers)

    # ---- the code

    def run(self) -> Function:
        params = tuple(self.param(p) for p in self.function.params)
        body = self.block(self.function.body)
        return replace(with_body(self.function, body), params=params)

    def param(self, param: Param) -> Param:
        if param.value not in self.touched:
            return param
        c_type = "double *" if isinstance(param.type, Pointer) else "double"
        return replace(param, value=self.value(param.value), c_type=c_type)

    def value(self, v: Value) -> Value:
        if v in self.touched and v not in self.new:
            self.new[v] = Value(_real(v.type), v.name)
        return self.new.get(v, v)

    def block(self, block: Block, wanted: tuple[bool, ...] = ()) -> Block:
        """`wanted`: which results are to be real."""
        b = Builder()
        for op in block.ops:
            b.span = op.span
            self.op(b, op)
        results = tuple(self.real(b, v) if wanted and wanted[k] else self.value(v) for k, v in enumerate(block.results))
        return Block(tuple(map(self.value, block.args)), tuple(b.ops), results)

    def real(self, b: Builder, v: Value) -> Value:
        return self.value(v) if v in self.touched else b.convert(v, F64)

    def op(self, b: Builder, op: Op) -> None:
        match op:
            case Apply(fn, args) if op.result in self.touched:
                self.apply(b, op, fn, args)
            case Store(ptr, value) if ptr in self.touched:
                b.add(replace(op, ptr=self.value(ptr), value=self.real(b, value)))
            case Atomic("add" | "sub", ptr, (value,)) if ptr in self.touched:
                self.new[op.result] = result = Value(F64)
                b.add(replace(op, ptr=self.value(ptr), args=(self.real(b, value),), results=(result,)))
            case Load(ptr) | Offset(ptr) if ptr in self.touched and not self.is_touched(operands(op)[1:]):
                self.same(b, op)
            case PtrCast(ptr) if ptr in self.touched and _is_decay(op):
                self.same(b, op)
            case Alloca() | GlobalRef() | Undef() if op.result in self.touched:
                self.same(b, op)
            case If() | For() | While():
                self.nested(b, op)
            case _:
                if self.is_touched((*operands(op), *op.results)):
                    raise self.refused(op)
                b.add(op)

    def same(self, b: Builder, op: Op) -> None:
        """With doubles."""
        if not is_integer(_leaf(op.result.type.pointee if isinstance(op.result.type, Pointer) else op.result.type)):
            raise self.refused(op)
        b.add(replace(rebuild(op, self.value, lambda x: x), results=(self.value(op.result),)))

    def is_touched(self, values: Iterable[Value]) -> bool:
        return any(v in self.touched for v in values)

    def apply(self, b: Builder, op: Apply, fn: str, args: tuple[Value, ...]) -> None:
        if fn == "convert":
            if not keeps_integers(args[0].type, op.result.type):
                raise self.refused(op)
            self.new[op.result] = self.value(args[0])
            return
        if fn == "select" and self.is_touched(args[:1]):
            raise self.refused(op)
        given = (*args[: fn == "select"], *(self.real(b, a) for a in args[fn == "select" :]))
        b.add(replace(op, args=given, results=(self.value(op.result),)))

    def nested(self, b: Builder, op: If | For | While) -> None:
        control = (op.cond,) if isinstance(op, If) else (op.lower, op.upper) if isinstance(op, For) else ()
        if self.is_touched(control) or (isinstance(op, While) and self.is_touched(op.before.results[:1])):
            raise self.refused(op)
        made = tuple(map(self.value, op.results))
        results = self.which(op.results)
        if isinstance(op, If):
            b.add(replace(op, then=self.block(op.then, results), orelse=self.block(op.orelse, results), results=made))
            return
        carried = self.which(op.body.args[1:] if isinstance(op, For) else op.before.args)
        pairs = zip(op.inits, carried, strict=True)
        inits = tuple(self.real(b, v) if is_real else self.value(v) for v, is_real in pairs)
        body = self.block(op.body, carried)
        if isinstance(op, For):
            b.add(replace(op, inits=inits, body=body, results=made))
            return
        b.add(replace(op, inits=inits, before=self.block(op.before, (False, *results)), body=body, results=made))

    def which(self, values: tuple[Value, ...]) -> tuple[bool, ...]:
        return tuple(v in self.touched for v in values)

    def refused(self, op: Op) -> UnsupportedError:
        return UnsupportedError(MORE, op.span, HINT)


def joined_values(op: Op) -> Iterator[tuple[tuple[Value, ...], tuple[Value, ...]]]:
    """What a branch or a loop defines that is one number by turns, and what goes into it."""
    match op:
        case If(_, then, orelse):
            for out, one, other in zip(op.results, then.results, orelse.results, strict=True):
                yield (out,), (one, other)
        case For(_, _, inits, _, body):
            for out, arg, result, init in zip(op.results, body.args[1:], body.results, inits, strict=True):
                yield (out, arg), (result, init)
        case While(inits, before, body):
            for arg, result, init in zip(before.args, body.results, inits, strict=True):
                yield (arg,), (result, init)
            for out, arg, passed in zip(op.results, body.args, before.results[1:], strict=True):
                yield (out, arg), (passed,)
