"""Calls: of functions with a body, methods, constructors, and the prelude's intrinsics."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import Span, UnsupportedError
from ..ir.builder import pointee
from ..ir.ops import Assert, Call, Print, Value
from ..ir.types import Array, Pointer
from . import clang
from .clang import Cursor, Kind
from .derivatives import derivative
from .expressions import condition, effect, place, value
from .host_calls import REFUSED_ON_HOST, host_call, launch
from .in_source import Handles, handles_passed, is_made_by_clad, request_of
from .intrinsics import INTRINSICS, REFUSED
from .literals import constant_of, string_text
from .lowering import FunctionLowering as Fn
from .lowering import Place
from .prelude import prelude_dir
from .registered import call_registered
from .types import is_function_pointer, is_reference
from .visiting import children_of, walk

_ZERO_INITIALIZED = 1 << 22  # of a constructor call's raw word: `T()` rather than plain `T x;`
_ELIDABLE = 1 << 18  # likewise: a copy of what could be made in its place
_FUNCTION_KINDS = (Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONVERSION_FUNCTION, Kind.CONSTRUCTOR, Kind.DESTRUCTOR)


def call(fn: Fn, c: Cursor) -> Value | None:
    """The value of a call; for one that returns a reference, the address."""
    if clang.statement_class(c) in clang.CONSTRUCT_EXPRS:
        return _construct(fn, c)
    target = _callee(c)
    if _ends_a_number(c):
        return None
    if (target is None or target.kind in (Kind.PARM_DECL, Kind.VAR_DECL)) and children_of(c):
        target = _known_function(fn, children_of(c)[0]) or target
    if target is None or target.kind not in _FUNCTION_KINDS:
        raise fn.unsupported(c, "a call through a function pointer is not supported", "call the function by its name")
    if clang.statement_class(c) == clang.KERNEL_CALL:
        _launch(fn, c, target)
        return None
    request = request_of(fn.unit, c, fn.handles)
    if request is not None:
        return derivative(fn, c, request)
    if is_made_by_clad(c):
        return fn.zero(fn.type(c))
    done = host_call(fn, c, target)
    if done is not None:
        return done[0]
    special = _SPECIAL.get(target.spelling)
    if special is not None and target.kind == Kind.FUNCTION_DECL:
        return special(fn, c)
    if _is_defaulted_assignment(fn, target, c):
        return _assign(fn, c)
    if target.kind == Kind.DESTRUCTOR:
        _destroyed(fn, c, target)
        return None
    if target.is_virtual_method():
        raise fn.unsupported(c, f"'{target.spelling}' is virtual: not supported", "use a template")
    body = _with_body(target)
    fn.unit.check_body(target)
    if body is None:
        return _intrinsic(fn, c, target)
    span = fn.unit.span(c)
    arguments = object_argument(fn, c, target) + call_arguments(fn, c, target)
    fn.b.span = span
    passes = fn.module.passes_of(body) if fn.on_host else None
    if passes is not None:
        call_registered(fn, passes, arguments, span)
        return None
    given = list(c.get_arguments())[_is_operator_call(c) and target.kind != Kind.FUNCTION_DECL :]
    return call_function(fn, body, arguments, span, _handles(fn, body, given))


def _handles(fn: Fn, body: Cursor, given: list[Cursor]) -> Handles:
    """The derivatives and functions that parameters get."""
    found = handles_passed(body, given, fn.handles)
    if not any(is_function_pointer(p.type) for p in body.get_arguments()):
        return found
    from .function_pointers import functions_passed

    return {**found, **functions_passed(body, given, fn.handles)}


def _known_function(fn: Fn, c: Cursor) -> Cursor | None:
    from .function_pointers import known_function

    return known_function(c, fn.handles)


def _ends_a_number(c: Cursor) -> bool:
    """`x.~T()` where T is no class."""
    children = children_of(c)
    return bool(children) and clang.statement_class(children[0]) == clang.PSEUDO_DESTRUCTOR


def _destroyed(fn: Fn, c: Cursor, target: Cursor) -> None:
    """`object.~T()`"""
    if not fn.on_host:
        raise fn.unsupported(c, "a call of a destructor is not supported", "call a function instead")
    from .lifetimes import destroy

    (this,) = object_argument(fn, c, target)
    fn.at(c)
    destroy(fn, this)


def _launch(fn: Fn, c: Cursor, target: Cursor) -> None:
    if not fn.on_host:
        raise fn.unsupported(c, "a kernel launch inside a kernel (dynamic parallelism) is not supported")
    kernel = _with_body(target)
    fn.unit.check_body(target)
    if kernel is None:
        raise fn.unsupported(c, f"the kernel '{target.spelling}' is declared but its body is not here")
    launch(fn, c, kernel)


def call_function(
    fn: Fn, target: Cursor, arguments: list[Value], span: Span, handles: Handles | None = None
) -> Value | None:
    name = _lowered(fn, target, span, handles)
    callee = fn.module.functions[name]
    fitted = []
    for argument, param in zip(arguments, callee.params, strict=True):
        is_pointer = isinstance(param.type, Pointer) and isinstance(argument.type, Pointer)
        fitted.append(fn.b.cast_pointer(argument, param.type) if is_pointer else argument)  # type: ignore[arg-type]
    fn.b.span = span
    if callee.result_type is None:
        fn.b.effect(Call, name, tuple(fitted))
        return None
    return fn.b.emit(Call, name, tuple(fitted), type=callee.result_type)


def _lowered(fn: Fn, target: Cursor, span: Span, handles: Handles | None = None) -> str:
    """The IR function; what the prelude's own code cannot do is the fault of the call into it."""
    try:
        return fn.module.function(target, span, handles)
    except UnsupportedError as error:
        if error.span.source.name.startswith(str(prelude_dir())):
            raise UnsupportedError(error.message, span, error.hint) from error
        raise


def _callee(c: Cursor) -> Cursor | None:
    target = c.referenced
    if target is not None and target.kind in _FUNCTION_KINDS:
        return target
    children = children_of(c)
    for node in walk(children[0]) if children else ():
        if node.kind == Kind.DECL_REF_EXPR and node.referenced is not None and node.referenced.kind in _FUNCTION_KINDS:
            return node.referenced
    return target


def _with_body(target: Cursor) -> Cursor | None:
    """The declaration of the function that holds its body."""
    for candidate in (target, target.get_definition()):
        if candidate is not None and any(k.kind == Kind.COMPOUND_STMT for k in children_of(candidate)):
            return candidate
    return None


# Functions of std:: that clang knows itself and never gives a body: they return the object they are given.
_SAME_OBJECT = frozenset(("move", "forward", "move_if_noexcept", "as_const", "addressof"))


def _intrinsic(fn: Fn, c: Cursor, target: Cursor) -> Value | None:
    name = target.spelling
    if name in _SAME_OBJECT and target.semantic_parent.spelling == "std":
        return fn.generic(place(fn, next(iter(c.get_arguments()))).ptr)
    row = INTRINSICS.get(name)
    number = clang.evaluate(c) if row is None else None
    if number is not None:  # __builtin_inff() and its like
        return constant_of(fn, number, fn.type(c))
    if row is None:
        reason = (REFUSED | REFUSED_ON_HOST).get(
            name, f"'{name}' has no body here and is not a function kernelgrad knows"
        )
        if fn.kind == "host":
            reason = reason.replace("on the device", "in a host function")
        raise fn.unsupported(c, reason)
    arguments = call_arguments(fn, c, target)
    span = fn.at(c)
    result = fn.types.returned(target.result_type, span)
    return row.lower(fn.b, arguments, result)


# ---- arguments ----------------------------------------------------------------------------------------------------


def object_argument(fn: Fn, c: Cursor, target: Cursor) -> list[Value]:
    """The `this` of a method call; an operator's object is its first argument."""
    if target.kind == Kind.FUNCTION_DECL or target.is_static_method():
        return []
    if _is_operator_call(c):
        return [fn.generic(place(fn, next(iter(c.get_arguments()))).ptr)]
    callee = children_of(c)[0]
    while callee.kind != Kind.MEMBER_REF_EXPR:
        callee = children_of(callee)[0]
    bases = [k for k in children_of(callee) if k.kind.is_expression()]
    if not bases:
        from .expressions import this_pointer

        this = this_pointer(fn, c)
        return [_this_as(fn, this, target)]
    if bases[0].type.get_canonical().kind == clang.TypeKind.POINTER:
        return [fn.generic(value(fn, bases[0]))]
    return [fn.generic(place(fn, bases[0]).ptr)]


def _this_as(fn: Fn, this: Value, target: Cursor) -> Value:
    """An implicit `this->` may call a method of a base class."""
    from .casts import to_base

    wanted = fn.types.lower(target.semantic_parent.type, fn.b.span)
    return this if pointee(this) == wanted else to_base(fn, target, this, wanted)


def _is_operator_call(c: Cursor) -> bool:
    return clang.statement_class(c) == 0x59


def call_arguments(fn: Fn, c: Cursor, target: Cursor) -> list[Value]:
    given = list(c.get_arguments())
    is_member = target.kind != Kind.FUNCTION_DECL and not target.is_static_method()
    if is_member and _is_operator_call(c):
        given = given[1:]
    params = list(target.get_arguments())
    return [_argument(fn, g, p) for g, p in zip(given, params, strict=False)]


def _argument(fn: Fn, given: Cursor | None, param: Cursor) -> Value:
    expression = given
    if given is None or clang.statement_class(given) == clang.DEFAULT_ARG or given.kind.is_invalid():
        expression = next(k for k in reversed(children_of(param)) if k.kind.is_expression())
    assert expression is not None
    if is_function_pointer(param.type) and _known_function(fn, expression) is not None:
        return fn.zero(fn.types.parameter(param.type, fn.b.span))  # nobody looks at it
    if is_reference(param.type):
        return fn.generic(place(fn, expression).ptr)
    v = value(fn, expression)
    return fn.generic(v)


# ---- constructors -------------------------------------------------------------------------------------------------


def _construct(fn: Fn, c: Cursor) -> Value:
    from .copies import is_by_code

    target = c.referenced
    if target is not None and _is_copy(fn, target, c) and not is_by_code(fn, fn.type(c)):
        return value(fn, next(iter(c.get_arguments())))
    storage = fn.object(fn.type(c))
    constructor_call(fn, storage, c)
    return fn.b.load(storage)


def _elided(fn: Fn, c: Cursor) -> Cursor:
    """What is made in place of its copy, as by `V({1, 2})`: libclang does not show the constructor of that copy."""
    given = list(c.get_arguments())
    if len(given) != 1 or not clang.raw_word(c) & _ELIDABLE:
        raise fn.unsupported(c, "this way to construct an object is not supported")
    return given[0]


def _is_copy(fn: Fn, target: Cursor, c: Cursor) -> bool:
    copies = target.is_copy_constructor() or target.is_move_constructor()
    return copies and _with_body_of_user(fn, target, c) is None


def _with_body_of_user(fn: Fn, target: Cursor, at: Cursor) -> Cursor | None:
    """The body of a special member function that the user wrote; None for one that the compiler makes."""
    if target.is_default_method():
        return None
    body = _with_body(target)
    if body is None:
        fn.unit.check_body(target)
        raise fn.unsupported(at, f"'{target.spelling}' of '{target.semantic_parent.spelling}' has no body here")
    return body


def constructor_call(fn: Fn, ptr: Value, c: Cursor) -> None:
    """Runs the constructor that `c` calls on the object at `ptr`."""
    from .copies import construct_copy, is_by_code
    from .initialize import default_initialize, inherited_construct, initialize

    if c.kind != Kind.CALL_EXPR or clang.statement_class(c) not in clang.CONSTRUCT_EXPRS:
        initialize(fn, ptr, c)
        return
    target = c.referenced
    if target is None:
        initialize(fn, ptr, _elided(fn, c))
        return
    if isinstance(pointee(ptr), Array):
        array = pointee(ptr)
        assert isinstance(array, Array)
        from .initialize import element_at

        for k in range(array.count):
            constructor_call(fn, element_at(fn, ptr, k), c)
        return
    if _is_copy(fn, target, c):
        given = next(iter(c.get_arguments()))
        if is_by_code(fn, pointee(ptr)):
            construct_copy(fn, ptr, place(fn, given).ptr, bool(target.is_move_constructor()))
        else:
            fn.b.store(ptr, value(fn, given))
        return
    body = _with_body_of_user(fn, target, c)
    if body is not None and inherited_construct(fn, ptr, c):
        return
    if body is not None:
        call_function(fn, body, [fn.generic(ptr), *call_arguments(fn, c, target)], fn.unit.span(c))
    elif target.is_default_constructor() or not list(c.get_arguments()):
        default_initialize(fn, ptr, zero=bool(clang.raw_word(c) & _ZERO_INITIALIZED))
    else:
        raise fn.unsupported(c, f"this constructor of '{target.spelling}' has no body here")


def _is_defaulted_assignment(fn: Fn, target: Cursor, c: Cursor) -> bool:
    is_assignment = target.kind == Kind.CXX_METHOD and target.spelling == "operator="
    return is_assignment and _with_body_of_user(fn, target, c) is None


def _assign(fn: Fn, c: Cursor) -> Value:
    from .copies import assign, is_by_code

    given = list(c.get_arguments())
    if is_by_code(fn, fn.type(given[0])):
        to, of = place(fn, given[0]).ptr, place(fn, given[1]).ptr
        assign(fn, to, of, bool(_callee(c).is_move_assignment_operator_method()))  # type: ignore[union-attr]
        return fn.generic(to)
    new = value(fn, given[1])
    target = place(fn, given[0])
    fn.at(c)
    fn.store(Place(target.ptr, target.volatile), new)
    return fn.generic(target.ptr)


# ---- printf and assert --------------------------------------------------------------------------------------------


def _printf(fn: Fn, c: Cursor) -> Value:
    from ..ir.types import I32

    given = list(c.get_arguments())
    text = string_text(fn, given[0])
    if text is None:
        raise fn.unsupported(c, "printf needs a string literal as its format")
    arguments: list[Value] = []
    pieces: list[str] = []
    rest = iter(given[1:])
    for piece in re.split(r"(%%|%[-+ #0]*[\d.*]*(?:hh|h|ll|l|z|j|t)?[a-zA-Z])", text):
        if piece.startswith("%") and piece != "%%":
            piece = _conversion(fn, c, piece, next(rest, None), arguments)
        pieces.append(piece)
    fn.at(c)
    fn.b.effect(Print, "".join(pieces), tuple(arguments))
    return fn.constant(len(given), I32)


def _conversion(fn: Fn, c: Cursor, piece: str, given: Cursor | None, arguments: list[Value]) -> str:
    if given is None:
        raise fn.unsupported(c, f"printf has no argument for '{piece}'")
    if not piece.endswith("s"):
        arguments.append(value(fn, given))
        return piece
    text = string_text(fn, given)
    if text is None:
        raise fn.unsupported(given, "printf of a string that is not a literal is not supported")
    return text.replace("%", "%%")


def _assert(fn: Fn, c: Cursor) -> None:
    given = list(c.get_arguments())
    cond = condition(fn, given[0])
    fn.at(c)
    fn.b.effect(Assert, cond, string_text(fn, given[1]) or "assertion")


def _first_argument(fn: Fn, c: Cursor) -> Value:
    """__builtin_expect(value, likely) and its like tell the compiler something about their first argument."""
    return value(fn, next(iter(c.get_arguments())))


def _ignore(fn: Fn, c: Cursor) -> None:
    for argument in c.get_arguments():
        effect(fn, argument)


_SPECIAL: dict[str, Callable[[Fn, Cursor], Value | None]] = {
    "printf": _printf,
    "__kg_assert": _assert,
    "__builtin_expect": _first_argument,
    "__builtin_assume_aligned": _first_argument,
    "__builtin_assume": _ignore,
    "__builtin_unreachable": _ignore,
}
