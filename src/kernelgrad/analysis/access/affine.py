"""Integers as sums: a constant, and multiples of thread indices, block indices and loop counters.

Everything is done for one launch, so that coefficients are numbers: scalar arguments, block and grid sizes are known.
What is not of that form, or might wrap around, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ...ir.ops import Apply, Builtin, Constant, For, GlobalRef, If, Member, Offset, Op, PtrCast, Value, While
from ...ir.types import Pointer, Scalar, Struct, Type, limits
from ..fold import evaluate as fold
from ..machine import WARP
from ..promises import NOTHING, Promised
from ..structure import Place, Structure, carried_as

Known = Callable[[Any], int | float | bool | None]
# ("thread_idx", axis), ("block_idx", axis), a loop's counter, what a promised buffer holds (see `promises`), or a part
# of a division (see `executions`)
Basis: TypeAlias = "tuple[str, int] | Value | Looked | Part"


@dataclass(frozen=True)
class Shape:
    """The extents of a launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    def extent(self, name: str, axis: int) -> int:
        return self.block[axis] if name == "thread_idx" else self.grid[axis]


@dataclass(frozen=True)
class Affine:
    const: int
    terms: tuple[tuple[Basis, int], ...] = ()

    @property
    def coefficients(self) -> dict[Basis, int]:
        return dict(self.terms)

    @property
    def only(self) -> Basis | None:
        """What it is, and nothing besides."""
        return self.terms[0][0] if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1 else None

    def plus(self, other: Affine, times: int = 1) -> Affine:
        total = self.coefficients
        for basis, coefficient in other.terms:
            total[basis] = total.get(basis, 0) + times * coefficient
        return Affine(self.const + times * other.const, tuple((b, c) for b, c in total.items() if c))

    def times(self, factor: int) -> Affine:
        return Affine(0).plus(self, factor)

    def slope(self, basis: Basis) -> int:
        """By how much it grows with one of what it is a sum of."""
        return self.coefficients.get(basis, 0)

    def rest(self, *bases: Basis) -> dict[Basis, int]:
        """The coefficients of all others."""
        return {b: c for b, c in self.terms if b not in bases}

    def where(self, values: Mapping[Basis, int]) -> Affine:
        """With values for some of what it is a sum of."""
        const = sum(c * values[b] for b, c in self.terms if b in values)
        return Affine(self.const + const, tuple((b, c) for b, c in self.terms if b not in values))


@dataclass(frozen=True)
class Looked:
    """What a buffer holds at a place, counted in elements."""

    root: Value
    place: Affine
    type: Scalar


@dataclass(frozen=True)
class BytesOf:
    """Stands for the size of a buffer, where what is known of a launch is asked for."""

    root: Value


@dataclass(frozen=True)
class Part:
    """What a sum is divided by a number, or what is left then."""

    of: Affine
    by: int
    is_quotient: bool

    @property
    def other(self) -> Part:
        """With this one, all of what was divided: `i / C % B` is a digit of `i / C`, as `i / (B * C)` is the rest."""
        inner = self.of.only
        if not self.is_quotient and isinstance(inner, Part) and inner.is_quotient:
            return Part(inner.of, inner.by * self.by, True)
        return remainder(self.of, self.by) if self.is_quotient else Part(self.of, self.by, True)


def remainder(of: Affine, by: int) -> Part:
    """Multiples of the divisor do not matter to it, as long as what is left is not negative."""
    left = Affine(of.const % by, tuple((b, c) for b, c in of.terms if c % by))
    return Part(left if all(c > 0 for _, c in left.terms) else of, by, False)


@dataclass(frozen=True)
class Guard:
    """`sum < bound` holds."""

    sum: Affine
    bound: int


class Access(NamedTuple):
    """Bytes from a root, how many, and what holds there."""

    address: Affine
    size: int
    guards: set[Guard]


class Sums:
    """Finds the form of integers and addresses in one launch. `extents`: how many values a basis takes; None for a
    loop whose number of iterations is not known. `most`: of such a loop, at most how many. `wrapping`: counters of such
    loops in whose multiples unsigned or narrowed numbers may wrap around. `loops`: whose iterations a basis counts.
    `promised`: what the user promises of index buffers."""

    def __init__(self, structure: Structure, shape: Shape, known: Known, promised: Promised = NOTHING):
        self.structure, self.shape, self.known, self.promised = structure, shape, known, promised
        self.extents: dict[Basis, int | None] = {}
        self.most: dict[Basis, int] = {}
        self.wrapping: set[Basis] = set()
        self.loops: dict[Basis, For | While] = {}
        self.executions: Sums | None = None  # see there
        self._found: dict[Value, Affine | None] = {}

    def of(self, value: Value) -> Affine | None:
        if value not in self._found:
            self._found[value] = None  # what a loop carries may depend on itself
            self._found[value] = self._in_range(self._compute(value), value.type)
        return self._found[value]

    def common(self, values: tuple[Value, ...]) -> Affine | None:
        """The sum that all of them are."""
        found = {self.of(value) for value in values}
        return found.pop() if len(found) == 1 else None

    def _compute(self, value: Value) -> Affine | None:
        op = self.structure.definition.get(value)
        match op:
            case None:
                number = self.known(value)
                return Affine(int(number)) if isinstance(number, int) else self._argument(value)
            case Constant(number):
                return Affine(int(number)) if isinstance(number, int) else None
            case Builtin("thread_idx" | "block_idx" as name, axis):
                extent = self.shape.extent(name, axis)
                self.extents[name, axis] = extent
                return Affine(0, (((name, axis), 1),)) if extent > 1 else Affine(0)
            case Builtin("block_dim", axis):
                return Affine(self.shape.block[axis])
            case Builtin("grid_dim", axis):
                return Affine(self.shape.grid[axis])
            case Builtin("warp_size"):
                return Affine(WARP)
            case Apply(fn, args):
                return self._apply(op, fn, args)
        return None

    def _apply(self, op: Apply, fn: str, args: tuple[Value, ...]) -> Affine | None:
        if not all(_is_integer(v.type) for v in (*args, op.result)):
            return None
        parts = [self.of(a) for a in args]
        if any(p is None for p in parts):
            return self._converted(args[0], op.result.type) if fn == "convert" else None
        found = [p for p in parts if p is not None]
        match fn:
            case "add":
                return found[0].plus(found[1])
            case "sub":
                return found[0].plus(found[1], -1)
            case "neg":
                return found[0].times(-1)
            case "convert":
                self._narrow(found[0], op.result.type)
                return found[0]
            case "mul":
                one, other = found if not found[1].terms else found[::-1]
                return one.times(other.const) if not other.terms else None
            case "shl" if not found[1].terms and 0 <= found[1].const < 63:
                return found[0].times(1 << found[1].const)
        if any(p.terms for p in found):
            return None
        types = tuple(a.type for a in args)
        number = fold(fn, tuple(p.const for p in found), types, op.result.type)  # type: ignore[arg-type]
        return Affine(int(number)) if isinstance(number, int) else None

    def _converted(self, value: Value, type: Type) -> Affine | None:
        """What is no sum, but for what comes round."""
        from .wrapping import as_signed

        return as_signed(self, value, type)

    def _in_range(self, found: Affine | None, type: Type) -> Affine | None:
        """Arithmetic that could wrap around is not a sum any more."""
        if found is None or not isinstance(type, Scalar) or type.kind == "bool":
            return found
        least, most = limits(type)
        if not type.is_signed:
            low, high = self.range(found, _ENDLESS)
            if low < least or high > most:
                self.wrapping |= {b for b, _ in found.terms if isinstance(b, Value) and self.extents[b] is None}
        low, high = self.range(found)
        return found if least <= low and high <= most else None

    def _narrow(self, sum_: Affine, type: Type) -> None:
        """To convert to fewer bits is no overflow that C++ forbids: steps that add up to more come round again."""
        low, high = self.range(sum_, _ENDLESS)
        if isinstance(type, Scalar) and high - low >= 1 << type.bits:
            self.wrapping |= {b for b, _ in sum_.terms if isinstance(b, Value) and self.extents[b] is None}

    def range(self, sum_: Affine, endless: int = 1) -> tuple[int, int]:
        """The least and greatest value; loops of unknown length are taken to stay in range, as C++ demands of signed
        numbers. `endless`: their length instead, if nothing is known of it."""
        low = high = sum_.const
        for basis, coefficient in sum_.terms:
            length = self.extents[basis] or min(endless, self.most.get(basis, endless))
            reach = coefficient * (length - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high

    # ---- loops

    def _argument(self, value: Value) -> Affine | None:
        place = self.structure.home.get(value)
        loop = place.owner if place is not None else None
        if not isinstance(loop, For | While) or place is None or place.block is not loop.body:
            return None
        position = loop.body.args.index(value)
        if isinstance(loop, For) and position == 0:
            return self._counter(loop, value)
        if not _is_integer(value.type):
            return None
        index = carried_as(loop, position)
        if index is None:
            return None
        start, step = self.of(loop.inits[index]), self._step(loop.body.results[index], value)
        if start is None or step is None:
            return None
        self.extents[value], self.loops[value] = None, loop
        self._bound(loop, value, start, step)
        return start.plus(Affine(0, ((value, step),)))

    def _bound(self, loop: For | While, value: Value, start: Affine, step: int) -> None:
        """How often at most a loop goes on, by its condition on what it carries."""
        from .loop_bounds import bounds_of, ends_of

        if not isinstance(loop, While) or step <= 0:
            return
        ends = ends_of(loop, self.structure)
        for end in bounds_of(loop, self.structure):
            if end.value is value:
                self._most(value, start, self.common(end.bounds), step, end.more, end in ends)

    def _most(
        self, value: Value, start: Affine, end: Affine | None, step: int, more: int = 0, exact: bool = True
    ) -> None:
        """From a start to an end. Where that is not known, small steps are taken to stop before they wrap around.
        `exact`: it goes on until there."""
        least, most = limits(value.type)  # type: ignore[arg-type]
        if end is None and abs(step) <= _STRIDE:
            end = Affine(most - 2 * _STRIDE if step > 0 else least + 2 * _STRIDE)
        if end is not None:
            distances = self.range(end.plus(start, -1), _ENDLESS)
            self.most[value] = max(1, *(-(-(distance + more) // step) for distance in distances))

    def _counter(self, loop: For, value: Value) -> Affine | None:
        lower, upper = self.of(loop.lower), self.of(loop.upper)
        if lower is None:
            return None
        distance = None if upper is None else upper.plus(lower, -1)
        known = distance is not None and not distance.terms
        trips = -(-distance.const // loop.step) if known and distance is not None else None
        self.extents[value], self.loops[value] = None if trips is None else max(1, trips), loop
        self._most(value, lower, upper, loop.step)
        if upper is None:
            self._at_most(loop, value, lower)
        return lower.plus(Affine(0, ((value, loop.step),)))

    def _at_most(self, loop: For, value: Value, lower: Affine) -> None:
        """By what a loop's end is the least of."""
        from .loop_bounds import least_of

        for bound in least_of(loop.upper, self.structure) if loop.step > 0 else ():
            end = self.of(bound)
            if end is not None:
                distances = self.range(end.plus(lower, -1), _ENDLESS)
                most = max(1, *(-(-distance // loop.step) for distance in distances))
                self.most[value] = min(most, self.most.get(value, most))

    def _step(self, following: Value, arg: Value) -> int | None:
        """What is added to a carried value in each iteration; `int i; i += 4u` converts it there and back."""
        assert isinstance(arg.type, Scalar)
        bits = arg.type.bits
        from ..induction import unconverted

        op = self.structure.definition.get(unconverted(following, bits, self.structure))
        if not (isinstance(op, Apply) and op.fn in ("add", "sub")):
            return None
        left, right = op.args
        if op.fn == "add" and unconverted(right, bits, self.structure) is arg:
            left, right = right, left
        if unconverted(left, bits, self.structure) is not arg:
            return None
        by = self.of(right)
        if by is None or by.terms or by.const == 0:
            return None
        # Unsigned, `k -= 1` adds 2**32 - 1: a step backwards, that the next thread's place is within.
        half = 1 << (bits - 1)
        return ((by.const if op.fn == "add" else -by.const) + half) % (2 * half) - half

    # ---- addresses

    def address(self, ptr: Value, root: Value) -> Affine | None:
        """In bytes from the root; None of a pointer that may come from elsewhere too."""
        if ptr is root:
            return Affine(0)
        op = self.structure.definition.get(ptr)
        match op:
            case PtrCast(base):
                return self.address(base, root)
            case Offset(base, index):
                assert isinstance(ptr.type, Pointer)
                start, size = self.address(base, root), ptr.type.pointee.size
                by = self.of(index) or self._index(index, root, size)
                return None if start is None or by is None else start.plus(by, size)
            case Member(base, index):
                start = self.address(base, root)
                assert isinstance(base.type, Pointer) and isinstance(base.type.pointee, Struct)
                return None if start is None else start.plus(Affine(base.type.pointee.fields[index].offset))
        named = self.structure.definition.get(root)
        same = isinstance(op, GlobalRef) and isinstance(named, GlobalRef) and op.name == named.name
        return Affine(0) if same else None

    def _index(self, index: Value, root: Value, size: int) -> Affine | None:
        """One that is no sum, but for what comes round."""
        from .wrapping import wrapped_index

        return wrapped_index(self, index, root, size)

    # ---- guards

    def guards(self, place: Place | None) -> set[Guard]:
        """Upper bounds that hold in a block, from the conditions around it."""
        found: set[Guard] = set()
        while place is not None:
            if isinstance(place.owner, If):
                self._from_condition(place.owner.cond, place.block is place.owner.then, found)
            place = place.parent
        return found

    def all_guards(self, place: Place | None) -> set[Guard]:
        """And lower bounds, as upper ones of what is negated."""
        from .lower_guards import lower_guards

        return self.guards(place) | lower_guards(self, place)

    def is_bound(self, cond: Value, holds: bool, sum: Affine, bound: int) -> bool:
        """Whether a condition says `sum < bound` where it holds, or where it does not, and nothing else."""
        match self.condition(cond):
            case Apply("not", (inner,)):
                return self.is_bound(inner, not holds, sum, bound)
            case Apply(fn, (left, right)) if fn in _NEGATED:
                found: set[Guard] = set()
                self._from_comparison(fn if holds else _NEGATED[fn], left, right, found)
                return any(
                    g.bound == bound and (g.sum.const, g.sum.coefficients) == (sum.const, sum.coefficients)
                    for g in found
                )
        return False

    def fixed(self, place: Place | None) -> dict[Basis, int]:
        """The indices that conditions around a block hold at one value: `threadIdx.x == 0`."""
        found: dict[Basis, int] = {}
        while place is not None:
            if isinstance(place.owner, If):
                self._fixed_by(place.owner.cond, place.block is place.owner.then, found)
            place = place.parent
        return found

    def _fixed_by(self, cond: Value, holds: bool, found: dict[Basis, int]) -> None:
        match self.condition(cond):
            case Apply("not", (inner,)):
                self._fixed_by(inner, not holds, found)
            case Apply("and" | "or" as fn, args) if (fn == "and") == holds:
                for arg in args:
                    self._fixed_by(arg, holds, found)
            case Apply("eq" | "ne" as fn, args) if (fn == "eq") == holds and _is_integer(args[0].type):
                left, right = map(self.of, args)
                difference = None if left is None or right is None else left.plus(right, -1)
                if difference is not None and len(difference.terms) == 1:
                    ((basis, coefficient),) = difference.terms
                    if difference.const % coefficient == 0:  # else it never holds
                        found[basis] = -difference.const // coefficient

    def only_guards(self, place: Place | None) -> set[Guard] | None:
        """The same where nothing else but counted loops decides whether the block runs; None where something does."""
        found: set[Guard] = set()
        while place is not None:
            if isinstance(place.owner, If):
                if not self._is_guard(place.owner.cond, place.block is place.owner.then):
                    return None
                self._from_condition(place.owner.cond, place.block is place.owner.then, found)
            elif place.owner is not None and not isinstance(place.owner, For):
                return None
            place = place.parent
        return found

    def _is_guard(self, cond: Value, holds: bool) -> bool:
        match self.condition(cond):
            case Apply("not", (inner,)):
                return self._is_guard(inner, not holds)
            case Apply("and" | "or" as fn, args):
                return (fn == "and") == holds and all(self._is_guard(arg, holds) for arg in args)
        found: set[Guard] = set()
        self._from_condition(cond, holds, found)
        return bool(found) or self.outcome(cond) is holds

    def outcome(self, cond: Value) -> bool | None:
        """What a condition is for all threads, where bounds tell: `i >= 0`, or `row < rows` if no block has more."""
        match self.condition(cond):
            case Apply("not", (inner,)):
                found = self.outcome(inner)
                return None if found is None else not found
            case Apply("and" | "or" as fn, args):
                outcomes = {self.outcome(arg) for arg in args}
                ends = fn == "or"  # one such argument decides
                return ends if ends in outcomes else None if None in outcomes else not ends
            case Apply(fn, (left, right)) if fn in _NEGATED and _is_integer(left.type):
                return self._compared(fn, left, right)
        return None

    def _compared(self, fn: str, left: Value, right: Value) -> bool | None:
        if fn in ("gt", "ge"):
            fn, left, right = {"gt": "lt", "ge": "le"}[fn], right, left
        small, large = self.of(left), self.of(right)
        if small is None or large is None:
            return None
        distance = small.plus(large, -1)
        if any(self.extents[b] is None for b, _ in distance.terms):
            return None
        low, high = self.range(distance)
        least = 0 if fn == "lt" else 1
        return True if high < least else False if low >= least else None

    def condition(self, cond: Value) -> Op | None:
        """What makes a condition; `a && b` and `a || b` where b is only computed if it is asked for, as if always."""
        op = self.structure.definition.get(cond)
        if not isinstance(op, If):
            return op
        number = op.results.index(cond)
        then, orelse = op.then.results[number], op.orelse.results[number]
        if self._is_bool(then, True):
            return Apply("or", (op.cond, orelse), results=(cond,))
        if self._is_bool(orelse, False):
            return Apply("and", (op.cond, then), results=(cond,))
        return None

    def _is_bool(self, value: Value, wanted: bool) -> bool:
        op = self.structure.definition.get(value)
        return isinstance(op, Constant) and op.value is wanted

    def _from_condition(self, cond: Value, holds: bool, found: set[Guard]) -> None:
        match self.condition(cond):
            case Apply("not", (inner,)):
                self._from_condition(inner, not holds, found)
            case Apply("and" | "or" as fn, args) if (fn == "and") == holds:
                for arg in args:
                    self._from_condition(arg, holds, found)
            case Apply(fn, (left, right)) if fn in _NEGATED:
                self._from_comparison(fn if holds else _NEGATED[fn], left, right, found)

    def _from_comparison(self, fn: str, left: Value, right: Value, found: set[Guard]) -> None:
        if fn in ("gt", "ge"):
            fn, left, right = {"gt": "lt", "ge": "le"}[fn], right, left
        small, large = self.of(left), self.of(right)
        if small is not None and large is not None and not large.terms and small.terms:
            found.add(Guard(small, large.const + (fn == "le")))


_ENDLESS = 1 << 32  # iterations: more are not run
_STRIDE = 1 << 24  # as many threads as a grid may have that goes through a buffer in strides

_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _is_integer(type: Type) -> bool:
    return isinstance(type, Scalar) and not type.is_float and (type.bits >= 32 or type.kind == "bool")
