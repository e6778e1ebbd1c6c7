"""Buffers that are read from end to end, each byte once: their adjoints can be written instead of added to."""

from __future__ import annotations

from ...ir.ops import For, Load, Value
from ..access.affine import Affine, Basis, Guard, Sums
from ..access.leaps import bounds
from ..roots import Memory
from ..structure import Place
from .private import thread_digits


def bytes_read_once(root: Value, memory: Memory, places: dict[int, Place], sums: Sums) -> int | None:
    """How many bytes from the buffer's start are read, each of them once; None if that is not what happens."""
    loads = [op for op in memory.loads if root in memory.of(op.ptr)]
    stores = [op for op in memory.stores if root in memory.of(op.ptr)]  # type: ignore[attr-defined]
    if not loads or stores or any(memory.of(op.ptr) != {root} for op in loads):
        return None
    if len(loads) == 1 and not _loops(places[id(loads[0])]):
        return _by_one(loads[0], root, places[id(loads[0])], sums)
    return _by_several(loads, root, places, sums)


def _by_one(load: Load, root: Value, place: Place, sums: Sums) -> int | None:
    """A load outside loops, perhaps behind guards."""
    address, guards = sums.address(load.ptr, root), sums.only_guards(place)
    if address is None or guards is None or address.const or set(address.coefficients) != thread_digits(sums, False):
        return None
    shared = address.coefficients
    covered, below = load.result.type.size, set[Basis]()
    used: set[Guard] = set()
    for basis, coefficient in sorted(shared.items(), key=lambda term: term[1]):
        if coefficient != covered:
            return None
        covered, below = coefficient * (sums.extents[basis] or 1), {*below, basis}
        for guard in (g for g in guards if set(g.sum.coefficients) == below):
            for bound in bounds(guard, shared):
                used.add(guard)
                covered = min(covered, bound + load.result.type.size if guard.bound > guard.sum.const else 0)
    return covered if used == guards else None


def _by_several(loads: list[Load], root: Value, places: dict[int, Place], sums: Sums) -> int | None:
    """Loads a constant apart, in loops over parts of the buffer, by all threads: x[t], x[t + 256], x[t + 512]."""
    found = [_address(op, root, places[id(op)], sums) for op in loads]
    addresses = [address for address in found if address is not None]
    size, shared = loads[0].result.type.size, addresses[0].coefficients if addresses else {}
    alike = all(a.coefficients == shared for a in addresses) and all(op.result.type.size == size for op in loads)
    if (
        len(addresses) < len(loads)
        or not alike
        or {b for b in shared if isinstance(b, tuple)} != thread_digits(sums, False)
    ):
        return None
    starts = sorted(a.const for a in addresses)
    digits = [(coefficient, sums.extents[basis] or 0) for basis, coefficient in shared.items()]
    if len(starts) > 1:
        digits.append((starts[1] - starts[0], len(starts)))
    if starts != list(range(0, starts[-1] + 1, starts[1] - starts[0] or 1) if len(starts) > 1 else [0]):
        return None
    covered = size
    for coefficient, extent in sorted(digits):
        if coefficient != covered:
            return None
        covered *= extent
    return covered


def _address(load: Load, root: Value, place: Place, sums: Sums) -> Affine | None:
    """Where it reads, if every thread does once for each of the counters there."""
    address = sums.address(load.ptr, root)
    loops = _loops(place)
    counters: set[Basis] = {loop.body.args[0] for loop in loops if _runs(loop, sums)}
    if address is None or sums.only_guards(place) != set() or len(counters) != len(loops):
        return None
    return address if {b for b in address.coefficients if isinstance(b, Value)} == counters else None


def _loops(place: Place | None) -> list[For]:
    found = []
    while place is not None:
        if isinstance(place.owner, For):
            found.append(place.owner)
        place = place.parent
    return found


def _runs(loop: For, sums: Sums) -> bool:
    """Whether all threads run it equally often, at least once."""
    lower, upper = sums.of(loop.lower), sums.of(loop.upper)
    distance = None if lower is None or upper is None else upper.plus(lower, -1)
    return distance is not None and not distance.terms and distance.const * loop.step > 0
