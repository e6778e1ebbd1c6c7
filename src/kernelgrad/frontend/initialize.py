"""Initialisation: lists with elided braces, constructors and their member initialisers, default and zero values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..errors import UnsupportedError
from ..ir.builder import pointee
from ..ir.ops import Value
from ..ir.types import BOOL, I32, Array, Field, Pointer, Scalar, Struct, Type, element_types
from . import clang
from .clang import Cursor, Kind, identity
from .expressions import place, value
from .literals import string_text
from .lowering import FunctionLowering as Fn
from .lowering import Lowering, Place
from .operators import numeric
from .visiting import children_of, fields_of, operand_of

_ADDRESSES = (clang.TypeKind.POINTER, clang.TypeKind.NULLPTR)
_UNROLL = 16  # longer runs of zeros are written by a loop

Element = tuple[Cursor | None, Type, tuple[int, ...]]


def initialize(fn: Fn, ptr: Value, start: Cursor) -> None:
    """Initialises the object at `ptr` from an expression or a list."""
    type = pointee(ptr)
    if fn.on_host and clang.is_full_expression(start):
        from .lifetimes import full_expression

        with full_expression(fn):
            initialize(fn, ptr, operand_of(start) or start)
        return
    start = _unwrap(start)
    if start.kind == Kind.INIT_LIST_EXPR:
        _from_list(fn, ptr, start)
    elif fn.on_host and isinstance(type, Struct) and clang.statement_class(start) in clang.CONSTRUCT_EXPRS:
        _constructor_call(fn, ptr, start)  # where it is: a constructor may tell others its address
    elif isinstance(type, Array):
        _array_from(fn, ptr, type, start)
    elif isinstance(type, Struct):
        from .list_elements import object_from

        if not object_from(fn, ptr, start, type):
            fn.b.store(ptr, fitted(fn, start, type))
    else:
        fn.b.store(ptr, fitted(fn, start, type))


def _unwrap(c: Cursor) -> Cursor:
    """Past the wrappers around a list or constructor that mean nothing for initialisation."""
    while c.kind == Kind.UNEXPOSED_EXPR and clang.statement_class(c) in (clang.CLEANUPS, clang.MATERIALIZE):
        inner = operand_of(c)
        if inner is None:
            break
        c = inner
    return c


def fitted(fn: Fn, c: Cursor, type: Type) -> Value:
    """An element of a list as a value of the type: lists show their elements without the implicit conversions."""
    if isinstance(type, Pointer) and c.type.get_canonical().kind not in _ADDRESSES:
        return _address(fn, c, type)
    return coerce(fn, value(fn, c), type)


def _address(fn: Fn, c: Cursor, type: Pointer) -> Value:
    """A pointer from an array (decay), from 0 (null), or from the object that a reference member is bound to."""
    if clang.is_place(c):
        target = place(fn, c).ptr
        found = pointee(target)
        if isinstance(found, Array) and found.element == type.pointee:
            return fn.generic(fn.b.decay(target))
        if found == type.pointee:
            return fn.generic(target)
    if clang.evaluate(c) == 0:
        return fn.b.null(type)
    raise fn.unsupported(c, "this initialiser of a pointer is not supported")


def coerce(fn: Fn, v: Value, type: Type) -> Value:
    """An implicit conversion between values."""
    if v.type == type:
        return v
    if isinstance(type, Scalar) and isinstance(v.type, Scalar | Pointer):
        return numeric(fn, v, type)
    if isinstance(type, Pointer) and isinstance(v.type, Pointer):
        return fn.b.cast_pointer(v, type)
    raise UnsupportedError(f"a conversion from {v.type} to {type} is not supported", fn.b.span)


def _array_from(fn: Fn, ptr: Value, type: Array, start: Cursor) -> None:
    text = string_text(fn, start) if start.kind == Kind.STRING_LITERAL else None
    if text is not None:
        data = text.encode().ljust(type.count, b"\0")
        for k in range(type.count):
            fn.b.store(element_at(fn, ptr, k), fn.constant(data[k], type.element))
    elif start.kind == Kind.CALL_EXPR:  # an array of objects, each default constructed
        for k in range(type.count):
            _constructor_call(fn, element_at(fn, ptr, k), start)
    elif clang.is_place(start):  # a copy, as a lambda's or a struct's implicit copy makes
        fn.b.store(ptr, fn.load(place(fn, start)))
    else:
        zero_fill(fn, ptr)


def list_value(fn: Fn, c: Cursor) -> Value:
    """`{...}` as a value of its type."""
    type = fn.type(c)
    if isinstance(type, Scalar | Pointer):
        inner = operand_of(c)
        return fn.zero(type) if inner is None else fitted(fn, inner, type)
    storage = fn.object(type)
    _from_list(fn, storage, c)
    return fn.b.load(storage)


def initializer_list(fn: Fn, c: Cursor, inner: Cursor) -> Value:
    """The object that a brace list becomes, from the array of its elements."""
    if inner.type.get_canonical().kind != clang.TypeKind.CONSTANTARRAY:
        return value(fn, inner)
    array, type = place(fn, inner).ptr, fn.type(c)
    assert isinstance(type, Struct)
    elements = pointee(array)
    assert isinstance(elements, Array)
    first = fn.generic(fn.b.decay(array))
    return fn.b.aggregate(type, (first, fn.constant(elements.count, type.fields[1].type)))


def _from_list(fn: Fn, ptr: Value, c: Cursor) -> None:
    type = pointee(ptr)
    if isinstance(type, Scalar | Pointer):
        inner = operand_of(c)
        fn.b.store(ptr, fn.zero(type) if inner is None else fitted(fn, inner, type))
        return
    children = [k for k in children_of(c) if k.kind.is_expression()]
    alone = children[0] if len(children) == 1 and children[0].kind != Kind.INIT_LIST_EXPR else None
    if alone is not None and isinstance(type, Struct | Array) and _same_record(fn.module, alone, type):
        initialize(fn, ptr, children[0])  # T{other_T}, or char[] = {"text"}
        return
    if isinstance(type, Struct) and has_constructors(fn.module, type):
        from .list_elements import construct_from

        construct_from(fn, ptr, type, c, children)
        return
    for element, _, path in flat_elements(fn.module, c, type):
        parent = ptr
        for index in path[:-1]:
            parent = element_at(fn, parent, index)
        whole = pointee(parent)
        if element is None and isinstance(whole, Array):
            _zero_rest(fn, parent, whole, path[-1])
        elif element is None and isinstance(whole, Struct) and fn.types.is_union(whole):
            _start_union(fn, parent, whole, zero=True)
        elif element is None and isinstance(whole, Struct):
            _initialize_part(fn, parent, path[-1], _member_defaults(fn, whole).get(path[-1]))
        else:
            _initialize_part(fn, parent, path[-1], element)


def _initialize_part(fn: Fn, parent: Value, index: int, start: Cursor | None) -> None:
    """Initialises one element or member, a bit-field too; without `start` it becomes zero."""
    whole, target = pointee(parent), element_at(fn, parent, index)
    bits = fn.types.bits(whole, index) if isinstance(whole, Struct) else None
    if bits is not None:
        type = BOOL if bits.is_bool else pointee(target)
        fn.store(Place(target, bits=bits), fn.zero(type) if start is None else coerce(fn, value(fn, start), type))
    elif start is None:
        value_initialize(fn, target)
    else:
        initialize(fn, target, start)


def _zero_rest(fn: Fn, ptr: Value, array: Array, first: int) -> None:
    """Zeros from an element to the end of its array."""
    if array.count - first <= _UNROLL:
        for k in range(first, array.count):
            value_initialize(fn, element_at(fn, ptr, k))
        return
    with fn.b.region() as body:
        k_value = Value(I32, "k")
        value_initialize(fn, fn.b.offset(fn.b.decay(ptr), k_value))
    fn.b.for_(fn.constant(first, I32), fn.constant(array.count, I32), (), 1, body.block((k_value,)))


def zero_fill(fn: Fn, ptr: Value) -> None:
    type = pointee(ptr)
    if isinstance(type, Array):
        _zero_rest(fn, ptr, type, 0)
    else:
        fn.b.store(ptr, fn.zero(type))


def flat_elements(module: Lowering, c: Cursor, type: Type) -> Iterator[Element]:
    """The elements of a list with the part of the object each one initialises (C++'s brace elision).

    An element of None means that the part is value-initialised; for an array, from that index to its end.
    """
    elements = deque(child for child in children_of(c) if child.kind.is_expression())
    if elements and clang.statement_class(elements[0]) == 0x42:
        yield from _designated(module, elements, type)
        return
    yield from _distribute(module, elements, type, ())


def _designated(module: Lowering, elements: deque[Cursor], type: Type) -> Iterator[Element]:
    given: dict[int, Cursor] = {}
    for element in elements:
        children = children_of(element)
        field = next((child.referenced for child in children if child.kind == Kind.MEMBER_REF), None)
        if field is None:
            raise module.unsupported(element, "elements of an array cannot be named by their index", "list all of them")
        index = module.types.field_index(field)
        assert index is not None
        given[index] = children[-1]
    assert isinstance(type, Struct)
    for k, field_type in enumerate(element_types(type)):
        yield given.get(k), field_type, (k,)


def _distribute(module: Lowering, elements: deque[Cursor], type: Type, path: tuple[int, ...]) -> Iterator[Element]:
    assert isinstance(type, Struct | Array)
    parts = element_types(type)
    if isinstance(type, Struct) and module.types.is_union(type):
        parts = parts[:1]
    for k, part in enumerate(parts):
        if not elements:
            yield None, part, (*path, k)
            if isinstance(type, Array):
                return  # None stands for the rest of an array
        elif isinstance(part, Scalar | Pointer) or _is_whole(module, elements[0], part):
            yield elements.popleft(), part, (*path, k)
        else:
            yield from _distribute(module, elements, part, (*path, k))


def _is_whole(module: Lowering, element: Cursor, part: Type) -> bool:
    """Whether the element initialises the whole part, rather than its first member, which only aggregates let it."""
    return element.kind == Kind.INIT_LIST_EXPR or _same_record(module, element, part) or has_constructors(module, part)


def _same_record(module: Lowering, element: Cursor, part: Type) -> bool:
    """Whether the element is such an object already, or the text of such an array."""
    if element.kind == Kind.STRING_LITERAL:
        return isinstance(part, Array) and isinstance(part.element, Scalar)
    kind = element.type.get_canonical().kind
    if kind not in (clang.TypeKind.RECORD, clang.TypeKind.CONSTANTARRAY):
        return False
    return module.types.lower(element.type, module.unit.span(element)) == part


def has_constructors(module: Lowering, type: Type) -> bool:
    if not isinstance(type, Struct):
        return False
    declaration = module.types.clang_type(type).get_declaration()
    members = children_of(declaration) or module.unit.instantiated(declaration)
    return any(_is_constructor(m, declaration) for m in members)


def _is_constructor(member: Cursor, of: Cursor) -> bool:
    """A template of them, or those of a base, too."""
    if member.kind in (Kind.FUNCTION_TEMPLATE, Kind.USING_DECLARATION):
        return str(member.spelling).partition("<")[0] == str(of.spelling)
    return bool(member.kind == Kind.CONSTRUCTOR and not member.is_default_method())


def element_at(fn: Fn, ptr: Value, index: int) -> Value:
    if isinstance(pointee(ptr), Struct):
        return fn.b.member(ptr, index)
    return fn.b.offset(fn.b.decay(ptr), fn.constant(index, I32))


# ---- objects without an initialiser -------------------------------------------------------------------------------


def value_initialize(fn: Fn, ptr: Value) -> None:
    """`T()`: default member initialisers where there are any, zero elsewhere."""
    type = pointee(ptr)
    if isinstance(type, Struct):
        default_initialize(fn, ptr, zero=True)
    else:
        zero_fill(fn, ptr)


def _start_union(fn: Fn, ptr: Value, union: Struct, zero: bool) -> None:
    """One member at most has a default initialiser."""
    starts = _member_defaults(fn, union)
    for k, start in starts.items():
        _initialize_part(fn, ptr, k, start)
    if zero and not starts and union.fields:
        largest = max(range(len(union.fields)), key=lambda k: union.fields[k].type.size)
        zero_fill(fn, fn.b.member(ptr, largest))


def default_initialize(fn: Fn, ptr: Value, zero: bool = False) -> None:
    """What an implicit default constructor does: members by their own constructors or default initialisers."""
    type = pointee(ptr)
    if isinstance(type, Array) and isinstance(type.element, Struct):
        for k in range(type.count):
            default_initialize(fn, element_at(fn, ptr, k), zero)
        return
    if not isinstance(type, Struct):
        if zero:
            value_initialize(fn, ptr)
        return
    constructor = _default_constructor(fn, type)
    if constructor is not None:
        from .calls import call_function
        from .list_elements import default_arguments

        call_function(fn, constructor, [fn.generic(ptr), *default_arguments(fn, constructor)], fn.b.span)
        return
    if fn.types.is_union(type):
        _start_union(fn, ptr, type, zero)
        return
    starts = _member_defaults(fn, type)
    for k in range(len(type.fields)):
        if k in starts:
            _initialize_part(fn, ptr, k, starts[k])
        else:
            default_initialize(fn, fn.b.member(ptr, k), zero) if _has_defaults(type.fields[k].type) or zero else None


def _has_defaults(type: Type) -> bool:
    return isinstance(type, Struct) or (isinstance(type, Array) and _has_defaults(type.element))


def _default_constructor(fn: Fn, type: Struct) -> Cursor | None:
    """A default constructor written by the user."""
    for child in fn.members(type):
        written = child.kind == Kind.CONSTRUCTOR and child.is_default_constructor() and not child.is_default_method()
        if written:
            fn.unit.check_body(child)
        if written and child.get_definition() is not None:
            return child.get_definition()
    return None


def _member_defaults(fn: Fn, type: Struct) -> dict[int, Cursor]:
    """Default member initialisers by field index. A field's children mix array size, bit width and initialiser:
    a token `=` or `{` after the name tells that the last one is an initialiser."""
    found: dict[int, Cursor] = {}
    for field in fields_of(fn.types.clang_type(type)):
        children = [child for child in children_of(field) if child.kind.is_expression()]
        index = fn.types.field_index(field)
        if children and index is not None and any(t.spelling in ("=", "{") for t in field.get_tokens()):
            if field.is_bitfield():  # libclang shows only the width
                raise fn.unsupported(
                    field, "a bit-field with a default value is not supported", "set it in a constructor"
                )
            found[index] = children[-1]
    return found


# ---- constructors -------------------------------------------------------------------------------------------------


def member_initializers(fn: Fn, constructor: Cursor) -> None:
    """The `: a(1), b{2}` part, in the order of declaration, and default initialisers for what it leaves out."""
    assert fn.this is not None
    struct = pointee(fn.this)
    assert isinstance(struct, Struct)
    given = _written_initializers(fn, constructor, struct)
    if given is None:
        return  # delegated to another constructor, which did it all
    is_union = fn.types.is_union(struct)
    defaults = {} if is_union and given else _member_defaults(fn, struct)
    for k, field in enumerate(struct.fields):
        target = fn.b.member(fn.this, k)
        start = given.get((k,), defaults.get(k))
        if start is not None and fn.types.bits(struct, k) is not None:
            _initialize_part(fn, fn.this, k, start)
        elif start is not None:
            _initialize_member(fn, target, start)
        elif _has_defaults(field.type) and not is_union:
            default_initialize(fn, target)
        for path in given:
            if path[0] == k and len(path) > 1:
                _initialize_inside(fn, target, path[1:], given[path])


def _initialize_inside(fn: Fn, target: Value, path: tuple[int, ...], start: Cursor) -> None:
    """Initialises a member of an anonymous member."""
    for index in path[:-1]:
        target = fn.b.member(target, index)
    whole = pointee(target)
    if isinstance(whole, Struct) and fn.types.bits(whole, path[-1]) is not None:
        _initialize_part(fn, target, path[-1], start)
    else:
        _initialize_member(fn, fn.b.member(target, path[-1]), start)


def inherited_construct(fn: Fn, ptr: Value, c: Cursor) -> bool:
    """A constructor that `using Base::Base` brought in: it makes the base, the other members get their defaults."""
    struct, name = pointee(ptr), c.referenced.spelling.partition("<")[0]
    assert isinstance(struct, Struct)
    if fn.types.clang_type(struct).get_declaration().spelling == name:
        return False
    names = [_base_name(fn, field) for field in struct.fields]
    base = names.index(name) if name in names else -1
    constructor = _constructor_like(fn, struct.fields[base].type, c.referenced) if base >= 0 else None
    if constructor is None:
        raise fn.unsupported(c, f"this inherited constructor of '{struct.name}' is not supported")
    from .calls import call_arguments, call_function

    given = [fn.generic(fn.b.member(ptr, base)), *call_arguments(fn, c, c.referenced)]
    call_function(fn, constructor, given, fn.unit.span(c))
    defaults = _member_defaults(fn, struct)
    for k, field in enumerate(struct.fields):
        if k in defaults:
            _initialize_part(fn, ptr, k, defaults[k])
        elif k != base and _has_defaults(field.type):
            default_initialize(fn, fn.b.member(ptr, k))
    return True


def _constructor_like(fn: Fn, type: Type, inherited: Cursor) -> Cursor | None:
    assert isinstance(type, Struct)
    wanted = [t.get_canonical().spelling for t in inherited.type.argument_types()]
    for child in children_of(fn.types.clang_type(type).get_declaration()):
        same = child.kind == Kind.CONSTRUCTOR and len(child.type.argument_types()) == len(wanted)
        if same and [t.get_canonical().spelling for t in child.type.argument_types()] == wanted:
            return child.get_definition()
    return None


def _base_name(fn: Fn, field: Field) -> str | None:
    if not field.name.startswith("_base") or not isinstance(field.type, Struct):
        return None
    return str(fn.types.clang_type(field.type).get_declaration().spelling)


def _initialize_member(fn: Fn, target: Value, start: Cursor) -> None:
    type = pointee(target)
    if isinstance(type, Pointer) and clang.is_place(start) and fn.types.lower(start.type, fn.b.span) == type.pointee:
        fn.b.store(target, fn.generic(place(fn, start).ptr))  # a reference member
    else:
        initialize(fn, target, start)


def _written_initializers(fn: Fn, constructor: Cursor, struct: Struct) -> dict[tuple[int, ...], Cursor] | None:
    """What each member and base is made of; a member of an anonymous one has a path of indices. None: another
    constructor made it all. Before these, libclang shows the numbers among template arguments, of the class that the
    definition is qualified with and of bases: what makes a base, or the object itself, has its type."""
    given: dict[tuple[int, ...], Cursor] = {}
    pending: tuple[int, ...] | None = None
    for child in children_of(constructor):
        if child.kind == Kind.MEMBER_REF:
            pending = _member_path(fn, struct, child.referenced)
            if pending is None:
                raise fn.unsupported(child, f"the initialiser of '{child.spelling}' is not supported")
        elif pending is not None and child.kind.is_expression():
            given[pending] = child
            pending = None
        elif child.kind.is_expression() and child.type.get_canonical().kind == clang.TypeKind.RECORD:
            made = fn.types.lower(child.type, fn.b.span)
            if made is struct:
                _constructor_call(fn, fn.this, child)  # type: ignore[arg-type]
                return None
            base = fn.types.base_index(struct, made) if isinstance(made, Struct) else None
            if base is not None:
                given[base,] = child
    return given


def _member_path(fn: Fn, struct: Struct, member: Cursor) -> tuple[int, ...] | None:
    """Where the member is: the indices of the anonymous members around it, then its own."""
    for field in fields_of(fn.types.clang_type(struct)):
        index = fn.types.field_index(field)
        if index is None:
            continue
        if identity(field) == identity(member):
            return (index,)
        within = struct.fields[index].type
        if not field.spelling.isidentifier() and isinstance(within, Struct):
            path = _member_path(fn, within, member)
            if path is not None:
                return (index, *path)
    return None


def _constructor_call(fn: Fn, ptr: Value, c: Cursor) -> None:
    from .calls import constructor_call

    constructor_call(fn, ptr, c)
