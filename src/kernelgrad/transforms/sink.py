"""Sinking of loads: those through a pointer that a branch chose move into the branch. The first step of `promote`.

`c ? a : b` names an object in C++, so the frontend gives a branch of addresses and a load through the one it yields.
With the load inside each side, the addresses no longer meet and `a` and `b` can be promoted. Only for a load that
follows the branch at once, through members, casts and constant offsets: so nothing was written in between.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.ops import Block, Constant, If, Load, Member, Offset, Op, PtrCast, Value
from ..ir.traverse import clone, descend, uses
from ..ir.types import Pointer


def sink_loads(body: Block) -> Block:
    return _Sinker(uses(body)).block(body)


class _Sinker:
    def __init__(self, used: dict[Value, int]):
        self.used = used

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        k = 0
        while k < len(block.ops):
            op = block.ops[k]
            chain = self.chain(block.ops, k) if isinstance(op, If) else []
            if chain and isinstance(op, If):
                ops += [link for link in chain if isinstance(link, Constant)]  # others may use them too
                op = _sink(op, [link for link in chain if not isinstance(link, Constant)])
            ops.append(descend(op, self.block))
            k += 1 + len(chain)
        return Block(block.args, tuple(ops), block.results)

    def once(self, value: Value) -> bool:
        return self.used.get(value, 1) == 1  # copies made here are not counted, and used once

    def chain(self, ops: tuple[Op, ...], at: int) -> list[Op]:
        """The operations from a pointer among the results of the `If` to the load of what it points to."""
        pointers = [v for v in ops[at].results if isinstance(v.type, Pointer) and self.once(v)]
        chain: list[Op] = []
        reached: set[Value] = set()
        for op in ops[at + 1 :]:
            chain.append(op)
            match op:
                case Constant():
                    reached.add(op.result)
                case PtrCast(ptr) | Member(ptr) if ptr in pointers and self.once(op.result):
                    pointers = [op.result]
                case Offset(ptr, index) if ptr in pointers and index in reached and self.once(op.result):
                    pointers = [op.result]
                case Load(ptr, volatile) if ptr in pointers and not volatile:
                    return chain
                case _:
                    return []
        return []


def _sink(op: If, chain: list[Op]) -> If:
    k = next(k for k, v in enumerate(op.results) if any(v in _pointers(link) for link in chain))
    load = chain[-1]
    sides = [_extended(side, k, op.results[k], chain) for side in (op.then, op.orelse)]
    results = (*op.results[:k], load.result, *op.results[k + 1 :])
    return replace(op, then=sides[0], orelse=sides[1], results=results)


def _pointers(op: Op) -> tuple[Value, ...]:
    return (op.ptr,) if isinstance(op, Load | Member | PtrCast | Offset) else ()


def _extended(side: Block, k: int, pointer: Value, chain: list[Op]) -> Block:
    """The side with a copy of the chain at its end, giving the loaded value as result `k`."""
    copy = clone(Block((), tuple(chain), chain[-1].results), {pointer: side.results[k]})
    results = (*side.results[:k], copy.results[0], *side.results[k + 1 :])
    return Block(side.args, side.ops + copy.ops, results)
