"""Which ways out of itself a statement may take: `return`, `break`, `continue`, `goto`. Decides where flags are needed.

A `goto` is a way out to a label that follows in a block around it, and its name one of the ways.
"""

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
    if c.kind == Kind.GOTO_STMT:
        return frozenset((goto(c),))
    if not c.kind.is_statement() or c.kind == Kind.CXX_CATCH_STMT:
        return _NOTHING
    inside = _NOTHING.union(*(exits(child) for child in children_of(c)))
    if c.kind == Kind.COMPOUND_STMT:
        inside -= {label(child) for child in children_of(c) if child.kind == Kind.LABEL_STMT}
    if c.kind in _LOOPS:
        return inside - {"break", "continue"}
    return inside - {"break"} if c.kind == Kind.SWITCH_STMT else inside


@remembered
def always_exits(c: Cursor) -> bool:
    """Whether control never comes out at the end of the statement."""
    if c.kind in _EXITS or c.kind == Kind.GOTO_STMT:
        return True
    if c.kind in (Kind.COMPOUND_STMT, Kind.LABEL_STMT, Kind.UNEXPOSED_STMT, Kind.CASE_STMT, Kind.DEFAULT_STMT):
        return any(always_exits(child) for child in _from_last_label(children_of(c)))
    if c.kind == Kind.IF_STMT:
        branches = if_parts(c)[2:]
        return all(branch is not None and always_exits(branch) for branch in branches)
    return False


def _from_last_label(statements: list[Cursor]) -> list[Cursor]:
    """Those that control comes to, whatever the ones before a label do."""
    labels = [k for k, statement in enumerate(statements) if statement.kind == Kind.LABEL_STMT]
    return statements[labels[-1] :] if labels else statements


def goto(c: Cursor) -> str:
    """The way that a `goto` takes."""
    (target,) = children_of(c)
    return f"goto {target.spelling}"


def label(c: Cursor) -> str:
    """The way that ends at a label."""
    return f"goto {c.spelling}"


def stopping(ways: frozenset[str]) -> frozenset[str]:
    """Those after which a loop has no next turn."""
    return ways - {"continue"}


def if_parts(c: Cursor) -> tuple[list[Cursor], Cursor, Cursor, Cursor | None]:
    """Declarations before the condition, the condition, and both branches."""
    children = children_of(c)
    count = 0
    while children[count].kind in (Kind.DECL_STMT, Kind.VAR_DECL):
        count += 1
    before, rest = children[:count], children[count:]
    return before, rest[0], rest[1], rest[2] if len(rest) > 2 else None
