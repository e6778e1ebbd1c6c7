"""Derivatives that the source gives for a function of its own: which functions they are, and how their parameters fit.

    R f(A a, const B *b, int n)                                  the function
    void f_pullback(A a, const B *b, int n, R d_result, A *d_a, B *d_b)    adds to the adjoints of a and b
    R f_tangent(A a, const B *b, int n, A t_a, B *t_b)           the result's tangent, of those of a and b

What holds no floating point numbers has neither; a pullback may have adjoints of integers too, as Clad's have.
"""

from __future__ import annotations

from dataclasses import dataclass

from .types import Array, Pointer, Scalar, Struct, Type


@dataclass(frozen=True)
class CustomDerivative:
    """The names of a function and of its derivatives in a module."""

    function: str
    pullback: str | None = None
    tangent: str | None = None


def has_floats(type: Type) -> bool:
    """Whether a value of the type holds floating point numbers, or points to some."""
    match type:
        case Scalar():
            return type.is_float
        case Struct(fields=fields):
            return any(has_floats(f.type) for f in fields)
        case Array(element):
            return has_floats(element)
        case Pointer(pointee):
            return has_floats(pointee)


def differentiable(params: tuple[Type, ...]) -> tuple[int, ...]:
    return tuple(k for k, type in enumerate(params) if has_floats(type))


def adjoints_of_pullback(params: tuple[Type, ...], result: Type, pullback: tuple[Type, ...]) -> tuple[int, ...] | None:
    """To which parameter each adjoint of a pullback belongs; None if its signature does not fit."""
    own = len(params)
    if pullback[: own + 1] != (*params, result):
        return None
    for owners in (differentiable(params), tuple(range(own))):
        if pullback[own + 1 :] == tuple(adjoint_type(params[k]) for k in owners):
            return owners
    return None


def adjoint_type(type: Type) -> Pointer:
    return type if isinstance(type, Pointer) else Pointer(type)


def fits_tangent(params: tuple[Type, ...], result: Type, tangent: tuple[Type, ...], returned: Type | None) -> bool:
    """It gives the tangent, or as Clad's do, a pair of the value and that."""
    tangents = tuple(params[k] for k in differentiable(params))
    pair = isinstance(returned, Struct) and tuple(f.type for f in returned.fields) == (result, result)
    return (returned == result or pair) and tangent == (*params, *tangents)
