"""A module as plain JSON and back, with nothing lost: what `printer` leaves out for readers (the names of values as
they are, the files and lengths of places in the source) is there too. Reading makes IR and nothing else, whatever the
bytes say.

Values, blocks, types, places and sources are tables, and refer to each other by number: nothing is nested, so that no
depth of a program is too deep.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ..errors import Source, Span
from .ops import OPERATIONS, Block, Function, Global, Module, Op, Param, Value
from .traverse import attribute_fields, block_fields, blocks, operand_fields
from .types import SCALARS, Array, Field, Pointer, Scalar, Struct, Type

_OPS: dict[str, type[Op]] = {kind.__name__: kind for kind in OPERATIONS if kind is not Op}
_FIELDS = {k: (name, operand_fields(k), attribute_fields(k), block_fields(k)) for name, k in _OPS.items()}
_PARAM = tuple(f.name for f in fields(Param) if f.init and f.name != "value")
_GLOBAL = tuple(f.name for f in fields(Global) if f.name not in ("type", "init", "span"))
_FUNCTION = tuple(f.name for f in fields(Function) if f.name not in ("params", "body", "span"))


def dump(module: Module) -> bytes:
    writer = _Writer()
    written = {
        "globals": [writer.global_(g) for g in module.globals.values()],
        "functions": [writer.function(f) for f in module.functions.values()],
        "listed": [writer.type(s) for s in module.structs.values()],
    }
    tables = {"structs": writer.structs(), "types": writer.types, "sources": writer.sources, "spans": writer.spans}
    tables["values"] = writer.values
    return json.dumps(written | tables, separators=(",", ":")).encode()


def load(data: bytes) -> Module:
    return _Reader(json.loads(data)).module()


# ---- writing ------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.types: list[Any] = []
        self.sources: list[Any] = []
        self.spans: list[Any] = []
        self._types: dict[Type, int] = {}
        self._structs: list[Struct] = []
        self._sources: dict[int, int] = {}
        self._spans: dict[Any, int] = {}
        self.values: list[Any] = []
        self._values: dict[Value, int] = {}
        self._blocks: dict[Block, int] = {}
        self._rows = 0

    def type(self, type: Type) -> int:
        found = self._types.get(type)
        if found is None:
            row = self._type(type)
            found = self._types[type] = len(self.types)
            self.types.append(row)
        return found

    def _type(self, type: Type) -> Any:
        match type:
            case Scalar():
                return type.name
            case Pointer():
                return ["*", self.type(type.pointee), type.space]
            case Array():
                return ["[]", self.type(type.element), type.count]
            case Struct():
                self._structs.append(type)
                return ["struct", type.name]

    def structs(self) -> list[Any]:
        """A struct's fields may bring further structs."""
        rows, k = [], 0
        while k < len(self._structs):
            struct = self._structs[k]
            parts = [[f.name, self.type(f.type), f.offset] for f in struct.fields]
            rows.append([self.type(struct), struct.size, struct.align, parts])
            k += 1
        return rows

    def span(self, span: Span) -> int:
        source = self._sources.get(id(span.source))
        if source is None:
            source = self._sources[id(span.source)] = len(self.sources)
            self.sources.append([span.source.name, span.source.text])
        row = (source, span.line, span.column, span.length, span.reverse, span.why)
        found = self._spans.get(row)
        if found is None:
            found = self._spans[row] = len(self.spans)
            self.spans.append(row)
        return found

    def global_(self, g: Global) -> Any:
        init = None if g.init is None else g.init.hex()
        return [self.type(g.type), init, self.span(g.span), *(_plain(getattr(g, name)) for name in _GLOBAL)]

    def function(self, function: Function) -> Any:
        blocks = _blocks(function.body)
        params = [[self.definition(p.value), *(_plain(getattr(p, name)) for name in _PARAM)] for p in function.params]
        for block in blocks:
            self._define(block)
        rows = [self.block(block) for block in blocks]
        own = [_plain(getattr(function, name)) for name in _FUNCTION]
        return [params, rows, self.span(function.span), *own]

    def _define(self, block: Block) -> None:
        for value in (*block.args, *(v for op in block.ops for v in op.results)):
            self.definition(value)

    def definition(self, value: Value) -> int:
        number = self._values[value] = len(self.values)
        self.values.append([self.type(value.type), value.name])
        return number

    def block(self, block: Block) -> Any:
        self._blocks[block] = self._rows  # one that stands in two places has two rows
        self._rows += 1
        return [self._uses(block.args), [self.op(op) for op in block.ops], self._uses(block.results)]

    def op(self, op: Op) -> Any:
        name, operands, attributes, blocks = _FIELDS[type(op)]
        used = [self._operand(getattr(op, field)) for field in operands]
        plain = [_plain(getattr(op, field)) for field in attributes]
        regions = [self._blocks[getattr(op, field)] for field in blocks]
        return [name, self.span(op.span), used, plain, regions, self._uses(op.results)]

    def _operand(self, part: Value | tuple[Value, ...]) -> Any:
        return self._uses(part) if isinstance(part, tuple) else self._values[part]

    def _uses(self, values: tuple[Value, ...]) -> list[int]:
        return [self._values[v] for v in values]


def _blocks(body: Block) -> list[Block]:
    """The block and all in it, each after those it holds."""
    found, todo = [], [body]
    while todo:
        block = todo.pop()
        found.append(block)
        todo += [inner for op in block.ops for inner in blocks(op)]
    return found[::-1]


def _plain(value: Any) -> Any:
    """JSON keeps numbers exactly, apart from the bits of a NaN."""
    if isinstance(value, float) and math.isnan(value):
        return {"nan": struct.pack("<d", value).hex()}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


# ---- reading ------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: dict[str, Any]):
        self._data = data
        sources = [Source(name, text) for name, text in data["sources"]]
        self.spans = [Span(sources[source], *rest) for source, *rest in data["spans"]]
        self.types: list[Type] = []
        for row in data["types"]:
            self.types.append(self._type(row))
        for number, size, align, parts in data["structs"]:
            struct = self.types[number]
            assert isinstance(struct, Struct)
            struct.define(tuple(Field(name, self.types[t], offset) for name, t, offset in parts), size, align)
        self.values = [Value(self.types[type], name) for type, name in data["values"]]
        self.blocks: list[Block] = []

    def _type(self, row: Any) -> Type:
        if isinstance(row, str):
            return SCALARS[row]
        kinds: dict[str, Callable[..., Type]] = {
            "*": lambda inner, space: Pointer(self.types[inner], space),
            "[]": lambda inner, count: Array(self.types[inner], count),
            "struct": Struct,
        }
        return kinds[row[0]](*row[1:])

    def module(self) -> Module:
        functions = [self.function(*row) for row in self._data["functions"]]
        variables = [self.global_(*row) for row in self._data["globals"]]
        structs = [t for t in map(self.types.__getitem__, self._data["listed"]) if isinstance(t, Struct)]
        return Module({f.name: f for f in functions}, {g.name: g for g in variables}, {s.name: s for s in structs})

    def global_(self, type: int, init: str | None, span: int, *rest: Any) -> Global:
        data = None if init is None else bytes.fromhex(init)
        own = dict(zip(_GLOBAL, map(_read_plain, rest), strict=True))
        return Global(**own, type=self.types[type], init=data, span=self.spans[span])

    def function(self, params: Any, rows: Any, span: int, *rest: Any) -> Function:
        made = tuple(
            Param(self.values[value], **dict(zip(_PARAM, map(_read_plain, own), strict=True))) for value, *own in params
        )
        for row in rows:
            self.blocks.append(self.block(*row))
        own = dict(zip(_FUNCTION, map(_read_plain, rest), strict=True))
        return Function(**own, params=made, body=self.blocks[-1], span=self.spans[span])

    def block(self, args: Any, ops: Any, results: Any) -> Block:
        return Block(self._operand(args), tuple([self.op(*row) for row in ops]), self._operand(results))

    def op(self, name: str, span: int, used: Any, plain: Any, regions: Any, results: Any) -> Op:
        kind = _OPS[name]
        parts: dict[str, Any] = dict(zip(operand_fields(kind), map(self._operand, used), strict=True))
        parts.update(zip(attribute_fields(kind), map(_read_plain, plain), strict=True))
        parts.update(zip(block_fields(kind), map(self.blocks.__getitem__, regions), strict=True))
        return kind(**parts, results=self._operand(results), span=self.spans[span])

    def _operand(self, part: Any) -> Any:
        values = self.values
        return values[part] if isinstance(part, int) else tuple([values[v] for v in part])


def _read_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return struct.unpack("<d", bytes.fromhex(value["nan"]))[0]
    return tuple(map(_read_plain, value)) if isinstance(value, list) else value
