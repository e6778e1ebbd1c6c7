"""Which promoted cells are live where: so that `promote` carries through loops and branches only what is needed.

Sets of cells are bit masks. Structure makes this a matter of two linear walks: bottom-up, what a block reads before
writing it (`reads`), surely writes (`kills`) and may write (`writes`); top-down, from what is live after an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..ir.ops import Block, For, If, Op, While


@dataclass(frozen=True, slots=True)
class Effect:
    reads: int = 0
    kills: int = 0
    writes: int = 0

    def before(self, live: int) -> int:
        """What is live before, given what is live after."""
        return self.reads | (live & ~self.kills)

    def then(self, later: Effect) -> Effect:
        return Effect(self.before(later.reads), self.kills | later.kills, self.writes | later.writes)


NOTHING = Effect()


class Liveness:
    """`access` gives the effect of an operation without regions; NOTHING for most."""

    def __init__(self, body: Block, access: Callable[[Op], Effect]):
        self._access = access
        self.of: dict[Block, Effect] = {}
        self._of_op: dict[Op, Effect] = {}
        self._summarise(body)

    def _summarise(self, block: Block) -> Effect:
        total = NOTHING
        for op in block.ops:
            effect = self._effect(op)
            if effect is not NOTHING:
                self._of_op[op] = effect
                total = total.then(effect)
        self.of[block] = total
        return total

    def _effect(self, op: Op) -> Effect:
        match op:
            case If(_, then, orelse):
                a, b = self._summarise(then), self._summarise(orelse)
                return Effect(a.reads | b.reads, a.kills & b.kills, a.writes | b.writes)
            case For():
                body = self._summarise(op.body)
                return Effect(body.reads, 0, body.writes)
            case While():
                before, body = self._summarise(op.before), self._summarise(op.body)
                return Effect(before.then(body).reads, before.kills, before.writes | body.writes)
            case _:
                return self._access(op)

    def after_each(self, block: Block, live: int) -> list[int]:
        """What is live after each operation of the block, given what is live at its end."""
        found = [0] * len(block.ops)
        for k in range(len(block.ops) - 1, -1, -1):
            found[k] = live
            effect = self._of_op.get(block.ops[k])
            if effect is not None:
                live = effect.before(live)
        return found

    def loop_head(self, op: For | While, after: int) -> int:
        """What is live where an iteration begins; for a While, before its condition."""
        if isinstance(op, For):
            return after | self.of[op.body].reads
        return self.of[op.before].before(after | self.of[op.body].reads)

    def after_condition(self, op: While, after: int) -> int:
        """What is live between a While's condition and its body, or its end."""
        return after | self.of[op.body].before(self.loop_head(op, after))


def bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
