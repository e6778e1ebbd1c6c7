"""Loops of the host that overwrite memory of the caller's, whose size nobody knows: each store says where it writes,
and what was there is kept (Note [Recordings in C++] in `recording_text`)."""

from __future__ import annotations

from dataclasses import replace

from ..analysis import roots
from ..ir.builder import Builder
from ..ir.ops import Block, Function, HostCall, Op, Store
from ..ir.traverse import descend, with_body
from ..ir.types import U64
from .recording_text import TAPE


def run(function: Function, params: frozenset[str]) -> Function:
    """Stores behind these parameters, or behind nobody knows what, are told of before they are made."""
    memory = roots.analyse(function)
    callers = {p.value for p in function.params if p.name in params}
    others = {p.value for p in function.params} - callers

    def is_kept(op: Store) -> bool:
        found = memory.of(op.ptr)
        return not found or not found <= others

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if isinstance(op, Store) and is_kept(op):
                ops += _told(op)
            ops.append(descend(op, block))
        return replace(b, ops=tuple(ops))

    return with_body(function, block(function.body))


def _told(store: Store) -> list[Op]:
    b = Builder(store.span)
    b.effect(HostCall, f"{TAPE}.keep", (store.ptr, b.constant(store.value.type.size, U64)))
    return list(b.ops)
