"""Where objects end, in host code: destructors at the end of scopes and of full expressions.

Note [Lifetimes]
A value of a class with a destructor owns what it holds, and whoever gets the value destroys it: a variable at the end
of its scope, a parameter at the end of its function, a temporary at the end of the full expression around it. Exits are
flags here (`statements`), so control comes to the end of a scope whatever happens in it. Each object has a flag of its
own, set once it is constructed: what was jumped over is not destroyed. Objects and flags are allocated where the
function begins, since the end of a scope does not see into branches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..errors import UnsupportedError
from ..ir.builder import pointee
from ..ir.ops import HostCall, Value
from ..ir.types import BOOL, I64, U8, U64, Array, Pointer, Struct, Type
from . import clang
from .clang import Cursor, Kind
from .lowering import FunctionLowering as Fn
from .types import is_reference
from .visiting import children_of

_UNROLL = 16  # longer arrays are destroyed by a loop
_TRANSPARENT = (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR, Kind.MEMBER_REF_EXPR, Kind.CXX_STATIC_CAST_EXPR)


@dataclass(frozen=True)
class Slot:
    """An object, and whether it is there. `is_memory`: it is the address of memory that ends with it."""

    storage: Value
    alive: Value
    is_memory: bool = False


def ends(fn: Fn, type: Type) -> bool:
    """Whether something is done where an object of the type ends."""
    while isinstance(type, Array):
        type = type.element
    if not fn.on_host or not isinstance(type, Struct):
        return False
    return fn.types.has_destructor(type) or any(ends(fn, field.type) for field in type.fields)


# ---- objects ------------------------------------------------------------------------------------------------------


def declare(fn: Fn, type: Type, name: str | None) -> Slot:
    """A variable that ends with the innermost scope; not there yet."""
    slot = _slot(fn, type, name)
    fn.scopes[-1].append(slot)
    _end(fn, slot)  # of the turn before, where a loop's body is no scope
    return slot


def declare_array(fn: Fn, element: Type, count: Value, name: str) -> Value:
    """An array of a length that is known when control comes there, until the innermost scope ends."""
    slot = replace(_slot(fn, Pointer(U8), name), is_memory=True)
    fn.scopes[-1].append(slot)
    _end(fn, slot)
    size = fn.constant(max(1, element.size), U64)
    made = fn.b.emit(HostCall, "malloc", (fn.b.apply("mul", fn.b.convert(count, U64), size),), type=Pointer(U8))
    fn.b.store(slot.storage, made)
    begin(fn, slot)
    return fn.b.cast_pointer(made, Pointer(Array(element, 0)))


def begin(fn: Fn, slot: Slot) -> None:
    fn.b.store(slot.alive, fn.constant(True, BOOL))


def temporary(fn: Fn, value: Value, extended: bool = False) -> Value:
    """The address of a value that ends with the full expression, or with the scope."""
    slot = _slot(fn, value.type, None)
    is_open = bool(fn.temporaries) and not extended
    (fn.temporaries[-1] if is_open else fn.scopes[-1]).append(slot)
    _end(fn, slot)
    fn.b.store(slot.storage, value)
    begin(fn, slot)
    return slot.storage


def discard(fn: Fn, value: Value | None) -> None:
    """Ends a value that nobody uses."""
    if value is not None and ends(fn, value.type):
        destroy(fn, fn.variable(value.type, None, value))


def _slot(fn: Fn, type: Type, name: str | None) -> Slot:
    outer, fn.b.ops = fn.b.ops, fn.entry
    try:
        slot = Slot(fn.b.alloca(type, name), fn.b.alloca(BOOL, None))
        fn.b.store(slot.alive, fn.constant(False, BOOL))
    finally:
        fn.b.ops = outer
    return slot


def _end(fn: Fn, slot: Slot) -> None:
    with fn.b.region() as region:
        fn.b.store(slot.alive, fn.constant(False, BOOL))
        if slot.is_memory:
            fn.b.effect(HostCall, "free", (fn.b.load(slot.storage),))
        else:
            destroy(fn, slot.storage)
    fn.b.if_(fn.b.load(slot.alive), region.block())


# ---- where they end -----------------------------------------------------------------------------------------------


@contextmanager
def scope(fn: Fn) -> Iterator[None]:
    fn.scopes.append([])
    outer, fn.temporaries = fn.temporaries, []
    yield
    fn.temporaries = outer
    for slot in reversed(fn.scopes.pop()):
        _end(fn, slot)


@contextmanager
def full_expression(fn: Fn) -> Iterator[None]:
    fn.temporaries.append([])
    yield
    for slot in reversed(fn.temporaries.pop()):
        _end(fn, slot)


def opens_scope(fn: Fn, statement: Cursor) -> bool:
    """Whether objects that must be destroyed are declared by the statement itself, or in its head."""
    if not fn.on_host:
        return False
    if statement.kind == Kind.CXX_FOR_RANGE_STMT:
        return True
    heads = children_of(statement) if statement.kind in (Kind.COMPOUND_STMT, Kind.IF_STMT) else []
    if statement.kind == Kind.FOR_STMT:
        heads = [part for name, part in clang.for_parts(statement).items() if name == "init"]
    declared = [v for d in heads for v in ([d] if d.kind == Kind.VAR_DECL else _declared(d))]
    return any(is_variable_array(v) or (_is_of_class(v.type) and ends(fn, _object_type(fn, v))) for v in declared)


def is_variable_array(variable: Cursor) -> bool:
    return bool(variable.type.get_canonical().kind == clang.TypeKind.VARIABLEARRAY)


def _declared(c: Cursor) -> list[Cursor]:
    return [v for v in children_of(c) if v.kind == Kind.VAR_DECL] if c.kind == Kind.DECL_STMT else []


def _object_type(fn: Fn, variable: Cursor) -> Type:
    type = variable.type.get_canonical()
    return fn.types.lower(type.get_pointee() if is_reference(type) else type, fn.unit.span(variable))


def _is_of_class(type: clang.Type) -> bool:
    type = type.get_canonical()
    while type.kind in (clang.TypeKind.CONSTANTARRAY, *_REFERENCES):
        type = type.element_type if type.kind == clang.TypeKind.CONSTANTARRAY else type.get_pointee().get_canonical()
    return bool(type.kind == clang.TypeKind.RECORD)


_REFERENCES = (clang.TypeKind.LVALUEREFERENCE, clang.TypeKind.RVALUEREFERENCE)


def extended(start: Cursor) -> Cursor | None:
    """The temporary that a reference variable with this initialiser keeps."""
    while start.kind in _TRANSPARENT:
        if start.kind == Kind.UNEXPOSED_EXPR and clang.statement_class(start) == clang.MATERIALIZE:
            return start
        inner = [k for k in children_of(start) if k.kind.is_expression()]
        if not inner:
            return None
        start = inner[-1]
    return None


# ---- destructors --------------------------------------------------------------------------------------------------


def destroy(fn: Fn, ptr: Value) -> None:
    """What happens to an object at its end: its destructor, then those of its parts, the last one first."""
    type = pointee(ptr)
    if isinstance(type, Array):
        _destroy_elements(fn, fn.b.decay(ptr), fn.constant(type.count, I64), type.count)
    elif isinstance(type, Struct) and ends(fn, type):
        if fn.types.has_destructor(type):
            from .calls import call_function

            call_function(fn, _destructor(fn, type), [fn.generic(ptr)], fn.b.span)
        else:
            destroy_parts(fn, ptr)


def destroy_parts(fn: Fn, ptr: Value) -> None:
    struct = pointee(ptr)
    assert isinstance(struct, Struct)
    for k in reversed(range(len(struct.fields))):
        if ends(fn, struct.fields[k].type):
            destroy(fn, fn.b.member(ptr, k))


def _destructor(fn: Fn, struct: Struct) -> Cursor:
    for member in fn.members(struct):
        if member.kind == Kind.DESTRUCTOR and member.get_definition() is not None:
            found = member.get_definition()
            fn.unit.check_body(found)
            return found
    raise UnsupportedError(f"the destructor of '{struct.name}' has no body here", fn.b.span)


def _destroy_elements(fn: Fn, first: Value, count: Value, known: int | None) -> None:
    """The last one first."""
    if not ends(fn, pointee(first)):
        return
    if known is not None and known <= _UNROLL:
        for k in reversed(range(known)):
            destroy(fn, fn.b.offset(first, fn.constant(k, I64)))
        return
    index = Value(I64, "k")
    with fn.b.region() as body:
        back = fn.b.apply("sub", fn.b.apply("sub", count, fn.constant(1, I64)), index)
        destroy(fn, fn.b.offset(first, back))
    fn.b.for_(fn.constant(0, I64), count, (), 1, body.block((index,)))


def deleted(fn: Fn, c: Cursor, memory: Value, is_array: bool) -> None:
    """`delete`, before the memory is freed. Of `delete[]`, the allocation says how many there are."""
    type = pointee(memory)
    if not ends(fn, type):
        return
    if isinstance(type, Struct) and not is_array and fn.types.has_virtual_destructor(type):
        raise fn.unsupported(c, f"the destructor of '{type.name}' is virtual: not supported", "use a template")
    with fn.b.region() as there:
        if is_array:
            at = fn.b.cast_pointer(memory, Pointer(U8))
            nbytes = fn.b.emit(HostCall, "__kg_bytes", (at,), type=U64)
            count = fn.b.convert(fn.b.apply("div", nbytes, fn.constant(max(1, type.size), U64)), I64)
            _destroy_elements(fn, memory, count, None)
        else:
            destroy(fn, memory)
    fn.b.if_(fn.to_bool(memory), there.block())
