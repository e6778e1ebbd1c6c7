"""What a kernel's parameters are and what it does with them, for whoever builds on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..analysis.roots import analyse, holds_pointers
from ..ir.ops import Atomic, Extract, Function, Load, Param, Value
from ..ir.traverse import uses, walk
from ..ir.types import Array, Pointer, Scalar, Struct, Type
from .layouts import flat_dtypes
from .signature import user_params


@dataclass(frozen=True)
class Parameter:
    """`c_type` is as the source has it. `pointer`: an array goes in; `const`: what it points to is declared so.

    `read`, `written`: whether the kernel may load or add to what the array held, and whether it may store there; a
    number is read where it is used, of a struct any of either. `floating`: it holds floating-point numbers and can have
    an adjoint. `dtype`: the name of the array's or number's type, as "float32"; None where that is no single one: `void
    *`, mixed structs.
    """

    name: str
    c_type: str
    pointer: bool
    const: bool
    read: bool
    written: bool
    floating: bool
    dtype: str | None


def parameters_of(function: Function, written: Iterable[str]) -> tuple[Parameter, ...]:
    """`written`: the pointers that are stored through, "p" or "s.p"."""
    stored = {path.partition(".")[0].partition("[")[0] for path in written}
    memory, used = analyse(function), uses(function.body)
    loads = [op for op in walk(function.body) if isinstance(op, Load | Atomic)]
    read = frozenset(root for op in loads for root in memory.of(op.ptr))
    extracts = [op for op in walk(function.body) if isinstance(op, Extract)]

    def is_read(value: Value) -> bool:
        return value in read or _is_used(value, extracts, used)

    return tuple(_parameter(p, is_read(p.value), p.name in stored) for p in user_params(function))


def _is_used(value: Value, extracts: list[Extract], used: Mapping[Value, int]) -> bool:
    """As a number, or a number in it; what pointers are used for, loads and stores tell."""
    if not holds_pointers(value.type):
        return bool(used.get(value))
    if isinstance(value.type, Pointer):
        return False
    parts = [op.results[0] for op in extracts if op.aggregate is value]
    return used.get(value, 0) > len(parts) or any(_is_used(part, extracts, used) for part in parts)


def _parameter(param: Param, read: bool, written: bool) -> Parameter:
    pointee = param.type.pointee if isinstance(param.type, Pointer) else param.type
    const = isinstance(param.type, Pointer) and param.const
    is_pointer = isinstance(param.type, Pointer)
    return Parameter(
        param.called, param.c_type, is_pointer, const, read, written, _holds_floats(pointee), _dtype(param, pointee)
    )


def _holds_floats(type: Type) -> bool:
    match type:
        case Scalar():
            return type.is_float
        case Pointer():
            return _holds_floats(type.pointee)
        case Array():
            return _holds_floats(type.element)
        case Struct():
            return any(_holds_floats(field.type) for field in type.fields)


def _dtype(param: Param, type: Type) -> str | None:
    if "void" in param.c_type or isinstance(type, Pointer):
        return None
    real = [d for d in flat_dtypes(type) if not (isinstance(d, np.dtype) and d.kind == "c")]
    return str(real[0]) if real else None
