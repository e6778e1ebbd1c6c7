"""Requests for derivatives (`in_source`) as operations: `ir/ops.Derivative`."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..ir.builder import pointee
from ..ir.ops import Derivative, Print, Value
from ..ir.types import U8, U64, Array, Pointer, Scalar, Struct, Type
from . import clang
from .clang import Cursor
from .expressions import place, value
from .in_source import Argument, Request
from .lifetimes import ends
from .lowering import FunctionLowering as Fn
from .types import is_reference


def derivative(fn: Fn, c: Cursor, request: Request) -> Value | None:
    """What a request evaluates to."""
    if request.misuse is not None:
        fn.at(c)
        fn.b.effect(Print, f"{request.misuse}\n", ())
        return None
    span = fn.unit.span(c)
    if request.configuration and not fn.on_host:
        raise fn.unsupported(c, "a kernel cannot launch the gradient of a kernel")
    name = fn.module.function(request.function, span)
    callee = fn.module.functions[name]
    args, shadows = list[Value](), list[Value]()
    for argument, param in zip(request.arguments, callee.params, strict=True):
        _check_struct(fn, argument, param.type)
        _check_pointee(fn, argument, param.type)
        args.append(_given(fn, argument, param.type))
        if argument.shadow is not None:
            shadows.append(_shadow(fn, argument, param.type, request.mode == "forward"))
    config = _configuration(fn, request)
    given = tuple(_rvalue(fn, g) for g in (request.seed, request.tape) if g is not None)
    fn.b.span = span
    activity = ",".join(a.activity for a in request.arguments)
    types = _results(fn, request, callee.params, callee.result_type)
    results = tuple(Value(type) for type in types)
    fn.b.add(
        Derivative(name, request.mode, activity, config, tuple(args), tuple(shadows), given, request.tape_bytes,
                   results=results, span=span)
    )  # fmt: skip
    return _returned(fn, c, request, results)


def _results(fn: Fn, request: Request, params: tuple[object, ...], result: Type | None) -> list[Type]:
    """Of the operation."""
    if request.mode == "forward":
        return [result] if isinstance(result, Scalar) and result.is_float else []
    if request.mode == "augmented":
        return [_tape_type(fn, request)]
    pairs = zip(request.arguments, params, strict=True)
    return [p.type for a, p in pairs if a.activity == "out"]  # type: ignore[attr-defined]


def _tape_type(fn: Fn, request: Request) -> Type:
    """A pointer, or a value with room for the tape."""
    c = request.call
    declared = fn.types.returned(c.type, fn.b.span)
    if declared is None or isinstance(declared, Pointer) != (request.tape_bytes == 0):
        wanted = (
            "a pointer to the tape" if not request.tape_bytes else f"the tape, a value of {request.tape_bytes} bytes"
        )
        problem = f"'{c.spelling}' gives {wanted}, and is declared to return '{c.type.spelling}'"
        raise fn.unsupported(c, problem, None if declared is None else "enzyme_allocated goes with a value, not void *")
    return Pointer(U8) if isinstance(declared, Pointer) else declared


def _returned(fn: Fn, c: Cursor, request: Request, results: tuple[Value, ...]) -> Value | None:
    """What the call was declared to return, made of what there is."""
    if fn.types.returned(c.type, fn.b.span) is None or not results:
        return None  # to use it as a value is an error
    type = fn.type(c)
    if request.mode == "augmented":
        return fn.b.cast_pointer(results[0], type) if isinstance(type, Pointer) else results[0]
    if isinstance(type, Scalar) and type.is_float and len(results) == 1:
        return fn.b.convert(results[0], type)
    if isinstance(type, Struct) and len(type.fields) == len(results) and all(map(_is_float, type.fields)):
        parts = (fn.b.convert(r, f.type) for r, f in zip(results, type.fields, strict=True))
        return fn.b.aggregate(type, tuple(parts))
    what = "a number" if len(results) == 1 else f"a struct of {len(results)} numbers" if results else "nothing"
    raise fn.unsupported(c, f"'{c.spelling}' is declared to return '{c.type.spelling}', and gives {what} here")


def _is_float(field: object) -> bool:
    type = field.type  # type: ignore[attr-defined]
    return isinstance(type, Scalar) and type.is_float


def _rvalue(fn: Fn, c: Cursor) -> Value:
    """A value; arrays decay, also where a parameter takes them by reference."""
    if not clang.is_place(c):
        return fn.generic(value(fn, c))
    found = place(fn, c)
    fn.at(c)
    if isinstance(pointee(found.ptr), Array):
        return fn.generic(fn.b.decay(found.ptr))
    return fn.generic(fn.load(found))


def _given(fn: Fn, argument: Argument, type: Type) -> Value:
    if is_reference(argument.parameter.type) and not _is_pointer(argument.value):
        return fn.generic(place(fn, argument.value).ptr)
    return _fitted(fn, argument.value, _rvalue(fn, argument.value), type, f"'{argument.parameter.spelling}'")


def _check_struct(fn: Fn, argument: Argument, type: Type) -> None:
    if not isinstance(type, Struct):
        return
    problem = f"'{argument.parameter.spelling}' is a struct passed by value"
    if not fn.on_host and argument.activity == "dup":
        hint = "pass a pointer to it, or name the other parameters"
        raise fn.unsupported(
            argument.shadow or argument.value, f"{problem}: an adjoint of it is not supported here", hint
        )
    if fn.on_host and ends(fn, type):
        raise fn.unsupported(
            argument.value, f"{problem}, which the function destroys: not supported", "pass a reference"
        )


def _check_pointee(fn: Fn, argument: Argument, type: Type) -> None:
    """Adjoints behind pointers that memory holds are nobody's to find, but for those of objects of the host's."""
    if fn.on_host and isinstance(type, Pointer) and isinstance(type.pointee, Struct):
        return
    if argument.activity == "dup" and isinstance(type, Pointer) and holds_pointers(type.pointee):
        problem = f"'{argument.parameter.spelling}' leads to pointers: derivatives behind those are not supported here"
        raise fn.unsupported(argument.value, problem, "pass the pointers themselves, or mark it enzyme_const")


def holds_pointers(type: Type) -> bool:
    if isinstance(type, Struct):
        return any(holds_pointers(field.type) for field in type.fields)
    return isinstance(type, Pointer) or (isinstance(type, Array) and holds_pointers(type.element))


def _is_pointer(c: Cursor) -> bool:
    return bool(c.type.get_canonical().kind == clang.TypeKind.POINTER)


def _fitted(fn: Fn, c: Cursor, found: Value, type: Type, name: str) -> Value:
    """As the parameter wants it."""
    if isinstance(type, Pointer) and isinstance(found.type, Pointer):
        if pointee(found) not in (type.pointee, U8) and type.pointee != U8:
            raise _misfit(fn, c, type, name)
        return fn.b.cast_pointer(found, Pointer(type.pointee))
    if isinstance(type, Scalar) and isinstance(found.type, Scalar):
        return fn.b.convert(found, type)
    if found.type != type:
        raise _misfit(fn, c, type, name)
    return found


def _misfit(fn: Fn, c: Cursor, type: Type, name: str) -> UnsupportedError:
    return fn.unsupported(c, f"{name} must be '{_shown(type)}', and is '{c.type.spelling}'")


def _shown(type: Type) -> str:
    """As C++ has it."""
    if isinstance(type, Pointer):
        return f"{_shown(type.pointee)} *".replace("* *", "**")
    return {"f64": "double", "f32": "float", "i32": "int"}.get(str(type), str(type))


def _shadow(fn: Fn, argument: Argument, type: Type, forward: bool) -> Value:
    """The memory of an adjoint or tangent; of a number's tangent, the number."""
    assert argument.shadow is not None
    name = f"the shadow of '{argument.parameter.spelling}'"
    if forward and not isinstance(type, Pointer):
        return _fitted(fn, argument.shadow, _rvalue(fn, argument.shadow), type, name)
    wanted = type if isinstance(type, Pointer) else Pointer(type)
    by_reference = is_reference(argument.parameter.type) and not _is_pointer(argument.shadow)
    found = fn.generic(place(fn, argument.shadow).ptr) if by_reference else _rvalue(fn, argument.shadow)
    return _fitted(fn, argument.shadow, found, wanted, name)


def _configuration(fn: Fn, request: Request) -> tuple[Value, ...]:
    """As a launch has it."""
    if not request.configuration:
        return ()
    grid, block, *rest = (_rvalue(fn, part) for part in request.configuration)
    shared = fn.b.convert(rest[0], U64) if rest else fn.constant(0, U64)
    stream = rest[1] if rest else fn.b.null(Pointer(U8))
    extents = [fn.b.extract(dim, axis) for dim in (grid, block) for axis in range(3)]
    return (*extents, shared, stream)
