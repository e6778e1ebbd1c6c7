"""Stores and loads of one thread that are never at the same place, in one launch: in an iteration of the loops around
both, or in different iterations of one of them.

Both addresses are sums. What is the same for both wherever they are compared (thread and block indices, the counters of
loops further out, numbers of which nothing is known but that they stay as they are) must be in both alike, and cancels.
What loops further in add is a window around the rest. In different iterations of a loop two accesses are apart if a
step of the loop leaps over both windows, or if all its steps together do not lead from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...ir.ops import Apply, Builtin, Constant, For, GlobalRef, Load, Member, Offset, PtrCast, Store, Value, While
from ...ir.traverse import operands
from ...ir.types import Scalar, Type
from ..access.affine import Affine, Basis, Known, Shape, Sums
from ..roots import Memory
from ..structure import Structure

Loop = For | While
_LONGEST = 1 << 32  # iterations: more are not run
_FAR = 1 << 62  # bytes: beyond, addresses come round


class Window(NamedTuple):
    """From a byte to before another."""

    start: int
    end: int

    def meets(self, other: Window) -> bool:
        return self.start < other.end and other.start < self.end

    def moved(self, by: int, times: int) -> Window:
        """All that it covers when it moves up to so often."""
        return Window(self.start + min(0, by * times), self.end + max(0, by * times))


class Pair(NamedTuple):
    """A store and a load, compared: where each is but for what is the same for both, and by how much an iteration
    moves it. `own`: what counts those iterations."""

    windows: tuple[Window, Window]
    steps: tuple[int, int] = (0, 0)
    own: frozenset[Basis] = frozenset()


class OneThread:
    """The stores and loads of a thread in one launch, whose integer arguments are `known`."""

    def __init__(self, memory: Memory, structure: Structure, shape: Shape, known: Known):
        self.memory, self.structure = memory, structure
        self.sums = _SumsOfUnknowns(structure, shape, known)
        self._addresses: dict[Value, tuple[Value, Affine | None]] = {}

    def apart_at_once(self, store: Store, load: Load, around: Sequence[Loop]) -> bool:
        """In the same iteration of all loops around both."""
        found = self._compared(store, load, around, None)
        return found is not None and not found.windows[0].meets(found.windows[1])

    def apart_in_turn(self, store: Store, load: Load, around: Sequence[Loop], loop: Loop) -> bool:
        """In different iterations of a loop, but in the same ones of those around it."""
        found = self._compared(store, load, around, loop)
        if found is None:
            return False
        (one, other), (step, other_step) = found.windows, found.steps
        trips = self._trips(found.own) if step or other_step else 1
        if max(abs(step), abs(other_step)) * trips > _FAR:
            return False
        if step == other_step and abs(step) >= max(one.end, other.end) - min(one.start, other.start):
            return True
        return not one.moved(step, trips - 1).meets(other.moved(other_step, trips - 1))

    def _compared(self, store: Store, load: Load, around: Sequence[Loop], loop: Loop | None) -> Pair | None:
        """None where they differ by more than is known."""
        (base, stored), (other_base, loaded) = self._address(store.ptr), self._address(load.ptr)
        if stored is None or loaded is None or base is not other_base or not self._stays(base, loop):
            return None
        terms = stored.coefficients, loaded.coefficients
        inner, own = set[Basis](), set[Basis]()
        for basis in terms[0].keys() | terms[1].keys():
            counted = self.sums.loops.get(basis)
            if counted is not None and counted is loop:
                own.add(basis)
            elif counted is not None and counted not in around:
                inner.add(basis)
            elif terms[0].get(basis) != terms[1].get(basis) or not self._stays(basis, loop):
                return None
        if (inner | own) & self.sums.wrapping:
            return None
        windows = [self._window(a, inner, op) for a, op in ((stored, store), (loaded, load))]
        one, other = windows
        if one is None or other is None:
            return None
        return Pair((one, other), tuple(sum(t.get(b, 0) for b in own) for t in terms), frozenset(own))  # type: ignore[arg-type]

    def _address(self, ptr: Value) -> tuple[Value, Affine | None]:
        """From a pointer that stands for itself: in bytes."""
        if ptr not in self._addresses:
            base = self._base(ptr)
            self._addresses[ptr] = base, self.sums.address(ptr, base)
        return self._addresses[ptr]

    def _base(self, ptr: Value) -> Value:
        op = self.structure.definition.get(ptr)
        while isinstance(op, Offset | Member | PtrCast):
            ptr = op.ptr
            op = self.structure.definition.get(ptr)
        return self.memory.global_names[op.name] if isinstance(op, GlobalRef) else ptr

    def _window(self, address: Affine, inner: set[Basis], op: Store | Load) -> Window | None:
        size = op.value.type.size if isinstance(op, Store) else op.result.type.size
        found = Window(address.const, address.const + size)
        for basis, coefficient in address.terms:
            if basis in inner:
                found = found.moved(coefficient, self._trips({basis}) - 1)
        return found if max(map(abs, found)) < _FAR else None

    def _trips(self, counters: set[Basis] | frozenset[Basis]) -> int:
        """At most how many iterations of a loop there are."""
        return min((_LONGEST, *(self.sums.extents[b] or self.sums.most.get(b, _LONGEST) for b in counters)))

    def _stays(self, basis: Basis, loop: Loop | None) -> bool:
        """Whether it is the same in all iterations of a loop. Counters are those of loops further out."""
        if loop is None or not isinstance(basis, Value) or basis in self.sums.loops:
            return True
        if isinstance(self.structure.definition.get(basis), GlobalRef):
            return True
        return stays(basis, loop, self.structure)


def stays(value: Value, loop: Loop, structure: Structure) -> bool:
    """Whether a value is the same in every iteration."""
    seen, todo = set[Value](), [value]
    while todo:
        found = todo.pop()
        if found in seen or not structure.is_inside(found, loop):
            continue
        seen.add(found)
        op = structure.definition.get(found)
        if not isinstance(op, Apply | Builtin | Constant):
            return False
        todo += operands(op)
    return True


class _SumsOfUnknowns(Sums):
    """Sums in which what is not known stands for itself."""

    def of(self, value: Value) -> Affine | None:
        if value not in self._found and super().of(value) is None and _is_index(value.type):
            self.extents[value] = None
            self._found[value] = Affine(0, ((value, 1),))
        return self._found[value]

    def _unknown(self, sum_: Affine) -> tuple[tuple[Basis, int], ...]:
        return tuple((b, c) for b, c in sum_.terms if isinstance(b, Value) and b not in self.loops)

    def range(self, sum_: Affine, endless: int = 1) -> tuple[int, int]:
        """The unknown may be anything, where that is asked for; else it is taken to stay in range, as C++ demands."""
        unknown = self._unknown(sum_)
        low, high = super().range(sum_.plus(Affine(0, unknown), -1), endless)
        reach = sum(abs(c) for _, c in unknown) << 64 if endless > 1 else 0
        return low - reach, high + reach

    def _in_range(self, found: Affine | None, type: Type) -> Affine | None:
        """Unsigned sums of the unknown may come round, but for those that addresses are made of."""
        if found is None or not self._unknown(found):
            return super()._in_range(found, type)
        exact = isinstance(type, Scalar) and (type.is_signed or type.bits == 64)
        return found if exact else None

    def _narrow(self, sum_: Affine, type: Type) -> None:
        """Signed sums of the unknown do not come round, and others are no sums (see `_apply`)."""
        super()._narrow(sum_.plus(Affine(0, self._unknown(sum_)), -1), type)

    def _apply(self, op: Apply, fn: str, args: tuple[Value, ...]) -> Affine | None:
        found = super()._apply(op, fn, args)
        if found is None or fn != "convert" or not self._unknown(found):
            return found
        old, new = args[0].type, op.result.type
        assert isinstance(old, Scalar) and isinstance(new, Scalar)
        return found if new.bits == 64 or new == old else None


def _is_index(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint") and type.bits >= 32
