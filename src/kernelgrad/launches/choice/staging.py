"""Which values threads compute once for gathers (see `autodiff/accumulate/gather/staging`): what is outside of all
loops around an update, and dearer than to be loaded; of all that an update's value and the conditions around it come
from, what comes last. It comes from nothing that the gradient stores: the launch that computes it stores nothing else,
so that arrays of a thread's own, shared memory and adjoints of intermediates are empty there."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ...analysis.roots import UNKNOWN, Memory
from ...analysis.roots import analyse as roots_of
from ...analysis.structure import Structure, analyse
from ...autodiff.accumulate.gather.plan import Gather
from ...autodiff.accumulate.gather.updates import updates_of
from ...autodiff.costs.operations import ARITHMETIC, FUNCTION, LOAD
from ...ir.ops import (
    Aggregate,
    Apply,
    Builtin,
    Constant,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Value,
    While,
)
from ...ir.traverse import blocks, free_values, operands, settle, walk
from ...ir.types import BOOL, Scalar

_CHEAP = 2 * LOAD  # less than this is computed again
_SIMPLE = (
    *(Aggregate, Apply, Builtin, Constant, Extract, For, GlobalRef, If),
    *(Insert, Member, Offset, PtrCast, PtrDiff),
)


def staged_numbers(pattern: Function, gather: Gather, shadow: Value) -> tuple[int, ...]:
    """The operations of the pattern whose results are staged, by number."""
    structure = analyse(pattern, apart=False)
    updates = {update.number: update for update in updates_of(pattern, shadow) or ()}
    sites = [updates[site.number] for site in gather.sites]
    starts = [update.op.args[0] for update in sites]
    starts += [op.cond for update in sites for op, _ in update.path if isinstance(op, If)]
    wanted = set(_Staged(structure, roots_of(pattern)).values(starts))
    return tuple(k for k, op in enumerate(walk(pattern.body)) if any(result in wanted for result in op.results))


class _Staged:
    def __init__(self, structure: Structure, memory: Memory):
        self.structure, self.memory = structure, memory
        self.inputs = memory.lasting() - memory.written() - {UNKNOWN}
        self.given: dict[Value, bool] = {}
        self.free: dict[Value, bool] = {}

    def values(self, starts: Iterable[Value]) -> list[Value]:
        found, todo, seen = list[Value](), list(starts), set[Value]()
        while todo:
            value = todo.pop()
            op = self.structure.definition.get(value)
            if value in seen or op is None:
                continue
            seen.add(value)
            if self._is_outside(value):
                if _can_be_kept(value) and len(op.results) == 1 and self._cost(value) > _CHEAP:
                    found += [value] if self._is_free(value) else []
                elif len(op.results) > 1 or not _can_be_kept(value):
                    todo += operands(op)
            else:
                todo += _needed(op)
        return found

    def _is_outside(self, value: Value) -> bool:
        """Of all loops."""
        return not any(isinstance(place.owner, For | While) for place in self.structure.home[value].around())

    def _is_free(self, value: Value) -> bool:
        """Whether it comes from arithmetic and from memory that nothing is stored to."""
        settle(value, self.free, self._sources, self._find_free)
        return self.free[value]

    def _sources(self, value: Value) -> list[Value]:
        op = self.structure.definition.get(value)
        return [] if op is None else _needed(op)

    def _find_free(self, value: Value) -> None:
        op = self.structure.definition.get(value)
        ops = () if op is None else (op, *(inner for block in blocks(op) for inner in walk(block)))
        self.free[value] = all(map(self._is_simple, ops)) and all(self.free[v] for v in self._sources(value))

    def _is_simple(self, op: Op) -> bool:
        if isinstance(op, Load):
            roots = self.memory.of(op.ptr)
            return not op.volatile and bool(roots) and roots <= self.inputs
        return isinstance(op, _SIMPLE)

    def _cost(self, value: Value) -> float:
        total, todo, seen = 0.0, [value], set[Value]()
        while todo and total <= _CHEAP:
            value = todo.pop()
            op = self.structure.definition.get(value)
            if value in seen or op is None or self._is_given(value):
                continue
            seen.add(value)
            todo += _needed(op)
            total += _own_cost(op)
        return total

    def _is_given(self, value: Value) -> bool:
        """Whether it is the same for all threads, by the kernel's numbers alone."""
        settle(value, self.given, self._operands, self._find_given)
        return self.given[value]

    def _operands(self, value: Value) -> tuple[Value, ...]:
        op = self.structure.definition.get(value)
        return op.args if isinstance(op, Apply) else ()

    def _find_given(self, value: Value) -> None:
        op = self.structure.definition.get(value)
        is_number = isinstance(value.type, Scalar) and self.structure.home[value] is self.structure.launch
        computed = isinstance(op, Apply) and all(self.given[arg] for arg in op.args)
        self.given[value] = is_number or isinstance(op, Constant) or computed


def _needed(op: Op) -> list[Value]:
    return [*operands(op), *(v for inner in blocks(op) for v in free_values(inner))]


def _own_cost(op: Op) -> float:
    if isinstance(op, Load):
        return LOAD
    if isinstance(op, For | While):
        return inf
    is_float = isinstance(op, Apply) and isinstance(op.result.type, Scalar) and op.result.type.is_float
    own = ARITHMETIC.get(op.fn, FUNCTION) if is_float else 0  # type: ignore[attr-defined]
    return own + sum(map(_own_cost, (inner for block in blocks(op) for inner in block.ops)))


def _can_be_kept(value: Value) -> bool:
    return isinstance(value.type, Scalar) and (value.type.is_float or value.type == BOOL)
