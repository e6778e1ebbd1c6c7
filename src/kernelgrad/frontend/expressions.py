"""Expressions. `value` gives what an expression evaluates to, `place` where the object it denotes is."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ParseError
from ..ir.builder import pointee
from ..ir.ops import Value
from ..ir.types import BOOL, Array, Pointer, Struct
from . import casts, clang
from .clang import Cursor, Kind
from .literals import constant_of, literal, null, string_place
from .lowering import FunctionLowering as Fn
from .lowering import Place
from .operators import ARITHMETIC, as_index, binary, numeric, pointer_binary, promoted, step
from .variables import variable_place
from .visiting import children_of, operand_of

# A volatile object named for nothing is still read; an assignment to one is not a read of it.
_READ_WHEN_DISCARDED = (Kind.DECL_REF_EXPR, Kind.MEMBER_REF_EXPR, Kind.ARRAY_SUBSCRIPT_EXPR, Kind.PAREN_EXPR)


def value(fn: Fn, c: Cursor) -> Value:
    """The value of an expression that has one."""
    result = value_or_none(fn, c)
    if result is None:
        raise fn.unsupported(c, "an expression without a value is used as one")
    return result


def value_or_none(fn: Fn, c: Cursor) -> Value | None:
    """As `value`, with None for a void expression."""
    if c.kind.is_expression() and clang.is_place(c):
        found = place(fn, c)
        fn.at(c)
        return fn.load(found)
    handler = _VALUES.get(c.kind)
    if handler is None and c.kind in REFUSED:
        reason, hint = REFUSED[c.kind]
        if fn.kind == "host":
            reason = reason.replace("on the device", "in a host function").replace("device code", "host functions")
        raise fn.unsupported(c, reason, hint)
    if handler is None:
        raise fn.unsupported(c, f"this expression ({c.kind.name.lower()}) is not supported")
    return handler(fn, c)


def effect(fn: Fn, c: Cursor) -> None:
    """Evaluates an expression for what it does."""
    if c.kind.is_expression() and clang.is_place(c):
        found = place(fn, c)
        if found.volatile and c.kind in _READ_WHEN_DISCARDED:
            fn.load(found)
    elif (unused := value_or_none(fn, c)) is not None and fn.on_host:
        from .lifetimes import discard

        discard(fn, unused)


def place(fn: Fn, c: Cursor) -> Place:
    """Where the object that an lvalue (or a materialised temporary) denotes is."""
    handler = _PLACES.get(c.kind)
    if handler is None:
        return temporary(fn, c)
    found = handler(fn, c)
    if not found.volatile and c.type.is_volatile_qualified():
        return Place(found.ptr, True, found.bits)
    return found


def temporary(fn: Fn, c: Cursor, extended: bool = False) -> Place:
    """A value put into memory, so that it has an address. `extended`: as long as the scope lasts."""
    v = value(fn, c)
    if fn.on_host and isinstance(v.type, Struct | Array):
        from . import lifetimes

        if lifetimes.ends(fn, v.type):
            return Place(lifetimes.temporary(fn, v, extended))
    return Place(fn.variable(v.type, None, v))


def condition(fn: Fn, c: Cursor) -> Value:
    return fn.to_bool(value(fn, c))


# ---- names --------------------------------------------------------------------------------------------------------


def _reference_value(fn: Fn, c: Cursor) -> Value:
    number = clang.evaluate(c)
    if number is not None:
        return constant_of(fn, number, fn.type(c))
    raise fn.unsupported(c, f"'{c.spelling}' cannot be used as a value here")


def _reference_place(fn: Fn, c: Cursor) -> Place:
    target = c.referenced
    if target is None:
        raise fn.unsupported(c, f"'{c.spelling}' is not supported here")
    return variable_place(fn, target, c)


def _member_place(fn: Fn, c: Cursor) -> Place:
    target = c.referenced
    if target is not None and target.kind == Kind.VAR_DECL:  # a static member
        return variable_place(fn, target, c)
    bases = [child for child in children_of(c) if child.kind.is_expression()]
    base = _member_base(fn, bases[0]) if bases else this_pointer(fn, c)
    base = _through_anonymous(fn, base, target) if target is not None else base
    struct = pointee(base)
    index = fn.types.field_index(target) if target is not None else None
    if index is None or not isinstance(struct, Struct):
        raise fn.unsupported(c, f"member '{c.spelling}' is not supported")
    fn.at(c)
    found = Place(fn.b.member(base, index), bits=fn.types.bit_field(target))
    if target.type.get_canonical().kind in (clang.TypeKind.LVALUEREFERENCE, clang.TypeKind.RVALUEREFERENCE):
        return Place(fn.b.load(found.ptr))
    return found


def _through_anonymous(fn: Fn, base: Value, target: Cursor) -> Value:
    """libclang leaves out the unnamed members on the way to a member of an anonymous struct or union."""
    struct, record = pointee(base), fn.types.lower(target.semantic_parent.type, fn.b.span)
    if struct == record or not isinstance(struct, Struct):
        return base
    for k, field in enumerate(struct.fields):
        inside = field.type
        if isinstance(inside, Struct) and (inside == record or any(f.type == record for f in inside.fields)):
            return _through_anonymous(fn, fn.b.member(base, k), target)
    return base


def _member_base(fn: Fn, base: Cursor) -> Value:
    if base.type.get_canonical().kind == clang.TypeKind.POINTER:
        return value(fn, base)
    return place(fn, base).ptr


def this_pointer(fn: Fn, c: Cursor) -> Value:
    if fn.this is None:
        raise fn.unsupported(c, "'this' is not available here")
    return fn.this


def _subscript(fn: Fn, c: Cursor) -> Place:
    left, right = children_of(c)
    pointer, index = value(fn, left), value(fn, right)
    if not isinstance(pointer.type, Pointer):
        pointer, index = index, pointer
    fn.at(c)
    return Place(fn.b.offset(pointer, as_index(fn, index)))


# ---- operators ----------------------------------------------------------------------------------------------------


def _unary_value(fn: Fn, c: Cursor) -> Value | None:
    operator, (operand,) = clang.unary_operator(c), children_of(c)
    if operator in ("p++", "p--"):
        target = place(fn, operand)
        old = fn.load(target)
        fn.at(c)
        fn.store(target, step(fn, old, 1 if operator == "p++" else -1))
        return old
    if operator == "&":
        return fn.generic(place(fn, operand).ptr)
    if operator == "!":
        return fn.b.apply("not", condition(fn, operand))
    v = value(fn, operand)
    fn.at(c)
    if operator == "-":
        return fn.b.apply("neg", v)
    if operator == "~":
        return fn.b.apply("not", v)
    if operator in ("+", "__extension__"):
        return v
    raise fn.unsupported(c, f"operator '{operator}' is not supported")


def _unary_place(fn: Fn, c: Cursor) -> Place:
    operator, (operand,) = clang.unary_operator(c), children_of(c)
    if operator == "*":
        return Place(value(fn, operand))
    if operator in ("++", "--"):
        target = place(fn, operand)
        fn.at(c)
        fn.store(target, step(fn, fn.load(target), 1 if operator == "++" else -1))
        return target
    return place(fn, operand)


def _binary_value(fn: Fn, c: Cursor) -> Value | None:
    operator = clang.binary_operator(c)
    left, right = children_of(c)
    if operator in ("&&", "||"):
        return _short_circuit(fn, operator, left, right)
    if operator == ",":
        effect(fn, left)
        return value_or_none(fn, right)
    return binary(fn, c, operator, value(fn, left), value(fn, right))


def _short_circuit(fn: Fn, operator: str, left: Cursor, right: Cursor) -> Value:
    first = condition(fn, left)
    with fn.b.region() as evaluated:
        second = condition(fn, right)
    with fn.b.region() as skipped:
        known = fn.constant(operator == "||", BOOL)
    second_block, known_block = evaluated.block((), (second,)), skipped.block((), (known,))
    then, orelse = (second_block, known_block) if operator == "&&" else (known_block, second_block)
    (result,) = fn.b.if_(first, then, orelse)
    return result


def _assignment_place(fn: Fn, c: Cursor) -> Place:
    operator = clang.binary_operator(c)
    left, right = children_of(c)
    if operator == ",":
        effect(fn, left)
        return place(fn, right)
    if operator == "=":
        new = value(fn, right)
        target = place(fn, left)
        fn.at(c)
        fn.store(target, new)
        return target
    raise fn.unsupported(c, f"operator '{operator}' is not supported here")


def _compound_assignment(fn: Fn, c: Cursor) -> Place:
    operator = clang.binary_operator(c).removesuffix("=")
    left, right = children_of(c)
    operand = value(fn, right)
    target = place(fn, left)
    fn.at(c)
    old = fn.load(target)
    if isinstance(old.type, Pointer):
        fn.store(target, pointer_binary(fn, c, operator, old, operand))
        return target
    # The right side already has the type of the computation, except for shifts.
    wide = promoted(old.type) if operator in ("<<", ">>") else operand.type
    result = fn.b.apply(ARITHMETIC[operator], numeric(fn, old, wide), operand)
    fn.store(target, numeric(fn, result, old.type))
    return target


def _conditional_value(fn: Fn, c: Cursor) -> Value | None:
    parts = children_of(c)
    cond = condition(fn, parts[0])
    with fn.b.region() as then:
        first = value_or_none(fn, parts[1])
    with fn.b.region() as orelse:
        second = value_or_none(fn, parts[2])
    if first is None or second is None:
        fn.b.if_(cond, then.block(), orelse.block())
        return None
    (result,) = fn.b.if_(cond, then.block((), (first,)), orelse.block((), (second,)))
    return result


def _conditional_place(fn: Fn, c: Cursor) -> Place:
    parts = children_of(c)
    cond = condition(fn, parts[0])
    with fn.b.region() as then:
        first = place(fn, parts[1])
        first_ptr = fn.generic(first.ptr)
    with fn.b.region() as orelse:
        second = place(fn, parts[2])
        second_ptr = fn.generic(second.ptr)
    if first.bits is not None or second.bits is not None:
        raise fn.unsupported(c, "a choice between bit-fields is not supported", "write an if")
    (ptr,) = fn.b.if_(cond, then.block((), (first_ptr,)), orelse.block((), (second_ptr,)))
    return Place(ptr, first.volatile or second.volatile)


# ---- what libclang does not expose --------------------------------------------------------------------------------


def _unexposed_value(fn: Fn, c: Cursor) -> Value | None:
    kind = clang.statement_class(c)
    if kind == clang.RECOVERY:
        raise ParseError("clang could not make sense of this expression", fn.unit.span(c))
    if kind == 0x4D:
        return casts.cast_value(fn, c)
    inner = operand_of(c)
    if inner is None:
        return literal(fn, c)
    if kind == clang.CLEANUPS and fn.on_host:
        from .lifetimes import full_expression

        with full_expression(fn):
            return value_or_none(fn, inner)
    if c.type.get_canonical().spelling.removeprefix("const ").startswith("std::initializer_list<"):
        from .initialize import initializer_list

        return initializer_list(fn, c, inner)
    return value_or_none(fn, inner)


def _unexposed_place(fn: Fn, c: Cursor) -> Place:
    kind = clang.statement_class(c)
    if kind == clang.RECOVERY:
        raise ParseError("clang could not make sense of this expression", fn.unit.span(c))
    if kind == 0x4D:
        return casts.cast_place(fn, c)
    inner = operand_of(c)
    if inner is None:
        return temporary(fn, c)
    if kind == clang.MATERIALIZE:
        return temporary(fn, inner, fn.extended is not None and fn.extended == c)
    if kind == clang.CLEANUPS and fn.on_host:
        from .lifetimes import full_expression

        with full_expression(fn):
            return place(fn, inner)
    return place(fn, inner)


def _paren_value(fn: Fn, c: Cursor) -> Value | None:
    inner = operand_of(c)
    assert inner is not None
    return value_or_none(fn, inner)


def _paren_place(fn: Fn, c: Cursor) -> Place:
    inner = operand_of(c)
    assert inner is not None
    return place(fn, inner)


def _call_value(fn: Fn, c: Cursor) -> Value | None:
    from .calls import call

    return call(fn, c)


def _call_place(fn: Fn, c: Cursor) -> Place:
    from .calls import call

    ptr = call(fn, c)
    if ptr is None or not clang.is_place(c):
        raise fn.unsupported(c, "this call does not give an object")
    return Place(ptr)


def _list_value(fn: Fn, c: Cursor) -> Value:
    from .initialize import list_value

    return list_value(fn, c)


def _lambda_value(fn: Fn, c: Cursor) -> Value:
    from .lambdas import closure_value

    return closure_value(fn, c)


def _new_value(fn: Fn, c: Cursor) -> Value:
    from .host_calls import new

    if not fn.on_host:
        raise fn.unsupported(c, *_ALLOCATION)
    return new(fn, c)


def _delete_value(fn: Fn, c: Cursor) -> None:
    from .host_calls import delete

    if not fn.on_host:
        raise fn.unsupported(c, *_ALLOCATION)
    delete(fn, c)


def _throw_value(fn: Fn, c: Cursor) -> None:
    from .host_calls import throw

    if not fn.on_host:
        raise fn.unsupported(c, *_EXCEPTIONS)
    throw(fn, c)


def _statement_expression(fn: Fn, c: Cursor) -> Value | None:
    """GNU's `({ ...; value; })`."""
    from .exits import exits
    from .statements import sequence

    (body,) = children_of(c)
    statements = children_of(body)
    if fn.on_host or exits(body):
        what = "in host code" if fn.on_host else "that is left by a jump"
        raise fn.unsupported(c, f"a statement expression {what} is not supported", "write it as a function")
    if c.type.get_canonical().kind == clang.TypeKind.VOID:
        sequence(fn, statements)
        return None
    sequence(fn, statements[:-1])
    return value(fn, statements[-1])


def _cast_value(fn: Fn, c: Cursor) -> Value | None:
    return casts.cast_value(fn, c)


def _cast_place(fn: Fn, c: Cursor) -> Place:
    return casts.cast_place(fn, c)


_ALLOCATION = ("allocation on the device is not supported", "use a local array or pass a buffer")
_EXCEPTIONS = ("exceptions are not supported in device code", None)
FUNCTION_POINTER = ("a pointer to a function is not supported", "call the function by its name, or pass a functor")
REFUSED: dict[Kind, tuple[str, str | None]] = {
    Kind.CXX_TRY_STMT: _EXCEPTIONS,
    Kind.CXX_DYNAMIC_CAST_EXPR: ("dynamic_cast is not supported", "use a template"),
    Kind.CXX_TYPEID_EXPR: ("typeid is not supported", None),
    Kind.ADDR_LABEL_EXPR: ("labels and goto are not supported", "use a loop with break or continue"),
}

_VALUES: dict[Kind, Callable[[Fn, Cursor], Value | None]] = {
    Kind.CXX_THROW_EXPR: _throw_value,
    Kind.INTEGER_LITERAL: literal,
    Kind.FLOATING_LITERAL: literal,
    Kind.CHARACTER_LITERAL: literal,
    Kind.CXX_BOOL_LITERAL_EXPR: literal,
    Kind.CXX_UNARY_EXPR: literal,
    Kind.SIZE_OF_PACK_EXPR: literal,
    Kind.CXX_NULL_PTR_LITERAL_EXPR: null,
    Kind.GNU_NULL_EXPR: literal,
    Kind.DECL_REF_EXPR: _reference_value,
    Kind.MEMBER_REF_EXPR: _reference_value,
    Kind.UNARY_OPERATOR: _unary_value,
    Kind.BINARY_OPERATOR: _binary_value,
    Kind.CONDITIONAL_OPERATOR: _conditional_value,
    Kind.CSTYLE_CAST_EXPR: _cast_value,
    Kind.CXX_STATIC_CAST_EXPR: _cast_value,
    Kind.CXX_REINTERPRET_CAST_EXPR: _cast_value,
    Kind.CXX_CONST_CAST_EXPR: _cast_value,
    Kind.CXX_FUNCTIONAL_CAST_EXPR: _cast_value,
    Kind.UNEXPOSED_EXPR: _unexposed_value,
    Kind.PAREN_EXPR: _paren_value,
    Kind.CALL_EXPR: _call_value,
    Kind.INIT_LIST_EXPR: _list_value,
    Kind.COMPOUND_LITERAL_EXPR: _paren_value,
    Kind.LAMBDA_EXPR: _lambda_value,
    Kind.CXX_THIS_EXPR: this_pointer,
    Kind.CXX_NEW_EXPR: _new_value,
    Kind.CXX_DELETE_EXPR: _delete_value,
    Kind.StmtExpr: _statement_expression,
}

_PLACES: dict[Kind, Callable[[Fn, Cursor], Place]] = {
    Kind.DECL_REF_EXPR: _reference_place,
    Kind.MEMBER_REF_EXPR: _member_place,
    Kind.ARRAY_SUBSCRIPT_EXPR: _subscript,
    Kind.UNARY_OPERATOR: _unary_place,
    Kind.BINARY_OPERATOR: _assignment_place,
    Kind.COMPOUND_ASSIGNMENT_OPERATOR: _compound_assignment,
    Kind.CONDITIONAL_OPERATOR: _conditional_place,
    Kind.CSTYLE_CAST_EXPR: _cast_place,
    Kind.CXX_STATIC_CAST_EXPR: _cast_place,
    Kind.CXX_REINTERPRET_CAST_EXPR: _cast_place,
    Kind.CXX_CONST_CAST_EXPR: _cast_place,
    Kind.CXX_FUNCTIONAL_CAST_EXPR: _cast_place,
    Kind.UNEXPOSED_EXPR: _unexposed_place,
    Kind.PAREN_EXPR: _paren_place,
    Kind.CALL_EXPR: _call_place,
    Kind.STRING_LITERAL: string_place,
}
