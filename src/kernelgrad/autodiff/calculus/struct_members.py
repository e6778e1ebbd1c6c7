"""Numbers beside pointers in a struct that is passed by value.

The adjoint of such a struct is a struct of adjoints, passed by value too: its pointers lead to shadows, but a number in
it has nowhere to leave an adjoint. So each number, or array of them, becomes a parameter of its own while the function
is differentiated, and has an adjoint like other parameters; `bound` puts it back to what it is, a part of the struct.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ...analysis.roots import holds_pointers
from ...ir.builder import Builder
from ...ir.ops import Block, Function, Module, Param, Value
from ...ir.traverse import substitute
from ...ir.types import C_NAMES, Array, Scalar, Struct, Type
from ...transforms import simplify
from .activity import holds_floats


@dataclass(frozen=True)
class Member:
    """`name`: of the parameter that stands for it. `shown`: as C writes it, `.scale` or `.inner[1].scale`. `path`: the
    numbers of the fields and elements."""

    name: str
    struct: str
    shown: str
    path: tuple[int, ...]
    type: Type

    @property
    def keys(self) -> tuple[str, ...]:
        """What each step of the path is called."""
        return tuple(re.findall(r"[^.\[\]]+", self.shown))


def members_of(function: Function) -> tuple[Member, ...]:
    """Of all structs that hold pointers: the fields that hold floats and no pointers."""
    taken = {p.name for p in function.params if not _is_member(p)}
    found: list[Member] = []
    for param in function.params:
        if isinstance(param.type, Struct) and holds_pointers(param.type):
            for shown, path, type in _numbers(param.type):
                name = f"{param.name}{re.sub(r'[^0-9A-Za-z]+', '_', shown).rstrip('_')}"
                while name in taken:
                    name = f"{name}_"
                taken.add(name)
                found.append(Member(name, param.name, shown, path, type))
    return tuple(found)


def _is_member(param: Param) -> bool:
    return "." in (param.variable or "")


def _c_type(type: Type) -> str:
    while isinstance(type, Array):
        type = type.element
    return C_NAMES[type.name] if isinstance(type, Scalar) else str(type)


def _numbers(type: Type) -> Iterator[tuple[str, tuple[int, ...], Type]]:
    """Of an aggregate that holds pointers."""
    for k, (shown, part) in enumerate(_parts(type)):
        if isinstance(part, Struct | Array) and holds_pointers(part):
            yield from ((f"{shown}{rest}", (k, *path), t) for rest, path, t in _numbers(part))
        elif holds_floats(part) and not holds_pointers(part):
            yield shown, (k,), part


def _parts(type: Type) -> list[tuple[str, Type]]:
    match type:
        case Struct() if not type.is_union:
            return [(f".{f.name}", f.type) for f in type.fields]
        case Array(element, count):
            return [(f"[{k}]", element) for k in range(count)]
    return []


def apart(function: Function, module: Module, listed: Collection[str]) -> Function:
    """The function with the listed members as parameters, after its own."""
    members = [m for m in members_of(function) if m.name in listed]
    if not members:
        return function
    b, params = Builder(function.span), {p.name: p.value for p in function.params}
    made = [Param(Value(m.type, m.name), _c_type(m.type), variable=f"{m.struct}{m.shown}") for m in members]
    whole = {m.struct: params[m.struct] for m in members}
    for member, param in zip(members, made, strict=True):
        whole[member.struct] = _with(b, whole[member.struct], member.path, param.value)
    body = substitute(function.body, {params[name]: value for name, value in whole.items()})
    rewritten = replace(function, params=(*function.params, *made), body=Block((), (*b.ops, *body.ops), body.results))
    return simplify.run(rewritten, module)


def _with(b: Builder, whole: Value, path: tuple[int, ...], part: Value) -> Value:
    first, *rest = path
    inner = _with(b, b.extract(whole, first), tuple(rest), part) if rest else part
    return b.insert(whole, inner, first)


def bound(function: Function, primal: Function) -> Function:
    """The function without the parameters that `apart` added: it reads them from their structs. `primal`: as before."""
    members = {m.name: m for m in members_of(primal)}
    given = {p.name: p.value for p in function.params}
    ours = [p for p in function.params if _is_member(p)]
    if not ours:
        return function
    b = Builder(function.span)
    known: dict[Value, Value] = {}
    for param in ours:
        member = members[param.name]
        value = given[member.struct]
        for k in member.path:
            value = b.extract(value, k)
        known[param.value] = value
    body = substitute(function.body, known)
    params = tuple(p for p in function.params if not _is_member(p))
    return replace(function, params=params, body=Block((), (*b.ops, *body.ops), body.results))
