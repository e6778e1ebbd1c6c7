"""Walking and rebuilding IR, for every operation alike (see `ops`: a field is an operand, a region or an attribute)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

from .ops import Block, Function, Global, Op, Undef, Value
from .types import Array, Pointer, Struct, Type

_BASE = frozenset(("results", "span"))


class _Shape(NamedTuple):
    """Which fields of an operation are what."""

    operands: tuple[str, ...]
    blocks: tuple[str, ...]
    attributes: tuple[str, ...]


_SHAPES: dict[type[Op], _Shape] = {}


def _shape(kind: type[Op]) -> _Shape:
    found = _SHAPES.get(kind)
    if found is None:
        own = [f for f in fields(kind) if f.name not in _BASE]
        operands = tuple(f.name for f in own if f.type in ("Value", "tuple[Value, ...]"))
        regions = tuple(f.name for f in own if f.type == "Block")
        rest = tuple(f.name for f in own if f.name not in operands + regions)
        found = _SHAPES[kind] = _Shape(operands, regions, rest)
    return found


def operand_fields(kind: type[Op]) -> tuple[str, ...]:
    return _shape(kind).operands


def block_fields(kind: type[Op]) -> tuple[str, ...]:
    return _shape(kind).blocks


def attribute_fields(kind: type[Op]) -> tuple[str, ...]:
    return _shape(kind).attributes


def operands(op: Op) -> tuple[Value, ...]:
    """The values an operation uses itself, in order; not those its regions use."""
    found: list[Value] = []
    for name in operand_fields(type(op)):
        part = getattr(op, name)
        if isinstance(part, tuple):
            found.extend(part)
        else:
            found.append(part)
    return tuple(found)


def blocks(op: Op) -> tuple[Block, ...]:
    names = _shape(type(op)).blocks
    return tuple([getattr(op, name) for name in names]) if names else ()


def walk(block: Block) -> Iterator[Op]:
    """Every operation in the block and in its nested blocks, outer before inner, in program order."""
    todo = [iter(block.ops)]
    while todo:
        for op in todo[-1]:
            yield op
            inner = blocks(op)
            if inner:
                todo += [iter(b.ops) for b in reversed(inner)]
                break
        else:
            todo.pop()


def uses(block: Block) -> dict[Value, int]:
    """How often each value is used in the block, nested blocks and block results included."""
    count: dict[Value, int] = {}

    def visit(b: Block) -> None:
        for op in b.ops:
            for value in operands(op):
                count[value] = count.get(value, 0) + 1
            for inner in blocks(op):
                visit(inner)
        for value in b.results:
            count[value] = count.get(value, 0) + 1

    visit(block)
    return count


def free_values(block: Block) -> tuple[Value, ...]:
    """Values used in the block (or nested) but defined outside it, in order of first use."""
    defined: set[Value] = set()
    free: dict[Value, None] = {}

    def use(values: tuple[Value, ...]) -> None:
        for value in values:
            if value not in defined:
                free.setdefault(value)

    def visit(b: Block) -> None:
        defined.update(b.args)
        for op in b.ops:
            use(operands(op))
            for inner in blocks(op):
                visit(inner)
            defined.update(op.results)
        use(b.results)

    visit(block)
    return tuple(free)


def rebuild(op: Op, value: Callable[[Value], Value], block: Callable[[Block], Block], /, **changes: Any) -> Op:
    """The operation with its operands and regions mapped. Its results stay, unless given in `changes`."""
    kind = type(op)
    for name in operand_fields(kind):
        part = getattr(op, name)
        mapped = tuple(map(value, part)) if isinstance(part, tuple) else value(part)
        if mapped != part:
            changes.setdefault(name, mapped)
    for name in block_fields(kind):
        inner = getattr(op, name)
        mapped_block = block(inner)
        if mapped_block is not inner:
            changes.setdefault(name, mapped_block)
    return replace(op, **changes) if changes else op


def substitute(block: Block, mapping: dict[Value, Value]) -> Block:
    """The block with every use of a mapped value replaced (definitions stay)."""

    def value(v: Value) -> Value:
        return mapping.get(v, v)

    def inner(b: Block) -> Block:
        ops = tuple(rebuild(op, value, inner) for op in b.ops)
        return Block(b.args, ops, tuple(map(value, b.results)))

    return inner(block) if mapping else block


def clone(block: Block, mapping: dict[Value, Value]) -> Block:
    """A copy of the block that defines fresh values; `mapping` gives outside values and is extended with the copies."""

    def fresh(v: Value) -> Value:
        mapping[v] = copy = Value(v.type, v.name)
        return copy

    def value(v: Value) -> Value:
        return mapping.get(v, v)

    def inner(b: Block) -> Block:
        args = tuple(map(fresh, b.args))
        ops = tuple(copy_op(op) for op in b.ops)
        return Block(args, ops, tuple(map(value, b.results)))

    def copy_op(op: Op) -> Op:
        # Always a new object, also where nothing in it is: analyses tell operations apart by identity.
        return replace(rebuild(op, value, inner), results=tuple(map(fresh, op.results)))

    return inner(block)


def closed(block: Block, known: Iterable[Value]) -> Block:
    """The block with what it uses and nobody defines made undefined: leftovers that simplification removes."""
    given = set(known)
    missing = tuple(Undef(results=(v,)) for v in free_values(block) if v not in given)
    return Block(block.args, (*missing, *block.ops), block.results) if missing else block


def with_body(function: Function, body: Block) -> Function:
    return function if body is function.body else replace(function, body=body)


def used_structs(function: Function, variables: Iterable[Global]) -> dict[str, Struct]:
    """The records that a function and the given variables mention, each after those it holds by value."""
    found: dict[str, Struct] = {}
    seen: set[Struct] = set()

    def visit(type: Type) -> None:
        if isinstance(type, Pointer):
            visit(type.pointee)
        elif isinstance(type, Array):
            visit(type.element)
        elif isinstance(type, Struct) and type not in seen:
            seen.add(type)
            for field in type.fields:
                visit(field.type)
            found[type.name] = type

    for param in function.params:
        visit(param.type)
    for variable in variables:
        visit(variable.type)
    for op in walk(function.body):
        for value in op.results:
            visit(value.type)
        for inner in blocks(op):
            for value in inner.args:
                visit(value.type)
    return found
