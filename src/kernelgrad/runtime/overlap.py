"""Arguments that share memory (rule 12)."""

from __future__ import annotations

from operator import itemgetter

from ..errors import ArgumentError
from ..ir.ops import Function
from .launch import BoundArguments, Buffer


def check_overlap(function: Function, bound: BoundArguments, written: frozenset[str]) -> None:
    """An error for two buffers that overlap when one of them is written."""
    ordered = sorted([b for b in bound.buffers if b.nbytes], key=_address)
    reach, end = None, 0
    for buffer in ordered:
        _, address, nbytes = buffer
        if reach is not None and address < end and _clash(buffer, reach, written):
            raise ArgumentError(
                f"{function.name}: '{reach.name}' and '{buffer.name}' share memory and one of them is written;"
                " pass separate buffers, or may_alias=True"
            )
        if address + nbytes > end:
            reach, end = buffer, address + nbytes


_address = itemgetter(Buffer._fields.index("address"))


def _clash(a: Buffer, b: Buffer, written: frozenset[str]) -> bool:
    return any(x.name == path or x.name.startswith(f"{path}.") for x in (a, b) for path in written)
