"""C++ spellings of IR types, declarations, and the definitions of structs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...ir.types import BF16, C_NAMES, F16, Array, Field, Pointer, Scalar, Struct, Type
from .names import RESERVED, identifier, once, qualified

_SCALARS = {**C_NAMES, "long": "long"}
_VECTOR_ELEMENTS = "char uchar short ushort int uint long ulong longlong ulonglong float double".split()
# Types that CUDA defines itself; their headers are included where they are used.
_BUILTIN_STRUCTS = {f"{element}{count}": "" for element in _VECTOR_ELEMENTS for count in (1, 2, 3, 4)}
_BUILTIN_STRUCTS |= {"dim3": "", "__half2": "cuda_fp16.h", "half2": "cuda_fp16.h", "__nv_bfloat162": "cuda_bf16.h"}
_BUILTIN_STRUCTS |= {f"double4_{align}a": "" for align in (16, 32)}
_SCALAR_HEADERS = {F16: "cuda_fp16.h", BF16: "cuda_bf16.h"}

# Arrays cannot be assigned or returned in C++; as a value, an array travels in this struct of the same layout.
ARRAY_VALUE = """template <typename T, int count>
struct Array {
    T at[count];
};
"""


@dataclass(frozen=True)
class Types:
    """Spells types. `structs` gives the C++ name of every struct in use."""

    structs: dict[Struct, str]

    def spell(self, type: Type, const: bool = False) -> str:
        """The type of a value: of a variable, of a cast, of an argument."""
        if isinstance(type, Array):
            return f"{qualified('Array')}<{self.spell(type.element)}, {type.count}>"
        return self.declare(type, "", const).rstrip()

    def declare(self, type: Type, name: str, const: bool = False) -> str:
        """`float *name`, `float name[4][4]`, `float (*name)[4]`. `const` is of what a pointer points to."""
        match type:
            case Scalar():
                return f"{_SCALARS[type.name]} {name}"
            case Struct():
                return f"{self.structs[type]} {name}"
            case Array(element, count):
                return self.declare(element, f"{name}[{count or ''}]")
            case Pointer(pointee):
                return self._pointer(pointee, name, const)

    def _pointer(self, pointee: Type, name: str, const: bool) -> str:
        if isinstance(pointee, Pointer):
            return self.declare(pointee, f"const *{name}" if const else f"*{name}")
        star = f"(*{name})" if isinstance(pointee, Array) else f"*{name}"
        return ("const " if const else "") + self.declare(pointee, star)


def vector_maker(struct: Struct) -> str | None:
    """`make_float4` for float4: CUDA's vector types have no other constructor."""
    plain = struct.name in _BUILTIN_STRUCTS and not _BUILTIN_STRUCTS[struct.name] and struct.name != "dim3"
    return f"make_{struct.name}" if plain else None


def struct_names(types: Iterable[Type]) -> dict[Struct, str]:
    """A C++ name for every struct that the types reach, those held by value before their holders."""
    ordered: dict[Struct, None] = {}
    entered: set[Struct] = set()

    def visit(type: Type) -> None:
        match type:
            case Struct():
                if type not in entered:
                    entered.add(type)
                    for field in type.fields:
                        visit(field.type)
                    ordered.setdefault(type)
            case Array(element, _):
                visit(element)
            case Pointer(pointee):
                pointees.append(pointee)

    pointees: list[Type] = list(types)
    # What is only pointed to comes last: a forward declaration serves until then.
    for type in pointees:
        visit(type)
    return _unique_names(ordered)


def _unique_names(structs: Iterable[Struct]) -> dict[Struct, str]:
    names: dict[Struct, str] = {}
    taken = set(_BUILTIN_STRUCTS) | RESERVED
    for struct in structs:
        if struct.name in _BUILTIN_STRUCTS:
            names[struct] = struct.name
            continue
        base = name = identifier(struct.name)
        count = 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        names[struct] = qualified(name)
    return names


def headers(types: Iterable[Type], structs: Iterable[Struct]) -> list[str]:
    """The CUDA headers that the types need."""
    found = {_BUILTIN_STRUCTS.get(s.name, "") for s in structs}
    scalars = {t for t in types if isinstance(t, Scalar)} | {s for struct in structs for s in scalars_in(struct)}
    found |= {_SCALAR_HEADERS[s] for s in scalars if s in _SCALAR_HEADERS}
    return sorted(found - {""})


def scalars_in(type: Type) -> Iterator[Scalar]:
    """The scalars that a type is made of or points to."""
    match type:
        case Scalar():
            yield type
        case Pointer(pointee):
            if not isinstance(pointee, Struct):
                yield from scalars_in(pointee)
        case Array(element, _):
            yield from scalars_in(element)
        case Struct():
            for field in type.fields:
                yield from scalars_in(field.type)


# ---- definitions ---------------------------------------------------------------------------------------------------


def definitions(types: Types) -> list[str]:
    """The structs' definitions, in an order that C++ takes, after forward declarations where pointers need them."""
    own = [s for s in types.structs if s.name not in _BUILTIN_STRUCTS]
    forward = [f"struct {_unqualified(types.structs[s])};\n" for s in own if _pointed_to_early(s, own)]
    whole = [once(_unqualified(types.structs[s]), _definition(s, types), tell_apart=True) for s in own if s.size]
    return (["".join(forward)] if forward else []) + whole


def _unqualified(name: str) -> str:
    return name.rpartition("::")[2]


def _pointed_to_early(struct: Struct, ordered: list[Struct]) -> bool:
    if not struct.size:
        return True
    earlier = ordered[: ordered.index(struct)]
    return any(_points_to(field.type, struct) for other in earlier for field in other.fields)


def _points_to(type: Type, struct: Struct) -> bool:
    match type:
        case Pointer(pointee):
            return pointee == struct or _points_to(pointee, struct)
        case Array(element, _):
            return _points_to(element, struct)
        case _:
            return False


def field_name(struct: Struct, index: int) -> str:
    name = struct.fields[index].name
    return identifier(name) if name else f"_{index}"


def _definition(struct: Struct, types: Types) -> str:
    name = _unqualified(types.structs[struct])
    lines: list[str] = []
    end = 0
    for group in _overlapping(struct):
        start = struct.fields[group[0]].offset
        lines += _padding(start, end, min(_align(struct.fields[k]) for k in group))
        lines += _group(struct, group, start, types)
        end = max(struct.fields[k].offset + struct.fields[k].type.size for k in group)
    lines += _padding(struct.size, end, struct.align)
    natural = max((_align(f) for f in struct.fields), default=1)
    align = f"__align__({struct.align}) " if struct.align > natural else ""
    packed = "__attribute__((packed)) " if struct.align < natural or _misaligned(struct) else ""
    body = "".join(f"    {line}\n" for line in lines)
    check = f'static_assert(sizeof({name}) == {struct.size}, "the layout that the launcher relies on");\n'
    return f"struct {packed}{align}{name} {{\n{body}}};\n{check}"


def _align(field: Field) -> int:
    return field.type.align


def _misaligned(struct: Struct) -> bool:
    return any(f.offset % _align(f) for f in struct.fields)


def _padding(start: int, end: int, align: int) -> list[str]:
    """A member to fill a gap that the compiler would not leave by itself."""
    natural = -(-end // align) * align
    return [f"char _padding_{end}[{start - end}];"] if start > natural else []


def _overlapping(struct: Struct) -> list[list[int]]:
    """The fields' indices in groups: each one alone, or those that share bytes, as in a union."""
    groups: list[list[int]] = []
    end = 0
    for k, field in enumerate(struct.fields):
        if groups and field.offset < end:
            groups[-1].append(k)
        else:
            groups.append([k])
        end = max(end, field.offset + field.type.size)
    return groups


def _group(struct: Struct, group: list[int], start: int, types: Types) -> list[str]:
    members = [_member(struct, k, start, types) for k in group]
    return members if len(group) == 1 else ["union {", *(f"    {m}" for m in members), "};"]


def _member(struct: Struct, index: int, start: int, types: Types) -> str:
    field = struct.fields[index]
    declaration = types.declare(field.type, field_name(struct, index)) + ";"
    if field.offset == start:
        return declaration
    # Inside a union and not at its start: an anonymous struct moves the member to its place.
    return f"struct {{ char _padding_{index}[{field.offset - start}]; {declaration} }};"
