"""IR as text. `parser` reads it back; the same module always gives the same text.

kernel @scale(%y: ptr<f32, global> "float *", %n: i32 "int") {
  %0: u32 = builtin name="thread_idx" axis=0 @3:11
  %i: i32 = apply(%0) fn="convert" @3:11
  %1: bool = apply(%i, %n) fn="lt" @4:7
  if(%1) exits=false { ... } {} @4:3
}
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from ..deep import deeply
from ..errors import Span
from .ops import Block, Function, Global, Module, Op, Value
from .traverse import attribute_fields, block_fields, operand_fields
from .types import Struct


class Names(dict[Value, str]):
    """A unique printable name for each value of a function, from its source name where it has one."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._unnamed = 0

    def __missing__(self, value: Value) -> str:
        name = self[value] = f"%{self._fresh(value.name)}"
        return name

    def _fresh(self, hint: str | None) -> str:
        if hint is None:
            self._unnamed += 1
            return str(self._unnamed - 1)
        hint = re.sub(r"[^\w.$~]+", "_", hint)  # qualified names
        count = self._taken.get(hint, 0)
        self._taken[hint] = count + 1
        return hint if count == 0 else f"{hint}.{count}"


class _Form(NamedTuple):
    """How the operations of a kind are printed: their word, and their fields."""

    word: str
    operands: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    blocks: tuple[str, ...]


def _form(kind: type[Op]) -> _Form:
    attributes = tuple((name, f" {name}=") for name in attribute_fields(kind))
    return _Form(kind.__name__.lower(), operand_fields(kind), attributes, block_fields(kind))


class _Forms(dict[type[Op], _Form]):
    def __missing__(self, kind: type[Op]) -> _Form:
        found = self[kind] = _form(kind)
        return found


_FORMS = _Forms()


@deeply
def print_module(module: Module) -> str:
    parts = [_struct(s) for s in module.structs.values()]
    parts += [_global(g) for g in module.globals.values()]
    parts += [print_function(f) for f in module.functions.values()]
    return "\n".join(parts)


def print_function(function: Function) -> str:
    names = Names()
    params = ", ".join(_param(p, names) for p in function.params)
    bounds = f" bounds={list(function.launch_bounds)}" if function.launch_bounds else ""
    bounds += f" apart={json.dumps(function.apart)}" if function.apart else ""
    bounds += f" tapes={json.dumps(function.tapes)}" if function.tapes else ""
    bounds += f" stacks={json.dumps(function.stacks)}" if function.stacks else ""
    bounds += " arena=true" if function.arena else ""
    source = f" source={json.dumps(function.span.source.name)}" if function.span.line else ""
    lines = [f"{function.kind} @{json.dumps(function.name)}({params}){bounds}{source} {{"]
    _body(function.body, names, 1, lines)
    lines.append(f"}}{_span(function.span)}")
    return "\n".join(lines) + "\n"


def _param(param: Any, names: Names) -> str:
    flags = "".join(f" {flag}" for flag in ("const", "restrict", "own") if getattr(param, flag))
    flags += f" variable={json.dumps(param.variable)}" if param.variable else ""
    return f"{names[param.value]}: {param.type} {json.dumps(param.c_type)}{flags}"


def _struct(struct: Struct) -> str:
    inner = "; ".join(f"{json.dumps(f.name)}: {f.type} @{f.offset}" for f in struct.fields)
    return f"{struct} size={struct.size} align={struct.align} {{{inner}}}\n"


def _global(g: Global) -> str:
    init = "" if g.init is None else f' init="{g.init.hex()}"'
    source = f" source={json.dumps(g.span.source.name)}" if g.span.line else ""
    managed = " managed=true" if g.managed else ""
    fixed = " fixed=true" if g.fixed else ""
    return f"global @{json.dumps(g.name)}: {g.type} {g.space}{init}{managed}{fixed}{source}{_span(g.span)}\n"


def _body(block: Block, names: Names, depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    if block.args:
        lines.append(f"{pad}args({_typed(block.args, names)})")
    for op in block.ops:
        _op(op, names, depth, lines)
    if block.results:
        lines.append(f"{pad}yield({', '.join(map(names.__getitem__, block.results))})")


def _op(op: Op, names: Names, depth: int, lines: list[str]) -> None:
    pad, form = "  " * depth, _FORMS[type(op)]
    used = ", ".join([_operand(getattr(op, name), names) for name in form.operands])
    attrs = "".join([shown + _attribute(getattr(op, name)) for name, shown in form.attributes])
    target = f"{_typed(op.results, names)} = " if op.results else ""
    head = f"{pad}{target}{form.word}({used}){attrs}"
    for name in form.blocks:
        lines.append(head + " {")
        _body(getattr(op, name), names, depth + 1, lines)
        head = f"{pad}}}"
    lines.append(head + _span(op.span))


def _attribute(value: Any) -> str:
    shown = _SHOWN.get(type(value))
    return json.dumps(value) if shown is None else shown(value)


@lru_cache(4096)
def _quoted(text: str) -> str:
    """Most attributes are names, of which there are few."""
    return json.dumps(text)


_SHOWN: dict[type, Callable[[Any], str]] = {str: _quoted, bool: ("false", "true").__getitem__, int: int.__repr__}


def _operand(part: Value | tuple[Value, ...], names: Names) -> str:
    return f"[{', '.join(map(names.__getitem__, part))}]" if isinstance(part, tuple) else names[part]


def _typed(values: Iterable[Value], names: Names) -> str:
    return ", ".join([f"{names[v]}: {v.type}" for v in values])


def _span(span: Span) -> str:
    if not span.line:
        return ""
    why = f" why {json.dumps(span.why)}" if span.why else ""
    return f" @{span.line}:{span.column}{' reverse' if span.reverse else ''}{why}"
