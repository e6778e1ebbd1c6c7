"""Custom derivatives of functions that do not exist: their names are misspelt, and nobody would notice. A warning."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..deep import warn_user
from .clang import Cursor, Kind
from .unit import Unit
from .visiting import children_of

_INSIDE = (
    *(Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL),
    *(Kind.STRUCT_DECL, Kind.CLASS_DECL, Kind.CLASS_TEMPLATE),
)
_FUNCTIONS = (Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE, Kind.CXX_METHOD)


def warn_of_unused(unit: Unit, given: list[tuple[str, Cursor]], others: list[Cursor]) -> None:
    """`given`: functions and their derivatives. `others`: what stands among derivatives and may be used by them."""
    given = [(name, cursor) for name, cursor in given if _is_own(unit, cursor)]
    named = set(_names(unit.tree.cursor)) if given else set()
    for name, cursor in given:
        if name not in named and _count(unit, name) == 0:
            _warn(unit, cursor, f"gives '{name}' a derivative, and there is no function of that name")
    for cursor in others:
        if _is_own(unit, cursor) and _count(unit, cursor.spelling) == 1:
            _warn(unit, cursor, "is not used: the derivatives of 'f' are named 'f_pullback' and 'f_tangent'")


def _count(unit: Unit, name: str) -> int:
    """How often the text has the name: those of functions that it has from us stand where they are called."""
    return len(re.findall(rf"\b{re.escape(name)}\b", unit.text))


def _is_own(unit: Unit, cursor: Cursor) -> bool:
    """Headers may hold derivatives for more than one file."""
    return bool(unit.span(cursor).source.name == unit.name)


def _names(scope: Cursor) -> Iterator[str]:
    for cursor in children_of(scope):
        if cursor.kind in _FUNCTIONS:
            yield cursor.spelling
        elif cursor.kind in _INSIDE:
            yield from _names(cursor)


def _warn(unit: Unit, cursor: Cursor, problem: str) -> None:
    span = unit.span(cursor)
    warning = f"{span.source.name}:{span.line}: '{cursor.spelling}' {problem}"
    if warning not in unit.warned:
        unit.warned.add(warning)
        warn_user(warning)
