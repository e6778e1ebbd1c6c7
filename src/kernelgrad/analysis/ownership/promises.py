"""What the user promises of index buffers: `kg.assume(unique="idx")`, idx holds no value twice where a launch reads it;
`disjoint=("offset", "count")`, see `segments`.

Then `x[idx[i]]` touches an element twice only where i is the same, and so does `x[idx[row] * width + col]` as long as
col stays below width: two accesses meet where they would meet if idx held 0, 1, 2 and so on. Hence the proofs about
threads (`private`) are made for accesses that are rewritten to that (`settled`).

All accesses must go through the same buffer, multiplied by the same number, and what is added to that may not reach
into the next row. A buffer that the kernel writes says nothing.
"""

from __future__ import annotations

from ...ir.ops import Apply, Atomic, For, Load, Member, Offset, PtrCast, Store, Value, While
from ...ir.types import I32, I64, Pointer, Scalar, Type, limits
from ..access.affine import Access, Affine, Basis, Guard, Looked, Sums
from ..access.executions import Executions, executions
from ..promises import Promised, Promises, told_disjoint, told_unique
from ..roots import Memory
from ..structure import Structure
from .segments import without_segments


def promised(sums: Sums, memory: Memory) -> Sums:
    """The sums over all executions, which know what promised buffers hold, where there are any."""
    unwritten = sums.promised.looked_up - memory.written()
    return _Lookups(sums, memory, unwritten) if unwritten else executions(sums)


class _Lookups(Executions):
    """`looked_up`: buffers of which what they hold has a name, by where it is. `within`: the ends of that."""

    def __init__(self, sums: Sums, memory: Memory, looked_up: frozenset[Value]):
        super().__init__(sums.structure, sums.shape, sums.known, sums.promised)
        self.memory, self.looked_up, self.within = memory, looked_up, dict(sums.promised.within)

    def _compute(self, value: Value) -> Affine | None:
        op = self.structure.definition.get(value)
        return self._looked_up(op) if isinstance(op, Load) else super()._compute(value)

    def _looked_up(self, load: Load) -> Affine | None:
        roots, type = self.memory.of(load.ptr), load.result.type
        if len(roots) != 1 or not roots <= self.looked_up or not isinstance(type, Scalar):
            return None
        (root,) = roots
        assert isinstance(root.type, Pointer)
        address = self.address(load.ptr, root) if type.size == root.type.pointee.size else None
        if address is None or address.const % type.size or any(c % type.size for _, c in address.terms):
            return None
        place = Affine(address.const // type.size, tuple((b, c // type.size) for b, c in address.terms))
        found = Looked(root, place, type)
        self.extents[found] = None
        return Affine(0, ((found, 1),))

    # ---- arithmetic that could wrap around

    def _apply(self, op: Apply, fn: str, args: tuple[Value, ...]) -> Affine | None:
        found = super()._apply(op, fn, args)
        exact = found is None or fn != "convert" or not _looked(found) or self._holds(found, op.result.type)
        return found if exact else None

    def _in_range(self, found: Affine | None, type: Type) -> Affine | None:
        """Signed arithmetic does not wrap, as C++ demands."""
        if found is None or not _looked(found):
            return super()._in_range(found, type)
        signed = isinstance(type, Scalar) and type.is_signed
        return found if signed or self._holds(found, type) else None

    def _holds(self, sum_: Affine, type: Type) -> bool:
        """Whether different sums are different in the type. Of 64 bits, addresses have no more."""
        if not isinstance(type, Scalar):
            return False
        low, high = self.range(Affine(sum_.const, tuple((b, c) for b, c in sum_.terms if not isinstance(b, Looked))))
        for looked, coefficient in _looked(sum_):
            ends = [coefficient * end for end in self._range_of(looked, high)]
            low, high = low + min(ends), high + max(ends)
        least, most = limits(type)
        return high - low < 1 << 64 if type.bits == 64 else least <= low and high <= most

    def _range_of(self, looked: Looked, more: int) -> tuple[int, int]:
        """From where to where it goes, with so much added. Segments begin at indices, not before them, and an int holds
        what a block adds to them: beyond that, it would index before all of them."""
        least, most = self.within.get(looked.root, limits(looked.type))
        if any(looked.root in pair for pair in self.promised.segments):
            least, most = max(0, least), min(most, limits(I32)[1] - max(0, more)) if looked.type.bits == 32 else most
        return least, most

    # ---- guards

    def _from_comparison(self, fn: str, left: Value, right: Value, found: set[Guard]) -> None:
        """Also between what buffers hold, and with it: `k < offset[s + 1]`."""
        super()._from_comparison(fn, left, right, found)
        if fn in ("gt", "ge"):
            fn, left, right = {"gt": "lt", "ge": "le"}[fn], right, left
        self._below(self.of(left), self.of(right), int(fn == "le"), found)

    def _of_loop(self, loop: For | While, exact: bool = False) -> set[Guard]:
        found = super()._of_loop(loop, exact)
        if isinstance(loop, For) and loop.step < 0:
            self._below(self.of(loop.upper), self.of(loop.body.args[0]), 0, found)
        return found

    def _below(self, small: Affine | None, large: Affine | None, more: int, found: set[Guard]) -> None:
        if small is not None and large is not None and (_looked(small) or _looked(large)):
            apart = small.plus(large, -1)
            found.add(Guard(Affine(0, apart.terms), more - apart.const))


def _looked(sum_: Affine) -> list[tuple[Looked, int]]:
    return [(b, c) for b, c in sum_.terms if isinstance(b, Looked)]


# ---- accesses -----------------------------------------------------------------------------------------------------


def settled(accesses: list[Access], sums: Sums) -> list[Access] | None:
    """The accesses as if promised buffers held 0, 1, 2 and so on; None where that would not tell who meets whom."""
    found: list[Access] | None = accesses
    while found and any(_looked(access.address) for access in found):
        found = without_segments(found, sums) or _without_lookup(found, sums)
    return found


def _without_lookup(accesses: list[Access], sums: Sums) -> list[Access] | None:
    lookups = [_looked(access.address) for access in accesses]
    if {len(found) for found in lookups} != {1} or len({(b.root, c) for ((b, c),) in lookups}) != 1:
        return None
    ((looked, each),) = lookups[0]
    if looked.root not in sums.promised.unique:
        return None
    row = each * dict(sums.promised.multiple).get(looked.root, 1)
    rests = [access.address.plus(Affine(0, tuple(found)), -1) for access, found in zip(accesses, lookups, strict=True)]
    ends = [_reach(rest, access, sums) for rest, access in zip(rests, accesses, strict=True)]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or max(high for _, high in known) - min(low for low, _ in known) > abs(row):
        return None  # into the next row
    rests = [_bounded(rest, abs(row), sums) for rest in rests]
    free = [sums.range(rest) for rest in rests]  # no guards here: leave room for what they would forbid
    most = max(high + access.size for (_, high), access in zip(free, accesses, strict=True))
    room = max(abs(row), most - min(low for low, _ in free))
    return [
        Access(rest.plus(found[0][0].place, room), access.size, access.guards)
        for rest, found, access in zip(rests, lookups, accesses, strict=True)
    ]


def _reach(rest: Affine, access: Access, sums: Sums) -> tuple[int, int] | None:
    """The first byte and the last, in a row; None if that is not known."""
    low = rest.const
    for basis, coefficient in rest.terms:
        extent = sums.extents[basis]
        if extent is None and coefficient < 0:
            return None
        low += min(0, coefficient * ((extent or 1) - 1))
    highs = [_highest(rest, set(), sums)]
    for guard in access.guards:
        factor = _factor(rest, guard)
        others = _highest(rest, set(guard.sum.coefficients), sums)
        if factor is not None and others is not None:
            highs.append(others + factor * max(0, guard.bound - 1 - guard.sum.const))
    found = [high for high in highs if high is not None]
    return (low, min(found) + access.size) if found else None


def _highest(rest: Affine, without: set[Basis], sums: Sums) -> int | None:
    high = rest.const
    for basis, coefficient in rest.terms:
        extent = sums.extents[basis]
        if basis in without:
            continue
        if extent is None and coefficient > 0:
            return None
        high += max(0, coefficient * ((extent or 1) - 1))
    return high


def _factor(rest: Affine, guard: Guard) -> int | None:
    """How many times what the guard bounds is in the sum."""
    terms, guarded = rest.coefficients, guard.sum.coefficients
    if not guarded or any(terms.get(b, 0) % c for b, c in guarded.items()):
        return None
    factors = {terms.get(b, 0) // c for b, c in guarded.items()}
    return min(factors) if len(factors) == 1 and min(factors) > 0 else None


def _bounded(rest: Affine, row: int, sums: Sums) -> Affine:
    """Loops of unknown length end where the row does."""
    terms: list[tuple[Basis, int]] = []
    for basis, coefficient in rest.terms:
        if sums.extents[basis] is None and isinstance(basis, Value):
            bounded = Value(I64, basis.name)
            sums.extents[bounded] = (row - 1) // coefficient + 1
            sums.loops[bounded] = sums.loops[basis]
            basis = bounded
        terms.append((basis, coefficient))
    return Affine(rest.const, tuple(terms))


# ---- what is told of it -------------------------------------------------------------------------------------------


def relied_on(memory: Memory, structure: Structure, promised: Promised) -> dict[str, tuple[str, ...]]:
    """For each buffer, in words, what is promised of those whose values are among its indices: no proof does without
    that."""
    names = {root: name for name, root in memory.global_names.items()}
    found: dict[str, set[str]] = {}
    for op in (*memory.loads, *memory.stores):
        assert isinstance(op, Load | Store | Atomic)
        behind = _behind(op.ptr, memory, structure, promised.looked_up)
        for root in memory.of(op.ptr) if behind else ():
            found.setdefault(names.get(root, root.name or ""), set()).update(_told(promised.by_name, behind))
    return {name: tuple(sorted(promises)) for name, promises in found.items()}


def _told(promises: Promises, names: set[str]) -> list[str]:
    unique = [told_unique(name) for name in promises.unique if name in names]
    return unique + [told_disjoint(segments) for segments in promises.disjoint if segments.begin in names]


def _behind(ptr: Value, memory: Memory, structure: Structure, promised: frozenset[Value]) -> set[str]:
    """The names of the buffers that an address is computed from: the bounds of loops are not asked for."""
    found, seen, todo = set[str](), set[Value](), [ptr]
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        match structure.definition.get(value):
            case Offset(base, index):
                todo += (base, index)
            case PtrCast(base) | Member(base, _):
                todo.append(base)
            case Apply(_, args):
                todo += args
            case Load(inner) if memory.of(inner) <= promised:
                found |= {root.name or "" for root in memory.of(inner)}
                todo.append(inner)
            case None:
                todo += _counted_from(value, structure)
    return found


def _counted_from(value: Value, structure: Structure) -> list[Value]:
    """What a loop starts with where a value is its counter, or carried."""
    place = structure.home.get(value)
    return list(structure.argument_sources(value)) if place is not None and isinstance(place.owner, For | While) else []
