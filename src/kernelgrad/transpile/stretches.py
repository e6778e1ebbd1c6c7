"""Stretches of host code that neither launch nor allocate, as functions of what they use."""

from __future__ import annotations

import re

from ..autodiff.calculus.activity import holds_floats
from ..ir.builder import Builder
from ..ir.ops import Block, Function, Op, Param, Value
from ..ir.traverse import clone, free_values
from ..ir.types import Pointer


def inputs_of(ops: tuple[Op, ...]) -> tuple[Value, ...]:
    defined = {v for op in ops for v in op.results}
    return tuple(v for v in free_values(Block((), ops, ())) if v not in defined)


def stretch_function(
    name: str, body: Block, inputs: tuple[Value, ...], outputs: tuple[Value, ...], cells: set[Value]
) -> tuple[Function, list[str]]:
    """Of operations: what has a cell is loaded from there, and what they give is stored. What each parameter is to a
    derivative."""
    b = Builder(body.ops[0].span)
    params, mapping, activity = list[Param](), dict[Value, Value](), list[str]()
    for k, value in enumerate(inputs):
        type = Pointer(value.type) if value in cells else value.type
        own = Value(type, f"{re.sub(r'[^0-9A-Za-z_]', '_', value.shown or 'v')}_{k}")
        params.append(Param(own, str(type)))
        mapping[value] = b.load(own) if value in cells else own
        is_active = isinstance(type, Pointer) and holds_floats(type.pointee)
        activity.append("dup" if is_active else "const")
    copy = clone(Block((), body.ops, outputs), mapping)
    b.ops.extend(copy.ops)
    for k, result in enumerate(copy.results):
        place = Value(Pointer(result.type), f"result_{len(inputs) + k}")
        params.append(Param(place, "void *"))
        activity.append("dup" if holds_floats(result.type) else "const")
        b.store(place, result)
    return Function(name, "device", tuple(params), Block((), tuple(b.ops), ()), body.ops[0].span), activity
