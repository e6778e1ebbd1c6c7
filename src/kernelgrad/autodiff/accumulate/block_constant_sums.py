"""Updates of small buffers at elements that are the same in every block: weights `w[k]`, a bias `b[threadIdx.x]`.

A block that does the work of many (see `fewer_blocks`) adds them up in registers, one for each element, and has one
update of each when it is done. Loops over the elements are unrolled for that, so they must be short.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...analysis.machine import ONLY_SUMS
from ...ir.ops import (
    Apply,
    Atomic,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    If,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Value,
    While,
)
from ...ir.traverse import blocks, operands, uses, walk
from ...transforms.unroll import constants_of, trips, unroll

_FIXED = (Constant, Apply, Offset, Member, PtrCast)
_SAME = ("thread_idx", "block_dim", "lane_id")


def block_constant_updates(ops: Iterable[Op], adjoints: frozenset[Value]) -> set[Op]:
    """The atomic additions among operations, if all of them are such updates; else none. `adjoints`: of the buffers."""
    block = Block((), tuple(ops), ())
    atomics: set[Op] = {op for op in walk(block) if isinstance(op, Atomic)}
    if not adjoints or not atomics:
        return set()
    search = _Search(block, adjoints)
    return atomics if search.count(block) <= ONLY_SUMS and search.found == atomics else set()


class _Search:
    def __init__(self, block: Block, adjoints: frozenset[Value]):
        self.adjoints = adjoints
        self.used = uses(block)
        self.constants = constants_of(_holding(block))
        self.moving: set[Value] = set()  # what may differ between blocks
        self.base: dict[Value, Value] = {}
        self.found: set[Op] = set()

    def count(self, block: Block) -> int:
        """How many elements are updated."""
        total = 0
        for op in block.ops:
            match op:
                case For() if (number := trips(op, self.constants)) is not None:
                    self.moving |= {*op.body.args[1:], *op.results}
                    total += number * self.count(op.body)
                case For() | While():
                    self.moving |= {*op.results, *(arg for inner in blocks(op) for arg in inner.args)}
                    total += sum(map(self.count, blocks(op)))
                case If():
                    self.moving |= set(op.results)
                    total += self.count(op.then) + self.count(op.orelse)
                case Atomic():
                    total += self.update(op)
                case _:
                    self.note(op)
        return total

    def note(self, op: Op) -> None:
        same = isinstance(op, _FIXED) or (isinstance(op, Builtin) and op.name in _SAME)
        if not same or any(v in self.moving for v in operands(op)):
            self.moving.update(op.results)
        if isinstance(op, Offset | Member | PtrCast):
            self.base[op.result] = op.ptr

    def update(self, op: Atomic) -> int:
        root = op.ptr
        while root in self.base:
            root = self.base[root]
        if op.kind == "add" and not self.used.get(op.result) and root in self.adjoints and op.ptr not in self.moving:
            self.found.add(op)
        self.moving.update(op.results)
        return 1


def unrolled(function: Function, module: Module) -> Function:
    """With loops over elements that are updated as what they are: one update after the other."""
    constants = constants_of(function)

    def is_over_few_elements(loop: For | While) -> bool:
        number = trips(loop, constants)
        return number is not None and number <= ONLY_SUMS and any(isinstance(op, Atomic) for op in walk(loop.body))

    return unroll(function, is_over_few_elements)


def _holding(block: Block) -> Function:
    return Function("", "device", (), block)
