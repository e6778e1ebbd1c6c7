"""Whether each thread of a launch can do several neighbouring elements (see schedule/vectorize/rewrite.py).

That takes a gradient that does nothing but arithmetic behind guards, on elements next to those of the neighbouring
threads: `_d_x[i] += ...`. Threads must have nothing to do with each other: no barriers or shared memory. What is read
at the same address by all is allowed, and so are accesses in branches that depend on what was loaded, as long as they
are at the thread's own element; these stay as they are. Where an address is loaded itself, `x[index[i]]`, it may be
read, and its adjoint be added to: a thread first adds up what neighbours add to the same element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...analysis import structure as structure_analysis
from ...analysis.access.affine import Affine, Basis, Shape, Sums
from ...analysis.aliases import Aliases
from ...analysis.machine import VECTOR_BYTES, VECTORS
from ...analysis.ownership.private import typical
from ...analysis.tuning import Vectorization
from ...ir.effects import NESTING, OF_OPERANDS
from ...ir.ops import (
    Apply,
    Atomic,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Module,
    Op,
    Store,
    Value,
    While,
)
from ...ir.traverse import blocks, kinds, operands, uses, walk
from ...ir.types import F32, F64, Pointer, Scalar
from . import spread as spreading
from .rewrite import accesses
from .spread import TURN

_MOST_WORK = 256  # operations: beyond, an element's work takes longer than its bytes
_MOST_THREADS = 1 << 31
_INDICES = ("thread_idx", "block_idx", "block_dim", "grid_dim")
_ORDER = ("lt", "le", "gt", "ge")
_THREAD, _BLOCKS = ("thread_idx", 0), (("block_idx", 0), TURN)
_PARTIAL = ("div", "rem")  # of integers: not to be computed where the kernel would not

Extents = tuple[int, int, int]


def fits(grid: Extents, block: Extents) -> bool:
    """Whether the launch is a row of blocks that are rows of threads, to be divided by four."""
    return grid[1:] == block[1:] == (1, 1) and block[0] % 4 == 0 and grid[0] * block[0] < _MOST_THREADS


def find(function: Function, shape: Shape, scalars: Mapping[str, object], module: Module) -> Vectorization | None:
    """How a gradient is done in a launch. `scalars`: what is known of its parameters."""
    known: dict[Value, Any] = {p.value: scalars.get(p.name) for p in function.params}
    if kinds(function.body).isdisjoint((For, While)):
        return _Search(function, _sums(function, shape, known)).run()
    spread = spreading.find(function, shape, known.get)
    if spread is None:
        return _Search(function, _sums(function, shape, known)).run()
    changed = spreading.run(function, module, spread.tested)
    sums = _sums(changed, Shape((shape.grid[0], spread.turns, 1), shape.block), known)
    found = _Search(changed, sums).run() if spreading.is_independent(changed, sums) else None
    return None if found is None else replace(found, turns=spread.turns, tested=spread.tested)


def _sums(function: Function, shape: Shape, known: Mapping[Value, Any]) -> Sums:
    return Sums(structure_analysis.analyse(function, apart=False), shape, known.get)


def find_typical(function: Function) -> Vectorization | None:
    """The same for launches like those it is made for."""
    sums = typical(structure_analysis.analyse(function, apart=False), function)
    return _Search(function, sums).run() if fits(sums.shape.grid, sums.shape.block) else None


class _Refused(Exception):
    pass


class _Search:
    def __init__(self, function: Function, sums: Sums):
        self.function, self.sums = function, sums
        self.aliases = Aliases(function)
        self.own = {p.value for p in function.params if p.variable is None}
        self.used = uses(function.body)
        self.wide: list[Load | Store] = []

    def run(self) -> Vectorization | None:
        ops = list(walk(self.function.body))
        if len(ops) > _MOST_WORK or not all(_is_harmless(op) or self.is_sum(op) for op in ops):
            return None
        try:
            self.visit(self.function.body)
        except _Refused:
            return None
        sizes = {op.ptr.type.pointee.size for op in self.wide if isinstance(op.ptr.type, Pointer)}
        if not sizes or not any(isinstance(op, Store) or self.is_sum(op) for op in (*self.wide, *ops)):
            return None
        chosen = set(self.wide)
        ordinals = tuple(k for k, op in enumerate(accesses(self.function)) if op in chosen)
        roots = {self.aliases.root(op.ptr) for op in chosen}
        return Vectorization(
            VECTOR_BYTES // min(sizes), ordinals, tuple(p.name for p in self.function.params if p.value in roots)
        )

    def is_sum(self, op: Op) -> bool:
        """Whether an element is added to whose place is not known before the launch."""
        match op:
            case Atomic("add", ptr, (value,)) if not self.used.get(op.result):
                root = self.aliases.root(ptr)
                return root in self.own and value.type in (F32, F64) and self.sums.address(ptr, root) is None
        return False

    def is_known(self, op: Load | Store) -> bool:
        return self.is_neighbours(op) or self.is_common(op) or self.is_looked_up(op)

    def is_looked_up(self, op: Load | Store) -> bool:
        root = self.aliases.root(op.ptr)
        return isinstance(op, Load) and root in self.own and self.sums.address(op.ptr, root) is None

    def visit(self, block: Block) -> None:
        """What stands behind nothing but guards."""
        guards = 0
        for op in block.ops:
            if isinstance(op, Load | Store):
                self.access(op)
            elif isinstance(op, If) and _touches((op,)):
                side = self.guarded(op)
                guards += side is not None
                if side is None:
                    self.scattered(op)
                else:
                    self.visit(side)
            elif _touches((op,)):
                raise _Refused
        if guards > 1:  # that hold for different elements, perhaps: few threads would do several of both
            raise _Refused

    def access(self, op: Load | Store) -> None:
        if self.is_neighbours(op):
            self.wide.append(op)
        elif not self.is_known(op):
            raise _Refused

    def scattered(self, op: If) -> None:
        """A branch that each element takes or not, at its own element."""
        for inner in walk(Block((), (op,), ())):
            looped = isinstance(inner, For | While) and _touches((inner,))
            if looped or (isinstance(inner, Load | Store) and not self.is_known(inner)):
                raise _Refused

    def is_neighbours(self, op: Load | Store) -> bool:
        """Whether the next thread is at the next element, and every fourth at a multiple of 16 bytes."""
        root, element = self.aliases.root(op.ptr), op.ptr.type.pointee  # type: ignore[union-attr]
        address = self.sums.address(op.ptr, root) if root in self.own and element in VECTORS else None
        if address is None or address.const % VECTOR_BYTES:
            return False
        others = address.rest(_THREAD)
        aligned = all(basis in _BLOCKS and step % VECTOR_BYTES == 0 for basis, step in others.items())
        return address.slope(_THREAD) == element.size and aligned

    def is_common(self, op: Load | Store) -> bool:
        """Whether all threads of a block read the same: the elements of a thread are all of one block."""
        address = self.sums.address(op.ptr, self.aliases.root(op.ptr))
        return isinstance(op, Load) and address is not None and not any(_differs(b) for b in address.coefficients)

    # ---- guards

    def guarded(self, op: If) -> Block | None:
        """The side that touches memory, if threads that follow each other take it."""
        sides = [side for side in (op.then, op.orelse) if _touches(side.ops)]
        if len(sides) != 1 or not self.is_range(op.cond, sides[0] is op.then) or not self.is_total(op.cond):
            return None
        return sides[0]

    def is_range(self, cond: Value, holds: bool) -> bool:
        """Whether a condition holds for a range of threads: bounds of sums, or the same for all."""
        op = self.sums.structure.definition.get(cond)
        match op:
            case Apply("not", (inner,)):
                return self.is_range(inner, not holds)
            case Apply("and" | "or" as fn, args) if (fn == "and") == holds:
                return all(self.is_range(arg, holds) for arg in args)
            case Apply(fn, (left, right)) if fn in _ORDER and _is_integer(left):
                return None not in (self.sums.of(left), self.sums.of(right))
            case If(first, then, orelse) if len(op.results) == 1:
                # `a && b` and `a || b`, whose right side is not always computed
                short, long = (orelse, then) if holds else (then, orelse)
                ends = self.sums.of(short.results[0]) == Affine(int(not holds))
                return ends and self.is_range(first, holds) and self.is_range(long.results[0], holds)
        found = self.sums.of(cond)
        return isinstance(found, Affine) and not found.terms

    def is_total(self, cond: Value) -> bool:
        op = self.sums.structure.definition.get(cond)
        if op is None:
            return True
        needed = [*operands(op), *(v for side in blocks(op) for v in side.results)]
        return not (isinstance(op, Apply) and self.is_partial(op)) and all(map(self.is_total, needed))

    def is_partial(self, op: Apply) -> bool:
        divisor = self.sums.structure.definition.get(op.args[-1])
        return op.fn in _PARTIAL and not (isinstance(divisor, Constant) and divisor.value > 0)


def _touches(ops: Iterable[Op]) -> bool:
    return any(isinstance(op, Load | Store) for op in walk(Block((), tuple(ops), ())))


def _is_harmless(op: Op) -> bool:
    match op:
        case Load(_, volatile) | Store(_, _, volatile):
            return not volatile
        case Builtin(name, _):
            return name in _INDICES
        case GlobalRef():
            return isinstance(op.result.type, Pointer) and op.result.type.space == "constant"
    return isinstance(op, (*OF_OPERANDS, *NESTING))


def _differs(basis: Basis) -> bool:
    return not (isinstance(basis, tuple) and basis[0] == "block_idx")


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float
