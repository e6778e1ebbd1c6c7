"""The code of the launch between forward and reverse in which threads bid for cells (Note [Winners])."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.ops import Atomic, Block, For, If, Op, While
from .sweep.reverse_sweep import Sweep
from .winners import global_memory

if TYPE_CHECKING:
    from .prepare.prepared import Prepared


class WinnerSweep(Sweep):
    """Goes backwards over the kernel as its reverse does, with the same tape, and only bids. It must leave the tape as
    it is: a loop that is run again, and so writes to it, has no winners in it (see `plan`)."""

    def __init__(self, prepared: Prepared):
        super().__init__(prepared)
        self.winners = prepared.winners

    def body(self) -> Block:
        self.reverse_block(self.structure.top, [], {})
        return Block((), (*self.prologue.ops, *self.tape.start_reverse(), *self.b.ops), ())

    def reverse(self, op: Op) -> None:
        if isinstance(op, If | For | While):
            if id(op) not in self.plan.rerun:
                super().reverse(op)
            return
        buffer = self.winners.won_buffer(op, self.memory)
        if buffer is not None and self.plan.has_adjoint(op):
            assert isinstance(op, Atomic)
            global_memory.bid(self.b, buffer, op, self.value(op.ptr), self.value(op.args[0]))
