"""What a user promises of a kernel's arguments, beyond what its code shows: `kg.assume`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...analysis import roots as memory_analysis
from ...errors import ArgumentError
from ...ir.ops import Function, Param
from ...ir.types import Pointer, Scalar
from ...requests import names
from ...runtime.signature import c_signature, user_params

Names = str | Sequence[str] | None


@dataclass(frozen=True)
class Promises:
    """`unique`: index buffers that hold no value twice among the elements that a launch reads."""

    unique: tuple[str, ...] = ()


NONE = Promises()


def names_of(given: Names) -> tuple[str, ...]:
    return names("parameters", given)


def names_in(given: Names, params: Iterable[Param]) -> tuple[str, ...]:
    """The same, with the elements of a parameter pack for its name."""
    known = tuple(params)
    packs: dict[str, list[str]] = {}
    for param in known:
        if param.pack is not None:
            packs.setdefault(param.pack, []).append(param.name)
    return tuple(element for name in names_of(given) for element in packs.get(name, (name,)))


def check_promises(function: Function, promises: Promises | None) -> Promises:
    """The promises, if they can be about the function."""
    if promises is None:
        return NONE
    if not isinstance(promises, Promises):
        raise ArgumentError(
            f"assume: wants kg.assume(...), got {type(promises).__name__}: assume=kg.assume(unique=...)"
        )
    params = {p.name: p for p in user_params(function)}
    written = memory_analysis.analyse(function).written()
    promises = Promises(names_in(promises.unique, params.values()))
    for name in promises.unique:
        if name not in params:
            raise ArgumentError(f"assume: {function.name} has no parameter '{name}'\n  {c_signature(function)}")
        if not _holds_integers(params[name]):
            problem = f"unique is about buffers of integers, and '{name}' is {params[name].c_type}"
            raise ArgumentError(f"assume: {problem}; name the buffer that the indices are read from")
        if params[name].value in written:
            problem = f"the kernel writes '{name}', so what it holds is not known before the launch"
            raise ArgumentError(f"assume: {problem}; pass the indices in a buffer that is only read")
    return promises


def _holds_integers(param: Param) -> bool:
    type = param.type.pointee if isinstance(param.type, Pointer) else None
    return isinstance(type, Scalar) and type.kind in ("int", "uint")
