"""Who put the final value there, as plans hold it: found by `global_memory` and `shared_memory` in kernels with atomic
operations that leave the old number or put their operand there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...analysis.roots import Memory
from ...ir.effects import picks
from ...ir.ops import Atomic, Function, Global, Module, Op, Param, Value


@dataclass(frozen=True)
class WonBuffer:
    """What finds the winners in one buffer of global memory. All three have an element per number of the buffer."""

    root: Param
    before: Value  # its contents before the forward launch
    after: Value  # and after it
    winner: Value  # the lowest id that bid for each

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(Param(v, "void *") for v in (self.before, self.after, self.winner))


@dataclass
class Winners:
    """`buffers`: in global memory, by the parameter. `won`: for an atomic on shared memory, by its result, whether this
    thread won: a value of the function."""

    buffers: dict[Value, WonBuffer] = field(default_factory=dict)
    won: dict[Value, Value] = field(default_factory=dict)

    def won_buffer(self, op: Op, memory: Memory) -> WonBuffer | None:
        if not self.buffers or not picks(op):
            return None
        assert isinstance(op, Atomic)
        return next((self.buffers[root] for root in memory.of(op.ptr) if root in self.buffers), None)

    def needs(self, op: Atomic) -> list[Value]:
        """What the reverse of such an atomic needs beside the shadow."""
        return [self.won[op.result]] if op.result in self.won else [op.ptr, op.args[0]]

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(p for buffer in self.buffers.values() for p in buffer.params)


@dataclass
class SharedWinners:
    """`won`: whether the thread won, by the atomic's result. `bids`: the arrays beside the shared ones, filled with
    NOBODY when the kernel starts: for each cell the lowest bid, and behind those whether it was changed (0) or not."""

    function: Function
    won: dict[Value, Value] = field(default_factory=dict)
    bids: dict[str, Global] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, Global]:
        return {variable.name: variable for variable in self.bids.values()}

    def extended(self, module: Module) -> Module:
        return replace(module, globals={**module.globals, **self.variables})
