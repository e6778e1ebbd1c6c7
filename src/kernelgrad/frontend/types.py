"""clang's types to IR types. Records keep the layout clang computed."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Span, UnsupportedError
from ..ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    Field,
    Pointer,
    Scalar,
    Struct,
    Type,
)
from . import clang
from .clang import Cursor, Kind, TypeKind, identity
from .visiting import children_of, fields_of

_SCALARS: dict[TypeKind, Scalar] = {
    TypeKind.BOOL: BOOL,
    TypeKind.CHAR_S: I8,
    TypeKind.SCHAR: I8,
    TypeKind.CHAR_U: U8,
    TypeKind.UCHAR: U8,
    TypeKind.SHORT: I16,
    TypeKind.USHORT: U16,
    TypeKind.CHAR16: U16,
    TypeKind.INT: I32,
    TypeKind.UINT: U32,
    TypeKind.CHAR32: U32,
    TypeKind.WCHAR: I32,
    TypeKind.LONG: I64,
    TypeKind.ULONG: U64,
    TypeKind.LONGLONG: I64,
    TypeKind.ULONGLONG: U64,
    TypeKind.HALF: F16,
    TypeKind.FLOAT: F32,
    TypeKind.DOUBLE: F64,
    TypeKind.LONGDOUBLE: F64,  # as on the device
}
_POINTERS = (TypeKind.POINTER, TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE)
REFERENCES = (TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE)
_RECORDS = (Kind.STRUCT_DECL, Kind.CLASS_DECL, Kind.UNION_DECL, Kind.CLASS_TEMPLATE, Kind.LAMBDA_EXPR)


class Bits(NamedTuple):
    """Where a bit-field is in its storage unit."""

    first: int
    width: int
    is_bool: bool


class Types:
    """The record types of one translation unit, made as they are met."""

    def __init__(self) -> None:
        self.structs: dict[str, Struct] = {}
        self._by_declaration: dict[int, Struct] = {}
        self._clang_types: dict[str, clang.Type] = {}  # struct -> the type it came from
        self._fields: dict[int, int] = {}  # field declaration -> index
        self._bases: dict[tuple[str, str], int] = {}  # (struct, base) -> index
        self._bit_fields: dict[int, Bits] = {}  # field declaration -> its bits
        self._bits: dict[tuple[str, int], Bits] = {}  # (struct, field index) -> the same
        self._destructors: dict[str, bool] = {}  # struct -> whether it has one

    def lower(self, type: clang.Type, span: Span) -> Type:
        type = type.get_canonical()
        kind = type.kind
        if kind in _SCALARS:
            return _SCALARS[kind]
        if kind in _POINTERS:
            return Pointer(self._pointee(type.get_pointee(), span))
        if kind == TypeKind.RECORD:
            return self._record(type, span)
        if kind == TypeKind.CONSTANTARRAY:
            return Array(self.lower(type.element_type, span), type.element_count)
        if kind == TypeKind.INCOMPLETEARRAY:
            return Array(self.lower(type.element_type, span), 0)
        if kind == TypeKind.ENUM:
            return self.lower(type.get_declaration().enum_type, span)
        if kind == TypeKind.NULLPTR:
            return Pointer(U8)
        if _spelling(type) in _SPELLED:
            return _SPELLED[_spelling(type)]
        raise UnsupportedError(f"type '{type.spelling}' is not supported", span)

    def parameter(self, type: clang.Type, span: Span) -> Type:
        """A parameter written as an array is a pointer to its elements."""
        canonical = type.get_canonical()
        if canonical.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
            return Pointer(self.lower(canonical.element_type, span))
        return self.lower(type, span)

    def returned(self, type: clang.Type, span: Span) -> Type | None:
        return None if type.get_canonical().kind == TypeKind.VOID else self.lower(type, span)

    def clang_type(self, struct: Struct) -> clang.Type:
        return self._clang_types[struct.name]

    def declarations(self) -> list[Cursor]:
        """The declarations of all records that were met."""
        return [type.get_declaration() for type in self._clang_types.values()]

    def is_union(self, struct: Struct) -> bool:
        """A union as C++ has it; fields that overlap may also be bit-fields in one unit."""
        return bool(self.clang_type(struct).get_declaration().kind == Kind.UNION_DECL)

    def field_index(self, field: Cursor) -> int | None:
        return self._fields.get(identity(field))

    def bit_field(self, field: Cursor) -> Bits | None:
        return self._bit_fields.get(identity(field))

    def bits(self, struct: Struct, index: int) -> Bits | None:
        return self._bits.get((struct.name, index))

    def base_index(self, derived: Struct, base: Struct) -> int | None:
        return self._bases.get((derived.name, base.name))

    def check_destructor(self, type: Type, span: Span) -> None:
        """On a device, objects end without their destructor being called: one that does something is refused."""
        while isinstance(type, Array):
            type = type.element
        if not isinstance(type, Struct):
            return
        if self.has_destructor(type):
            raise UnsupportedError(f"'{type.name}' has a destructor: not supported", span, "call a function instead")
        for field in type.fields:
            self.check_destructor(field.type, span)

    def has_destructor(self, struct: Struct) -> bool:
        """One that somebody wrote, and that does something."""
        if struct.name not in self._destructors:
            self._destructors[struct.name] = any(map(_does_something, self._written_destructors(struct)))
        return self._destructors[struct.name]

    def has_virtual_destructor(self, struct: Struct) -> bool:
        return any(c.is_virtual_method() for c in self._written_destructors(struct))

    def _written_destructors(self, struct: Struct) -> list[Cursor]:
        declaration = self.clang_type(struct).get_declaration()
        shown = [declaration, clang.specialized_template(declaration)]  # an instance shows no members of its own
        return [c for d in shown if d is not None for c in children_of(d) if c.kind == Kind.DESTRUCTOR]

    # ---- records

    def _pointee(self, type: clang.Type, span: Span) -> Type:
        type = type.get_canonical()
        opaque = type.kind in (TypeKind.VOID, TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO)
        incomplete = type.kind == TypeKind.RECORD and type.get_size() < 0
        return U8 if opaque or incomplete else self.lower(type, span)

    def _record(self, type: clang.Type, span: Span) -> Struct:
        declaration = type.get_declaration()
        key = identity(declaration)
        if key in self._by_declaration:
            return self._by_declaration[key]
        if type.get_size() < 0 or clang.is_invalid(declaration):
            raise UnsupportedError(f"type '{type.spelling}' is incomplete or has errors", span)
        struct = Struct(self._fresh_name(type))
        self.structs[struct.name] = self._by_declaration[key] = struct
        self._clang_types[struct.name] = type
        bases = self._base_fields(struct, declaration, span)
        members = [self._field(k + len(bases), field, struct, span) for k, field in enumerate(fields_of(type))]
        if declaration.kind == Kind.UNION_DECL and declaration.is_anonymous() and _are_alike(fields_of(type), members):
            members = self._merged(type, members)
        struct.define(tuple(bases + members), type.get_size(), type.get_align())
        return struct

    def _merged(self, type: clang.Type, members: list[Field]) -> list[Field]:
        """`union { float x, r; };` is one member with several names, not memory that is seen in several ways."""
        self._fields |= {identity(field): 0 for field in fields_of(type)}
        return members[:1]

    def _fresh_name(self, type: clang.Type) -> str:
        name = _spelling(type)
        if name.startswith("(lambda at"):
            name = f"lambda_{len(self.structs)}"
        elif name.startswith("(") or "(unnamed" in name or "(anonymous" in name:
            name = f"anonymous_{len(self.structs)}"
        return name if name not in self.structs else f"{name}_{len(self.structs)}"

    def _field(self, index: int, field: Cursor, struct: Struct, span: Span) -> Field:
        self._fields[identity(field)] = index
        bits = _field_offset(field)
        type = self.lower(field.type, span)
        if field.is_bitfield():
            # The storage unit is the aligned one that holds the first bit. A bool's holds others' bits too: a number.
            is_bool, type = type == BOOL, U8 if type == BOOL else type
            unit = type.size * 8
            place = Bits(bits % unit, field.get_bitfield_width(), is_bool)
            self._bit_fields[identity(field)] = self._bits[struct.name, index] = place
            bits -= bits % unit
        return Field(field.spelling if field.spelling.isidentifier() else f"_{index}", type, bits // 8)

    def _base_fields(self, struct: Struct, declaration: Cursor, span: Span) -> list[Field]:
        """Base classes are leading fields. Their offsets are not in libclang's C API: laid out as the ABI does,
        which holds for records without virtual bases or functions (refused elsewhere)."""
        fields: list[Field] = []
        end = 0
        for base in _bases(declaration):
            _check_virtual(declaration, base, span)
            if base.type.get_canonical().kind != TypeKind.RECORD:
                reason = f"the base class '{base.type.spelling}' depends on template parameters"
                raise UnsupportedError(
                    f"{reason}: not supported", span, "derive from a concrete class, or use a member"
                )
            type = self._record(base.type.get_canonical(), span)
            empty = not type.fields
            start = 0 if empty else -(-end // type.align) * type.align
            self._bases[struct.name, type.name] = len(fields)
            fields.append(Field(f"_base{len(fields)}", type, start))
            end = end if empty else start + type.size
        return fields


def _are_alike(declared: list[Cursor], members: list[Field]) -> bool:
    """Whether the members of a union are of one type, and none of them a part of a word."""
    return len({member.type for member in members}) == 1 and not any(field.is_bitfield() for field in declared)


def _does_something(destructor: Cursor) -> bool:
    body = destructor.get_definition()
    if body is None:
        return not destructor.is_default_method()
    return any(c.kind == Kind.COMPOUND_STMT and any(True for _ in children_of(c)) for c in children_of(body))


def _check_virtual(derived: Cursor, base: Cursor, span: Span) -> None:
    """Refuses what would move a base away from where `_base_fields` puts it."""
    is_virtual = any(token.spelling == "virtual" for token in base.get_tokens())
    if is_virtual or (_is_polymorphic(derived) and not _is_polymorphic(base.type.get_declaration())):
        name = base.type.spelling
        raise UnsupportedError(f"the base class '{name}' is not supported: virtual bases and functions", span)


def _is_polymorphic(declaration: Cursor) -> bool:
    methods = (Kind.CXX_METHOD, Kind.DESTRUCTOR)
    own = any(c.kind in methods and c.is_virtual_method() for c in children_of(declaration))
    return own or any(_is_polymorphic(base.type.get_declaration()) for base in _bases(declaration))


def _bases(declaration: Cursor) -> list[Cursor]:
    found = [c for c in children_of(declaration) if c.kind == Kind.CXX_BASE_SPECIFIER]
    if found:
        return found
    template = clang.specialized_template(declaration)
    if template is None:
        return []
    return [c for c in children_of(template) if c.kind == Kind.CXX_BASE_SPECIFIER]


def _field_offset(field: Cursor) -> int:
    return int(field.get_field_offsetof())


def _spelling(type: clang.Type) -> str:
    name = str(type.get_canonical().spelling)
    for qualifier in ("const ", "volatile "):
        name = name.removeprefix(qualifier)
    return name


_SPELLED: dict[str, Scalar] = {"__bf16": BF16, "_Float16": F16, "__fp16": F16}


def is_function_pointer(type: clang.Type) -> bool:
    type = type.get_canonical()
    if type.kind not in (TypeKind.POINTER, TypeKind.LVALUEREFERENCE):
        return False
    return bool(type.get_pointee().get_canonical().kind == TypeKind.FUNCTIONPROTO)


def is_reference(type: clang.Type) -> bool:
    return type.get_canonical().kind in REFERENCES
