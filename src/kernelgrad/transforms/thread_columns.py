"""Remainders that stay what they are for a thread (see `analysis/access/thread_columns`), in addresses that are made of
nothing else: these are computed once, before all else."""

from __future__ import annotations

from dataclasses import replace

from ..analysis.access.affine import Affine, Basis, Part
from ..analysis.access.thread_columns import Column, is_remainder
from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Builtin, Constant, Function, GlobalRef, Member, Module, Offset, Op, PtrCast, Value
from ..ir.traverse import descend, rebuild, walk, with_body
from ..ir.types import U32, Scalar
from . import simplify


def run(function: Function, module: Module, columns: frozenset[Column]) -> Function:
    before = _Before(function, dict(columns))

    def rewritten(block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, Offset) and before.is_known(op.ptr) and before.is_made_of_columns(op.index):
                op = replace(op, index=before.value(op.index))
            ops.append(descend(op, rewritten))
        return Block(block.args, tuple(ops), block.results)

    body = rewritten(function.body)
    return simplify.run(with_body(function, Block(body.args, (*before.b.ops, *body.ops), body.results)), module)


class _Before:
    """What is computed before all else, each value once."""

    def __init__(self, function: Function, columns: dict[str, Affine]):
        self.b, self.columns = Builder(), columns
        self.definition: dict[Value, Op] = {v: op for op in walk(function.body) for v in op.results}
        self.given = {p.value for p in function.params}
        self._values: dict[Value, Value] = {}
        self._are: dict[Value, bool | None] = {}

    def is_known(self, ptr: Value) -> bool:
        """Whether a pointer is the same in all turns."""
        match self.definition.get(ptr):
            case None:
                return ptr in self.given
            case GlobalRef():
                return True
            case PtrCast(base) | Member(base):
                return self.is_known(base)
            case Offset(base, index):
                return self.is_known(base) and self._kind(index) is not None
        return False

    def is_made_of_columns(self, value: Value) -> bool:
        return self._kind(value) is True

    def _kind(self, value: Value) -> bool | None:
        """Whether there is a column in it; None if there is what is not known before."""
        if value not in self._are:
            self._are[value] = None
            self._are[value] = self._find_kind(value)
        return self._are[value]

    def _find_kind(self, value: Value) -> bool | None:
        op = self.definition.get(value)
        if value in self.given or isinstance(op, Constant | Builtin):
            return False
        if not isinstance(op, Apply):
            return None
        if self._column(op) is not None:
            return True
        parts = [self._kind(arg) for arg in op.args]
        return None if None in parts else any(parts)

    def _column(self, op: Apply) -> Affine | None:
        return self.columns.get(str(op.span)) if is_remainder(op) else None

    def value(self, value: Value) -> Value:
        op = self.definition.get(value)
        if value in self.given or op is None:
            return value
        if value not in self._values:
            self._values[value] = self._made(op)
        return self._values[value]

    def _made(self, op: Op) -> Value:
        column = self._column(op) if isinstance(op, Apply) else None
        self.b.span = op.span
        if column is not None:
            assert isinstance(op.result.type, Scalar)
            return self.b.convert(self._sum(column), op.result.type)
        fresh = Value(op.result.type, op.result.name)
        return self.b.add(rebuild(op, self.value, lambda inner: inner, results=(fresh,))).result

    def _sum(self, sum_: Affine) -> Value:
        total = self.b.constant(sum_.const, U32)
        for basis, multiple in sum_.terms:
            by = self.b.constant(multiple, U32)
            total = self.b.apply("add", total, self.b.apply("mul", self._basis(basis), by))
        return total

    def _basis(self, basis: Basis) -> Value:
        if isinstance(basis, Part):
            of = self._sum(basis.of)
            return self.b.apply("div" if basis.is_quotient else "rem", of, self.b.constant(basis.by, U32))
        assert isinstance(basis, tuple)
        return self.b.builtin(*basis)
