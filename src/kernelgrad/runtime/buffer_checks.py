"""Checks of the memory behind arguments: whether it is shared (rule 12), and whether adjoints and tangents are as large
as what they belong to, since a launch would read and write past their ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..analysis.roots import holds_pointers
from ..errors import ArgumentError
from ..ir.layout import leaves
from ..ir.ops import Function, Param
from ..ir.types import Array, Pointer, Type
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


# ---- sizes of derivatives -------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A parameter, the one of its adjoint or tangent, and what the user calls that. `shorter`: it may have fewer
    elements, since the user says that no more of them are reached."""

    param: Param
    derivative: Param
    shown: str
    shorter: bool = False


def check_sizes(name: str, what: str, pairs: Iterable[Pair], bound: BoundArguments) -> None:
    """An error for the first that has more or fewer elements. What is None has no size. `what`: adjoint or tangent."""
    sizes = {b.name: b.nbytes for b in bound.buffers}
    for pair in pairs:
        for own, path, other, shown in _pointers(pair):
            wanted, size = _elements(own, path, pair.param, sizes), sizes.get(f"{pair.derivative.name}{path}")
            each = _element(other).size
            fewer = pair.shorter and own is not None  # a number has one
            if wanted is None or size is None or (fewer and size < wanted * each):
                continue
            if size != wanted * each:
                given = f"{size // each:,}" if size % each == 0 else f"{size / each:,.1f}"
                problem = f"the {what} '{shown}' has {given} elements and its parameter '{pair.param.called}{path}'"
                raise ArgumentError(f"{name}: {problem} has {wanted:,}: they must be as many")


def _pointers(pair: Pair) -> Iterator[tuple[Type | None, str, Type, str]]:
    """What the pointers in a parameter and in its derivative point to, with their path; None for a number."""
    if not holds_pointers(pair.param.type):
        assert isinstance(pair.derivative.type, Pointer)
        yield None, "", pair.derivative.type.pointee, pair.shown
        return
    both = zip(leaves(pair.param.type), leaves(pair.derivative.type), strict=True)
    for (path, _, own), (_, _, other) in both:
        if isinstance(own, Pointer) and isinstance(other, Pointer) and other.pointee.size:
            yield own.pointee, path, other.pointee, f"{pair.shown}{path}"


def _elements(type: Type | None, path: str, param: Param, sizes: dict[str, int]) -> int | None:
    """How many a parameter has: a number one, a module variable what it is declared with."""
    if type is None:
        return param.type.size // max(1, _element(param.type).size)
    size = sizes.get(f"{param.name}{path}") if param.variable is None else type.size
    return None if size is None or not type.size else size // _element(type).size


def _element(type: Type) -> Type:
    return _element(type.element) if isinstance(type, Array) else type
