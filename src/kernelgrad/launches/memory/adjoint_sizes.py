"""Whether adjoints and tangents are as large as what they belong to: a launch would read and write past their ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...analysis.roots import holds_pointers
from ...errors import ArgumentError
from ...ir.layout import leaves
from ...ir.ops import Param
from ...ir.types import Array, Pointer, Type
from ...runtime.launch import BoundArguments


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
