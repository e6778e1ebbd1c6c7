"""Local arrays as values: the short loops that go over their elements are unrolled, so that every index is a constant.

    float a[4]; for (int i = 0; i < 4; ++i) a[i] = x[i];      becomes      float a_0 = x[0], a_1 = x[1], ...

An array that is memory costs its reverse a tape: what it held is known by nobody. As values its elements are recomputed
or saved like any other, and carried by the loops around. It is done for whole arrays: where one index hangs on more
than constants and the counters of loops of constant length, or a pointer escapes, the array stays memory and its loops
stay loops, unless another array wants them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.ops import Alloca, Apply, Block, Constant, For, Function, Load, Member, Module, Offset, PtrCast, Store, Value
from ..ir.traverse import blocks, operands, walk
from ..ir.types import Array, Pointer, Struct, Type
from . import loads, promote, simplify
from .unroll import constants_of, trips, unroll

_MOST_OPERATIONS = 4096  # that a function may have when its loops are unrolled
_MOST_ELEMENTS = 256  # of an array, as `slots` has it
_ROUNDS = 4  # loops whose bounds are the counters of others have constant ones in the next


def run(function: Function, module: Module) -> Function:
    given = function
    for _ in range(_ROUNDS):
        chosen = _Arrays(function).loops()
        if not chosen:
            break
        unrolled = promote.run(unroll(function, chosen.__contains__), module)
        function = simplify.run(unrolled, module)
    if function is given:
        return function
    # What the iterations of such a loop have stored in arrays that stay memory is known to those that follow.
    return simplify.run(loads.run(function, module), module)


class _Arrays:
    def __init__(self, function: Function):
        self.body = function.body
        self.constants = constants_of(function)
        self.definition = {v: op for op in walk(self.body) for v in op.results}
        self.counters = {op.body.args[0]: op for op in walk(self.body) if isinstance(op, For)}
        self.root: dict[Value, Value] = {}
        self.wanted: dict[Value, set[For] | None] = {}  # by array: the loops that choose its elements; None: it stays
        self._scan()

    def loops(self) -> set[For]:
        """Those of all arrays that can be values, as far as the function does not become too long."""
        chosen: set[For] = set()
        for loops in sorted((found for found in self.wanted.values() if found), key=len):
            both = chosen | loops
            if _length(self.body, both, self.constants) <= _MOST_OPERATIONS:
                chosen = both
        return chosen

    def _scan(self) -> None:
        for op in walk(self.body):
            match op:
                case Alloca():
                    assert isinstance(op.result.type, Pointer)
                    if 0 < _elements(op.result.type.pointee) <= _MOST_ELEMENTS:
                        self.root[op.result], self.wanted[op.result] = op.result, set()
                case Offset(ptr, index) if ptr in self.root:
                    self._derive(op.result, ptr)
                    self._chosen_by(self.root[ptr], index)
                case Member(ptr) | PtrCast(ptr) if ptr in self.root:
                    self._derive(op.result, ptr)
                case Load():
                    pass
                case Store(value=value):
                    self._escape((value,))
                case _:
                    self._escape(operands(op))
        for block in _all_blocks(self.body):
            self._escape(block.results)

    def _derive(self, value: Value, ptr: Value) -> None:
        self.root[value] = self.root[ptr]

    def _escape(self, values: Iterator[Value] | tuple[Value, ...]) -> None:
        for value in values:
            if value in self.root:
                self.wanted[self.root[value]] = None

    def _chosen_by(self, array: Value, index: Value) -> None:
        loops = self._loops_of(index)
        known = self.wanted[array]
        self.wanted[array] = None if loops is None or known is None else known | loops

    def _loops_of(self, value: Value) -> set[For] | None:
        """The loops whose counters an integer is made of; None if of anything else."""
        if value in self.constants:
            return set()
        if value in self.counters:
            return self._loops_around(self.counters[value])
        op = self.definition.get(value)
        if not isinstance(op, Apply):
            return set() if isinstance(op, Constant) else None
        parts = [self._loops_of(arg) for arg in op.args]
        return None if any(p is None for p in parts) else set().union(*(p for p in parts if p is not None))

    def _loops_around(self, loop: For) -> set[For] | None:
        """The loop, or the ones that its bounds hang on, which come first."""
        if trips(loop, self.constants) is not None:
            return {loop}
        bounds = [self._loops_of(bound) for bound in (loop.lower, loop.upper)]
        return None if any(b is None for b in bounds) else set().union(*(b for b in bounds if b is not None))


def _elements(type: Type) -> int:
    """How many scalars an array has; 0 for what has no array in it."""
    match type:
        case Array(element, count):
            return count * max(1, _elements(element))
        case Struct():
            return sum(_elements(part.type) for part in type.fields)
        case _:
            return 0


def _all_blocks(block: Block) -> Iterator[Block]:
    for op in walk(block):
        yield from blocks(op)


def _length(block: Block, unrolled: set[For], constants: dict[Value, int]) -> int:
    """The operations that a block has when these loops are unrolled."""
    total = 0
    for op in block.ops:
        inside = sum(_length(inner, unrolled, constants) for inner in blocks(op))
        times = (trips(op, constants) or 0) if isinstance(op, For) and op in unrolled else 1
        total += 1 + inside * times
    return total
