"""Arguments that share memory (rule 12)."""

from __future__ import annotations

import re

from ..errors import ArgumentError
from ..ir.ops import Function
from .launch import BoundArguments, Buffer


def check_overlap(function: Function, bound: BoundArguments, written: frozenset[str]) -> None:
    """An error for two buffers that overlap when one of them is written."""
    if not are_apart(bound.buffers):
        _check(function, bound.buffers, written, "pass separate buffers, or may_alias=True")


def check_requests(function: Function, bound: BoundArguments, written: frozenset[str]) -> None:
    """The same of what derivatives that the kernel itself asks for count on."""
    buffers = tuple(b for b in bound.buffers if re.split(r"[.\[]", b.name, maxsplit=1)[0] in function.apart)
    if not are_apart(buffers):
        _check(function, buffers, written, "the derivatives that the kernel asks for need separate buffers")


def are_apart(buffers: tuple[Buffer, ...]) -> bool:
    """Whether no two overlap, as is usual: every launch asks."""
    end = 0
    for address, nbytes in sorted([buffer[1:3] for buffer in buffers]):
        if address < end:
            return False
        end = address + nbytes
    return True


def _check(function: Function, buffers: tuple[Buffer, ...], written: frozenset[str], remedy: str) -> None:
    ordered = sorted((b for b in buffers if b.nbytes), key=lambda b: b.address)
    reach: Buffer | None = None
    for buffer in ordered:
        if reach is not None and buffer.address < reach.address + reach.nbytes and _clash(buffer, reach, written):
            one, other = (_shown(function, b.name) for b in (reach, buffer))
            raise ArgumentError(
                f"{function.called}: '{one}' and '{other}' share memory and one of them is written; {remedy}"
            )
        if reach is None or buffer.address + buffer.nbytes > reach.address + reach.nbytes:
            reach = buffer


def _shown(function: Function, path: str) -> str:
    """What the user calls a parameter, or a member of one."""
    name = re.split(r"[.\[]", path, maxsplit=1)[0]
    return next((p.called + path[len(name) :] for p in function.params if p.name == name), path)


def _clash(a: Buffer, b: Buffer, written: frozenset[str]) -> bool:
    return any(x.name == path or x.name.startswith(f"{path}.") for x in (a, b) for path in written)
