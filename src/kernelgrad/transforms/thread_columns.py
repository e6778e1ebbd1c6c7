"""Remainders that stay what they are for a thread (see `analysis/access/thread_columns`), as sums of indices."""

from __future__ import annotations

from ..analysis.access.thread_columns import Column, Form, is_remainder
from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Function, Module, Op, Value
from ..ir.traverse import descend, rebuild, with_body
from ..ir.types import U32, Scalar, Type
from . import simplify


def run(function: Function, module: Module, columns: frozenset[Column]) -> Function:
    known, b = dict(columns), Builder()
    sums: dict[tuple[str, Type], Value] = {}  # each computed once, before all else
    replaced: dict[Value, Value] = {}

    def rewritten(block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, Apply) and is_remainder(op) and str(op.span) in known:
                key = str(op.span), op.result.type
                if key not in sums:
                    sums[key] = _remainder(b, op, known[key[0]])
                replaced[op.result] = sums[key]
            else:
                kept = rebuild(op, lambda v: replaced.get(v, v), lambda inner: inner)
                ops.append(descend(kept, rewritten))
        return Block(block.args, tuple(ops), tuple(replaced.get(v, v) for v in block.results))

    body = rewritten(function.body)
    return simplify.run(with_body(function, Block(body.args, (*b.ops, *body.ops), body.results)), module)


def _remainder(b: Builder, op: Apply, form: Form) -> Value:
    const, multiples, by = form
    b.span = op.span
    total = b.constant(const, U32)
    indices = [(name, axis) for name in ("thread_idx", "block_idx") for axis in range(3)]
    for (name, axis), multiple in zip(indices, multiples, strict=False):
        if multiple:
            total = b.apply("add", total, b.apply("mul", b.builtin(name, axis), b.constant(multiple, U32)))
    assert isinstance(op.result.type, Scalar)
    return b.convert(b.apply("rem", total, b.constant(by, U32)), op.result.type)
