"""A launch's arguments as a recording keeps them, and the adjoints that its reverse gets.

Arrays become `ArrayView`s, which keep their owners alive. Numbers are what they were at the launch; a 0-d array that
was passed for a number is remembered with its memory, so that its adjoint finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..analysis.roots import holds_pointers
from ..autodiff.calculus.shadows import adjoint_type
from ..derivatives.asked.settings import has_derivative, is_active
from ..errors import ArgumentError
from ..ir.layout import leaves
from ..ir.types import Array, Pointer, Scalar, Struct, Type
from ..kernel import Kernel
from ..runtime.arrays import ArrayView, DType, view
from ..runtime.layouts import array_shape, flat_dtypes, scalar_dtype, struct_dtype
from ..runtime.signature import user_params
from .memory_map import Span


class Number(NamedTuple):
    """A 0-d array that was passed for the number at that path."""

    path: str
    array: ArrayView


class Frozen(NamedTuple):
    """`views`: the arrays by their paths, `p` or `s.p`."""

    args: tuple[Any, ...]
    views: dict[str, ArrayView]
    numbers: tuple[Number, ...]


Around = Mapping[str, tuple[int, int]]


def freeze(kernel: Kernel, args: tuple[Any, ...], around: Around) -> Frozen:
    """`around`: of parts of larger arrays, what the launch may touch besides."""
    params = user_params(kernel.function)
    return freeze_all([(p.name, p.type, value) for p, value in zip(params, args, strict=True)], around)


def freeze_all(given: Iterable[tuple[str, Type, Any]], around: Around) -> Frozen:
    """Of parameters with these names and types."""
    views: dict[str, ArrayView] = {}
    numbers: list[Number] = []
    frozen = [_freeze(type, name, value, views, numbers, around) for name, type, value in given]
    return Frozen(tuple(frozen), views, tuple(numbers))


def _freeze(
    type: Type, path: str, value: Any, views: dict[str, ArrayView], numbers: list[Number], around: Around
) -> Any:
    if value is None or value.__class__ in (int, float, bool):
        return value
    array = view(value)
    if isinstance(type, Pointer) and array is not None:
        views[path] = array
        return array._replace(versioned=False, around=around.get(path))  # the reverse leaves what it holds
    if isinstance(type, Scalar):
        if array is None:
            return value
        numbers.append(Number(path, array))
        return value.item()
    if isinstance(type, Struct) and isinstance(value, Mapping | tuple | list):
        return _freeze_struct(type, path, value, views, numbers, around)
    if isinstance(type, Array) and isinstance(value, tuple | list):
        return [_freeze(type.element, f"{path}[{k}]", part, views, numbers, around) for k, part in enumerate(value)]
    return value.copy() if isinstance(value, np.ndarray | np.void) else value


def _freeze_struct(
    type: Struct, path: str, value: Any, views: dict[str, ArrayView], numbers: list[Number], around: Around
) -> Any:
    types = {f.name: f.type for f in type.fields}
    named = value if isinstance(value, Mapping) else dict(zip(types, value, strict=True))
    return {name: _freeze(types[name], f"{path}.{name}", part, views, numbers, around) for name, part in named.items()}


# ---- adjoints -----------------------------------------------------------------------------------------------------

ShadowOf = Callable[[Span, DType], ArrayView]
NumberOf = Callable[[str, Type], ArrayView]


def adjoints_of(kernel: Kernel, listed: tuple[str, ...], frozen: Frozen, spans: Mapping[str, Span],
                shadow_of: ShadowOf, number_of: NumberOf) -> tuple[Any, ...]:  # fmt: skip
    """In the order of `listed`. `spans`: the memory of parameters and variables, by their paths."""
    params = {p.name: p.type for p in user_params(kernel.function)}
    found = []
    for name in listed:
        if name in params:
            found.append(adjoint_of(params[name], name, frozen, spans, shadow_of, number_of))
        else:
            found.append(shadow_of(spans[name], element_dtype(kernel.module.globals[name].type)))
    return tuple(found)


def adjoint_of(
    type: Type, path: str, frozen: Frozen, spans: Mapping[str, Span], shadow_of: ShadowOf, number_of: NumberOf
) -> Any:
    """Of the argument at a path: memory's is its shadow."""
    return _shadowed(type, path, frozen, spans, shadow_of, lambda at, of: number_of(at, adjoint_type(of)))


def tangent_of(
    type: Type, path: str, frozen: Frozen, spans: Mapping[str, Span], shadow_of: ShadowOf, number_of: NumberOf
) -> Any:
    """The same; tangents are of the numbers' own types."""
    return _shadowed(type, path, frozen, spans, shadow_of, number_of)


def _shadowed(
    type: Type, path: str, frozen: Frozen, spans: Mapping[str, Span], shadow_of: ShadowOf, number_of: NumberOf
) -> Any:
    if isinstance(type, Pointer):
        array = frozen.views.get(path)
        return shadow_of(spans[path], array.dtype) if path in spans and array is not None else array
    if isinstance(type, Struct) and holds_pointers(type):
        return {
            f.name: _shadowed(f.type, f"{path}.{f.name}", frozen, spans, shadow_of, number_of)
            for f in type.fields
            if is_active(f.type)
        }
    if isinstance(type, Array) and holds_pointers(type):
        elements = (f"{path}[{k}]" for k in range(type.count))
        return [_shadowed(type.element, element, frozen, spans, shadow_of, number_of) for element in elements]
    return number_of(path, type)


def number_dtype(type: Type) -> DType:
    """Of an array of one number or struct."""
    if isinstance(type, Struct):
        made = struct_dtype(type)
        return made if made is not None else next(iter(flat_dtypes(type)))
    return element_dtype(type)


def element_dtype(type: Type) -> DType:
    element = array_shape(type)[1] if isinstance(type, Array) else type
    if isinstance(element, Struct):
        return number_dtype(element)
    assert isinstance(element, Scalar)
    return scalar_dtype(element)


def number_leaves(type: Type, path: str) -> list[tuple[str, int, Scalar]]:
    """The floating-point numbers in a value: their paths, offsets and types."""
    return [(p, offset, leaf) for p, offset, leaf in leaves(type, path) if isinstance(leaf, Scalar) and leaf.is_float]


def find_number(name: str, kernels: Iterable[Kernel]) -> tuple[Kernel, str]:
    """The kernel and the path that "kernel.path", or "path" alone, stands for. A template's name stands for an instance
    of it."""
    known = [(kernel, path) for kernel in kernels for path in number_paths(kernel)]
    exact = [(kernel, path) for kernel, path in known if name == f"{kernel.name}.{path}"]
    plain = [(kernel, path) for kernel, path in known if name == f"{kernel.name.partition('<')[0]}.{path}"]
    found = exact or plain or [(kernel, path) for kernel, path in known if name == path]
    if len(found) == 1:
        return found[0]
    several = sorted(f"'{kernel.name}.{path}'" for kernel, path in found or known)
    names = ", ".join(dict.fromkeys(several))
    if found and len(set(several)) < len(several):
        problem = f"'{name}' is ambiguous, several kernels have a number {names}"
        raise ArgumentError(f"grad: {problem}: pass a 0-d array for it in a launch, and ask for that array's adjoint")
    if found:
        raise ArgumentError(f"grad: '{name}' is ambiguous: {names}")
    raise ArgumentError(f"grad: no recorded launch has a number '{name}'; there are {names or 'none'}")


def number_paths(kernel: Kernel) -> list[str]:
    """All that have an adjoint, also in structs."""
    params = [p for p in user_params(kernel.function) if has_derivative(p.type)]
    return [path for p in params for path, _, _ in number_leaves(p.type, p.name)]
