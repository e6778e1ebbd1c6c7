"""What a user says of an operator, and what follows from the kernel's text: grids, sizes, shapes of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import ArgumentError
from ..kernel import Kernel
from ..runtime.signature import c_signature
from .roles import Roles
from .sizes import extent_of

Extent = Any  # an integer, a tuple of up to three, or a function of the arguments that gives one
Shape = Any  # the name of an array whose shape it has, a tuple, or a function of the arguments that gives one


class Inferred(NamedTuple):
    """`size`: the parameter from which on threads do nothing; `inferred`: the same, where `arrays` tell it."""

    size: str | None = None
    inferred: str | None = None
    arrays: tuple[str, ...] = ()


def infer(kernel: Kernel, roles: Roles, sizes: Mapping[str, Any]) -> Inferred:
    extent = extent_of(kernel.function)
    if extent is None:
        return Inferred()
    arrays = tuple(name for name in extent.arrays if name in roles.arrays)
    return Inferred(extent.size, extent.size if arrays and extent.size not in sizes else None, arrays)


def check(kernel: Kernel, roles: Roles, outputs: Mapping[str, Shape], sizes: Mapping[str, Any]) -> None:
    signature = c_signature(kernel.function)
    if not roles.arrays:
        raise ArgumentError(f"{kernel.name}: an operator takes at least one array\n  {signature}")
    for name, shape in outputs.items():
        if isinstance(shape, str) and shape not in roles.arrays:
            raise ArgumentError(
                f"outputs: '{name}' cannot be like '{shape}', which is no array that goes in\n  {signature}"
            )
    for name in sizes:
        if name not in roles.integers:
            raise ArgumentError(f"sizes: '{name}' is no integer parameter\n  {signature}")


def value_of(given: Any, named: Mapping[str, Any]) -> Any:
    return given(**named) if callable(given) else given


def three(given: Extent, named: Mapping[str, Any]) -> list[Any]:
    found = value_of(given, named)
    parts = list(found) if isinstance(found, tuple | list) else [found]
    return parts + [1] * (3 - len(parts))


def told(given: Any) -> str:
    return "by a function of the arguments" if callable(given) else repr(given)


def told_shape(shape: Shape) -> str:
    return f"like {shape}" if isinstance(shape, str) else f"of shape {told(shape)}"
