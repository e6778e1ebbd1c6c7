"""Volatile accesses as plain ones, for reversal: what they say of other threads is said by barriers, or refused.

    volatile float *v = shared;                        becomes
    v[t] += v[t + 16];                                 a = shared[t] + shared[t + 16]; __syncwarp(); shared[t] = a;

Warp-synchronous code takes the lanes of a warp to be in step, and its shared arrays are volatile so that each statement
reaches memory: between two accesses, of which one is a store, the lanes meet, also where only one of the two is
volatile, and before a branch that some do not take. Where they all come by, the mask is the whole warp, else those that
are active. Memory that outlives the launch is volatile for no reason if the launch only reads or only writes it, as far
as can be seen; what one thread stores there and another may wait for has no reverse.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.machine import FULL_WARP
from ..analysis.roots import UNKNOWN, Memory, analyse
from ..analysis.uniform import warp_uniform_values
from ..errors import UnsupportedError
from ..ir.builder import Builder
from ..ir.ops import Alloca, Barrier, Block, For, Function, If, Leave, Load, Module, Op, Store, Value, Warp, While
from ..ir.traverse import blocks, descend, walk, with_body
from ..ir.types import U32, Pointer


def run(function: Function, module: Module, whole_rows: bool) -> Function:
    """`whole_rows`: the rows of the function's blocks are whole warps."""
    volatile = [op for op in walk(function.body) if isinstance(op, Load | Store) and op.volatile]
    if not volatile:
        return function
    _refuse(function, [op for op in volatile if not _is_shared(op)])
    uniform = warp_uniform_values(function, whole_rows)
    memory = analyse(function)
    in_step = frozenset[Value]().union(*(memory.of(op.ptr) for op in volatile if _is_shared(op)))
    work = _Plain(uniform, memory, in_step)
    return with_body(function, work.block(function.body, not _leave_apart(function.body, uniform)))


def _is_shared(op: Load | Store) -> bool:
    assert isinstance(op.ptr.type, Pointer)
    return op.ptr.type.space == "shared"


def _refuse(function: Function, accesses: list[Load | Store]) -> None:
    """Refuses memory of the device that the launch both reads and writes: by an atomic, too."""
    memory = analyse(function)
    read = frozenset[Value]().union(*(memory.of(load.ptr) for load in memory.loads))
    passed = read & memory.written()
    own = {op.result for op in walk(function.body) if isinstance(op, Alloca)}
    for op in accesses:
        roots = memory.of(op.ptr) - own
        if not roots.isdisjoint(passed) or (UNKNOWN in roots and _has_both(memory)):
            raise UnsupportedError(
                "volatile memory that a launch both reads and writes has no gradient",
                op.span,
                "drop `volatile`, and put a barrier between what threads write and others read",
            )


def _has_both(memory: Memory) -> bool:
    return bool(memory.stores and memory.loads)


def _leave_apart(block: Block, uniform: set[Value], together: bool = True) -> bool:
    """Whether a lane may return before the others of its warp."""

    def leaves(op: Op) -> bool:
        if isinstance(op, Leave):
            return not together
        if isinstance(op, If) and op.exits and op.cond not in uniform:
            return True
        return any(_leave_apart(b, uniform, together and _go_together(op, uniform)) for b in blocks(op))

    return any(map(leaves, block.ops))


def _go_together(op: Op, uniform: set[Value]) -> bool:
    match op:
        case If(cond):
            return cond in uniform
        case For(lower, upper):
            return lower in uniform and upper in uniform
        case While(before=before):
            return before.results[0] in uniform
    return True


class _Plain:
    def __init__(self, uniform: set[Value], memory: Memory, roots: frozenset[Value]):
        self.uniform, self.memory, self.roots = uniform, memory, roots

    def block(self, block: Block, whole: bool, in_step: bool = False) -> Block:
        """`whole`: all lanes of a warp come to it together. `in_step`: since the last barrier of the source there were
        volatile accesses; then those that are not take their turns like them."""
        ops: list[Op] = []
        last: type[Op] | None = None  # the kind of the accesses since the last barrier
        for op in block.ops:
            if isinstance(op, Load | Store):
                if self._is_shared(op) and (in_step or op.volatile):
                    if not (last is Load and isinstance(op, Load)):
                        ops += _barrier(op, whole)
                    last, in_step = type(op), True
                op = replace(op, volatile=False)
            elif isinstance(op, Barrier):
                last, in_step = None, False
            elif accesses := [o for b in blocks(op) for o in walk(b) if self._is_shared(o)]:
                volatile = any(o.volatile for o in accesses)  # type: ignore[attr-defined]
                together = whole and _go_together(op, self.uniform)
                if in_step or (volatile and not together):  # what those that do not enter have done is done
                    ops += _barrier(op, whole)
                inside = in_step or (volatile and not isinstance(op, If))  # or by the last iteration
                op = descend(op, lambda b, at=(together, inside): self.block(b, *at))  # type: ignore[misc]
                last, in_step = Store, in_step or volatile
            elif blocks(op):
                op = descend(op, lambda b: self.block(b, whole))
            ops.append(op)
        return Block(block.args, tuple(ops), block.results)

    def _is_shared(self, op: Op) -> bool:
        """Whether it is of memory that warps access in step, if not by this access."""
        return isinstance(op, Load | Store) and not self.memory.of(op.ptr).isdisjoint(self.roots)


def _barrier(access: Op, whole: bool) -> list[Op]:
    b = Builder(access.span)
    mask = b.constant(FULL_WARP, U32) if whole else b.emit(Warp, "activemask", (), type=U32)
    b.effect(Barrier, "warp", (mask,))
    return b.ops
