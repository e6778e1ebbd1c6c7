"""Names of variables: locals, module-level variables, CUDA's builtin ones, and constants."""

from __future__ import annotations

import struct as packing

from ..errors import Span, UnsupportedError
from ..ir.ops import Global, Value
from ..ir.types import BF16, BOOL, F16, F32, F64, I32, Array, Pointer, Scalar, Space, Struct, Type
from . import clang
from .clang import Cursor, Kind, identity
from .lowering import FunctionLowering as Fn
from .lowering import Lowering, Place
from .types import is_function_pointer, is_reference
from .unit import Unit
from .visiting import children_of, walk

# Variables the prelude declares, and the builtin each stands for.
_INDICES = {"threadIdx": "thread_idx", "blockIdx": "block_idx", "blockDim": "block_dim", "gridDim": "grid_dim"}
_SPACES: dict[Kind, Space] = {
    Kind.CUDASHARED_ATTR: "shared",
    Kind.CUDACONSTANT_ATTR: "constant",
    Kind.CUDADEVICE_ATTR: "global",
}

_MOST_TABLE = 1024  # bytes
_WARP = 32  # threads, on all devices there are


def variable_place(fn: Fn, target: Cursor, at: Cursor) -> Place:
    """Where the variable `target`, named at `at`, is."""
    if is_function_pointer(target.type):
        _refuse_known_function(fn, target, at)
    known = fn.variables.get(identity(target))
    if known is not None:
        return known
    if target.spelling in _INDICES:
        return Place(_index_variable(fn, target))
    if target.spelling == "warpSize":
        return Place(fn.variable(I32, None, fn.constant(_WARP, I32)))
    if target.kind == Kind.VAR_DECL:
        return _module_variable(fn, target, at)
    if target.kind == Kind.ENUM_CONSTANT_DECL:
        return Place(fn.variable(fn.type(at), None, fn.constant(int(target.enum_value), fn.type(at))))
    number = clang.evaluate(at) if at.kind.is_expression() else None
    if number is not None:  # an instance of a variable template
        from .literals import constant_of

        return Place(fn.variable(fn.type(at), None, constant_of(fn, number, fn.type(at))))
    raise fn.unsupported(at, f"'{target.spelling}' cannot be used here")


def _refuse_known_function(fn: Fn, target: Cursor, at: Cursor) -> None:
    from .function_pointers import leads_to_known

    if leads_to_known(target, fn.handles):
        raise fn.unsupported(at, "a pointer to a function that is more than called and passed on is not supported")


def _index_variable(fn: Fn, target: Cursor) -> Value:
    """threadIdx and its kind, as an object: only the parts that are used survive."""
    type = fn.types.lower(target.type, fn.b.span)
    assert isinstance(type, Struct)
    name = _INDICES[target.spelling]
    parts = tuple(fn.b.builtin(name, axis) for axis in range(3))
    return fn.variable(type, None, fn.b.aggregate(type, parts))


def memory_space(variable: Cursor) -> Space | None:
    found = next((_SPACES[child.kind] for child in children_of(variable) if child.kind in _SPACES), None)
    return "constant" if found == "global" and _is_small_table(variable) else found


def _is_small_table(variable: Cursor) -> bool:
    """Of numbers that are always the same: `__device__ const int dx[9] = {...}`."""
    type = variable.type.get_canonical()
    small = type.kind == clang.TypeKind.CONSTANTARRAY and 0 < type.get_size() <= _MOST_TABLE
    return small and _is_const(type) and clang.initializer(variable.get_definition() or variable) is not None


def _module_variable(fn: Fn, target: Cursor, at: Cursor) -> Place:
    space = memory_space(target)
    definition = target.get_definition() or target
    if is_reference(target.type):
        raise fn.unsupported(at, f"'{target.spelling}' is a reference with static storage: not supported")
    if space is None:
        return _host_constant(fn, definition, at)
    reference = global_reference(fn, definition, space)
    is_of_both = fn.on_host and is_managed(definition)
    return Place(fn.generic(reference) if is_of_both else reference, bool(target.type.is_volatile_qualified()))


def _host_constant(fn: Fn, target: Cursor, at: Cursor) -> Place:
    """`const` and `constexpr` variables of the host may be used on the device for their value."""
    number = clang.evaluate(at) if at.kind.is_expression() else None
    type = fn.types.lower(target.type, fn.unit.span(at))
    if number is not None and isinstance(type, Scalar):
        from .literals import constant_of

        return Place(fn.variable(type, None, constant_of(fn, number, type)))
    if fn.on_host:
        _check_defined(fn, target, at)
        return Place(fn.generic(global_reference(fn, target, "host")), bool(target.type.is_volatile_qualified()))
    if not _is_const(target.type):
        raise fn.unsupported(
            at, f"'{target.spelling}' is a variable of the host", "declare it __device__ or __constant__"
        )
    return Place(global_reference(fn, target, "constant"))


def _check_defined(fn: Fn, target: Cursor, at: Cursor) -> None:
    """Libraries have their own variables."""
    is_declared = target.storage_class == clang.StorageClass.EXTERN and clang.initializer(target) is None
    if is_declared and not clang.is_in_prelude(target) and target.location.file is not None:
        hint = "kg.load takes several files"
        raise fn.unsupported(at, f"the variable '{target.spelling}' is declared, and defined in another file", hint)


def _is_const(type: clang.Type) -> bool:
    # clang keeps an array's qualifier on the array or on its elements, as it pleases.
    while not (type.is_const_qualified() or type.get_canonical().is_const_qualified()):
        if type.get_canonical().kind != clang.TypeKind.CONSTANTARRAY:
            return False
        type = type.get_array_element_type()
    return True


def global_reference(fn: Fn, target: Cursor, space: Space) -> Value:
    """The address of a variable with static storage, registering it with the module when it is new."""
    key = identity(target) | (1 << 71 if space == "host" else 0)  # kernels have their own of a constant
    name = fn.module.global_name(key)
    if name is None:
        name = fn.module.add_global(_declare(fn.module, target, space), key)
        if space == "host":
            _note_start(fn, target)
    reference = fn.b.global_ref(name, fn.module.globals[name].type, space)
    own = fn.module.types.lower(target.type, fn.b.span)
    return fn.b.cast_pointer(reference, Pointer(own, space))


def _note_start(fn: Fn, target: Cursor) -> None:
    from .statics import enclosing_function, starts_by_code

    if enclosing_function(target) is None and starts_by_code(fn.module, target):
        fn.module.dynamic.append(target)


def _declare(module: Lowering, target: Cursor, space: Space) -> Global:
    span = module.unit.span(target)
    type = module.types.lower(target.type, span)
    if space == "host":
        from .statics import starts_by_code

        by_code = starts_by_code(module, target)
        init = None if by_code else initial_bytes(module, target, type)
        return Global(host_name(module, target), type, space, init, span)
    init = None if space == "shared" else initial_bytes(module, target, type)
    fixed = init is not None and _is_const(target.type) and not target.type.is_volatile_qualified()
    return Global(module.unit.qualified_name(target), type, space, init, span, is_managed(target), fixed)


def is_managed(variable: Cursor) -> bool:
    return any(c.kind == Kind.ANNOTATE_ATTR and c.spelling == "__managed__" for c in children_of(variable))


def host_name(module: Lowering, target: Cursor) -> str:
    """Each instance of a template has static variables of its own."""
    from .statics import enclosing_function

    function, name = enclosing_function(target), module.unit.qualified_name(target)
    return name if function is None else f"{module.unit.qualified_name(function)}::{name}"


def module_variable(unit: Unit, target: Cursor) -> Global:
    """A `__device__` or `__constant__` variable, by itself."""
    space = memory_space(target)
    assert space is not None
    return _declare(Lowering(unit), target.get_definition() or target, space)


# ---- initial contents ---------------------------------------------------------------------------------------------

_FORMATS = {F16: "<e", F32: "<f", F64: "<d"}


def initial_bytes(module: Lowering, target: Cursor, type: Type) -> bytes | None:
    start = clang.initializer(target)
    if start is None:
        return None
    data = bytearray(type.size)
    _fill(module, start, type, data, 0)
    return bytes(data)


def _fill(module: Lowering, c: Cursor, type: Type, data: bytearray, at: int) -> None:
    from .initialize import flat_elements, has_constructors

    if isinstance(type, Scalar):
        number = clang.evaluate(c)
        if number is None:
            raise module.unsupported(c, "the initialiser of a module-level variable must be a constant")
        encoded = scalar_bytes(number, type)
        data[at : at + len(encoded)] = encoded
        return
    if isinstance(type, Pointer) and _is_null(c):
        return
    if isinstance(type, Pointer):
        raise module.unsupported(c, "a module-level pointer cannot be initialised here", "set it in a kernel")
    while c.kind != Kind.INIT_LIST_EXPR:
        children = [k for k in children_of(c) if k.kind.is_expression()]
        if c.kind == Kind.CALL_EXPR and not children:
            return  # default constructed: zero
        if c.kind == Kind.CALL_EXPR or len(children) != 1:
            raise module.unsupported(c, "the initialiser of a module-level variable must be a list of constants")
        c = children[0]
    if has_constructors(module, type):
        raise module.unsupported(c, "the constructor of a module-level variable is not called", "set it in a kernel")
    for element, element_type, path in flat_elements(module, c, type):
        if isinstance(type, Struct) and module.types.bits(type, path[0]) is not None:
            raise module.unsupported(c, "a module-level variable with bit-fields cannot be initialised here")
        if element is not None:
            _fill(module, element, element_type, data, at + _byte_offset(type, path))


def _is_null(c: Cursor) -> bool:
    return clang.evaluate(c) == 0 or any(n.kind == Kind.CXX_NULL_PTR_LITERAL_EXPR for n in walk(c))


def _byte_offset(type: Type, path: tuple[int, ...]) -> int:
    offset = 0
    for index in path:
        if isinstance(type, Struct):
            offset += type.fields[index].offset
            type = type.fields[index].type
        else:
            assert isinstance(type, Array)
            offset += index * type.element.size
            type = type.element
    return offset


def scalar_bytes(number: int | float, type: Scalar) -> bytes:
    if type == BOOL:
        return bytes([bool(number)])
    if type == BF16:
        (bits,) = packing.unpack("<I", packing.pack("<f", number))
        return int((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).to_bytes(2, "little")
    if type.is_float:
        return packing.pack(_FORMATS[type], number)
    mask = (1 << type.bits) - 1
    return (int(number) & mask).to_bytes(type.size, "little")


def check_storage(variable: Cursor, span: Span) -> None:
    if variable.storage_class == clang.StorageClass.STATIC and not _is_const(variable.type):
        raise UnsupportedError(
            f"'{variable.spelling}' is a static variable of a device function", span, "make it a __device__ variable"
        )
