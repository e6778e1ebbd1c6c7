"""From the function a user asked for to an IR module: it, what it calls, the variables and records they use.

`Lowering` is the state of one module, `FunctionLowering` that of one function body. Expressions and statements are
lowered by the functions in `expressions`, `calls`, `initialize` and `statements`, which take the latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from ..errors import ParseError, SourceError, Span, UnsupportedError
from ..ir.builder import Builder, pointee
from ..ir.ops import Block, Function, Global, Module, Op, Param, Value
from ..ir.types import BOOL, Array, Pointer, Scalar, Struct, Type
from . import clang
from .clang import Cursor, Kind, identity
from .types import Bits, Types, is_reference
from .unit import Unit
from .visiting import children_of

if TYPE_CHECKING:
    from .lifetimes import Slot

_METHODS = (Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.CONVERSION_FUNCTION, Kind.DESTRUCTOR)
_SPECIAL = (Kind.CONSTRUCTOR, Kind.DESTRUCTOR)
Key = int | tuple[int, ...]  # a declaration, with the handles that it gets
Handles = Mapping[int, Cursor]  # of derivatives (`in_source`), and functions (`function_pointers`), by parameter
_FOR_HOST = 1 << 72  # of a `__host__ __device__` function that host code calls: it is a function of its own there


@dataclass(frozen=True)
class Place:
    """An object in memory: where it is, and how it must be accessed."""

    ptr: Value
    volatile: bool = False
    bits: Bits | None = None  # of a bit-field: first bit and width


@dataclass
class Flags:
    """The exits of the loop or switch around a statement, each a bool variable where the statement has that exit."""

    broke: Value | None = None
    continued: Value | None = None
    is_switch: bool = False


def _number(handle: Cursor) -> int:
    return identity(handle) if handle.kind.is_declaration() else int(handle.data[1])


class Lowering:
    """The module under construction. Functions are lowered when first called, callees before callers end."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self.types = Types()
        self.functions: dict[str, Function] = {}
        self.globals: dict[str, Global] = {}
        self.reached: list[Cursor] = []  # the functions that were lowered
        self._names: dict[Key, str] = {}  # declaration -> IR name
        self._in_progress: list[Key] = []
        self._devices = 0  # kernels and device functions among these
        self._registered: dict[int, tuple[Cursor, ...]] | None = None  # those that the source gives passes of
        self.dynamic: list[Cursor] = []  # variables of the host that code gives their first values
        self.closures: dict[int, Closure] = {}  # a lambda's class -> what it captures

    def module(self) -> Module:
        return Module(self.functions, self.globals, self.types.structs)

    def function(self, cursor: Cursor, at: Span, handles: Handles | None = None) -> str:
        """The IR name of a C++ function, lowering it unless that was done before. One that gets derivatives to execute
        is a function of its own for each of them."""
        for_host = bool(self._in_progress) and self.on_host and self.unit.is_for_both(cursor)
        own = identity(cursor) | (_FOR_HOST if for_host else 0)
        given = (number for param, made in (handles or {}).items() for number in (param, _number(made)))
        key: Key = (own, *given) if handles else own
        if key in self._in_progress:
            raise UnsupportedError(
                f"'{cursor.spelling}' calls itself: recursion is not supported", at, "rewrite the recursion as a loop"
            )
        if key not in self._names:
            self._names[key] = name = self._fresh_name(cursor)
            self._in_progress.append(key)
            self.reached.append(cursor)
            device = not for_host and self.unit.function_kind(cursor) != "host"
            self._devices += device
            parent = cursor.semantic_parent
            closure = self.closures.get(identity(parent)) if parent is not None else None
            with _blamed_on(at):
                self.functions[name] = FunctionLowering(self, cursor, name, closure, handles or {}).run()
            self._in_progress.pop()
            self._devices -= device
        return self._names[key]

    def names_of(self, cursor: Cursor) -> list[str]:
        """The IR names of a C++ function that was lowered: one that is for both has one for the host alone, too."""
        keys = (identity(cursor), identity(cursor) | _FOR_HOST)
        return [name for key, name in self._names.items() if (key[0] if isinstance(key, tuple) else key) in keys]

    def passes_of(self, function: Cursor) -> tuple[Cursor, ...] | None:
        """The passes that the source gives for a host function, unless it is they that call it."""
        if self._registered is None:
            from .registrations import passes_by_function

            self._registered = passes_by_function(self.unit)
        passes = self._registered.get(identity(function))
        return None if passes is None or any(identity(p) in self._in_progress for p in passes) else passes

    @property
    def on_host(self) -> bool:
        """Whether what is being lowered runs on the host alone."""
        return self._devices == 0

    @property
    def is_outermost(self) -> bool:
        return len(self._in_progress) == 1

    def _fresh_name(self, cursor: Cursor) -> str:
        return _free(self.unit.qualified_name(cursor), set(self._names.values()), ".")

    def add_global(self, variable: Global, key: int) -> str:
        """Registers a module-level variable under a free name. There is one array of dynamic shared memory: under
        whatever names it is declared, it is the first of them."""
        first = next((g.name for g in self.globals.values() if _is_dynamic(g)), None) if _is_dynamic(variable) else None
        if first is not None:
            self._names[key] = first
            return first
        name = _free(variable.name, set(self.globals), "_")
        self.globals[name] = replace(variable, name=name)
        self._names[key] = name
        return name

    def unsupported(self, cursor: Cursor, what: str, hint: str | None = None) -> UnsupportedError:
        return UnsupportedError(what, self.unit.span(cursor), hint)

    def global_name(self, key: int) -> str | None:
        return self._names.get(key)


@dataclass
class Closure:
    """A lambda's captures: which variable is which field of the closure object, and whether by reference."""

    captures: dict[int, tuple[int, bool]] = field(default_factory=dict)
    this_field: int | None = None


class FunctionLowering:
    """One function body. `variables` maps declarations to where they live; `b` builds."""

    def __init__(
        self,
        module: Lowering,
        cursor: Cursor,
        name: str,
        closure: Closure | None,
        handles: Handles = MappingProxyType({}),
    ):
        self.module, self.cursor, self.name, self.closure = module, cursor, name, closure
        self.handles = handles
        self.types, self.unit = module.types, module.unit
        self.span = self.unit.span(cursor)
        self.b = Builder(self.span)
        self.variables: dict[int, Place] = {}
        self.this: Value | None = None
        self.loops: list[Flags] = []
        self.unroll: int | None = None  # the pragma before the loop about to be lowered
        self.returned: Value | None = None  # a bool variable: has `return` been executed
        self.result: Value | None = None  # the variable that holds the return value
        self.on_host = module.on_host
        self.kind: Literal["kernel", "device", "host"] = "host" if self.on_host else self.unit.function_kind(cursor)
        self.returns_reference = is_reference(cursor.result_type)
        # Note [Lifetimes] in `lifetimes`: what is done where the function begins, and objects that are to be destroyed
        self.entry: list[Op] = []
        self.labels: dict[str, Value] = {}  # ahead, by the ways to them: whether control is on its way there
        self.scopes: list[list[Slot]] = []
        self.temporaries: list[list[Slot]] = []
        self.extended: Cursor | None = None  # the temporary that a reference being declared keeps

    # ---- the whole

    def run(self) -> Function:
        from .statements import lower_body

        body = self._body()
        with self._scope():
            params = self._params()
            result_type = None if self.cursor.kind in _SPECIAL else self.lower_return_type()
            self.returned = self.variable(BOOL, "returned", self.constant(False, BOOL))
            if result_type is not None:
                self.result = self.variable(result_type, "result", self._unless_returned(result_type))
            if self.cursor.kind == Kind.CONSTRUCTOR:
                from .initialize import member_initializers

                member_initializers(self, self.cursor)
            lower_body(self, body)
        if self.cursor.kind == Kind.DESTRUCTOR and self.this is not None:
            from .lifetimes import destroy_parts

            destroy_parts(self, self.this)
        results = () if self.result is None else (self.b.load(self.result),)
        bounds = self.unit.launch_bounds(self.cursor)
        ops = (*self._started(), *self.b.ops)
        return Function(self.name, self.kind, params, Block((), ops, results), self.span, bounds)

    def _unless_returned(self, type: Type) -> Value | None:
        """What a function gives whose end is reached: `main` is the only one that may come there, and gives 0."""
        return self.constant(0, type) if self.on_host and self.cursor.spelling == "main" else None

    def _started(self) -> list[Op]:
        """What comes before the body: of the function that Python calls, also first values of variables."""
        if not self.on_host or not self.module.is_outermost:
            return self.entry
        from .statics import started

        ops = started(self)
        return self.entry + ops

    def _scope(self) -> AbstractContextManager[None]:
        if not self.on_host:
            return nullcontext()
        from .lifetimes import scope

        return scope(self)

    def members(self, struct: Struct) -> list[Cursor]:
        """The member functions of a class: as declared, or those of an instance that are used."""
        declaration = self.types.clang_type(struct).get_declaration()
        return children_of(declaration) or self.unit.instantiated(declaration)

    def lower_return_type(self) -> Type | None:
        return self.types.returned(self.cursor.result_type, self.span)

    def _body(self) -> Cursor:
        self.unit.check_body(self.cursor)
        for child in children_of(self.cursor):
            if child.kind == Kind.COMPOUND_STMT:
                return child
            if child.kind == Kind.CXX_TRY_STMT:
                raise UnsupportedError("exceptions are not supported in device code", self.unit.span(child))
        raise ParseError(f"'{self.cursor.spelling}' is declared but its body is not here", self.span)

    def _params(self) -> tuple[Param, ...]:
        params: list[Param] = []
        is_method = self.cursor.kind in _METHODS and not self.cursor.is_static_method()
        if is_method:
            record = self.cursor.semantic_parent.type
            self.this = Value(Pointer(self.types.lower(record, self.span)), "this")
            params.append(Param(self.this, "void *"))
            self._bind_captures()
        arguments = list(self.cursor.get_arguments())
        names = _distinct([argument.spelling for argument in arguments])
        params += [self._param(argument, name) for argument, name in zip(arguments, names, strict=True)]
        return tuple(params)

    def _param(self, argument: Cursor, name: str) -> Param:
        span = self.unit.span(argument)
        if clang.is_invalid(argument):
            raise ParseError(f"parameter '{argument.spelling}' has an invalid type", span)
        type = self.types.parameter(argument.type, span)
        if not self.on_host:
            self.types.check_destructor(type, span)
        if self.kind == "kernel" and isinstance(type, Pointer):
            type = Pointer(type.pointee, "global")
        value = Value(type, name or None)
        self.b.span = span
        incoming = self.generic(value)
        if is_reference(argument.type):
            self.variables[identity(argument)] = Place(incoming, self._volatile(argument.type.get_pointee()))
        else:
            storage = self._owned(incoming, name) or self.variable(incoming.type, name or None, incoming)
            self.variables[identity(argument)] = Place(storage, self._volatile(argument.type))
        pack = argument.spelling if name != argument.spelling else None
        return Param(value, argument.type.spelling, *_qualifiers(argument.type), pack=pack)

    def _owned(self, value: Value, name: str) -> Value | None:
        """The storage of a parameter that the function destroys."""
        if not self.on_host:
            return None
        from . import lifetimes

        return lifetimes.temporary(self, value, extended=True) if lifetimes.ends(self, value.type) else None

    def _bind_captures(self) -> None:
        """In a lambda's body, captured variables are fields of the closure object."""
        if self.closure is None or self.this is None:
            return
        for key, (index, by_reference) in self.closure.captures.items():
            place = self.b.member(self.this, index)
            self.variables[key] = Place(self.b.load(place) if by_reference else place)
        if self.closure.this_field is not None:
            self.this = self.b.load(self.b.member(self.this, self.closure.this_field))

    @staticmethod
    def _volatile(type: clang.Type) -> bool:
        return bool(type.is_volatile_qualified())

    # ---- small helpers used everywhere

    def at(self, cursor: Cursor) -> Span:
        """Moves the builder to the cursor's place in the source."""
        self.b.span = self.unit.span(cursor)
        return self.b.span

    def type(self, cursor: Cursor) -> Type:
        return self.types.lower(cursor.type, self.unit.span(cursor))

    def constant(self, value: int | float | bool, type: Type) -> Value:
        return self.b.constant(value, type)

    def variable(self, type: Type, name: str | None, value: Value | None = None) -> Value:
        storage = self.b.alloca(type, name)
        if value is not None:
            self.b.store(storage, value)
        return storage

    def object(self, type: Type, name: str | None = None) -> Value:
        """Storage without a value yet. Setting a bit-field reads its neighbours, so those are written first."""
        if not self.on_host:
            self.types.check_destructor(type, self.b.span)
        storage = self.b.alloca(type, name)
        self._clear_bit_fields(storage, type)
        return storage

    def _clear_bit_fields(self, ptr: Value, type: Type) -> None:
        for k, part in enumerate(type.fields if isinstance(type, Struct) else ()):
            if self.types.bits(type, k) is not None:  # type: ignore[arg-type]
                self.b.store(self.b.member(ptr, k), self.zero(part.type))
            elif isinstance(part.type, Struct):
                self._clear_bit_fields(self.b.member(ptr, k), part.type)

    def generic(self, ptr: Value) -> Value:
        """C++ pointers do not say which memory they point into; `spaces` finds out later."""
        if not isinstance(ptr.type, Pointer):
            return ptr
        return self.b.cast_pointer(ptr, Pointer(ptr.type.pointee))

    def load(self, place: Place) -> Value:
        loaded = self.b.load(place.ptr, place.volatile)
        return loaded if place.bits is None else self._get_bits(loaded, place.bits)

    def store(self, place: Place, value: Value) -> None:
        if place.bits is not None:
            value = self._set_bits(self.b.load(place.ptr, place.volatile), value, place.bits)
        self.b.store(place.ptr, value, place.volatile)

    def _get_bits(self, unit: Value, bits: Bits) -> Value:
        """Shift the field to the top, then down: the second shift extends the sign of a signed field."""
        assert isinstance(unit.type, Scalar)
        total = unit.type.size * 8
        top = self.b.apply("shl", unit, self.constant(total - bits.first - bits.width, unit.type))
        value = self.b.apply("shr", top, self.constant(total - bits.width, unit.type))
        return self.to_bool(value) if bits.is_bool else value

    def _set_bits(self, unit: Value, value: Value, bits: Bits) -> Value:
        mask = ((1 << bits.width) - 1) << bits.first
        value = self.b.convert(value, unit.type)
        kept = self.b.apply("and", unit, self.constant(_wrap(~mask, unit.type), unit.type))
        moved = self.b.apply("shl", value, self.constant(bits.first, unit.type))
        inside = self.b.apply("and", moved, self.constant(_wrap(mask, unit.type), unit.type))
        return self.b.apply("or", kept, inside)

    def zero(self, type: Type) -> Value:
        """The value-initialised object of a type."""
        if isinstance(type, Struct) and type.is_union:
            raise UnsupportedError(f"a value of the union '{type.name}' is not supported", self.b.span)
        if isinstance(type, Struct):
            return self.b.aggregate(type, tuple(self.zero(f.type) for f in type.fields))
        if isinstance(type, Array):
            return self.b.aggregate(type, (self.zero(type.element),) * type.count)
        return self.constant(False if type == BOOL else 0.0 if _is_float(type) else 0, type)

    def to_bool(self, value: Value) -> Value:
        if value.type == BOOL:
            return value
        if isinstance(value.type, Pointer):
            return self.b.apply("ne", value, self.b.null(value.type))
        return self.b.apply("ne", value, self.zero(value.type))

    def element(self, array: Value, index: Value) -> Value:
        """The address of an element, from the address of an array."""
        return self.b.offset(self.b.decay(array), index) if isinstance(pointee(array), Array) else array

    def pending_unroll(self) -> int | None:
        factor, self.unroll = self.unroll, None
        return factor

    def unsupported(self, cursor: Cursor, what: str, hint: str | None = None) -> UnsupportedError:
        return self.module.unsupported(cursor, what, hint)


@contextmanager
def _blamed_on(call: Span) -> Iterator[None]:
    """An error in the prelude is the call's."""
    try:
        yield
    except SourceError as error:
        if not error.span.source.is_prelude or call.source.is_prelude:
            raise
        raise type(error)(error.message, call, error.hint) from None


def _is_dynamic(variable: Global) -> bool:
    return variable.space == "shared" and isinstance(variable.type, Array) and variable.type.count == 0


def _free(name: str, taken: set[str], separator: str) -> str:
    candidates = (name if k == 0 else f"{name}{separator}{k}" for k in count())
    return next(c for c in candidates if c not in taken)


def _distinct(names: list[str]) -> list[str]:
    """The elements of a parameter pack `t` all have its name, and become t0, t1, ...; parameters without a name too."""
    taken, found = set(names), list[str]()
    for name in names:
        if names.count(name) > 1:
            name = next(f"{name or '_'}{k}" for k in count() if f"{name or '_'}{k}" not in taken)
            taken.add(name)
        found.append(name)
    return found


def _qualifiers(type: clang.Type) -> tuple[bool, bool]:
    canonical = type.get_canonical()
    is_pointer = canonical.kind == clang.TypeKind.POINTER
    return is_pointer and canonical.get_pointee().is_const_qualified(), bool(type.is_restrict_qualified())


def _is_float(type: Type) -> bool:
    return isinstance(type, Scalar) and type.is_float


def _wrap(value: int, type: Type) -> int:
    assert isinstance(type, Scalar)
    bits = type.size * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if type.kind == "int" and value >> (bits - 1) else value
