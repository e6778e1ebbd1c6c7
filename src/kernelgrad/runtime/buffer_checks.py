"""Checks of the memory behind arguments: whether it is shared (rule 12), and whether adjoints and tangents are as large
as what they belong to, since a launch would read and write past their ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from ..analysis.roots import holds_pointers
from ..errors import ArgumentError
from ..ir.layout import leaves
from ..ir.ops import Function, Param
from ..ir.types import Array, Pointer, Type
from .launch import BoundArguments, Buffer

_REMEDY = "pass separate buffers, or may_alias=True"


def check_overlap(
    function: Function, bound: BoundArguments, written: frozenset[str], variables: tuple[Buffer, ...] = ()
) -> None:
    """An error for two buffers that overlap when one of them is written. `variables`: further ones, that are."""
    buffers = (*bound.buffers, *variables)
    if not are_apart(buffers):
        _check(function, buffers, written | {b.name for b in variables}, _REMEDY)


def check_own_overlap(function: Function, bound: BoundArguments, written: frozenset[str]) -> None:
    """The same of a kernel's own parameters, for its reverse alone: that writes no outputs, but is the derivative of
    what does."""
    if not are_apart(bound.buffers):
        own = {p.name for p in function.params}
        _check(function, tuple(b for b in bound.buffers if _param(b.name) in own), written, _REMEDY)


def check_shared_adjoints(
    function: Function, bound: BoundArguments, written: frozenset[str], adjoints: Mapping[str, str], others: Set[str]
) -> None:
    """Of buffers that may share memory: an error for two that do where their adjoints do not, and of which the kernel
    writes one, since what one of them passes on to the other would be lost; and for an adjoint that shares it with
    anything but adjoints. `adjoints`: their parameters, by what they belong to. `others`: parameters that have none,
    although derivatives go through them."""
    if are_apart(bound.buffers):
        return
    found, of_adjoint = {b.name: b for b in bound.buffers}, frozenset(adjoints.values())
    for one, other in _overlapping(bound.buffers):
        params = {_param(one.name), _param(other.name)}
        if params <= of_adjoint or not params & {*adjoints, *of_adjoint, *others}:
            continue
        mixed = bool(params & of_adjoint)
        if mixed or (_clash(one, other, written) and not _share_alike(one, other, found, adjoints)):
            names = " and ".join(f"'{_shown(function, b.name)}'" for b in (one, other))
            problem = "share memory" if mixed else "share memory and one of them is written, but not their adjoints"
            remedy = "pass separate buffers" if mixed else "list both, with one array for both adjoints, or pass copies"
            raise ArgumentError(f"{function.called}: {names} {problem}; {remedy}")


def _overlapping(buffers: Iterable[Buffer]) -> Iterator[tuple[Buffer, Buffer]]:
    ordered = sorted((b for b in buffers if b.nbytes), key=lambda b: b.address)
    for k, one in enumerate(ordered):
        for other in ordered[k + 1 :]:
            if other.address >= one.address + one.nbytes:
                break
            yield one, other


def _share_alike(one: Buffer, other: Buffer, found: Mapping[str, Buffer], adjoints: Mapping[str, str]) -> bool:
    """Whether the adjoints are as far apart as what they belong to."""
    both = [found.get(f"{adjoints.get(_param(b.name))}{b.name[len(_param(b.name)) :]}") for b in (one, other)]
    if both[0] is None or both[1] is None:
        return False
    return both[1].address - both[0].address == other.address - one.address


def _param(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def check_requests(function: Function, bound: BoundArguments, written: frozenset[str]) -> None:
    """The same of what derivatives that the kernel itself asks for count on."""
    buffers = tuple(b for b in bound.buffers if _param(b.name) in function.apart)
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
    name = _param(path)
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


def check_alignment(
    name: str, what: str, pairs: Iterable[Pair], bound: BoundArguments, casts: Mapping[str, int]
) -> None:
    """An error for the first that lies otherwise in the vectors that its parameter is read as. `casts`: their bytes."""
    found = {b.name: b.address for b in bound.buffers}
    for pair in pairs:
        for _, path, _, shown in _pointers(pair):
            align, own = casts.get(f"{pair.param.name}{path}", 1), found.get(f"{pair.param.name}{path}")
            address = found.get(f"{pair.derivative.name}{path}")
            if own is not None and address is not None and (address - own) % align:
                problem = (
                    f"the {what} '{shown}' begins at address {address:#x}, '{pair.param.called}{path}' at {own:#x}"
                )
                raise ArgumentError(f"{name}: {problem}: the kernel reads {align} bytes at once, copy it to lie alike")


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
