"""The state of a loop, as users hold it: an array, a tuple, list or dict of such, or a dict of tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import ArgumentError


def leaves(state: Any) -> tuple[Any, ...]:
    """Its arrays, in order."""
    if isinstance(state, Mapping):
        return tuple(leaf for part in state.values() for leaf in leaves(part))
    if isinstance(state, tuple | list):
        return tuple(leaf for part in state for leaf in leaves(part))
    return (state,)


def rebuilt(like: Any, found: tuple[Any, ...]) -> Any:
    """The same structure with other arrays."""
    return _rebuilt(like, iter(found))


def _rebuilt(like: Any, found: Iterator[Any]) -> Any:
    if isinstance(like, Mapping):
        return {name: _rebuilt(part, found) for name, part in like.items()}
    if isinstance(like, tuple | list):
        parts = [_rebuilt(part, found) for part in like]
        return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)
    return next(found)


def fitted(what: str, like: Any, given: Any) -> tuple[Any, ...]:
    """The arrays of what has that structure. Of a dict, by its names."""
    if isinstance(like, Mapping) and isinstance(given, Mapping) and like.keys() == given.keys():
        return tuple(leaf for name, part in like.items() for leaf in fitted(what, part, given[name]))
    is_list = isinstance(like, tuple | list) and isinstance(given, tuple | list)
    if is_list and len(like) == len(given):
        return tuple(leaf for part, own in zip(like, given, strict=True) for leaf in fitted(what, part, own))
    if not isinstance(like, Mapping | tuple | list) and not isinstance(given, Mapping | tuple | list):
        return (given,)
    raise ArgumentError(f"checkpoint: the state is {_shape(like)}, and {what} {_shape(given)}")


def _shape(state: Any) -> str:
    if isinstance(state, Mapping):
        return "{" + ", ".join(f"{name}: {_shape(part)}" for name, part in state.items()) + "}"
    if isinstance(state, tuple | list):
        return f"({', '.join(map(_shape, state))})"
    return "an array" if hasattr(state, "shape") else type(state).__name__
