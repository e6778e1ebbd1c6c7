"""Integers that a user differentiates by, as the real numbers that they stand for.

Before: a kernel ready for the backends, and names of its parameters that lead to integers. After: they lead to doubles,
and what is computed from them is computed in doubles. Only additions, subtractions and multiplications have the same
meaning in both; what else touches such an integer is an error at its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..errors import UnsupportedError
from ..ir.builder import Builder
from ..ir.ops import Apply, Atomic, Block, For, Function, If, Load, Offset, Op, Param, Store, Value, While
from ..ir.traverse import operands, rebuild, walk, with_body
from ..ir.types import F64, Pointer, Scalar, Type

_ARITHMETIC = frozenset(("add", "sub", "mul", "neg"))
_HINT = "use float or double for what is differentiated"


def are_integers(type: Type) -> bool:
    """Whether a parameter leads to integers."""
    return isinstance(type, Pointer) and _is_integer(type.pointee)


def _is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint")


def as_reals(function: Function, names: Iterable[str]) -> Function:
    found = _Reals(function, frozenset(names))
    return found.run()


class _Reals:
    """`pointers`: what leads to such numbers. `numbers`: those, and what is computed from them."""

    def __init__(self, function: Function, names: frozenset[str]):
        self.function, self.names = function, names
        self.pointers = {p.value for p in function.params if p.name in names}
        self.numbers: set[Value] = set()
        size = -1
        while size != len(self.pointers) + len(self.numbers):
            size = len(self.pointers) + len(self.numbers)
            for op in walk(function.body):
                self.flow(op)
        self.new: dict[Value, Value] = {}

    # ---- which they are

    def flow(self, op: Op) -> None:
        match op:
            case Offset(ptr, _) if ptr in self.pointers:
                self.pointers.add(op.result)
            case Load(ptr) if ptr in self.pointers:
                self.numbers.add(op.result)
            case Apply(fn, args) if fn in _ARITHMETIC or fn in ("convert", "select"):
                if _is_integer(op.result.type) and any(a in self.numbers for a in args[fn == "select" :]):
                    self.numbers.add(op.result)
        for own, incoming in _joined(op):
            if any(v in self.numbers for v in (*own, *incoming)):
                self.numbers.update(own)

    # ---- the code

    def run(self) -> Function:
        params = tuple(self.param(p) for p in self.function.params)
        body = self.block(self.function.body)
        return replace(with_body(self.function, body), params=params)

    def param(self, param: Param) -> Param:
        if param.value not in self.pointers:
            return param
        assert isinstance(param.type, Pointer)
        self.new[param.value] = value = Value(Pointer(F64, param.type.space), param.value.name)
        return replace(param, value=value, c_type="double *")

    def value(self, v: Value) -> Value:
        if v in self.new:
            return self.new[v]
        if v in self.numbers:
            self.new[v] = Value(F64, v.name)
            return self.new[v]
        if v in self.pointers:
            assert isinstance(v.type, Pointer)
            self.new[v] = Value(Pointer(F64, v.type.space), v.name)
            return self.new[v]
        return v

    def block(self, block: Block, wanted: tuple[bool, ...] = ()) -> Block:
        """`wanted`: which results are to be real."""
        b = Builder()
        for op in block.ops:
            b.span = op.span
            self.op(b, op)
        results = tuple(self.real(b, v) if wanted and wanted[k] else self.value(v) for k, v in enumerate(block.results))
        return Block(tuple(map(self.value, block.args)), tuple(b.ops), results)

    def real(self, b: Builder, v: Value) -> Value:
        return self.value(v) if v in self.numbers or v in self.pointers else b.convert(v, F64)

    def op(self, b: Builder, op: Op) -> None:
        match op:
            case Apply(fn, args) if op.result in self.numbers:
                self.apply(b, op, fn, args)
            case Store(ptr, value) if ptr in self.pointers:
                b.add(replace(op, ptr=self.value(ptr), value=self.real(b, value)))
            case Atomic("add" | "sub", ptr, (value,)) if ptr in self.pointers:
                self.new[op.result] = result = Value(F64)
                b.add(replace(op, ptr=self.value(ptr), args=(self.real(b, value),), results=(result,)))
            case Load(ptr) | Offset(ptr) if ptr in self.pointers and not self.is_touched(operands(op)[1:]):
                b.add(replace(rebuild(op, self.value, lambda x: x), results=(self.value(op.result),)))
            case If() | For() | While():
                self.nested(b, op)
            case _:
                if self.is_touched(operands(op)):
                    raise self.refused(op)
                b.add(op)

    def is_touched(self, values: Iterable[Value]) -> bool:
        return any(v in self.numbers or v in self.pointers for v in values)

    def apply(self, b: Builder, op: Apply, fn: str, args: tuple[Value, ...]) -> None:
        if fn == "convert":
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
        results = tuple(v in self.numbers for v in op.results)
        made = tuple(map(self.value, op.results))
        if isinstance(op, If):
            b.add(replace(op, then=self.block(op.then, results), orelse=self.block(op.orelse, results), results=made))
            return
        inits = tuple(
            self.real(b, v) if is_real else self.value(v) for v, is_real in zip(op.inits, results, strict=True)
        )
        if isinstance(op, For):
            b.add(replace(op, inits=inits, body=self.block(op.body, results), results=made))
            return
        before = self.block(op.before, (False, *results))
        b.add(replace(op, inits=inits, before=before, body=self.block(op.body, results), results=made))

    def refused(self, op: Op) -> UnsupportedError:
        what = "an integer that is differentiated by is more than added, subtracted and multiplied here"
        return UnsupportedError(what, op.span, _HINT)


def _joined(op: Op) -> Iterator[tuple[tuple[Value, ...], tuple[Value, ...]]]:
    """What a branch or a loop defines that is one number by turns, and what goes into it."""
    match op:
        case If(_, then, orelse):
            for out, one, other in zip(op.results, then.results, orelse.results, strict=True):
                yield (out,), (one, other)
        case For(_, _, inits, _, body):
            for out, arg, result, init in zip(op.results, body.args[1:], body.results, inits, strict=True):
                yield (out, arg), (result, init)
        case While(inits, before, body):
            carried = zip(op.results, before.args, body.args, before.results[1:], body.results, inits, strict=True)
            for out, first, second, passed, result, init in carried:
                yield (out, first, second), (passed, result, init)
