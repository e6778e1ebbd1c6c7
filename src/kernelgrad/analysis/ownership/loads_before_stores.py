"""Loads that no store of the launch, by any thread, can come before: they see what memory held before the kernel.

In a kernel without data races a store that another thread makes comes before a load only by way of a meeting: a barrier
between the two, in the order of the text. So the text decides, for all threads alike: a store comes before a load if it
stands before it, if a loop around both brings it round again, or if the two are in branches of one If in which threads
meet. A loop in which nobody meets, and in which both go to an element that is another one in every iteration, as in a
loop with the grid's stride, brings nothing round. Fences, by which threads may tell others in any order, end the
argument.

That an element is another one every time follows from the text, where an index counts the iterations, or from the
numbers of one launch (`iterations_apart`): in `p[y * pitch + x]` rows are apart where they are shorter than pitch.
Where nobody meets at all, the numbers also tell the elements apart that one thread goes to one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...ir.effects import MEETINGS
from ...ir.ops import (
    Apply,
    Atomic,
    Block,
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
from ...ir.traverse import blocks, walk
from ...locks import cached_property
from ..access.affine import Known, Shape
from ..access.loop_bounds import ends_of
from ..induction import find_step, unconverted
from ..roots import UNKNOWN, Memory
from ..structure import Structure, analyse
from .iterations_apart import OneThread, stays
from .private import typical_shape

Path = tuple[tuple[Op, int, int], ...]  # from outside in: an operation, which of its parent's it is, in which region


class Numbers(NamedTuple):
    """Of one launch: its extents, and the integers among its arguments."""

    shape: Shape
    known: Known


class Before:
    """Which stores of a function can come before which loads. `may_alias`: any pointers may share memory. `numbers`: in
    one launch, else in any."""

    def __init__(self, function: Function, memory: Memory, may_alias: bool, numbers: Numbers | None = None):
        self.memory, self.may_alias, self._function, self._numbers = memory, may_alias, function, numbers
        self._paths = dict(paths(function.body, ()))
        self._fenced = any(isinstance(op, Fence) for op in walk(function.body))
        self._quiet = not any(isinstance(op, (*MEETINGS, Atomic)) for op in walk(function.body))

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
        around, loops = store, list[For | While]()
        for (one, k, side), (other, j, other_side) in zip(self._paths[id(store)], self._paths[id(load)], strict=False):
            if side != other_side:  # of the operation around them
                return meets(around)
            if one is not other:
                return k < j and not self._apart_at_once(store, load, loops)
            if isinstance(one, For | While):
                if not self._moves_on(one, loops, store, load):
                    return True
                loops.append(one)
            around = one
        return False

    def _apart_at_once(self, store: Op, load: Load, loops: list[For | While]) -> bool:
        """Whether what a thread stores is not what it loads afterwards, in the same iterations of all loops. Others
        cannot have stored that either where nobody meets."""
        if self._thread is None or not self._quiet or not isinstance(store, Store):
            return False
        return self._thread.apart_at_once(store, load, loops)

    def _moves_on(self, loop: For | While, around: list[For | While], store: Op, load: Load) -> bool:
        """Whether what is stored in an iteration is not what the thread, or one that it meets, loads in a later one."""
        if meets(loop) or not isinstance(store, Store):
            return False
        if self.goes_along(loop, store, load):
            return True
        return self._thread is not None and self._thread.apart_in_turn(store, load, around, loop)

    def goes_along(self, loop: For | While, store: Store, load: Load | Store) -> bool:
        """Whether both are where an index says that is another one in every iteration, whatever the numbers are."""
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
            found = find_step(loop, index, self._structure)
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
        return stays(value, loop, self._structure)

    @cached_property
    def _thread(self) -> OneThread | None:
        return OneThread(self.memory, self._structure, *self._numbers) if self._numbers is not None else None

    @cached_property
    def _structure(self) -> Structure:
        return analyse(self._function, apart=True)


class Early(NamedTuple):
    """Loads of what memory held before the kernel. `numbers`: of a launch in which they are, if they are not in every
    one; of another that must be asked (`still_early`)."""

    loads: frozenset[int] = frozenset()
    numbers: Numbers | None = None


def find_early(loads: list[Load], function: Function, memory: Memory, may_alias: bool, typical: bool) -> Early:
    """Of some loads. `typical`: in a launch that the kernel may be made for, else in any."""
    found = Early(_early(loads, Before(function, memory, may_alias)))
    for numbers in _typical_numbers(function) if typical else ():
        if len(found.loads) == len(loads):
            break
        more = _early(loads, Before(function, memory, may_alias, numbers))
        found = Early(more, numbers) if len(more) > len(found.loads) else found
    return found


def still_early(early: Early, function: Function, memory: Memory, may_alias: bool, numbers: Numbers) -> bool:
    """Whether what was found for one launch holds for another."""
    if early.numbers is None:
        return True
    loads = [op for op in memory.loads if id(op) in early.loads]
    return len(_early(loads, Before(function, memory, may_alias, numbers))) == len(loads)


def _early(loads: list[Load], before: Before) -> frozenset[int]:
    return frozenset(id(op) for op in loads if before.store_before(op) is None)


def _typical_numbers(function: Function) -> Iterator[Numbers]:
    """Of launches that a kernel may be made for. What indices are multiplied by, such as the length of a row, is large
    against the rest; where there is more than one such number, the first or the last is largest."""
    shape, factors = typical_shape(function), _factors(function)
    own = [p.value for p in function.params]
    for numbers in ([_ROW] * len(factors), [8 << 3 * k for k in range(len(factors))]):
        for ordered in dict.fromkeys((tuple(numbers), tuple(reversed(numbers)))):
            found = dict.fromkeys(own, _FEW) | dict(zip(factors, ordered, strict=True))
            yield Numbers(shape, found.get)


def _factors(function: Function) -> list[Value]:
    """The parameters that products are made of, and what loops go on by."""
    ops = list(walk(function.body))
    definition = {result: op for op in ops for result in op.results}
    carried = {v for op in ops if isinstance(op, For | While) for v in op.body.results}
    todo = [v for op in ops if isinstance(op, Apply) and (op.fn == "mul" or op.result in carried) for v in op.args]
    seen = set[Value]()
    while todo:
        value = todo.pop()
        op = definition.get(value)
        if value not in seen and isinstance(op, Apply):
            todo += op.args
        seen.add(value)
    return [p.value for p in function.params if p.value in seen]


_ROW, _FEW = 512, 5  # typical numbers


def paths(block: Block, around: Path, region: int = 0) -> Iterator[tuple[int, Path]]:
    for k, op in enumerate(block.ops):
        path = (*around, (op, k, region))
        yield id(op), path
        for number, inner in enumerate(blocks(op)):
            yield from paths(inner, path, number)


def meets(op: Op) -> bool:
    return any(isinstance(inner, (*MEETINGS, Atomic)) for block in blocks(op) for inner in walk(block))


def _is_own(root: Value) -> bool:
    return getattr(root.type, "space", None) in ("local", "shared")
