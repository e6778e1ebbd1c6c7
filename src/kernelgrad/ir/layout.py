"""How a function's parameters lie in the packed argument buffer that launches pass to both backends."""

from __future__ import annotations

from .ops import Function


def param_layout(function: Function) -> tuple[tuple[int, ...], int]:
    """The byte offset of each parameter at its natural alignment, and the size of the whole."""
    offsets: list[int] = []
    end = 0
    for param in function.params:
        start = -(-end // param.type.align) * param.type.align
        offsets.append(start)
        end = start + param.type.size
    return tuple(offsets), end
