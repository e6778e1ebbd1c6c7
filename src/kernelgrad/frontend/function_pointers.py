"""Pointers to functions, where it is known which: a function that gets one is a function of its own for each, as it is
for each derivative that it gets (`Lowering.function`). Such a pointer can be called and passed on, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from . import clang
from .clang import Cursor, Kind, identity
from .in_source import Handles
from .types import is_function_pointer
from .visiting import children_of, walk

_THROUGH = (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR, Kind.CSTYLE_CAST_EXPR)
_FUNCTIONS = (Kind.FUNCTION_DECL, Kind.CXX_METHOD)


def known_function(c: Cursor, handles: Handles) -> Cursor | None:
    """The function that an expression names: itself, or by a parameter that gets it, or a variable that is set once."""
    while c.kind in _THROUGH or (c.kind == Kind.UNARY_OPERATOR and clang.unary_operator(c) in ("&", "*")):
        inside = [k for k in children_of(c) if k.kind.is_expression()]
        if len(inside) != 1:
            return None
        c = inside[0]
    target = c.referenced if c.kind == Kind.DECL_REF_EXPR else None
    if target is None:
        return None
    if target.kind == Kind.FUNCTION_DECL:
        return target
    if target.kind == Kind.PARM_DECL:
        found = handles.get(identity(target))
        return found if found is not None and found.kind in _FUNCTIONS else None
    return _set_once(target, handles) if target.kind == Kind.VAR_DECL else None


def _set_once(variable: Cursor, handles: Handles) -> Cursor | None:
    """The function that a variable leads to from the beginning to the end."""
    start = clang.initializer(variable) if is_function_pointer(variable.type) else None
    owner = variable.semantic_parent
    is_local = owner is not None and owner.kind in _FUNCTIONS and variable.storage_class.name == "NONE"
    if start is None or not (variable.type.is_const_qualified() or (is_local and not may_change(owner, variable))):
        return None
    return known_function(start, handles)


def leads_to_known(variable: Cursor, handles: Handles) -> bool:
    """Whether a parameter or variable leads to a function that is known: there is nothing where it would lie."""
    if not is_function_pointer(variable.type):
        return False
    return identity(variable) in handles or (
        variable.kind == Kind.VAR_DECL and _set_once(variable, handles) is not None
    )


def functions_passed(function: Cursor, arguments: Iterable[Cursor], handles: Handles) -> dict[int, Cursor]:
    """Which parameters of a function get pointers to functions that are known."""
    pairs = zip(function.get_arguments(), arguments, strict=False)
    found = ((p, known_function(a, handles)) for p, a in pairs if a is not None and is_function_pointer(p.type))
    return {identity(p): target for p, target in found if target is not None and not may_change(function, p)}


def may_change(function: Cursor, variable: Cursor) -> bool:
    """Whether a variable is assigned to in a function, or its address taken."""
    return any(
        any(_names(k, variable) for k in children_of(c)[:1])
        for c in walk(function)
        if (c.kind == Kind.BINARY_OPERATOR and clang.binary_operator(c) == "=")
        or (c.kind == Kind.UNARY_OPERATOR and clang.unary_operator(c) == "&")
    )


def _names(c: Cursor, variable: Cursor) -> bool:
    while c.kind in _THROUGH and children_of(c):
        c = children_of(c)[0]
    target = c.referenced if c.kind == Kind.DECL_REF_EXPR else None
    return target is not None and identity(target) == identity(variable)
