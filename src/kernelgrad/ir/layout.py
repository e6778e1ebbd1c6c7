"""How a function's parameters lie in the packed argument buffer that launches pass to both backends."""

from __future__ import annotations

from collections.abc import Iterator

from .ops import Function
from .types import Array, Pointer, Scalar, Struct, Type


def param_layout(function: Function) -> tuple[tuple[int, ...], int]:
    """The byte offset of each parameter at its natural alignment, and the size of the whole."""
    offsets: list[int] = []
    end = 0
    for param in function.params:
        start = -(-end // param.type.align) * param.type.align
        offsets.append(start)
        end = start + param.type.size
    return tuple(offsets), end


def leaves(type: Type, path: str = "", offset: int = 0) -> Iterator[tuple[str, int, Scalar | Pointer]]:
    """The scalars and pointers in a value: `path.member[k]`, the offset, the type."""
    match type:
        case Scalar() | Pointer():
            yield path, offset, type
        case Array(element, count):
            for k in range(count):
                yield from leaves(element, f"{path}[{k}]", offset + k * element.size)
        case Struct(fields=fields):
            for f in fields:
                yield from leaves(f.type, f"{path}.{f.name}", offset + f.offset)
