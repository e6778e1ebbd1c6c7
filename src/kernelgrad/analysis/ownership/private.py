"""Memory that each thread has for itself: no element of a buffer is touched by two threads of a launch.

An address is a constant, multiples of thread and block indices, and multiples of loop counters. Where all accesses of
the kernel agree on the first, and a step of any index leaps over all that smaller steps can reach, different threads
are at different places: as the digits of a number are. Guards such as `col < width` bound how far a digit reaches.

The same of single stores. Several threads may store the same value in one cell: CUDA takes one of the writes, and the
adjoint goes to one of the threads. A store that keeps its threads apart takes its shadow plainly, any other with an
atomic exchange. The proof depends on the launch (rule 11): by arithmetic on the address, else, in shared memory, by
playing the block through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...ir.ops import Atomic, Builtin, Function, GlobalRef, Load, Store, Value
from ...ir.traverse import walk
from ...ir.types import I64
from ..access.affine import Access, Affine, Basis, Guard, Part, Shape, Sums
from ..access.executions import Digit, determined, executions, extent, hull, leaps, spread
from ..promises import NOTHING, Promised
from ..roots import Memory, is_shared, place_of
from ..roots import Place as SharedPlace
from ..structure import Place, Structure

if TYPE_CHECKING:
    from ..block_interpreter.threads import Threads


def is_private(root: Value, memory: Memory, places: dict[int, Place], sums: Sums) -> bool:
    sums = _promised(sums, memory)
    return any(_is_private_by(root, memory, places, sums, guards) for guards in (sums.guards, sums.all_guards))


def _is_private_by(
    root: Value, memory: Memory, places: dict[int, Place], sums: Sums, guards: Callable[[Place], set[Guard]]
) -> bool:
    accesses = []
    for op in (*memory.loads, *memory.stores):
        assert isinstance(op, Load | Store | Atomic)
        roots = memory.of(op.ptr)
        if root not in roots:
            continue
        address = sums.address(op.ptr, root) if len(roots) == 1 and not isinstance(op, Atomic) else None
        if address is None:
            return False
        size = op.result.type.size if isinstance(op, Load) else op.value.type.size  # type: ignore[union-attr]
        accesses.append(Access(address, size, guards(places[id(op)])))
    own_block = isinstance(sums.structure.definition.get(root), GlobalRef)  # shared memory: every block has its own
    found = _settled(accesses, sums)
    if found is None:
        return False
    if any(isinstance(basis, Part) for access in found for basis, _ in access.address.terms):
        from .counters import with_same_counters

        found = with_same_counters(found, sums)
    return _is_private(found, sums, own_block) or _is_private_in_parts(found, sums, own_block)


_WAYS = ((True, ""), (False, ""), (False, "constants"), (False, "multiples"))


def _is_private(accesses: list[Access], sums: Sums, own_block: bool) -> bool:
    return any(_is_injective(accesses, sums, own_block, windows, apart) for windows, apart in _WAYS)


def _is_private_in_parts(accesses: list[Access], sums: Sums, own_block: bool) -> bool:
    """Whether each of some parts of the buffer is, which no access leaves: planes that are read in different ways."""
    parts = parts_of_memory(accesses, sums)
    return len(parts) > 1 and all(_is_private([accesses[k] for k in part], sums, own_block) for part in parts)


def parts_of_memory(accesses: list[Access], sums: Sums) -> list[list[int]]:
    """The numbers of accesses by parts of memory; none where it is not known how far one reaches."""
    hulls = [hull(access.address, sums, access.guards) for access in accesses]
    parts, end = list[list[int]](), -1
    if None in hulls:
        return parts
    for (first, last), k in sorted((ends, k) for k, ends in enumerate(hulls) if ends is not None):
        if first >= end:
            parts.append([])
        parts[-1].append(k)
        end = max(end, last + accesses[k].size)
    return parts


def is_apart(store: Store, root: Value, memory: Memory, places: dict[int, Place], sums: Sums) -> bool:
    """Whether no two threads write the same element by this store."""
    sums = _promised(sums, memory)
    address = sums.address(store.ptr, root)
    if address is None:
        return False
    place, size = places[id(store)], store.value.type.size
    fixed = frozenset(sums.fixed(place))
    for guards in (sums.guards, sums.all_guards):
        access = _settled([Access(address, size, guards(place))], sums)
        ways = (True, False) if access is not None else ()
        if any(_is_injective(access or [], sums, is_shared(root), windows, fixed=fixed) for windows in ways):
            return True
    return False


def _promised(sums: Sums, memory: Memory) -> Sums:
    """Over all executions, with what is promised of index buffers."""
    if sums.promised is NOTHING:
        return executions(sums)
    from .promises import promised

    return promised(sums, memory)


def _settled(accesses: list[Access], sums: Sums) -> list[Access] | None:
    if sums.promised is NOTHING:
        return accesses
    from .promises import settled

    return settled(accesses, sums)


def _is_injective(
    accesses: list[Access],
    sums: Sums,
    own_block: bool,
    windows: bool,
    apart: str = "",
    fixed: frozenset[Basis] = frozenset(),
) -> bool:
    """`windows`: loops of known length move within what belongs to one thread; else their counters are digits too.
    `apart`: "constants": so is the difference between accesses, as of x[t], x[t + 256], x[t + 512]; "multiples": with
    the steps of loops, as of x[t] and x[k * 256 + t]. `fixed`: indices that have one value wherever the accesses
    happen."""
    if not accesses:
        return True
    accesses, steps = _aligned(_from_the_other_end(accesses))
    threads = thread_digits(sums, own_block) - fixed
    shared = {basis: c for basis, c in _thread_terms(accesses[0]).items() if basis not in fixed}
    guards = set.intersection(*(access.guards for access in accesses))
    alike = fixed or all(_thread_terms(access) == shared for access in accesses)
    if not alike or not threads <= determined(shared, sums, guards):
        return False
    spots = [_spot(access, sums, windows) for access in accesses]
    if any(spot is None for spot in spots):
        return False
    found = [spot for spot in spots if spot is not None]
    width = max(spot.end for spot in found) - min(spot.start for spot in found)
    digits = [Digit(b, abs(c), extent(b, sums, guards)) for b, c in shared.items()]
    if apart:
        width = max(spot.end - spot.start for spot in found)
    if apart == "multiples":
        return leaps([*digits, *_common_step(found)], width, shared, guards)
    if apart == "constants":
        digits += _statement_digits([spot.start for spot in found])
    for coefficient in {c for spot in found for c in spot.loops}:
        extents = [spot.loops.get(coefficient, 1) for spot in found]
        longest = None if None in extents else max(e for e in extents if e is not None)
        digits.append(Digit(steps.get(coefficient), coefficient, longest))
    return leaps(digits, width, {**shared, **{basis: step for step, basis in steps.items()}}, guards)


def _common_step(spots: list[_Spot]) -> list[Digit]:
    """What loops and statements together add, to all of which the same thread may come several times."""
    first = min(spot.start for spot in spots)
    step = math.gcd(*(c for spot in spots for c in spot.loops), *(spot.start - first for spot in spots))
    return [Digit(None, step, None)] if step else []


def _statement_digits(starts: list[int]) -> list[Digit]:
    """What the places of several statements add, as of x[t], x[t + 256], x[t + 512]."""
    steps = spread(starts)
    if steps is None:
        apart = math.gcd(*(start - min(starts) for start in starts))
        steps = [(apart, (max(starts) - min(starts)) // apart + 1)] if apart else []
    return [Digit(None, step, count) for step, count in steps]


def _from_the_other_end(accesses: list[Access]) -> list[Access]:
    """The same, seen from there, if all count down, as `x[n - 1 - i]` does: apart are those that are apart so."""
    if any(c > 0 for access in accesses for _, c in access.address.terms):
        return accesses
    return [
        Access(Affine(-a.address.const - a.size, tuple((b, -c) for b, c in a.address.terms)), a.size, a.guards)
        for a in accesses
    ]


def _aligned(accesses: list[Access]) -> tuple[list[Access], dict[int, Basis]]:
    """The accesses with loops that move them by the same step as one, of which guards of all can speak; by step."""
    steps: dict[int, Basis] = {}
    found = []
    for access in accesses:
        own = [(b, c) for b, c in access.address.terms if isinstance(b, Value)]
        several = len({abs(c) for _, c in own}) < len(own) or any(c < 0 for _, c in own)
        one: dict[Basis, Basis] = {} if several else {b: steps.setdefault(c, Value(I64)) for b, c in own}
        guards = {Guard(_renamed(guard.sum, one), guard.bound) for guard in access.guards}
        found.append(Access(access.address, access.size, guards))
    return found, steps


def _renamed(sum_: Affine, bases: dict[Basis, Basis]) -> Affine:
    return Affine(sum_.const, tuple((bases.get(b, b), c) for b, c in sum_.terms))


def _thread_terms(access: Access) -> dict[Basis, int]:
    return {b: c for b, c in access.address.terms if not isinstance(b, Value)}


def thread_digits(sums: Sums, own_block: bool) -> set[Basis]:
    """The indices that take more than one value."""
    names = ("thread_idx",) if own_block else ("thread_idx", "block_idx")
    return {(name, axis) for name in names for axis in range(3) if sums.shape.extent(name, axis) > 1}


class _Spot(NamedTuple):
    """Where an access lies around its thread's place, and how often steps of a size may be added to that."""

    start: int
    end: int
    loops: dict[int, int | None]


def _spot(access: Access, sums: Sums, windows: bool) -> _Spot | None:
    start, end = access.address.const, access.address.const + access.size
    loops: dict[int, int | None] = {}
    for basis, coefficient in access.address.terms:
        if not isinstance(basis, Value):
            continue
        extent = sums.extents[basis]
        if extent is None and basis in sums.wrapping:
            return None
        reach = 0 if extent is None else coefficient * (extent - 1)
        if windows and extent is not None:
            start, end = start + min(0, reach), end + max(0, reach)
            continue
        if coefficient < 0:  # counted from the other end
            if extent is None:
                return None
            start, end = start + reach, end + reach
        if extent is None:
            extent = sums.most.get(basis)
        known = loops.get(abs(coefficient), 1)
        loops[abs(coefficient)] = None if extent is None or known is None else known + extent - 1
    return _Spot(start, end, loops)


# ---- launches -----------------------------------------------------------------------------------------------------


def private_roots(
    memory: Memory, structure: Structure, function: Function, active: frozenset[Value], sums: Sums
) -> frozenset[str]:
    """The names of the buffers and shared variables that are private."""
    places = places_of(structure)
    names = {**{p.value: p.name for p in function.params}, **{r: n for n, r in memory.global_names.items()}}
    return frozenset(names[r] for r in active if r in names and is_private(r, memory, places, sums))


def places_of(structure: Structure) -> dict[int, Place]:
    """Where each operation stands."""
    return {id(op): place for place in structure.places.values() for op in place.block.ops}


_TYPICAL = {"thread_idx": (32, 4, 2), "block_idx": (64, 8, 4)}
_TYPICAL_NUMBER = 4099  # of elements along an axis: more than the typical launch has threads there


def typical(structure: Structure, function: Function, promised: Promised = NOTHING) -> Sums:
    """A launch like those the kernel is made for: along the axes it asks for, on large enough buffers."""
    numbers = {p.value: _TYPICAL_NUMBER for p in function.params}
    if promised is not NOTHING:
        numbers = {p.value: promised.by_name.number(p.name, _TYPICAL_NUMBER) for p in function.params}
    return Sums(structure, typical_shape(function), numbers.get, promised)


def typical_shape(function: Function) -> Shape:
    used = {(op.name, op.axis) for op in walk(function.body) if isinstance(op, Builtin)}
    block, grid = (
        tuple(_TYPICAL[name][axis] if (name, axis) in used else 1 for axis in range(3))
        for name in ("thread_idx", "block_idx")
    )
    return Shape(grid, block)  # type: ignore[arg-type]


# ---- stores ---------------------------------------------------------------------------------------------------------


def stores_apart(
    function: Function,
    memory: Memory,
    structure: Structure,
    active: frozenset[Value],
    sums: Sums,
    threads: Threads | None,
) -> frozenset[SharedPlace]:
    """By variable and place in the source. `threads`: of a block, where there is shared memory."""
    places = places_of(structure)
    names = {**{p.value: p.name for p in function.params}, **{r: n for n, r in memory.global_names.items()}}
    found, contested = set[SharedPlace](), set[SharedPlace]()
    others: list[tuple[Store, Value, SharedPlace]] = []
    for op in (op for op in memory.stores if isinstance(op, Store)):
        for root in memory.of(op.ptr) & active & names.keys():
            where = place_of(op, names[root])
            if is_apart(op, root, memory, places, sums):
                found.add(where)
            else:
                others.append((op, root, where))
    conflicting = None
    if threads is not None and any(is_shared(r) for _, r, _ in others):
        from .exclusive import conflicting_stores

        conflicting = conflicting_stores(function, memory, active, threads)
    for op, root, where in others:
        apart = conflicting is not None and is_shared(root) and op not in conflicting
        (found if apart else contested).add(where)
    return frozenset(found - contested)
