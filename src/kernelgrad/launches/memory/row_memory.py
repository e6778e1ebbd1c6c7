"""Memory for what the rows of an exchange leave for its keys (see `schedule/exchange/row_exchange`)."""

from __future__ import annotations

from ..choice.variant import Variant
from .buffers import THREADS, Memory, Need


def row_memory(variant: Variant) -> list[Need]:
    if not variant.options.facts.exchanged:
        return []
    return [
        Memory(
            own.name,
            THREADS * (own.count * own.type.size),
            0 if own.zeroed else None,
            "which keys threads have" if own.zeroed else "what threads leave for those that sum up over them",
        )
        for own in variant.exchanged.buffers
    ]
