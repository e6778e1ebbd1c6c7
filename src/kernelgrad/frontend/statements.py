"""Statements. Each way out of the middle (`return`, `break`, `continue`, `goto`, fall-through) becomes structured here.

An exit sets a bool variable, and what may follow it stands under an If that tests it; where one branch of an `if`
always leaves, what follows goes into the other branch and no test is needed. Promotion to SSA removes the flags that
nobody tests. See `ir.ops` Note [Exit] for `exits` and `Leave`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.ops import Leave, Value
from ..ir.types import BOOL, Scalar
from . import clang
from .clang import Cursor, Kind, identity
from .exits import always_exits, exits, goto, if_parts, label
from .expressions import REFUSED, condition, effect, place, value
from .initialize import initialize
from .literals import constant_of
from .lowering import Flags, Place
from .lowering import FunctionLowering as Fn
from .types import is_function_pointer, is_reference
from .variables import check_storage, global_reference, memory_space
from .visiting import children_of


def lower_body(fn: Fn, body: Cursor) -> None:
    sequence(fn, [body], tail=fn.kind == "kernel")


def sequence(fn: Fn, statements: list[Cursor], tail: bool = False, plain: int = 0) -> None:
    """Statements in order. `tail`: the kernel ends after them, so that threads which skip a last `if` are gone.
    `plain`: so many of the last are known to be no labels."""
    new = statements[: len(statements) - plain]
    labels = [k for k, statement in enumerate(new) if statement.kind == Kind.LABEL_STMT]
    if labels:
        _labelled(fn, statements[: labels[-1]], statements[labels[-1]], statements[labels[-1] + 1 :], tail)
        return
    for k, statement in enumerate(statements):
        rest = statements[k + 1 :]
        has_scope = fn.on_host and _opens_scope(fn, statement)
        if statement.kind == Kind.COMPOUND_STMT and not has_scope:
            sequence(fn, [*children_of(statement), *rest], tail, len(rest))
            return
        ways = exits(statement)
        if has_scope:
            _in_scope(fn, statement)
        elif statement.kind == Kind.IF_STMT and (not rest or ways):
            if _if_with_rest(fn, statement, rest, tail):
                return
        else:
            lower_statement(fn, statement)
        if always_exits(statement):
            return
        if ways and rest:
            _guarded(fn, ways, lambda rest=rest: sequence(fn, rest, tail, len(rest)))  # type: ignore[misc]
            return


def _labelled(fn: Fn, before: list[Cursor], c: Cursor, after: list[Cursor], tail: bool) -> None:
    """What stands before a label, out of which a `goto` may lead there; then what follows it."""
    way, after = label(c), [*children_of(c), *after]
    ways = frozenset[str]().union(*(exits(statement) for statement in before))
    ways -= {label(statement) for statement in before if statement.kind == Kind.LABEL_STMT}
    if way in ways:
        fn.labels[way] = in_entry(fn, lambda: fn.b.alloca(BOOL, None))
        fn.b.store(fn.labels[way], fn.constant(False, BOOL))
    sequence(fn, before)
    fn.labels.pop(way, None)
    if ways - {way}:
        _guarded(fn, ways - {way}, lambda: sequence(fn, after, tail))
    else:
        sequence(fn, after, tail)


def in_entry(fn: Fn, make: Callable[[], Value]) -> Value:
    """A variable of the whole function: what follows a label does not see into what it jumps over."""
    outer, fn.b.ops = fn.b.ops, fn.entry
    try:
        return make()
    finally:
        fn.b.ops = outer


def _opens_scope(fn: Fn, statement: Cursor) -> bool:
    from .lifetimes import opens_scope

    return opens_scope(fn, statement)


def _in_scope(fn: Fn, statement: Cursor) -> None:
    from .lifetimes import scope

    with scope(fn):
        lower_statement(fn, statement)


def _guarded(fn: Fn, ways: frozenset[str], rest: Callable[[], None]) -> None:
    """What follows a statement that may have left by one of `ways`."""
    go_on = fn.b.apply("not", any_flag(fn, ways))
    with fn.b.region() as region:
        rest()
    left_kernel = fn.kind == "kernel" and ways == {"return"}
    fn.b.if_(go_on, region.block(), exits=left_kernel)


def any_flag(fn: Fn, ways: frozenset[str]) -> Value:
    flags = [fn.b.load(f) for f in _flags(fn, ways)]
    combined = flags[0]
    for flag in flags[1:]:
        combined = fn.b.apply("or", combined, flag)
    return combined


def _flags(fn: Fn, ways: frozenset[str]) -> list[Value]:
    found = []
    if "return" in ways:
        found.append(fn.returned)
    if "break" in ways:
        found.append(fn.loops[-1].broke)
    if "continue" in ways:
        found.append(_loop(fn).continued)
    found += [fn.labels[way] for way in sorted(ways) if way in fn.labels]
    assert all(f is not None for f in found)
    return [f for f in found if f is not None]


def _loop(fn: Fn) -> Flags:
    return next(f for f in reversed(fn.loops) if not f.is_switch)


# ---- if -----------------------------------------------------------------------------------------------------------


def _if_with_rest(fn: Fn, c: Cursor, rest: list[Cursor], tail: bool) -> bool:
    """Lowers an `if`; when one branch always leaves, also `rest`, inside the other. Returns whether it did."""
    before, test, then, orelse = if_parts(c)
    for declaration in before:
        lower_statement(fn, declaration)
    known = clang.evaluate(test)
    if known is not None:  # also every `if constexpr`
        taken = then if known else orelse
        sequence(fn, ([taken] if taken is not None else []) + rest, tail, len(rest))
        return True
    then_leaves, else_leaves = always_exits(then), orelse is not None and always_exits(orelse)
    else_list = [] if orelse is None else [orelse]
    absorb = not rest or then_leaves or else_leaves
    left_kernel = fn.kind == "kernel" and _leaves_by_return(then, orelse, then_leaves, else_leaves)
    inner_tail = tail and absorb
    cond = condition(fn, test)
    span = fn.at(c)
    with fn.b.region() as on_true:
        following = rest if absorb and not then_leaves else []
        sequence(fn, [then, *following], inner_tail, len(following))
    with fn.b.region() as on_false:
        following = rest if absorb and not else_leaves else []
        sequence(fn, else_list + following, inner_tail, len(following))
    fn.b.span = span
    fn.b.if_(cond, on_true.block(), on_false.block(), exits=left_kernel or (tail and not rest))
    return absorb


def _leaves_by_return(then: Cursor, orelse: Cursor | None, then_leaves: bool, else_leaves: bool) -> bool:
    if then_leaves == else_leaves:
        return False
    leaving = then if then_leaves else orelse
    return leaving is not None and exits(leaving) == {"return"}


# ---- ways out -----------------------------------------------------------------------------------------------------


def _return(fn: Fn, c: Cursor) -> None:
    children = children_of(c)
    if children:
        _return_value(fn, children[0])
    fn.at(c)
    assert fn.returned is not None
    fn.b.store(fn.returned, fn.constant(True, BOOL))
    if fn.kind == "kernel":
        fn.b.effect(Leave)


def _return_value(fn: Fn, c: Cursor) -> None:
    if fn.result is None:
        effect(fn, c)
    elif fn.returns_reference:
        fn.b.store(fn.result, fn.generic(place(fn, c).ptr))
    elif c.kind == Kind.INIT_LIST_EXPR:
        initialize(fn, fn.result, c)
    else:
        fn.b.store(fn.result, fn.generic(value(fn, c)))


def _break(fn: Fn, c: Cursor) -> None:
    broke = fn.loops[-1].broke
    assert broke is not None
    fn.b.store(broke, fn.constant(True, BOOL))


def _continue(fn: Fn, c: Cursor) -> None:
    continued = _loop(fn).continued
    assert continued is not None
    fn.b.store(continued, fn.constant(True, BOOL))


def _goto(fn: Fn, c: Cursor) -> None:
    if goto(c) not in fn.labels:
        raise fn.unsupported(c, "goto backwards, or into a block, is not supported", "use a loop")
    fn.b.store(fn.labels[goto(c)], fn.constant(True, BOOL))


# ---- declarations -------------------------------------------------------------------------------------------------


def _declarations(fn: Fn, c: Cursor) -> None:
    for child in children_of(c):
        lower_statement(fn, child)


def _variable(fn: Fn, c: Cursor) -> None:
    span = fn.at(c)
    space = memory_space(c)
    if space is not None:
        fn.variables[identity(c)] = Place(global_reference(fn, c, space), _is_volatile(c.type))
        return
    start = clang.initializer(c)
    if is_reference(c.type):
        if start is None:
            raise fn.unsupported(c, f"the reference '{c.spelling}' has no initialiser")
        found = bound(fn, start)
        fn.variables[identity(c)] = Place(fn.generic(found.ptr), found.volatile)
        return
    if not fn.on_host:
        check_storage(c, span)
    if c.storage_class in (clang.StorageClass.STATIC, clang.StorageClass.EXTERN):
        if fn.on_host and c.storage_class == clang.StorageClass.STATIC:
            _static(fn, c)
        return  # its first use finds it
    if is_function_pointer(c.type) and _leads_to_known(fn, c):
        return
    if not fn.on_host or not _ending_variable(fn, c):
        start_variable(fn, c, declare_variable(fn, c))


def _leads_to_known(fn: Fn, c: Cursor) -> bool:
    from .function_pointers import leads_to_known

    return leads_to_known(c, fn.handles)


def bound(fn: Fn, start: Cursor) -> Place:
    """What a reference variable is bound to; on the host, a temporary lasts as long as it."""
    if not fn.on_host:
        return place(fn, start)
    from .lifetimes import extended

    outer, fn.extended = fn.extended, extended(start)
    found = place(fn, start)
    fn.extended = outer
    return found


def _static(fn: Fn, c: Cursor) -> None:
    from .statics import start_once, starts_by_code

    if starts_by_code(fn.module, c):
        start_once(fn, c)


def _ending_variable(fn: Fn, c: Cursor) -> bool:
    """Declares a variable at the end of which something is done; whether it is one."""
    from .lifetimes import begin, declare, ends, is_variable_array

    if is_variable_array(c):
        _variable_array(fn, c)
        return True
    type = fn.types.lower(c.type, fn.b.span)
    if not ends(fn, type):
        return False
    slot = declare(fn, type, c.spelling)
    fn.variables[identity(c)] = Place(slot.storage)
    start_variable(fn, c, slot.storage)
    begin(fn, slot)
    return True


def _variable_array(fn: Fn, c: Cursor) -> None:
    """`T a[n]` where n is no constant: of one dimension, or with constants behind it."""
    from .lifetimes import declare_array

    element = c.type.get_canonical().element_type
    sizes = [k for k in children_of(c) if k.kind.is_expression() and clang.evaluate(k) is None]
    if element.get_canonical().kind == clang.TypeKind.VARIABLEARRAY or not sizes:
        raise fn.unsupported(c, "an array of several lengths that are no constants is not supported", "use std::vector")
    type = fn.types.lower(element, fn.b.span)
    array = declare_array(fn, type, value(fn, sizes[0]), c.spelling)
    fn.variables[identity(c)] = Place(array, _is_volatile(c.type))


def declare_variable(fn: Fn, c: Cursor) -> Value:
    type = fn.types.lower(c.type, fn.at(c))
    storage = in_entry(fn, lambda: fn.object(type, c.spelling)) if fn.labels else fn.object(type, c.spelling)
    fn.variables[identity(c)] = Place(storage, _is_volatile(c.type))
    return storage


def start_variable(fn: Fn, c: Cursor, storage: Value) -> None:
    start = clang.initializer(c)
    known = clang.evaluate(start) if start is not None and c.type.is_const_qualified() else None
    type = fn.types.lower(c.type, fn.b.span)
    if known is not None and isinstance(type, Scalar):  # also what a constexpr function computes by recursion
        fn.b.store(storage, constant_of(fn, known, type))
    elif start is not None:
        initialize(fn, storage, start)


def _is_volatile(type: clang.Type) -> bool:
    while type.get_canonical().kind in (clang.TypeKind.CONSTANTARRAY, clang.TypeKind.INCOMPLETEARRAY):
        type = type.get_canonical().element_type
    return bool(type.is_volatile_qualified())


# ---- the rest -----------------------------------------------------------------------------------------------------


def _compound(fn: Fn, c: Cursor) -> None:
    sequence(fn, children_of(c))


def _if(fn: Fn, c: Cursor) -> None:
    _if_with_rest(fn, c, [], tail=False)


def _attributed(fn: Fn, c: Cursor) -> None:
    """`#pragma unroll` hides its loop inside a statement that libclang does not expose."""
    fn.unroll = _unroll_factor(c)
    for child in children_of(c):
        if not child.kind.is_attribute():
            lower_statement(fn, child)
    fn.unroll = None


def _unroll_factor(c: Cursor) -> int | None:
    """The number after `#pragma unroll`, which only the tokens show; 0 (fully) where there is none or it has a name."""
    tokens = [token.spelling for token, _ in zip(c.get_tokens(), range(5), strict=False)]
    if tokens[:3] != ["#", "pragma", "unroll"]:
        return None
    number = next((t for t in tokens[3:] if t != "("), "")
    return int(number) if number.isdigit() else 0


def _nothing(fn: Fn, c: Cursor) -> None:
    pass


def _refuse(what: str, hint: str | None = None) -> Callable[[Fn, Cursor], None]:
    def refuse(fn: Fn, c: Cursor) -> None:
        told = what.replace("device code", "host functions") if fn.kind == "host" else what
        raise fn.unsupported(c, told, hint)

    return refuse


def lower_statement(fn: Fn, c: Cursor) -> None:
    handler = _STATEMENTS.get(c.kind)
    if handler is not None:
        handler(fn, c)
    elif c.kind.is_expression():
        effect(fn, c)
    elif c.kind.is_declaration():
        if c.kind == Kind.UNEXPOSED_DECL:
            raise fn.unsupported(c, "structured bindings are not supported", "name the members one by one")
    else:
        raise fn.unsupported(c, f"this statement ({c.kind.name.lower()}) is not supported")


def _loop_statement(fn: Fn, c: Cursor) -> None:
    from .loops import lower_loop

    lower_loop(fn, c)


def _try(fn: Fn, c: Cursor) -> None:
    """What is thrown ends a program, told at its line: what would catch it never runs."""
    if not fn.on_host:
        _refuse(*REFUSED[Kind.CXX_TRY_STMT])(fn, c)
    sequence(fn, children_of(c)[:1])


def _switch(fn: Fn, c: Cursor) -> None:
    from .switch import lower_switch

    lower_switch(fn, c)


_STATEMENTS: dict[Kind, Callable[[Fn, Cursor], None]] = {
    Kind.COMPOUND_STMT: _compound,
    Kind.DECL_STMT: _declarations,
    Kind.VAR_DECL: _variable,
    Kind.IF_STMT: _if,
    Kind.FOR_STMT: _loop_statement,
    Kind.WHILE_STMT: _loop_statement,
    Kind.DO_STMT: _loop_statement,
    Kind.CXX_FOR_RANGE_STMT: _loop_statement,
    Kind.SWITCH_STMT: _switch,
    Kind.RETURN_STMT: _return,
    Kind.BREAK_STMT: _break,
    Kind.CONTINUE_STMT: _continue,
    Kind.NULL_STMT: _nothing,
    Kind.UNEXPOSED_STMT: _attributed,
    Kind.GOTO_STMT: _goto,
    Kind.LABEL_STMT: lambda fn, c: sequence(fn, [c]),
    Kind.INDIRECT_GOTO_STMT: _refuse("goto is not supported", "use a loop with break or continue"),
    Kind.ASM_STMT: _refuse("inline PTX is not supported", "use the CUDA intrinsic that stands for the instruction"),
    **{kind: _refuse(*reason) for kind, reason in REFUSED.items()},
    Kind.CXX_TRY_STMT: _try,
    Kind.CXX_THROW_EXPR: effect,
}
