"""Calls of host functions that have passes of their own (`registrations`), as operations: `ir/ops.Registered`."""

from __future__ import annotations

from ..errors import Span
from ..ir.ops import Param, Registered, Value
from ..ir.types import Pointer, Scalar, Struct, Type
from .clang import Cursor
from .lowering import FunctionLowering as Fn


def call_registered(fn: Fn, passes: tuple[Cursor, ...], arguments: list[Value], span: Span) -> None:
    """A call that keeps its name, so that its passes are called in its place."""
    names = [fn.module.function(p, span) for p in passes]
    function, augmented, reverse = (fn.module.functions[name] for name in names)
    _check(fn, passes, function.params, len(augmented.params), len(reverse.params))
    _check_adjoints(fn, passes[2], function.params, reverse.result_type)
    fitted = []
    for argument, param in zip(arguments, function.params, strict=True):
        is_pointer = isinstance(param.type, Pointer) and isinstance(argument.type, Pointer)
        fitted.append(fn.b.cast_pointer(argument, param.type) if is_pointer else argument)  # type: ignore[arg-type]
    fn.b.span = span
    fn.b.effect(Registered, names[0], names[1], names[2], tuple(fitted))


def _check(fn: Fn, passes: tuple[Cursor, ...], params: tuple[Param, ...], augmented: int, reverse: int) -> None:
    """Each pointer has a shadow behind it; the reverse has the tape, too."""
    function = passes[0]
    types = [p.type for p in params]
    if function.result_type.spelling != "void":
        problem = f"'{function.spelling}' has passes of its own, and gives a value: not supported"
        raise fn.unsupported(function, problem, "give it behind a pointer")
    wanted = len(types) + sum(isinstance(t, Pointer) for t in types)
    for cursor, count, extra in ((passes[1], augmented, 0), (passes[2], reverse, 1)):
        if count != wanted + extra:
            behind = ", and then the tape" if extra else ""
            problem = (
                f"'{cursor.spelling}' must take the arguments of '{function.spelling}', each pointer with its shadow"
            )
            raise fn.unsupported(cursor, f"{problem} behind it{behind}: {wanted + extra} parameters, and has {count}")


def _check_adjoints(fn: Fn, reverse: Cursor, params: tuple[Param, ...], result: Type | None) -> None:
    """The reverse returns the adjoints of numbers, one or a struct of them."""
    wanted = [p.type for p in params if isinstance(p.type, Scalar) and p.type.is_float]
    given = [f.type for f in result.fields] if isinstance(result, Struct) else [] if result is None else [result]
    if wanted and given != wanted:
        what = f"{len(wanted)} numbers in a struct" if len(wanted) > 1 else "a number"
        problem = f"'{reverse.spelling}' must return the adjoints of the numbers that the function takes: {what}"
        raise fn.unsupported(reverse, problem)
