"""Wide adjoints: memory to whose cells so much is added in one launch that floats would lose some of it.

A sum of N floats, one after the other, is off by up to N / 4 of its last digits where they are equal. Where a launch
may add more than `MOST_ADDITIONS` times to a cell in memory, the shadow of that memory is in double precision: of a
parameter, doubles that the launcher makes and adds to the user's adjoint afterwards (`launches/memory`); of shared and
local memory, the shadow itself. Each contribution is computed in float as ever, and converted where it is added.

Doubles are cleared before and added up after a launch: of the cells that it may reach. Where some get so much for
certain, since there are many additions at few addresses, there may be as many doubles as the launch makes additions.
Where it depends on what memory holds, there are doubles if there are few cells, or if so much is added to the average
one. Elements of larger buffers, of which most get few contributions (a scatter), stay floats.

That takes pointers whose memory is known and seen as one type: other views of it would lie elsewhere in a shadow whose
cells are twice as large.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...analysis.machine import MOST_ADDITIONS
from ...analysis.roots import UNKNOWN, Memory, holds_pointers
from ...errors import UnsupportedError
from ...ir.ops import (
    Alloca,
    Atomic,
    Function,
    GlobalRef,
    Load,
    Member,
    Offset,
    PtrCast,
    Store,
    Value,
)
from ...ir.traverse import walk
from ...ir.types import BF16, F16, F32, Array, Pointer, Scalar, Struct, Type, innermost
from ..calculus.shadows import wide_type
from ..calculus.views import leaves
from .contributions import Contributions, Count

_NARROW = frozenset((F16, BF16, F32))
_EACH = 1024  # additions for each cell: then there may be more of them
FEW_CELLS = 1 << 15  # a quarter of a megabyte of doubles

if TYPE_CHECKING:
    from .prepared import Prepared


def wide_roots(
    function: Function, memory: Memory, active: frozenset[Value], wanted: frozenset[str]
) -> frozenset[Value]:
    """The memory whose shadow is wide, of what is wanted by name."""
    if not wanted:
        return frozenset()
    chosen = frozenset(root for name, value in named(function) if name in wanted for root in memory.of(value))
    return settled(chosen, function, memory, active)


class Launched(NamedTuple):
    """What is known of a launch. `sizes`: of the listed buffers, in bytes. `private`: memory whose elements are touched
    by one thread each. `elsewhere`: buffers whose adjoints are written or collected in other ways. `share`: of the
    additions to a cell, those that are made one after the other, where a buffer has copies: each core's on a CPU,
    several on a GPU."""

    sizes: Mapping[str, int]
    private: frozenset[str]
    elsewhere: frozenset[str]
    share: Callable[[str], float]


def needed(prepared: Prepared, contributions: Contributions, launch: Launched) -> frozenset[str]:
    """The memory whose cells may get more than floats can hold, by name, if doubles in its place cost little."""
    function, memory, active = prepared.function, prepared.memory, prepared.activity.roots
    params = {p.value: p.name for p in function.params}
    crowded = set[Value]()
    in_order = prepared.options.deterministic  # what several threads add to a buffer is logged, and added up by pairs
    for root in {root for _, value in named(function) for root in memory.of(value) & active}:
        name = params.get(root)
        if name in launch.elsewhere or (in_order and name is not None and name not in launch.private):
            continue
        count = contributions.to(root)
        most = contributions.most(root) * (launch.share(name) if name is not None and name in launch.sizes else 1.0)
        if (
            most > MOST_ADDITIONS
            and count.low >= 0
            and (name is None or _is_cheap(root, name, launch, count, contributions))
        ):
            crowded.add(root)
    found = settled(crowded, function, memory, active, _shadows(prepared))
    return frozenset(name for name, value in named(function) if memory.of(value) & found)


def _shadows(prepared: Prepared) -> set[Value]:
    """Pointers into shadows, and what they are made of: that of dynamic shared memory lies behind it."""
    of, definition = prepared.shadowed.of, prepared.structure.definition
    found, todo = set[Value](), list(of.values())
    while todo:
        value = todo.pop()
        op = definition.get(value)
        if value not in found and value not in of:
            found.add(value)
            todo += [op.ptr] if isinstance(op, Offset | Member | PtrCast) else []
    return found


def _is_cheap(root: Value, name: str, launch: Launched, count: Count, contributions: Contributions) -> bool:
    """Whether to clear doubles and to add them up takes little beside the launch: as many as it can reach."""
    whole = launch.sizes.get(name, 0)
    if _cells(root, whole) <= max(FEW_CELLS, count.total / _EACH):
        return True
    few = max(FEW_CELLS, count.total / (1 if contributions.is_certain_of(root, MOST_ADDITIONS) else _EACH))
    first, end = contributions.reach(root) or (0, whole)
    return _cells(root, min(whole, end) - min(whole, first)) <= few


def _cells(root: Value, nbytes: int) -> int:
    return -(-nbytes // _pointee(root).size) * len(_all_leaves(_pointee(root)))


def named(function: Function) -> Iterator[tuple[str, Value]]:
    """What facts call memory by, and the values that lead to it."""
    for param in function.params:
        if isinstance(param.type, Pointer):
            yield param.name, param.value
    for op in walk(function.body):
        if isinstance(op, GlobalRef):
            yield f"shared {op.name}", op.result
        elif isinstance(op, Alloca):
            yield f"local {op.result.name} {op.span}", op.result


def settled(
    chosen: Iterable[Value],
    function: Function,
    memory: Memory,
    active: frozenset[Value],
    shadows: Collection[Value] = (),
) -> frozenset[Value]:
    """Those of them that can be wide. Pointers that may lead to several pieces of memory need all of them to be.
    `shadows`: pointers that are none of the kernel's own."""
    refused = _refused(function, memory, shadows)
    found = {root for root in chosen if root in active and root not in refused and _is_held(root)}
    together = [roots for roots in memory.roots.values() if len(roots) > 1]
    dynamic = {root for root in memory.global_names.values() if root in active and _is_dynamic(frozenset((root,)))}
    together.append(frozenset(dynamic))  # the same memory
    while True:
        apart = {root for roots in together if not roots <= found for root in roots & found}
        if not apart:
            return frozenset(found)
        found -= apart


def _is_held(root: Value) -> bool:
    """Whether memory is declared to hold floats, none of them behind pointers, in a form that can be widened."""
    type = root.type.pointee if isinstance(root.type, Pointer) else None
    if type is None or holds_pointers(type) or not leaves(type) & _NARROW or not _is_aligned(Array(type, 2)):
        return False
    try:
        wide_type(type)
    except UnsupportedError:
        return False
    return True


def _is_aligned(type: Type, at: int = 0) -> bool:
    """Whether all numbers begin at multiples of their size, which those of packed records do not: the launcher steps
    through an adjoint in floats."""
    match type:
        case Scalar():
            return at % type.size == 0
        case Array(element, _):
            return all(_is_aligned(element, at + k * element.size) for k in (0, 1))
        case Struct():
            return all(_is_aligned(field.type, at + field.offset) for field in type.fields)
    return True


def _refused(function: Function, memory: Memory, shadows: Collection[Value]) -> set[Value]:
    """Memory that is seen as something else, or that pointers in records or memory lead to."""
    found = set(memory.escaped)
    for value, roots in memory.roots.items():
        if not isinstance(value.type, Pointer) or UNKNOWN in roots:
            found |= roots
    for op in walk(function.body):
        match op:
            case PtrCast(ptr) if op.result not in shadows and not _is_row(ptr.type, op.result.type):
                found |= memory.of(ptr)
            case Load(ptr) | Store(ptr, _) | Atomic(_, ptr, _) if _is_dynamic(memory.of(ptr)):
                found |= memory.of(ptr) if leaves(_pointee(ptr)) != {F32} else set()
    return found


def _is_dynamic(roots: frozenset[Value]) -> bool:
    types = [root.type.pointee for root in roots if isinstance(root.type, Pointer)]
    return any(isinstance(type, Array) and type.count == 0 for type in types)


def _pointee(ptr: Value) -> Type:
    assert isinstance(ptr.type, Pointer)
    return ptr.type.pointee


def _is_row(old: Type, new: Type) -> bool:
    """Whether a pointer changes between a type and a row of it: float, float4, an array of floats or of records."""
    assert isinstance(old, Pointer) and isinstance(new, Pointer)
    first, second = _element(old.pointee), _element(new.pointee)
    one, other = sorted((_all_leaves(first), _all_leaves(second)), key=len)
    whole = _is_whole(first) and _is_whole(second)
    alike = innermost(first) == innermost(second)
    return alike or (whole and one * (len(other) // max(1, len(one))) == other)


def _element(type: Type) -> Type:
    """Of arrays whose size the launch tells."""
    return type.element if isinstance(type, Array) and type.count == 0 else type


def _is_whole(type: Type) -> bool:
    """Whether there is nothing between its numbers, in either precision."""
    return all(t.size == sum(leaf.size for leaf in _all_leaves(t)) for t in (type, wide_type(type)))


def _all_leaves(type: Type) -> list[Scalar]:
    match type:
        case Scalar():
            return [type]
        case Array(element, count):
            return _all_leaves(element) * max(1, count)
        case Struct():
            return [leaf for field in type.fields for leaf in _all_leaves(field.type)]
    return []
