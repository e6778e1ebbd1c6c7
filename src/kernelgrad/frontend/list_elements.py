"""Objects made by a constructor that no cursor names: libclang shows the elements of lists as they are written."""

from __future__ import annotations

from ..ir.builder import pointee
from ..ir.ops import Value
from ..ir.types import Array, Pointer, Scalar, Struct
from . import clang
from .clang import Cursor, Kind
from .copies import construct_copy, is_by_code
from .expressions import place, value
from .lifetimes import destroy, ends, temporary
from .lowering import FunctionLowering as Fn
from .types import is_reference

_PROMOTED = ("bool", "char", "signed char", "unsigned char", "short", "unsigned short")


def object_from(fn: Fn, ptr: Value, start: Cursor, type: Struct) -> bool:
    """By a constructor, where one makes an object of something else, or a copy: lists show their elements as they are
    written. False where an object is its bytes."""
    if _converts(fn, start, type):
        convert(fn, ptr, start, type, [start])
    elif is_by_code(fn, type) and clang.is_place(start):
        construct_copy(fn, ptr, place(fn, start).ptr, moves=clang.is_expiring(start))
    else:
        return False
    return True


def _converts(fn: Fn, c: Cursor, type: Struct) -> bool:
    kind = c.type.get_canonical().kind
    return kind != clang.TypeKind.RECORD or fn.types.lower(c.type, fn.unit.span(c)) != type


def construct_from(fn: Fn, ptr: Value, type: Struct, c: Cursor, elements: list[Cursor]) -> None:
    """A list inside of another one, for an object with constructors: the one that takes such lists, or so much."""
    from .calls import call_function
    from .initialize import element_at, initialize, value_initialize

    if not elements:
        value_initialize(fn, ptr)
        return
    constructors = [m for m in fn.members(type) if m.kind == Kind.CONSTRUCTOR]
    of_lists = next((m for m in constructors if _list_type(fn, m) is not None), None)
    if of_lists is not None:
        made, span = _list_type(fn, of_lists), fn.unit.span(c)
        assert made is not None and isinstance(made.fields[0].type, Pointer)
        array = fn.object(Array(made.fields[0].type.pointee, len(elements)))
        for k, element in enumerate(elements):
            initialize(fn, element_at(fn, array, k), element)
        count = fn.constant(len(elements), made.fields[1].type)
        given = fn.b.aggregate(made, (fn.generic(fn.b.decay(array)), count))
        call_function(fn, of_lists.get_definition(), [fn.generic(ptr), given], span)
        destroy(fn, array)
    else:
        convert(fn, ptr, c, type, elements)


def _list_type(fn: Fn, constructor: Cursor) -> Struct | None:
    """The `std::initializer_list` that a constructor takes."""
    params = list(constructor.get_arguments())
    name = params[0].type.get_canonical().spelling if len(params) == 1 else ""
    found = fn.types.lower(params[0].type, fn.b.span) if name.startswith("std::initializer_list<") else None
    return found if isinstance(found, Struct) else None


def convert(fn: Fn, ptr: Value, c: Cursor, type: Struct, given: list[Cursor]) -> None:
    """By the constructor that takes what is given."""
    from .calls import call_function

    all = [m for m in fn.members(type) if m.kind == Kind.CONSTRUCTOR]
    found = _best([m for m in all if _takes(m, given)], given)
    if not found and c.kind == Kind.INIT_LIST_EXPR:
        found = [m for m in all if _has_as_many(m, given)]
    if len(found) != 1 or found[0].get_definition() is None:
        raise fn.unsupported(c, f"this conversion to '{type.name}' is not supported", "name the constructor")
    arguments = [_argument(fn, g, p.type) for g, p in zip(given, found[0].get_arguments(), strict=False)]
    arguments += default_arguments(fn, found[0], c, len(given))
    call_function(fn, found[0].get_definition(), [fn.generic(ptr), *arguments], fn.unit.span(c))


def _argument(fn: Fn, c: Cursor, param: clang.Type) -> Value:
    from .initialize import coerce, fitted, initialize

    wanted = fn.types.lower(param.get_pointee() if is_reference(param) else param, fn.unit.span(c))
    if is_reference(param) and _category(c.type) == _category(param) and clang.is_place(c):
        found = place(fn, c).ptr
        if pointee(found) == wanted or not isinstance(wanted, Scalar):
            return fn.generic(found)
    if isinstance(wanted, Scalar | Pointer):
        made = fitted(fn, c, wanted) if isinstance(wanted, Pointer) else coerce(fn, value(fn, c), wanted)
        return fn.generic(fn.variable(wanted, None, made)) if is_reference(param) else made
    object = fn.object(wanted)
    initialize(fn, object, c)
    if is_reference(param):
        return fn.generic(temporary(fn, fn.b.load(object)) if ends(fn, wanted) else object)
    return fn.b.load(object)


def _takes(constructor: Cursor, given: list[Cursor]) -> bool:
    params = list(constructor.get_arguments())
    return _has_as_many(constructor, given) and all(map(_fits, params, given))


def _has_as_many(constructor: Cursor, given: list[Cursor]) -> bool:
    """What has a default may be left out."""
    special = constructor.is_copy_constructor() or constructor.is_move_constructor()
    params = list(constructor.get_arguments())
    needed = sum(_default(p) is None for p in params)
    return not special and needed <= len(given) <= len(params)


def default_arguments(fn: Fn, constructor: Cursor, c: Cursor | None = None, given: int = 0) -> list[Value]:
    """Of the parameters behind the given ones. `c`: what asks for them."""
    made = list[Value]()
    for param in list(constructor.get_arguments())[given:]:
        default = _default(param)
        if default is None:
            raise fn.unsupported(c or constructor, "its default arguments are not known here", "give all arguments")
        made.append(_argument(fn, default, param.type))
    return made


def _default(param: Cursor) -> Cursor | None:
    return next((k for k in param.get_children() if k.kind.is_expression()), None)


def _fits(param: Cursor, given: Cursor) -> bool:
    wanted, has = _category(param.type), _category(given.type)
    if given.kind == Kind.INIT_LIST_EXPR:
        return wanted != "number" or len(list(given.get_children())) < 2
    return wanted == has or (has == "nullptr" and wanted.endswith("*"))


def _best(found: list[Cursor], given: list[Cursor]) -> list[Cursor]:
    """Those that convert no number further than any other does."""
    ranks = [[_distance(p.type, g.type) for p, g in zip(m.get_arguments(), given, strict=False)] for m in found]
    least = [min(column) for column in zip(*ranks, strict=True)]
    return [m for m, rank in zip(found, ranks, strict=True) if rank == least] or found


def _distance(param: clang.Type, given: clang.Type) -> int:
    if _category(given) != "number" or _category(param) != "number":
        return 0
    wanted, has = _spelled(param), _spelled(given)
    promoted = wanted == "double" if has == "float" else wanted == "int" and has in _PROMOTED
    return 0 if wanted == has else 1 if promoted else 2


def _spelled(type: clang.Type) -> str:
    type = type.get_canonical()
    return str((type.get_pointee() if is_reference(type) else type).spelling).removeprefix("const ")


def _category(type: clang.Type) -> str:
    """Of what kind an argument is, and what it must be to be passed: numbers are converted, classes are not."""
    type = type.get_canonical()
    while is_reference(type):
        type = type.get_pointee().get_canonical()
    if type.kind == clang.TypeKind.NULLPTR:
        return "nullptr"
    if type.kind in (clang.TypeKind.POINTER, clang.TypeKind.CONSTANTARRAY):
        inside = type.element_type if type.kind == clang.TypeKind.CONSTANTARRAY else type.get_pointee()
        return f"{inside.get_canonical().spelling.removeprefix('const ')} *"
    return str(type.spelling.removeprefix("const ")) if type.kind == clang.TypeKind.RECORD else "number"
