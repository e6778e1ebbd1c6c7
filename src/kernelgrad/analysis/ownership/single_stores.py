"""Stores that happen once: no element is written twice, by any thread in any iteration (rule 22).

Executions count, not threads: each loop around a store must move its address, by its counter or by something that it
changes by the same amount every time, or hold it at one iteration (`if (k == 3)`). All that a loop moves the address by
is one digit, and two loops are two, so that in `y[i + a + b]` they collide. Stores by several statements are once if
they differ by constants: the members of a struct, or the elements of different iterations that conditions hold them
at; or if they are on the two sides of a branch: who has the element takes one of them; or in different parts of memory,
planes say. The adjoint of such memory can be read without being consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from math import gcd

from ...ir.ops import Atomic, For, If, Op, Store, Value, While
from ..access.affine import Access, Basis, Guard, Sums
from ..access.executions import Digit, determined, extent, leaps
from ..roots import Memory
from ..structure import Place
from .private import parts_of_memory, thread_digits
from .promises import promised, settled


def is_stored_once(root: Value, memory: Memory, places: dict[int, Place], sums: Sums) -> bool:
    """Whether no element of a buffer is stored twice in a launch."""
    sums = promised(sums, memory)
    return any(_is_stored_once(root, memory, places, sums, guards) for guards in (sums.guards, sums.all_guards))


def _is_stored_once(
    root: Value, memory: Memory, places: dict[int, Place], sums: Sums, guards: Callable[[Place], set[Guard]]
) -> bool:
    stores = [op for op in memory.stores if root in memory.of(op.ptr)]  # type: ignore[attr-defined]
    found = [_access(op, root, memory, places, sums, guards) for op in stores]
    accesses = settled([access for access in found if access is not None], sums)
    if None in found or not accesses:
        return not stores
    own = [places[id(op)] for op in stores]
    if _are_once(accesses, own, sums):
        return True
    parts = parts_of_memory(accesses, sums)
    return len(parts) > 1 and all(_are_once([accesses[k] for k in p], [own[k] for k in p], sums) for p in parts)


def _are_once(accesses: list[Access], places: list[Place], sums: Sums) -> bool:
    return _are_apart(accesses, places, sums) and all(
        _is_once(access, place, accesses, sums) for access, place in zip(accesses, places, strict=True)
    )


def is_consumed(root: Value, memory: Memory) -> bool:
    """Whether the reverse takes what the shadow has gathered: sums leave it."""
    return any(
        not (isinstance(op, Atomic) and op.kind in ("add", "sub"))
        for op in memory.stores
        if root in memory.of(op.ptr)  # type: ignore[attr-defined]
    )


def _access(
    op: Op,
    root: Value,
    memory: Memory,
    places: dict[int, Place],
    sums: Sums,
    guards: Callable[[Place], set[Guard]],
) -> Access | None:
    if not isinstance(op, Store) or memory.of(op.ptr) != {root}:
        return None
    address = sums.address(op.ptr, root)
    if address is None:
        return None
    place = places[id(op)]
    return Access(address.where(sums.fixed(place)), op.value.type.size, guards(place))


def _are_apart(accesses: list[Access], places: list[Place], sums: Sums) -> bool:
    """Whether they are at different constants from the same place, or on two sides of a branch."""
    if any(a.address.coefficients != accesses[0].address.coefficients for a in accesses):
        return False
    spans = sorted((a.address.const, a.address.const + a.size, k) for k, a in enumerate(accesses))
    for at, (_, end, k) in enumerate(spans):
        for start, _, other in islice(spans, at + 1, None):
            if end <= start:
                break
            if not _exclude(places[k], places[other], sums):
                return False
    return True


def _exclude(one: Place, other: Place, sums: Sums) -> bool:
    """Whether they are on different sides of a branch: of what is around both, no execution gets to both. Elements tell
    the execution but for what conditions hold, which must be the same then: not one at `k == 3`, one at `k == 5`."""
    held, also = sums.fixed(one), sums.fixed(other)
    if any(held[basis] != also[basis] for basis in held.keys() & also.keys()):
        return False
    sides = {id(place.owner): place.block for place in one.around() if isinstance(place.owner, If)}
    return any(sides.get(id(place.owner), place.block) is not place.block for place in other.around())


def _is_once(access: Access, place: Place, accesses: list[Access], sums: Sums) -> bool:
    """Whether different executions of a store are at different places, with room for the other stores there."""
    fixed, terms = frozenset(sums.fixed(place)), access.address.coefficients
    shared: dict[Basis, int] = {b: c for b, c in terms.items() if not isinstance(b, Value)}
    guards = set.intersection(*(a.guards for a in accesses))
    told = determined(shared, sums, guards)
    if not thread_digits(sums, own_block=False) - fixed <= told:
        return False
    moving: dict[Basis, int] = {b: c for b, c in terms.items() if isinstance(b, Value)}
    told -= {b for b in told if sums.loops.get(b) in {sums.loops.get(m) for m in moving}}
    loops = _loop_digits(moving, place, fixed | told, sums)
    if loops is None:
        return False
    digits = [*(Digit(b, abs(c), extent(b, sums, guards)) for b, c in shared.items()), *loops]
    apart, width = _statement_digit(accesses, min((digit.coefficient for digit in digits), default=0))
    return leaps([*digits, *apart], width, terms, guards)


def _statement_digit(accesses: list[Access], step: int) -> tuple[list[Digit], int]:
    """Stores of several statements, as of a loop that was unrolled: a digit for how far apart they are, and how wide
    those are together that lie within a `step` of the other digits."""
    starts: list[int] = []
    end = width = 0
    for access in sorted(accesses, key=lambda a: a.address.const):
        if not starts or access.address.const - end >= step:
            starts.append(access.address.const)
        end = access.address.const + access.size
        width = max(width, end - starts[-1])
    distance = gcd(*(start - starts[0] for start in starts))
    return ([Digit(None, distance, (starts[-1] - starts[0]) // distance + 1)] if distance else []), width


def _loop_digits(terms: dict[Basis, int], place: Place, fixed: frozenset[Basis], sums: Sums) -> list[Digit] | None:
    """What each loop around a block moves an address by; None where one of them may repeat it."""
    found = []
    held = {sums.loops.get(basis) for basis in fixed}
    for loop in _loops(place):
        own = [b for b in terms if sums.loops.get(b) is loop]
        step, trips = sum(terms[b] for b in own), _trips(loop, own, sums)
        if loop in held or trips == 1:
            continue
        if step == 0 or (trips is None and any(b in sums.wrapping for b in own)):
            return None
        found.append(Digit(own[0] if len(own) == 1 else None, abs(step), trips))
    return found


def _trips(loop: For | While, own: list[Basis], sums: Sums) -> int | None:
    """At most how many there are, if that is known."""
    if isinstance(loop, For):
        counter = loop.body.args[0]
        own = [*own, counter] if sums.of(counter) is not None else own
    known = [extent for b in own if (extent := sums.extents.get(b) or sums.most.get(b)) is not None]
    return min(known, default=None)


def _loops(place: Place | None) -> Iterator[For | While]:
    while place is not None:
        if isinstance(place.owner, For | While):
            yield place.owner
        place = place.parent
