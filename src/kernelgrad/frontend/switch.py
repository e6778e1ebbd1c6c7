"""`switch`: a chain of ifs where every group of cases leaves, guarded groups in order where one falls through."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.ops import Value
from ..ir.types import BOOL
from . import clang
from .clang import Cursor, Kind
from .exits import always_exits, exits
from .expressions import value
from .literals import constant_of
from .lowering import Flags
from .lowering import FunctionLowering as Fn
from .visiting import children_of


@dataclass
class Group:
    """Consecutive labels and the statements up to the next label."""

    labels: list[int] = field(default_factory=list)
    is_default: bool = False
    statements: list[Cursor] = field(default_factory=list)

    @property
    def leaves(self) -> bool:
        return any(always_exits(s) for s in self.statements)


def lower_switch(fn: Fn, c: Cursor) -> None:
    from .statements import lower_statement

    *before, selector, body = children_of(c)
    _check_head(fn, c, selector)
    for declaration in [*before, *filter(_is_shared_by_groups, children_of(body))]:
        lower_statement(fn, declaration)
    selected = value(fn, selector)
    groups = _groups(fn, body)
    broke = fn.variable(BOOL, "broke", fn.constant(False, BOOL))
    fn.loops.append(Flags(broke, is_switch=True))
    if all(g.leaves for g in groups[:-1]):
        last = [g for g in groups if g.is_default]
        _chain(fn, selected, [g for g in groups if not g.is_default] + last)
    else:
        _fall_through(fn, selected, groups)
    fn.loops.pop()


def _groups(fn: Fn, body: Cursor) -> list[Group]:
    groups: list[Group] = []
    for statement in children_of(body):
        if statement.kind in (Kind.CASE_STMT, Kind.DEFAULT_STMT):
            groups.append(Group())
            statement = _labels(fn, statement, groups[-1])
        if groups and not _is_shared_by_groups(statement):  # what stands before the first label is never executed
            groups[-1].statements.append(statement)
    return groups


def _is_shared_by_groups(c: Cursor) -> bool:
    """Variables that later groups see too: C++ lets a label jump past a declaration only if it initialises nothing."""
    return c.kind == Kind.DECL_STMT and all(
        v.kind == Kind.VAR_DECL and clang.initializer(v) is None for v in children_of(c)
    )


def _check_head(fn: Fn, c: Cursor, selector: Cursor) -> None:
    """libclang does not show `a` of `switch (a; b)`: it must not be dropped in silence."""
    start = selector.extent.start.offset
    if any(token.spelling == ";" for token in c.get_tokens() if token.extent.start.offset < start):
        raise fn.unsupported(c, "a switch with an initialiser is not supported", "write it before the switch")


def _labels(fn: Fn, statement: Cursor, group: Group) -> Cursor:
    """Collects nested labels (`case 1: case 2: default:`) and returns the statement they stand before."""
    while statement.kind in (Kind.CASE_STMT, Kind.DEFAULT_STMT):
        *labels, inner = children_of(statement)
        if statement.kind == Kind.DEFAULT_STMT:
            group.is_default = True
        else:
            number = clang.evaluate(labels[0])
            if number is None or len(labels) != 1:
                raise fn.unsupported(statement, "this case label is not supported")
            group.labels.append(int(number))
        statement = inner
    return statement


def _matches(fn: Fn, selected: Value, labels: list[int]) -> Value:
    found: Value | None = None
    for label in labels:
        equal = fn.b.apply("eq", selected, constant_of(fn, label, selected.type))
        found = equal if found is None else fn.b.apply("or", found, equal)
    return found if found is not None else fn.constant(False, BOOL)


def _statements(fn: Fn, group: Group) -> None:
    """The group's statements; a `break` that only ends the group needs no flag."""
    from .statements import sequence

    statements = group.statements
    if statements and statements[-1].kind == Kind.BREAK_STMT:
        statements = statements[:-1]
    sequence(fn, statements)


def _chain(fn: Fn, selected: Value, groups: list[Group]) -> None:
    if not groups:
        return
    group, *others = groups
    if group.is_default:  # last by now, so that no other label matched
        _statements(fn, group)
        return
    hit = _matches(fn, selected, group.labels)
    with fn.b.region() as then:
        _statements(fn, group)
    with fn.b.region() as orelse:
        _chain(fn, selected, others)
    fn.b.if_(hit, then.block(), orelse.block())


def _fall_through(fn: Fn, selected: Value, groups: list[Group]) -> None:
    """Each group runs when its label matched or the group before ran to its end."""
    from .statements import any_flag, sequence

    all_labels = [label for g in groups for label in g.labels]
    active = fn.variable(BOOL, "active", fn.constant(False, BOOL))
    left: frozenset[str] = frozenset()
    for group in groups:
        hit = _matches(fn, selected, group.labels)
        if group.is_default:
            nothing = fn.b.apply("not", _matches(fn, selected, all_labels))
            hit = fn.b.apply("or", hit, nothing)
        now = fn.b.apply("or", fn.b.load(active), hit)
        if left:
            now = fn.b.apply("and", now, fn.b.apply("not", any_flag(fn, left)))
        fn.b.store(active, now)
        with fn.b.region() as run:
            sequence(fn, group.statements)
        fn.b.if_(now, run.block())
        left |= frozenset().union(*(exits(s) for s in group.statements))
