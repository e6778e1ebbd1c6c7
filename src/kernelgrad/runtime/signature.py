"""C text of types and signatures, as shown to the user."""

from __future__ import annotations

from functools import lru_cache

from ..ir.ops import Function, Param
from ..ir.types import C_NAMES, Array, Pointer, Scalar, Type

_QUALIFIERS = {"kernel": "__global__ ", "device": "__device__ ", "host": ""}


def c_name(type: Type) -> str:
    """A C spelling of a type whose own spelling in the source is not at hand."""
    match type:
        case Scalar():
            return C_NAMES[type.name]
        case Pointer():
            return declare(c_name(type.pointee), "*")
        case Array():
            return f"{c_name(type.element)}[{type.count}]"
        case _:
            return type.name


def declare(c_type: str, name: str) -> str:
    """`float *` and `x` to `float *x`; `float (*)[4]` and `x` to `float (*x)[4]`; `int[4]` and `x` to `int x[4]`."""
    head, star, tail = c_type.partition("(*")
    if star:
        return f"{head}(*{name}{tail}"
    element, bracket, extents = c_type.partition("[")
    if bracket and c_type.endswith("]"):
        return f"{declare(element.rstrip(), name)}[{extents}"
    return f"{c_type}{name}" if c_type.endswith(("*", "&")) else f"{c_type} {name}"


def c_signature(function: Function) -> str:
    """`__global__ void saxpy(float *y, const float *x, float a, int n)`; module variables are not shown."""
    params = ", ".join(declare(p.c_type, p.name) for p in user_params(function))
    result = "void" if function.result_type is None else c_name(function.result_type)
    return f"{_QUALIFIERS[function.kind]}{declare(result, function.name)}({params})"


@lru_cache(1024)
def user_params(function: Function) -> tuple[Param, ...]:
    """The parameters that the user's arguments are for: all but the addresses of module variables."""
    return tuple(p for p in function.params if p.variable is None)
