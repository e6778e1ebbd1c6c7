"""Note [Block sums]: a block's sum that its first thread adds to memory.

On a GPU the threads of a block add up first, so that there is one atomic for each block. Here a loop over threads adds
up in a register anyway (Note [Totals]), over a whole row of blocks if no thread waits for another. At the end of a
kernel, where nothing comes after the barrier in such a sum, every thread therefore adds its own number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...ir.ops import (
    Apply,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Builtin,
    Constant,
    Function,
    If,
    Leave,
    Op,
    Value,
    Warp,
)
from ...ir.traverse import blocks, kinds, operands, walk, with_body
from ...transforms import dce
from . import totals
from .plan import is_pure


class _Refused(Exception):
    """A branch does something else than to add sums."""


def run(function: Function) -> Function:
    held = kinds(function.body)
    if BarrierReduce not in held or Leave in held:
        return function
    ops = function.body.ops
    last = [k for k, op in enumerate(ops) if not (_is_sum(op) or is_pure(op) or isinstance(op, If))]
    start = _first_sum(ops, last[-1] + 1 if last else 0)
    while start < len(ops):
        changed = _spread(function, start)
        if changed is not None:
            return changed
        start = _first_sum(ops, start + 1)
    return function


def _first_sum(ops: tuple[Op, ...], start: int) -> int:
    return next((k for k, op in enumerate(ops) if k >= start and _is_sum(op)), len(ops))


def _is_sum(op: Op) -> bool:
    return isinstance(op, BarrierReduce) and op.kind == "sum"


def _spread(function: Function, start: int) -> Function | None:
    """The function with all sums from this operation on added by every thread; None if something else is done."""
    ops = function.body.ops
    tail = _Tail(function, ops[start:])
    try:
        new = [new for op in ops[start:] for new in tail.spread(op)]
    except _Refused:
        return None
    # What told the first thread would keep the index from being the row's (Note [Rows]).
    body = dce.eliminate(Block(function.body.args, (*ops[:start], *new), function.body.results))
    changed = with_body(function, body)
    by_row = not any(isinstance(op, Barrier | BarrierReduce | Warp) for op in walk(changed.body))
    once = {op.ptr for op in totals.find(changed, by_row) if isinstance(op, Atomic)}
    return changed if once.issuperset(op.ptr for op in new if isinstance(op, Atomic)) else None


class _Tail:
    def __init__(self, function: Function, ops: tuple[Op, ...]):
        self.definitions: Mapping[Value, Op] = {v: op for op in walk(function.body) for v in op.results}
        self.sums = {op.result: op.value for op in ops if isinstance(op, BarrierReduce)}

    def spread(self, op: Op) -> Iterator[Op]:
        if isinstance(op, BarrierReduce):
            return
        if isinstance(op, If) and self._is_first_thread(op.cond) and not (op.results or op.orelse.ops):
            yield from self._additions(op.then)
        elif is_pure(op) and not self._uses_sum(op):
            yield op
        else:
            raise _Refused

    def _additions(self, block: Block) -> Iterator[Op]:
        for op in block.ops:
            match op:
                case If(cond, then, orelse, results=()) if self._is_some(cond) and not orelse.ops:
                    yield from self._additions(then)
                case Atomic("add", _, (total,)) if total in self.sums and not op.together:
                    yield replace(op, args=(self.sums[total],), results=(Value(op.result.type),))
                case Apply() if self._is_some(op.result):
                    continue
                case _ if is_pure(op) and not blocks(op) and not self._uses_sum(op):
                    yield op
                case _:
                    raise _Refused

    def _uses_sum(self, op: Op) -> bool:
        inner = (x for b in blocks(op) for x in walk(b))
        return any(v in self.sums for x in (op, *inner) for v in operands(x))

    def _is_some(self, value: Value) -> bool:
        """`sum != 0`: nothing is lost where zeros are added too."""
        op = self.definitions.get(value)
        return isinstance(op, Apply) and op.fn == "ne" and op.args[0] in self.sums and self._is_zero(op.args[1])

    def _is_zero(self, value: Value) -> bool:
        op = self.definitions.get(value)
        return isinstance(op, Constant) and op.value == 0

    def _is_first_thread(self, cond: Value) -> bool:
        op = self.definitions.get(cond)
        if not isinstance(op, Apply) or op.fn != "eq" or not self._is_zero(op.args[1]):
            return False
        return set(self._joined(op.args[0])) == {("thread_idx", axis) for axis in range(3)}

    def _joined(self, value: Value) -> Iterator[tuple[str, int]]:
        """The builtins whose bits are put together."""
        match self.definitions.get(value):
            case Apply("or", args):
                for arg in args:
                    yield from self._joined(arg)
            case Builtin(name, axis):
                yield name, axis
            case _:
                yield "", 0
