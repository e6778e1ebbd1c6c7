"""Loops: each is a While that tests what its body may leave by (see `statements`), and its own condition."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.builder import pointee
from ..ir.ops import Block, Value
from ..ir.types import BOOL, I32, Array, Struct
from . import clang
from .clang import Cursor, Kind, identity
from .exits import exits, stopping
from .expressions import condition, effect, place, temporary
from .initialize import coerce
from .lowering import Flags, Place
from .lowering import FunctionLowering as Fn
from .statements import any_flag, bound, declare_variable, lower_statement, sequence, start_variable
from .types import is_reference
from .visiting import children_of, operand_of


def lower_loop(fn: Fn, c: Cursor) -> None:
    _LOOPS[c.kind](fn, c)


def _for(fn: Fn, c: Cursor) -> None:
    parts = clang.for_parts(c)
    if "init" in parts:
        lower_statement(fn, parts["init"])
    _loop_statement(fn, c, parts.get("cond"), parts["body"], parts.get("step"), parts.get("variable"))


def _while(fn: Fn, c: Cursor) -> None:
    *before, test, body = children_of(c)
    _loop_statement(fn, c, test, body, None, before[0] if before else None)


def _loop_statement(
    fn: Fn, c: Cursor, test: Cursor | None, body: Cursor, step: Cursor | None, variable: Cursor | None
) -> None:
    unroll = fn.pending_unroll()
    ways = exits(body)
    fn.loops.append(_loop_flags(fn, ways))
    stops = stopping(ways)
    storage = declare_variable(fn, variable) if variable is not None else None  # outside: the body sees it too
    with fn.b.region() as before:
        if variable is not None and storage is not None:
            start_variable(fn, variable, storage)
        goes_on = _loop_condition(fn, stops, test)
    with fn.b.region() as inside:
        _start_iteration(fn)
        sequence(fn, [body])
        if step is not None:
            _unless(fn, stops, lambda: effect(fn, step))
    fn.loops.pop()
    fn.at(c)
    fn.b.while_((), before.block((), (goes_on,)), inside.block(), unroll)


def _do(fn: Fn, c: Cursor) -> None:
    unroll = fn.pending_unroll()
    body, test = children_of(c)
    ways = exits(body)
    fn.loops.append(_loop_flags(fn, ways))
    with fn.b.region() as before:
        _start_iteration(fn)
        sequence(fn, [body])
        goes_on = _loop_condition(fn, stopping(ways), test)
    fn.loops.pop()
    fn.at(c)
    fn.b.while_((), before.block((), (goes_on,)), Block((), (), ()), unroll)


def _loop_flags(fn: Fn, ways: frozenset[str]) -> Flags:
    no = fn.constant(False, BOOL)
    broke = fn.variable(BOOL, "broke", no) if "break" in ways else None
    continued = fn.variable(BOOL, "continued", no) if "continue" in ways else None
    return Flags(broke, continued)


def _start_iteration(fn: Fn) -> None:
    continued = fn.loops[-1].continued
    if continued is not None:
        fn.b.store(continued, fn.constant(False, BOOL))


def _loop_condition(fn: Fn, stops: frozenset[str], test: Cursor | None) -> Value:
    """The loop's own condition, evaluated only while nothing has left the loop."""
    if not stops:
        return condition(fn, test) if test is not None else fn.constant(True, BOOL)
    stopped = any_flag(fn, stops)
    if test is None:
        return fn.b.apply("not", stopped)
    with fn.b.region() as done:
        no = fn.constant(False, BOOL)
    with fn.b.region() as running:
        own = condition(fn, test)
    (result,) = fn.b.if_(stopped, done.block((), (no,)), running.block((), (own,)))
    return result


def _unless(fn: Fn, stops: frozenset[str], action: Callable[[], None]) -> None:
    if not stops:
        action()
        return
    go_on = fn.b.apply("not", any_flag(fn, stops))
    with fn.b.region() as region:
        action()
    fn.b.if_(go_on, region.block())


def _range_for(fn: Fn, c: Cursor) -> None:
    """Over an array or std::vector: an index loop."""
    variable, container, body = children_of(c)
    first, count = _range(fn, c, container)
    ways = exits(body)
    index = fn.variable(I32, "k", fn.constant(0, I32))
    fn.loops.append(_loop_flags(fn, ways))
    stops = stopping(ways)
    with fn.b.region() as before:
        below = fn.b.apply("lt", fn.b.load(index), count)
        goes_on = fn.b.apply("and", below, fn.b.apply("not", any_flag(fn, stops))) if stops else below
    with fn.b.region() as inside:
        _start_iteration(fn)
        element = fn.b.offset(first, fn.b.load(index))
        if is_reference(variable.type):
            fn.variables[identity(variable)] = Place(fn.generic(element))
        else:
            fn.variables[identity(variable)] = Place(_own_element(fn, variable, element))
        sequence(fn, [body])
        fn.b.store(index, fn.b.apply("add", fn.b.load(index), fn.constant(1, I32)))
    fn.loops.pop()
    fn.b.while_((), before.block((), (goes_on,)), inside.block())


def _own_element(fn: Fn, variable: Cursor, element: Value) -> Value:
    """A copy of the element."""
    from .copies import construct_copy, is_by_code
    from .lifetimes import begin, declare, ends

    type = fn.types.lower(variable.type, fn.b.span)
    if is_by_code(fn, type) and type == pointee(element):
        slot = declare(fn, type, variable.spelling) if ends(fn, type) else None
        storage = slot.storage if slot is not None else fn.object(type, variable.spelling)
        construct_copy(fn, storage, element, moves=False)
        if slot is not None:
            begin(fn, slot)
        return storage
    return fn.variable(type, variable.spelling, coerce(fn, fn.b.load(element), type))


def _range(fn: Fn, c: Cursor, container: Cursor) -> tuple[Value, Value]:
    """The address of the first element, and how many there are."""
    found = _container(fn, container)
    type = pointee(found) if found is not None else None
    if found is not None and isinstance(type, Array):
        return fn.b.decay(found), fn.constant(type.count, I32)
    names = [field.name for field in type.fields] if isinstance(type, Struct) else []
    if found is not None and isinstance(type, Struct) and type.name.startswith(("std::", "thrust::")):
        if "_data" in names and "_size" in names:
            first, size = (fn.b.load(fn.b.member(found, type.index(name))) for name in ("_data", "_size"))
            return first, fn.b.convert(size, I32)
        if names == ["_begin", "_size"]:
            return fn.b.load(fn.b.member(found, 0)), fn.b.convert(fn.b.load(fn.b.member(found, 1)), I32)
        inside = type.fields[0].type if names == ["_data"] else None
        if isinstance(inside, Array):
            return fn.b.decay(fn.b.member(found, 0)), fn.constant(inside.count, I32)
    raise fn.unsupported(c, "a range-based for over something other than an array is not supported")


def _container(fn: Fn, c: Cursor) -> Value | None:
    """Where it is; on the host, a temporary lasts as long as the loop."""
    if not fn.on_host:
        return place(fn, c).ptr if clang.is_place(c) else None
    if clang.is_full_expression(c):
        c = operand_of(c) or c
    return bound(fn, c).ptr if clang.is_place(c) else temporary(fn, c, extended=True).ptr


_LOOPS: dict[Kind, Callable[[Fn, Cursor], None]] = {
    Kind.FOR_STMT: _for,
    Kind.WHILE_STMT: _while,
    Kind.DO_STMT: _do,
    Kind.CXX_FOR_RANGE_STMT: _range_for,
}
