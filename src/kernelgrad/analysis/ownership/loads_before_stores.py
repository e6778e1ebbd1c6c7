"""Loads that no store of the launch, by any thread, can come before: they see what memory held before the kernel.

In a kernel without data races a store that another thread makes comes before a load only by way of a meeting: a barrier
between the two, in the order of the text. So the text decides, for all threads alike: a store comes before a load if it
stands before it, if a loop around both brings it round again, or if the two are in branches of one If in which threads
meet. A loop in which nobody meets, and in which both go to an element that is another one in every iteration, as in a
loop with the grid's stride, brings nothing round. Fences, by which threads may tell others in any order, end the
argument.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.effects import MEETINGS
from ...ir.ops import (
    Apply,
    Atomic,
    Block,
    Builtin,
    Constant,
    Fence,
    For,
    Function,
    Load,
    Offset,
    Op,
    Store,
    Value,
    While,
)
from ...ir.traverse import blocks, operands, walk
from ...locks import cached_property
from ..access.loop_bounds import ends_of
from ..induction import find, unconverted
from ..roots import UNKNOWN, Memory
from ..structure import Structure, analyse

Path = tuple[tuple[Op, int, int], ...]  # from outside in: an operation, which of its parent's it is, in which region


class Before:
    """Which stores of a function can come before which loads. `may_alias`: any pointers may share memory."""

    def __init__(self, function: Function, memory: Memory, may_alias: bool):
        self.memory, self.may_alias, self._function = memory, may_alias, function
        self._paths = dict(_paths(function.body, ()))
        self._fenced = any(isinstance(op, Fence) for op in walk(function.body))

    def store_before(self, load: Load) -> Op | None:
        """The first store that can write what a load reads, and come before it."""
        return next(
            (op for op in self.memory.stores if self._may_share(op, load) and self._comes_first(op, load)), None
        )

    def _may_share(self, store: Op, load: Load) -> bool:
        assert isinstance(store, Store | Atomic)
        written, read = self.memory.of(store.ptr), self.memory.of(load.ptr)
        if self.may_alias or UNKNOWN in written | read:
            return not all(map(_is_own, written)) or bool(written & read)
        return bool(written & read)

    def _comes_first(self, store: Op, load: Load) -> bool:
        if self._fenced:
            return True
        around: Op = store
        for (one, k, side), (other, j, other_side) in zip(self._paths[id(store)], self._paths[id(load)], strict=False):
            if side != other_side:  # of the operation around them
                return _meets(around)
            if one is not other:
                return k < j
            if isinstance(one, For | While) and not self._moves_on(one, store, load):
                return True
            around = one
        return False

    def _moves_on(self, loop: For | While, store: Op, load: Load) -> bool:
        """Whether what is stored in an iteration is not what the thread, or one that it meets, loads in a later one."""
        if _meets(loop) or not isinstance(store, Store):
            return False
        places = [self._structure.definition.get(ptr) for ptr in (store.ptr, load.ptr)]
        one, other = places
        if not (isinstance(one, Offset) and isinstance(other, Offset)) or one.ptr is not other.ptr:
            return False
        same = one.index is other.index  # and so the types, which are what is behind the pointer
        return same and not self._structure.is_inside(one.ptr, loop) and self._counts(one.index, loop)

    def _counts(self, index: Value, loop: For | While) -> bool:
        """Whether an integer is another one in every iteration of a loop: its counter, or that and what stays added."""
        index = unconverted(index, 32, self._structure)
        if index in loop.body.args:
            if isinstance(loop, For) and index is loop.body.args[0]:
                return True
            found = find(loop, index, self._structure)
            if found is None or found.fn not in ("add", "sub"):
                return False
            return found.amount != 0 if found.by is None else self._must_move(index, loop)
        op = self._structure.definition.get(index)
        if not (isinstance(op, Apply) and op.fn in ("add", "sub")):
            return False
        moving = [v for v in op.args if not self._stays(v, loop)]
        return len(moving) == 1 and self._counts(moving[0], loop)

    def _must_move(self, index: Value, loop: For | While) -> bool:
        """Whether the loop would not end if an index stayed the same: its condition asks for nothing else."""
        ends = ends_of(loop, self._structure) if isinstance(loop, While) else ()
        return any(end.value is index and all(self._stays(v, loop) for v in end.bounds) for end in ends)

    def _stays(self, value: Value, loop: For | While) -> bool:
        """Whether a value is the same in every iteration."""
        if not self._structure.is_inside(value, loop):
            return True
        op = self._structure.definition.get(value)
        return isinstance(op, Apply | Builtin | Constant) and all(self._stays(v, loop) for v in operands(op))

    @cached_property
    def _structure(self) -> Structure:
        return analyse(self._function, apart=True)


def _paths(block: Block, around: Path, region: int = 0) -> Iterator[tuple[int, Path]]:
    for k, op in enumerate(block.ops):
        path = (*around, (op, k, region))
        yield id(op), path
        for number, inner in enumerate(blocks(op)):
            yield from _paths(inner, path, number)


def _meets(op: Op) -> bool:
    return any(isinstance(inner, (*MEETINGS, Atomic)) for block in blocks(op) for inner in walk(block))


def _is_own(root: Value) -> bool:
    return getattr(root.type, "space", None) in ("local", "shared")
