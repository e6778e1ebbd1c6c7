"""Reads back what `printer` writes."""

from __future__ import annotations

import json
import re
from typing import Any

from ..errors import UNKNOWN, KernelGradError, Source, Span
from . import ops as ops_module
from .ops import Block, Function, Global, Module, Op, Param, Value
from .traverse import attribute_fields, block_fields, operand_fields
from .types import SCALARS, Array, Field, Pointer, Struct, Type

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<value>%[\w.$~]+)|(?P<word>[A-Za-z_]\w*)"""
    r"""|(?P<number>-?(?:Infinity|\d[\d.eE+-]*))|(?P<punct>[-@(){}\[\]<>,:;=]))"""
)
_OPS: dict[str, type[Op]] = {
    c.__name__.lower(): c
    for c in vars(ops_module).values()
    if isinstance(c, type) and issubclass(c, Op) and c is not Op
}


class IRSyntaxError(KernelGradError):
    """Text that is not IR."""


def parse_module(text: str) -> Module:
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str):
        self.tokens = _tokens(text)
        self.at = 0
        self.structs: dict[str, Struct] = {}
        self.values: dict[str, Value] = {}
        self.source = Source("<ir>")

    # ---- tokens

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise IRSyntaxError(f"expected '{token}', got '{self.peek()}' (token {self.at})")

    def literal(self) -> Any:
        token = self.next()
        if token != "[":
            return json.loads(token)
        items: list[Any] = []
        while not self.accept("]"):
            items.append(self.literal())
            self.accept(",")
        return items

    # ---- declarations

    def module(self) -> Module:
        functions: dict[str, Function] = {}
        variables: dict[str, Global] = {}
        while word := self.peek():
            if word == "struct":
                self.struct()
            elif word == "global":
                g = self.global_()
                variables[g.name] = g
            else:
                f = self.function()
                functions[f.name] = f
        return Module(functions, variables, self.structs)

    def struct(self) -> None:
        self.expect("struct")
        struct = self.struct_named(self.literal())
        size, align = self.attribute("size"), self.attribute("align")
        self.expect("{")
        fields: list[Field] = []
        while not self.accept("}"):
            name = self.literal()
            self.expect(":")
            type = self.type()
            self.expect("@")
            fields.append(Field(name, type, self.literal()))
            self.accept(";")
        struct.define(tuple(fields), size, align)

    def struct_named(self, name: str) -> Struct:
        return self.structs.setdefault(name, Struct(name))

    def attribute(self, name: str) -> Any:
        self.expect(name)
        self.expect("=")
        return self.literal()

    def optional(self, name: str) -> Any:
        return self.attribute(name) if self.peek() == name else None

    def global_(self) -> Global:
        self.expect("global")
        self.expect("@")
        name = self.literal()
        self.expect(":")
        type, space, init = self.type(), self.next(), self.optional("init")
        managed, fixed = bool(self.optional("managed")), bool(self.optional("fixed"))
        self.source = Source(self.optional("source") or "<ir>")
        data = None if init is None else bytes.fromhex(init)
        return Global(name, type, space, data, self.span(), managed, fixed)  # type: ignore[arg-type]

    def function(self) -> Function:
        kind = self.next()
        self.expect("@")
        name = self.literal()
        self.values = {}
        self.expect("(")
        params: list[Param] = []
        while not self.accept(")"):
            params.append(self.param())
            self.accept(",")
        bounds = tuple(self.optional("bounds") or ())
        apart = tuple(self.optional("apart") or ())
        tapes = tuple((name, nbytes) for name, nbytes in self.optional("tapes") or ())
        stacks = tuple((name, nbytes) for name, nbytes in self.optional("stacks") or ())
        arena = bool(self.optional("arena"))
        self.source = Source(self.optional("source") or "<ir>")
        self.expect("{")
        body = self.block()
        known = {"apart": apart, "tapes": tapes, "stacks": stacks, "arena": arena}
        return Function(name, kind, tuple(params), body, self.span(), bounds, **known)  # type: ignore[arg-type]

    def param(self) -> Param:
        value = self.definition()
        c_type = self.literal()
        const, restrict, own = (self.accept(flag) for flag in ("const", "restrict", "own"))
        return Param(value, c_type, const, restrict, own, self.optional("variable"))

    # ---- bodies

    def block(self) -> Block:
        """Up to and including the closing brace; the opening one is consumed."""
        args: tuple[Value, ...] = ()
        if self.accept("args"):
            self.expect("(")
            args = self.definitions()
            self.expect(")")
        body: list[Op] = []
        results: tuple[Value, ...] = ()
        while not self.accept("}"):
            if self.accept("yield"):
                results = self.operand_group("(", ")")
            else:
                body.append(self.op())
        return Block(args, tuple(body), results)

    def op(self) -> Op:
        results = self.definitions() if self.peek().startswith("%") else ()
        if results:
            self.expect("=")
        name = self.next()
        kind = _OPS.get(name)
        if kind is None:
            raise IRSyntaxError(f"unknown operation '{name}'")
        parts: dict[str, Any] = self.operands(kind)
        for attr in attribute_fields(kind):
            parts[attr] = self.attribute(attr)
        for region in block_fields(kind):
            self.expect("{")
            parts[region] = self.block()
        return kind(**parts, results=results, span=self.span())

    def operands(self, kind: type[Op]) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        self.expect("(")
        for name in operand_fields(kind):
            parts[name] = self.operand_group("[", "]") if self.peek() == "[" else self.use()
            self.accept(",")
        self.expect(")")
        return parts

    def operand_group(self, opening: str, closing: str) -> tuple[Value, ...]:
        self.expect(opening)
        group: list[Value] = []
        while not self.accept(closing):
            group.append(self.use())
            self.accept(",")
        return tuple(group)

    def use(self) -> Value:
        name = self.next()
        if name not in self.values:
            raise IRSyntaxError(f"'{name}' is used before its definition")
        return self.values[name]

    def definitions(self) -> tuple[Value, ...]:
        found = [self.definition()]
        while self.accept(","):
            found.append(self.definition())
        return tuple(found)

    def definition(self) -> Value:
        name = self.next()
        self.expect(":")
        hint = re.sub(r"\.\d+$", "", name[1:])
        value = self.values[name] = Value(self.type(), None if hint.isdigit() else hint)
        return value

    def span(self) -> Span:
        if not self.accept("@"):
            return UNKNOWN
        line = self.literal()
        self.expect(":")
        found = Span(self.source, line, self.literal(), reverse=self.accept("reverse"))
        return found.because(self.literal()) if self.accept("why") else found

    def type(self) -> Type:
        word = self.next()
        if word in SCALARS:
            return SCALARS[word]
        if word == "struct":
            return self.struct_named(self.literal())
        self.expect("<")
        inner = self.type()
        self.expect(",")
        tail = self.next()
        self.expect(">")
        if word == "ptr":
            return Pointer(inner, tail)  # type: ignore[arg-type]
        if word == "array":
            return Array(inner, int(tail))
        raise IRSyntaxError(f"unknown type '{word}'")


def _tokens(text: str) -> list[str]:
    tokens, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise IRSyntaxError(f"cannot read: {text[at : at + 20]!r}")
        tokens.append(match.group(match.lastgroup or 0))
        at = match.end()
    return tokens
