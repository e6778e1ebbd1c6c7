"""Whether the threads of a block's rows can be taken together (see `block_rows`), and what they do alike."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.block_interpreter.lanes import skips_zeros
from ...analysis.uniform import uniform_values
from ...ir.ops import (
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Builtin,
    Call,
    Fence,
    For,
    Function,
    GlobalRef,
    If,
    Leave,
    Load,
    Op,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.traverse import blocks, uses, walk
from ...ir.types import F32, F64, Pointer

Extents = tuple[int, int, int]

_INDICES = ("thread_idx", "block_idx", "block_dim", "grid_dim")
_REFUSED = (BarrierReduce, Call, Fence, Leave, Warp)


def axis_of(block: Extents) -> int:
    """Along which threads are taken together: rows, or parts of the only one."""
    return 1 if block[1] > 1 else 0


class AlikeRows:
    """What the rows of a block do alike, if a thread does so many of them at once."""

    def __init__(self, function: Function, block: Extents, each: int):
        self.function, self.extents, self.each = function, block, each
        self.axis = axis_of(block)
        others = frozenset(("thread_idx", axis) for axis in range(3) if axis != self.axis)
        self.alike = uniform_values(function, others, at_once=True)
        self.used = uses(function.body)
        self.definition = {v: op for op in walk(function.body) for v in op.results}

    def is_possible(self) -> bool:
        ops = list(walk(self.function.body))
        known = all(op.name in _INDICES for op in ops if isinstance(op, Builtin))
        strange = any(isinstance(op, _REFUSED) or _is_strange(op) for op in ops)
        return known and not strange and self.meets_together(self.function.body)

    def meets_together(self, block: Block) -> bool:
        """Whether rows come to each barrier at the same time."""
        for op in block.ops:
            inside = blocks(op)
            if inside and not self.is_together(op) and any(isinstance(o, Barrier) for b in inside for o in walk(b)):
                return False
            if not all(map(self.meets_together, inside)):
                return False
        return True

    def pays(self) -> bool:
        """Whether rows load the same words of shared memory, or add to the same elements, in an inner loop."""
        reached = self.together(self.function.body)
        loops = [op for op in reached if isinstance(op, For | While) and self.is_together(op)]
        inner = [op for op in loops if not any(o in loops for b in blocks(op) for o in walk(b))]
        return any(self.is_shared(op) for loop in inner for b in blocks(loop) for op in self.together(b))

    def together(self, block: Block) -> Iterator[Op]:
        """What is done for all rows at once, or would be if they added to different elements."""
        for op in block.ops:
            yield op
            if self.is_together(op) or (isinstance(op, If) and self.skipped(op)):
                for inner in blocks(op):
                    yield from self.together(inner)

    def is_shared(self, op: Op) -> bool:
        match op:
            case Load(ptr):
                return ptr in self.alike and _space(ptr) == "shared" and not isinstance(self.definition[ptr], GlobalRef)
            case Atomic(_, ptr):
                return self.is_sum(op)
        return False

    def is_together(self, op: Op) -> bool:
        """Whether all rows go the same way through an operation's blocks."""
        match op:
            case If(cond):
                return cond in self.alike
            case For(lower, upper):
                return lower in self.alike and upper in self.alike
            case While(_, before):
                return before.results[0] in self.alike
        return True

    def is_sum(self, op: Atomic) -> bool:
        unused = not op.results or not self.used.get(op.result)
        return op.kind == "add" and unused and op.ptr in self.alike and _is_float(op.args[0])

    def skipped(self, op: If) -> Atomic | None:
        """The addition of which only zeros are left out."""
        (atomic,) = op.then.ops if len(op.then.ops) == 1 else (None,)
        found = isinstance(atomic, Atomic) and self.is_sum(atomic) and skips_zeros(op, atomic, self.definition)
        return atomic if found else None  # type: ignore[return-value]


def _is_strange(op: Op) -> bool:
    """What one row might wait for while another one has it, or what is not of the block as a whole."""
    match op:
        case Load(_, volatile) | Store(_, _, volatile):
            return volatile
        case Atomic(kind):
            return kind in ("cas", "exch")
        case Barrier(scope):
            return scope != "block"
    return False


def _space(ptr: Value) -> str:
    assert isinstance(ptr.type, Pointer)
    return ptr.type.space


def _is_float(value: Value) -> bool:
    return value.type in (F32, F64)
