"""Variables of the host with static storage that code gives their first values: once, where C++ does.

Those of functions start where control first comes to their declaration; the others before the function that Python
calls, in the order of the text, unless a call before did it.
"""

from __future__ import annotations

from ..errors import UnsupportedError
from ..ir.ops import Global, Op, Value
from ..ir.types import BOOL
from . import clang
from .clang import Cursor, Kind, identity
from .lowering import FunctionLowering as Fn
from .lowering import Lowering
from .visiting import walk

_FUNCTIONS = (
    Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION,
    Kind.FUNCTION_TEMPLATE, Kind.LAMBDA_EXPR,
)  # fmt: skip
_GUARD = 1 << 73


def enclosing_function(variable: Cursor) -> Cursor | None:
    parent = variable.semantic_parent
    return parent if parent is not None and parent.kind in _FUNCTIONS else None


def starts_by_code(module: Lowering, variable: Cursor) -> bool:
    from .variables import initial_bytes

    start = clang.initializer(variable)
    if start is None or _is_left_zero(variable, start):
        return False
    try:
        initial_bytes(module, variable, module.types.lower(variable.type, module.unit.span(variable)))
    except UnsupportedError:
        return True
    return clang.evaluate(start) is None and any(c.kind == Kind.CALL_EXPR for c in walk(start))


def _is_left_zero(variable: Cursor, start: Cursor) -> bool:
    """Whether it is a struct as C has them, or an array of such, and nothing is given for it."""
    given = (c for c in start.get_children() if c.kind.is_expression())
    return start.kind == Kind.CALL_EXPR and not any(True for _ in given) and bool(variable.type.is_pod())


def start_once(fn: Fn, variable: Cursor) -> None:
    """Initialises it unless that was done before."""
    from .initialize import initialize
    from .variables import global_reference

    span = fn.at(variable)
    start = clang.initializer(variable)
    assert start is not None
    guard = fn.generic(_guard(fn, variable))
    with fn.b.region() as first:
        fn.b.store(guard, fn.constant(True, BOOL))
        initialize(fn, fn.generic(global_reference(fn, variable, "host")), start)
    fn.b.span = span
    fn.b.if_(fn.b.apply("not", fn.b.load(guard)), first.block())


def _guard(fn: Fn, variable: Cursor) -> Value:
    from .variables import host_name

    key = identity(variable) | _GUARD
    name = fn.module.global_name(key)
    if name is None:
        own = Global(f"{host_name(fn.module, variable)} started", BOOL, "host", b"\0", fn.b.span)
        name = fn.module.add_global(own, key)
    return fn.b.global_ref(name, BOOL, "host")


def started(fn: Fn) -> list[Op]:
    """The operations that start what is reached from the function that Python calls."""
    done: dict[int, tuple[int, list[Op]]] = {}
    while waiting := [v for v in fn.module.dynamic if identity(v) not in done]:
        for variable in waiting:
            outer, fn.b.ops = fn.b.ops, []
            try:
                start_once(fn, variable)
                done[identity(variable)] = variable.location.offset, fn.b.ops
            finally:
                fn.b.ops = outer
    return [op for _, ops in sorted(done.values(), key=lambda entry: entry[0]) for op in ops]
