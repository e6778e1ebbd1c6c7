"""Stretches of host code without calls of the host's, as kernels of one thread: loops, and arithmetic of recorded
floats.

Pointers that a stretch loads, and that it does not change, are loaded before it and passed: a kernel knows the memory
of its arguments alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import pipeline
from ..analysis.roots import holds_pointers
from ..errors import InternalError
from ..ir.builder import Builder
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Block,
    Constant,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Module,
    Offset,
    Op,
    Param,
    PtrCast,
    PtrDiff,
    Store,
    Undef,
    Value,
    While,
)
from ..ir.traverse import blocks, clone, free_values, operands, rebuild, walk
from ..ir.types import Pointer, Struct
from ..kernel import Kernel
from ..transforms.values import key_of

_NATIVE = (Constant, Undef, Apply, Aggregate, Extract, Insert, Alloca, Offset, Member, PtrCast, PtrDiff, Load, Store)
_ADDRESSES = (PtrCast, Member, GlobalRef, Offset)


class Stretch(NamedTuple):
    """An operation that can run natively, without what is done `before` it."""

    op: Op
    before: tuple[Op, ...]


def stretch(op: Op) -> Stretch | None:
    """None where it calls the host, or follows pointers that it finds on its way."""
    inside = [inner for block in blocks(op) for inner in walk(block)]
    if any(leads_to_memory(v) for v in op.results):
        return None
    moves = any(isinstance(o, Store) and leads_to_memory(o.value) for o in inside)
    before = _before(op, inside, moves)
    rest = [o for o in inside if o not in before]
    if not all(isinstance(o, (*_NATIVE, If, For, While)) for o in rest):
        return None
    if moves or any(isinstance(o, Load) and leads_to_memory(o.result) for o in rest):
        return None
    kept, same = _distinct(before)
    return Stretch(_without(op, set(map(id, before)), same), tuple(kept))


def leads_to_memory(value: Value) -> bool:
    return isinstance(value.type, Pointer) or holds_pointers(value.type)


def _before(op: Op, inside: list[Op], moves: bool) -> list[Op]:
    """What gives addresses, from values that are there before the operation."""
    defined = {v for o in inside for v in o.results} | {v for o in (op, *inside) for b in blocks(o) for v in b.args}
    found: list[Op] = []
    constants: dict[Value, Op] = {}
    for o in inside:
        if isinstance(o, Constant):
            constants[o.result] = o
        is_load = isinstance(o, Load) and isinstance(o.result.type, Pointer) and not moves and not o.volatile
        if not (isinstance(o, _ADDRESSES) or is_load) or _is_of_numbers(o):
            continue
        if all(v not in defined or v in constants for v in operands(o)):
            found += [constants.pop(v) for v in operands(o) if v in constants and v in defined]
            found.append(o)
            defined -= {v for f in found for v in f.results}
    return found


def _distinct(ops: list[Op]) -> tuple[list[Op], dict[Value, Value]]:
    """Without those that give what another one does, whose results stand for theirs: nothing is stored in between, and
    what is passed twice counts as memory that is shared."""
    kept, known, same = list[Op](), dict[Any, Value](), dict[Value, Value]()
    for op in ops:
        new = rebuild(op, lambda v: same.get(v, v), lambda block: block)
        first = known.setdefault(key_of(new), new.result)
        if first is new.result:
            kept.append(new)
        else:
            same[new.result] = first
    return kept, same


def _is_of_numbers(op: Op) -> bool:
    """Members of a struct of numbers: the struct's memory is passed, as others see it."""
    return isinstance(op, Member) and isinstance(op.ptr.type, Pointer) and not holds_pointers(op.ptr.type.pointee)


def _without(op: Op, dropped: set[int], same: dict[Value, Value]) -> Op:
    def value(v: Value) -> Value:
        return same.get(v, v)

    def block(b: Block) -> Block:
        kept = (rebuild(o, value, block) for o in b.ops if id(o) not in dropped)
        return Block(b.args, tuple(kept), tuple(map(value, b.results)))

    return rebuild(op, value, block)


class Uses:
    """What uses each value of a function: operations, blocks that give it, the function itself."""

    def __init__(self, function: Function):
        self._users: dict[Value, set[int]] = {}
        for op in walk(function.body):
            self._add(op, operands(op))
            for block in blocks(op):
                self._add(block, block.results)
        self._add(function, function.body.results)

    def _add(self, user: object, values: Iterable[Value]) -> None:
        for value in values:
            self._users.setdefault(value, set()).add(id(user))

    def after(self, ops: Iterable[Op]) -> tuple[Value, ...]:
        """The results that others than these operations use."""
        ops = tuple(ops)
        inside = set(map(id, ops))
        return tuple(v for op in ops for v in op.results if self._users.get(v, set()) - inside)


class Region:
    """A stretch as a kernel: `inputs` are its parameters, then pointers to where its `outputs` go."""

    def __init__(self, name: str, ops: Iterable[Op], outputs: tuple[Value, ...], structs: dict[str, Struct]):
        body = Block((), tuple(ops), ())
        defined = {v for op in body.ops for v in op.results}
        self.inputs = tuple(v for v in free_values(body) if v not in defined)
        self.outputs = outputs
        self.kernel = _kernel(name, body, self.inputs, outputs, structs)


def _kernel(
    name: str, body: Block, inputs: tuple[Value, ...], outputs: tuple[Value, ...], structs: dict[str, Struct]
) -> Kernel:
    span = body.ops[0].span
    b = Builder(span)
    params, mapping = list[Param](), dict[Value, Value]()
    for k, value in enumerate(inputs):
        shown = f"{value.shown or 'v'}_{k}"
        is_pointer = isinstance(value.type, Pointer)
        own = Value(Pointer(value.type.pointee, "global"), shown) if is_pointer else Value(value.type, shown)  # type: ignore[union-attr]
        params.append(Param(own, str(value.type)))
        mapping[value] = b.cast_pointer(own, value.type) if isinstance(value.type, Pointer) else own
    copy = clone(Block(body.args, body.ops, outputs), mapping)
    b.ops.extend(copy.ops)
    for k, result in enumerate(copy.results):
        place = Value(Pointer(result.type, "global"), f"result_{len(inputs) + k}")
        params.append(Param(place, "void *"))
        b.store(place, result)
    function = Function(name, "kernel", tuple(params), Block((), tuple(b.ops), ()), span)
    module = pipeline.compile_kernel(Module({name: function}, {}, structs), name)
    return Kernel(name, module, _no_variable)


def _no_variable(name: str) -> Any:
    raise InternalError(f"host code refers to the device variable '{name}'")
