"""Derivatives that the source itself gives, for Clad or Enzyme: others are refused where their function is reached.

Clad looks for `f_pullback` and its like in the namespace `clad::custom_derivatives`, Enzyme for arrays whose names
begin with `__enzyme_register_`, or that say more of a function, and whose first element is the function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import Span, UnsupportedError
from . import text
from .clang import Cursor, Kind
from .sound import Cut
from .unit import Unit
from .visiting import children_of, walk

_CLAD = re.compile(r"(.+?)_(pullback|pushforward|reverse_forw|grad\w*|hessian|jacobian|darg\d+)$")
_ENZYME = re.compile(r"__enzyme_(register_|inactive|function_like|nofree|allocation_like|deallocation_like)")
_SCOPES = (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL)
_FUNCTIONS = (Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE, Kind.CXX_METHOD)
_HINT = "remove the custom derivative: kernelgrad differentiates the function itself"


def refusal_of_derivatives(unit: Unit, functions: list[Cursor]) -> UnsupportedError | None:
    """The error that derivatives are, where the source has one of its own for a reached function."""
    if not re.search(r"custom_derivatives|__enzyme_", unit.text) and not unit.has_headers:
        return None
    given, gone = dict(_given(unit.tree.cursor, "")), dict(_gone(unit))
    called = {c.spelling for f in functions for c in walk(f) if c.kind == Kind.CALL_EXPR} if given or gone else ()
    for name in (*(f.spelling for f in functions), *sorted(called)):
        if name in gone:
            flaw = gone[name].flaw
            what = f"'{name}' has a derivative of its own here, which does not parse ({flaw.message}): not supported"
            return UnsupportedError(what, Span(unit.sources.get(flaw.file), flaw.line, flaw.column), _HINT)
        if name in given:
            what = f"'{given[name].spelling}' gives '{name}' a derivative of its own: not supported"
            return UnsupportedError(what, unit.span(given[name]), _HINT)
    return None


def _given(scope: Cursor, path: str) -> Iterator[tuple[str, Cursor]]:
    """Names of functions, and the declarations that give them a derivative."""
    for cursor in children_of(scope):
        inside = f"{path}::{cursor.spelling}" if cursor.kind == Kind.NAMESPACE else path
        clad = _CLAD.match(cursor.spelling) if "::custom_derivatives" in path else None
        if cursor.kind in _SCOPES:
            yield from _given(cursor, inside)
        elif cursor.kind in _FUNCTIONS and clad is not None:
            yield clad[1], cursor
        elif cursor.kind == Kind.VAR_DECL and _ENZYME.match(cursor.spelling):
            named = (c.referenced for c in walk(cursor) if c.kind == Kind.DECL_REF_EXPR)
            yield from ((f.spelling, cursor) for f in named if f is not None and f.kind in _FUNCTIONS)


def _gone(unit: Unit) -> Iterator[tuple[str, Cut]]:
    """The same of declarations that do not parse, by their text."""
    for cut in unit.sound.cuts:
        source = (unit.sources.get(cut.file).text or "").encode()
        clad = [match[1] for match in map(_CLAD.match, cut.names) if match is not None]
        yield from ((name, cut) for name in clad if b"custom_derivatives" in source)
        if any(_ENZYME.match(name) for name in cut.names):
            yield from ((name, cut) for name in text.names(source, cut.start, cut.end))
