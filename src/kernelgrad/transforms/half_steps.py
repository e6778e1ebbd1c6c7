"""Pointers to half-precision numbers that would lead elsewhere among their adjoints.

Those are floats: where memory is declared to hold halves and nothing else, all of them lie at twice the place, and each
step must be of a type of which that is true as well. It is not of `char`, nor of a record that leaves a gap between two
halves which floats fill. Of records with halves and other numbers, only steps from record to record and inside one, as
it is declared, lead to the same number. Memory that is declared without halves has no room for their adjoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ..analysis.roots import Memory
from ..errors import UnsupportedError
from ..ir.builder import pointee
from ..ir.ops import Apply, Atomic, Constant, Function, Load, Member, Offset, Op, PtrCast, Store, Undef, Value
from ..ir.traverse import control_flows, walk
from ..ir.types import BF16, F16, F32, Array, Pointer, Scalar, Struct, Type, element_types
from .widen import Widened

HALVES = frozenset((F16, BF16))


def odd_steps(function: Function, memory: Memory) -> Iterator[tuple[Op, Value]]:
    """Steps and accesses that lead elsewhere among the adjoints, with the memory."""
    ops = list(walk(function.body))
    if not any(isinstance(v.type, Pointer) and _has_halves(v.type.pointee) for v in _pointers(function, ops)):
        return
    steps = _Steps(function, ops)
    for op in ops:
        if isinstance(op, Offset | Member | Load | Store | Atomic):
            odd = (base for base in steps.bases.get(op.ptr, ()) if steps.is_odd(op, base))
            yield from ((op, root) for base in odd for root in memory.of(base))


def _pointers(function: Function, ops: list[Op]) -> Iterator[Value]:
    yield from (p.value for p in function.params)
    for op in ops:
        yield from op.results


def parts(type: Type) -> Iterator[Type]:
    """The type itself and all that it is made of."""
    yield type
    if isinstance(type, Struct | Array):
        for part in dict.fromkeys([type.element] if isinstance(type, Array) else element_types(type)):
            yield from parts(part)


def _has_halves(type: Type) -> bool:
    return not HALVES.isdisjoint(t for t in parts(type) if isinstance(t, Scalar))


def half_of(type: Type) -> Scalar | None:
    """The half-precision type of which alone memory behind a pointer is made, each number's adjoint at twice its
    place."""
    if not isinstance(type, Pointer):
        return None
    found = {t for t in parts(type.pointee) if isinstance(t, Scalar)}
    return found.pop() if len(found) == 1 and is_doubled(type.pointee) else None


@lru_cache(256)
def is_doubled(type: Type) -> bool:
    """Whether each number of its adjoint lies at twice the place."""
    return all(isinstance(t, Struct | Array) or t in HALVES for t in parts(type)) and all(
        _has_doubled_fields(t) for t in parts(type) if isinstance(t, Struct)
    )


def _has_doubled_fields(record: Struct) -> bool:
    if record.is_union or not record.fields:
        return False
    wide = _widened(record)
    assert isinstance(wide, Struct)
    places = zip(record.fields, wide.fields, strict=True)
    return wide.size == 2 * record.size and all(new.offset == 2 * old.offset for old, new in places)


def _widened(record: Struct) -> Type:
    return Widened((F16, BF16), F32, "_adjoint")(record)


class _Steps:
    """`bases`: the pointers that a pointer is made of, whose types say what the memory holds. `recast`: pointers that
    come by a cast, other than from an array to its elements."""

    def __init__(self, function: Function, ops: list[Op]):
        self.bases: dict[Value, set[Value]] = {p.value: {p.value} for p in function.params}
        self.recast: set[Value] = set()
        changed = True
        while changed:
            changed = sum(map(self._flow, ops)) > 0

    def _flow(self, op: Op) -> bool:
        changed = False
        for target, sources in _flows(op):
            bases = set[Value]().union(*(self.bases.get(s, ()) for s in sources)) if sources else {target}
            known = self.bases.setdefault(target, set())
            changed |= not known >= bases
            known |= bases
            recast = _is_recast(op) or (not isinstance(op, Member) and not self.recast.isdisjoint(sources))
            if recast and target not in self.recast:
                self.recast.add(target)
                changed = True
        return changed

    def is_odd(self, op: Offset | Member | Load | Store | Atomic, base: Value) -> bool:
        declared, type = pointee(base), pointee(op.ptr)
        if is_doubled(declared):
            return not self._doubles(op, type)
        if _has_halves(declared):
            return not self._is_declared(op, type, declared)
        if isinstance(op, Offset | Member) or (isinstance(declared, Array) and declared.count == 0):
            return False  # the shadow of dynamic shared memory is as large as it takes
        return _has_halves(type)

    def _doubles(self, op: Op, type: Type) -> bool:
        match op:
            case Offset():
                return is_doubled(type)
            case Member(_, index):
                assert isinstance(type, Struct)
                return self._place(type, index) == 2 * type.fields[index].offset
        return isinstance(type, Scalar) or is_doubled(type) or not _has_halves(type)

    def _place(self, record: Struct, index: int) -> int:
        try:
            wide = _widened(record)
        except UnsupportedError:  # a union: all at its beginning
            return record.fields[index].offset
        assert isinstance(wide, Struct)
        return wide.fields[index].offset

    def _is_declared(self, op: Op, type: Type, declared: Type) -> bool:
        if isinstance(op, Offset) and op.ptr in self.recast:
            while isinstance(declared, Array) and declared != type:
                declared = declared.element
            return type == declared
        return type in set(parts(declared))


def _is_recast(op: Op) -> bool:
    if not isinstance(op, PtrCast):
        return False
    old, new = pointee(op.ptr), pointee(op.result)
    return old != new and not (isinstance(old, Array) and old.element == new)


def _flows(op: Op) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """(pointer, those that it may come from); none for what comes from elsewhere."""
    match op:
        case Offset(ptr, _) | Member(ptr, _) | PtrCast(ptr):
            yield op.result, (ptr,)
        case Apply("select", (_, *args)):
            yield from _of_pointers([(op.result, tuple(args))])
        case Constant() | Undef():
            return
        case _:
            flows = list(control_flows(op))
            moved = {target for target, _ in flows}
            yield from _of_pointers(flows)
            yield from _of_pointers((result, ()) for result in op.results if result not in moved)


def _of_pointers(
    flows: Iterable[tuple[Value, tuple[Value, ...]]],
) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    return ((target, sources) for target, sources in flows if isinstance(target.type, Pointer))
