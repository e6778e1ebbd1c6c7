"""Arguments that share memory (rule 12)."""

from __future__ import annotations

from ..errors import ArgumentError
from ..ir.ops import Function
from .launch import BoundArguments, Buffer


def check_overlap(function: Function, bound: BoundArguments, written: frozenset[str]) -> None:
    """An error for two buffers that overlap when one of them is written."""
    ordered = sorted((b for b in bound.buffers if b.nbytes), key=lambda b: b.address)
    reach: Buffer | None = None
    for buffer in ordered:
        if reach is not None and buffer.address < reach.address + reach.nbytes and _clash(buffer, reach, written):
            raise ArgumentError(
                f"{function.name}: '{reach.name}' and '{buffer.name}' share memory and one of them is written;"
                " pass separate buffers, or may_alias=True"
            )
        if reach is None or buffer.address + buffer.nbytes > reach.address + reach.nbytes:
            reach = buffer


def _clash(a: Buffer, b: Buffer, written: frozenset[str]) -> bool:
    return any(x.name == path or x.name.startswith(f"{path}.") for x in (a, b) for path in written)
