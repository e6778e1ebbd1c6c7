"""Which ways out of itself a statement may take: `return`, `break`, `continue`. Decides where flags are needed."""

from __future__ import annotations

from .clang import Cursor, Kind
from .visiting import children_of, remembered

_LOOPS = (Kind.FOR_STMT, Kind.WHILE_STMT, Kind.DO_STMT, Kind.CXX_FOR_RANGE_STMT)
_EXITS = {Kind.RETURN_STMT: "return", Kind.BREAK_STMT: "break", Kind.CONTINUE_STMT: "continue"}
_NOTHING: frozenset[str] = frozenset()


@remembered
def exits(c: Cursor) -> frozenset[str]:
    """The exits the statement may take out of itself."""
    if c.kind in _EXITS:
        return frozenset((_EXITS[c.kind],))
    if not c.kind.is_statement() or c.kind == Kind.CXX_CATCH_STMT:
        return _NOTHING
    inside = _NOTHING.union(*(exits(child) for child in children_of(c)))
    if c.kind in _LOOPS:
        return inside - {"break", "continue"}
    return inside - {"break"} if c.kind == Kind.SWITCH_STMT else inside


@remembered
def always_exits(c: Cursor) -> bool:
    """Whether control never comes out at the end of the statement."""
    if c.kind in _EXITS:
        return True
    if c.kind in (Kind.COMPOUND_STMT, Kind.UNEXPOSED_STMT, Kind.CASE_STMT, Kind.DEFAULT_STMT):
        return any(always_exits(child) for child in children_of(c))
    if c.kind == Kind.IF_STMT:
        branches = if_parts(c)[2:]
        return all(branch is not None and always_exits(branch) for branch in branches)
    return False


def if_parts(c: Cursor) -> tuple[list[Cursor], Cursor, Cursor, Cursor | None]:
    """Declarations before the condition, the condition, and both branches."""
    children = children_of(c)
    count = 0
    while children[count].kind in (Kind.DECL_STMT, Kind.VAR_DECL):
        count += 1
    before, rest = children[:count], children[count:]
    return before, rest[0], rest[1], rest[2] if len(rest) > 2 else None
