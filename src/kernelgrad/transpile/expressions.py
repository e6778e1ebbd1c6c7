"""Sizes and counts (`launches/memory/buffers`) as C++ of a host function. Those of memory are of type `size_t`; what a
kernel computes from its integer arguments has the type it has there."""

from __future__ import annotations

from collections.abc import Callable

from ..backends.cuda.types import Types
from ..errors import InternalError
from ..ir.types import Scalar
from ..launches.memory.buffers import BLOCK_THREADS, BLOCKS, Bytes, Expression, Extent, Number, Operation, SharedBytes
from ..launches.memory.tape_expressions import Argument, Computed, Literal, Trips, Typed

Named = Callable[[str], str]  # the C++ name of an argument, or of the bytes of a buffer

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^", "shl": "<<",
    "shr": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_SUFFIXES = {"i64": "ll", "u64": "ull", "u32": "u"}
_SPELL = Types({}).spell


class Printer:
    """`argument`, `nbytes`: names of arguments, and of what says how large a buffer is. `local`: names of the host
    function's own variables: grid, block, shared, blocks, block_threads."""

    def __init__(self, argument: Named, nbytes: Named, local: Named):
        self._argument, self._nbytes, self._local = argument, nbytes, local
        self._named: dict[Expression, str] = {BLOCKS: local("blocks"), BLOCK_THREADS: local("block_threads")}

    def declare(self, expression: Expression, name: str) -> None:
        """A variable has the value from now on."""
        self._named.setdefault(expression, name)

    def size(self, expression: Expression) -> str:
        """As a number of type size_t."""
        if expression in self._named and not isinstance(expression, Number):
            return self._named[expression]
        match expression:
            case Number(number):
                return str(number)
            case Bytes(buffer):
                return self._nbytes(buffer)
            case SharedBytes():
                return self._local("shared")
            case Extent(of, axis):
                return f"{self._local(of)}.{'xyz'[axis]}"
            case Trips() | Argument() | Computed() | Literal():
                return self.count(expression)
            case Operation(kind, first, second):
                return self._operation(kind, first, second)
        raise InternalError(f"internal error: {expression} has no text")

    def _operation(self, kind: str, first: Expression, second: Expression) -> str:
        if kind in ("min", "max"):
            return f"std::{kind}<size_t>({self.size(first)}, {self.size(second)})"
        left, right = self._grouped(first), self._grouped(second)
        if kind == "up":
            return f"({self.size(first)} + {self.size(second)} - 1) / {right}"
        if kind == "+":
            left, right = self.size(first), self.size(second)
        return f"{left} {kind} {right}"

    def _grouped(self, expression: Expression) -> str:
        compound = isinstance(expression, Operation) and expression.kind in ("+", "/", "up")
        text = self.size(expression)
        return f"({text})" if compound and " " in text else text

    # ---- integers of the kernel's own

    def count(self, expression: Expression) -> str:
        """As a number of type long long, which is not negative."""
        match expression:
            case Trips(Literal(0), upper, 1):
                return f"std::max<long long>({self.integer(upper)}, 0)"
            case Trips(lower, upper, step):
                return f"{_TRIPS}({self.integer(lower)}, {self.integer(upper)}, {step})"
            case Operation("max", first, second):
                return f"std::max<long long>({self.count(first)}, {self.count(second)})"
            case Operation("+", first, second):
                return f"{self.count(first)} + {self.count(second)}"
            case Operation("*", first, second):
                return f"{self._factor(first)} * {self._factor(second)}"
            case Argument() | Computed() | Literal():
                return f"(long long){self._tight(expression)}"
            case _:
                return self.size(expression)

    def _factor(self, expression: Expression) -> str:
        text = self.count(expression)
        return f"({text})" if isinstance(expression, Operation) and expression.kind == "+" else text

    def integer(self, value: Typed) -> str:
        """As the kernel computes it."""
        match value:
            case Argument(name):
                return self._argument(name)
            case Extent(of, axis):
                return f"{self._local(of)}.{'xyz'[axis]}"
            case Literal(number, type):
                return _literal(number, type)
            case Computed(fn, args, type):
                return self._computed(fn, args, type)

    def _computed(self, fn: str, args: tuple[Typed, ...], type: Scalar) -> str:
        operands = [self._tight(arg) for arg in args]
        if fn == "convert":
            return f"({_SPELL(type)}){operands[0]}"
        if fn == "select":
            return f"{operands[0]} ? {operands[1]} : {operands[2]}"
        if fn in ("min", "max"):
            return f"std::{fn}<{_SPELL(type)}>({', '.join(map(self.integer, args))})"
        if fn == "not" and type.kind == "bool":
            return f"!{operands[0]}"
        text = f"{_UNARY[fn]}{operands[0]}" if fn in _UNARY else f"{operands[0]} {_INFIX[fn]} {operands[1]}"
        return f"({_SPELL(type)})({text})" if type.bits in (8, 16) else text  # C++ would compute in int

    def _tight(self, value: Typed) -> str:
        """As an operand."""
        text = self.integer(value)
        bare = not isinstance(value, Computed) or value.fn in ("min", "max", "convert")
        return text if bare and not text.startswith("-") else f"({text})"


_UNARY = {"neg": "-", "not": "~"}
_TRIPS = "kg::trips"


def _literal(number: int, type: Scalar) -> str:
    if type.kind == "bool":
        return "true" if number else "false"
    return f"{number}{_SUFFIXES.get(type.name, '')}"
