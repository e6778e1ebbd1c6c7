"""The adjoint of a struct with pointers, as the user gives it: a struct of adjoints, in which a number's is an array of
one. For the launch these are arguments of their own (autodiff/calculus/struct_members.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..analysis.roots import holds_pointers
from ..autodiff.calculus.struct_members import Member
from ..errors import ArgumentError
from ..ir.types import Array, Pointer, Struct, Type
from ..runtime.arrays import view
from .asked.settings import has_derivative, is_active


@contextmanager
def named(kernel: str) -> Iterator[None]:
    """Errors about arguments say whose they are."""
    try:
        yield
    except ArgumentError as error:
        raise ArgumentError(f"{kernel}: {error}") from None


def completed(path: str, type: Struct, adjoint: Any, what: str = "adjoint") -> Any:
    """A struct's adjoint in which what has no derivative need not be given; what has one must be, if only as None.
    `what`: or its tangent."""
    if isinstance(adjoint, Mapping):
        names = [f.name for f in type.fields]
        unknown = next((str(name) for name in adjoint if name not in names), None)
        if unknown is not None:
            raise ArgumentError(
                f"the adjoint of '{path}' has '{unknown}', which is no member: it has {', '.join(names)}"
            )
        return {f.name: _completed(f"{path}.{f.name}", f.type, adjoint, f.name) for f in type.fields}
    if isinstance(adjoint, tuple | list) and len(adjoint) == len(type.fields):
        return tuple(_completed(f"{path}.{f.name}", f.type, adjoint, k) for k, f in enumerate(type.fields))
    return adjoint


def _completed(path: str, type: Type, adjoints: Any, key: Any) -> Any:
    is_given = not isinstance(adjoints, Mapping) or key in adjoints
    part = adjoints[key] if is_given else None
    if not is_active(type):
        return zero_of(type) if part is None else part
    if not is_given:
        raise ArgumentError(f"the adjoint of '{path}' is missing")
    if isinstance(type, Array) and holds_pointers(type) and isinstance(part, tuple | list):
        return [_completed(f"{path}[{k}]", type.element, part, k) for k in range(len(part))]
    return completed(path, type, part) if isinstance(type, Struct) else part


def with_members(adjoints: Mapping[str, Any], members: Iterable[Member]) -> dict[str, Any]:
    """The adjoints with those of the members after them, and zeros in the places of these."""
    found = dict(adjoints)
    for member in members:
        whole = found.get(member.struct)
        cell = None if whole is None else _part(whole, member, member.path, member.keys)
        if cell is not None and view(cell) is None:
            where, got = f"{member.struct}{member.shown}", type(cell).__name__
            raise ArgumentError(
                f"the adjoint of '{where}' is an array of one element, or None where it is not wanted, got {got}"
            )
        found[member.name] = cell
        if whole is not None:
            found[member.struct] = _without(whole, member, member.path, member.keys)
    return found


def _key(whole: Any, member: Member, path: tuple[int, ...], names: tuple[str, ...]) -> Any:
    if isinstance(whole, Mapping):
        return names[0] if names[0] in whole else None
    if isinstance(whole, tuple | list):
        return path[0] if path[0] < len(whole) else None
    raise ArgumentError(
        f"the adjoint of '{member.struct}' is a dict or a tuple of adjoints, got {type(whole).__name__}"
    )


def _part(whole: Any, member: Member, path: tuple[int, ...], names: tuple[str, ...]) -> Any:
    key = _key(whole, member, path, names)
    if key is None:  # the binder says what is missing
        return None
    return whole[key] if len(path) == 1 else _part(whole[key], member, path[1:], names[1:])


def _without(whole: Any, member: Member, path: tuple[int, ...], names: tuple[str, ...]) -> Any:
    key = _key(whole, member, path, names)
    if key is None:
        return whole
    part = zero_of(member.type) if len(path) == 1 else _without(whole[key], member, path[1:], names[1:])
    if isinstance(whole, Mapping):
        return {**whole, key: part}
    return (*whole[:key], part, *whole[key + 1 :])


def zero_of(type: Type) -> Any:
    match type:
        case Pointer():
            return None
        case Array(element, count):
            return [zero_of(element)] * count
        case Struct(fields=fields):
            return {f.name: zero_of(f.type) for f in fields}
    return 0


def check_members(path: str, type: Type, value: Any, adjoint: Any) -> None:
    """Every array of a struct has an adjoint: shadow pointers are not tested."""
    if isinstance(type, Pointer):
        if has_derivative(type) and value is not None and adjoint is None:
            whole = path.rpartition(".")[0] or path
            raise ArgumentError(f"the adjoint of '{whole}' lacks '{path}': every array of the struct needs one")
        return
    if not (_has_parts(value) and _has_parts(adjoint)):
        return
    for name, key, part in _parts(type):
        given = [v[key[0] if isinstance(v, Mapping) else key[1]] for v in (value, adjoint)]
        check_members(f"{path}{name}", part, *given)


def _parts(type: Type) -> list[tuple[str, tuple[str | int, int], Type]]:
    """The parts of an aggregate: how C writes them, what they are in a dict and in a tuple."""
    match type:
        case Struct(fields=fields):
            return [(f".{f.name}", (f.name, k), f.type) for k, f in enumerate(fields)]
        case Array(element, count):
            return [(f"[{k}]", (k, k), element) for k in range(count)]
    return []


def _has_parts(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | list)
