"""Buffers through which threads may pass each other values within a launch.

Note [Restrict]
That a parameter overlaps no other (`Param.restrict`) is a fact about addresses, and what alias analysis uses. To print
it as `__restrict__` says more: compilers then take it that nobody else changes the memory while the kernel runs, and
move loads over barriers. It is printed where that holds: of buffers that are only read, only added to atomically, or
stored by one statement; of buffers each of whose elements is one thread's (`Param.own`); and where threads never meet,
since then none can rely on what another has written.

Nor is it printed where pointers go through memory, as on a tape: of the memory that holds them, and of what they point
to. Compilers (NVRTC 13.0) lose sight of where such a pointer came from, and move accesses through it.

Nor is it printed of what is only read where compilers make one load of two, and where pointers are chosen: Note [Merged
loads], Note [Chosen pointers].

What `const` says in the source is no proof: it can be cast away.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.effects import MEETINGS
from ..ir.ops import Alloca, Atomic, Constant, For, Function, GlobalRef, If, Load, Op, Param, Store, Undef, Value, While
from ..ir.traverse import operands, uses, walk
from ..ir.types import U8, Array, Pointer, Struct, Type
from .merged_loads import MergedLoads

_Roots = frozenset[Value]
_ANY = Value(U8, "any memory")  # behind pointers that come from memory
_OTHER = Value(U8, "other memory")  # of variables, and behind null


def meets(function: Function) -> bool:
    """Whether a thread can know that another has come to some place: barriers, fences, warps, spinning, tickets."""
    used = uses(function.body)
    return any(_is_meeting(op, used) for op in walk(function.body))


def _is_meeting(op: Op, used: dict[Value, int]) -> bool:
    match op:
        case Load(volatile=True) | Store(volatile=True):
            return True
        case Atomic():
            return op.kind != "take" and bool(used.get(op.result))
    return isinstance(op, MEETINGS)


def only_read(function: Function) -> frozenset[Value]:
    """The parameters that overlap no other and are not written, whatever their types say."""
    accesses = _Accesses(function)
    return frozenset(
        p.value for p in function.params if p.restrict and isinstance(p.type, Pointer) and not accesses.writes(p.value)
    )


def unshared(function: Function) -> frozenset[Value]:
    """The parameters that may be printed `__restrict__`, see Note [Restrict]."""
    apart = [p for p in function.params if p.restrict and isinstance(p.type, Pointer)]
    apart = _at_home(function, apart)
    alone = frozenset(p.value for p in apart)
    apart = [p for p in apart if isinstance(p.type, Pointer) and not _points(p.type.pointee)]
    if not apart:
        return frozenset()
    accesses = _Accesses(function)
    merged = MergedLoads(function, lambda ptr: accesses.roots.get(ptr, frozenset()), alone)
    apart = [p for p in apart if p.value not in merged.found | merged.mixed]
    if meets(function):
        apart = [p for p in apart if p.own or accesses.is_one_way(p.value)]
    printed = frozenset(p.value for p in apart)
    return printed - merged.targets_of_copies(printed)


def _at_home(function: Function, params: list[Param]) -> list[Param]:
    """Those to which no pointer is stored."""
    stored = [op.value for op in walk(function.body) if isinstance(op, Store) and _points(op.value.type)]
    if not stored:
        return params
    roots = _roots(function)
    away = frozenset[Value]().union(*(roots.get(v, frozenset()) for v in stored))
    return [p for p in params if p.value not in away]


class _Accesses:
    """What is done through each parameter, wherever its pointer goes."""

    def __init__(self, function: Function):
        self.used = uses(function.body)
        self.roots = _roots(function)
        self.ops = [op for op in walk(function.body) if isinstance(op, Load | Store | Atomic)]

    def through(self, root: Value) -> Iterator[Load | Store | Atomic]:
        return (op for op in self.ops if self.roots.get(op.ptr, frozenset()) & {root, _ANY})

    def writes(self, root: Value) -> bool:
        return any(not isinstance(op, Load) for op in self.through(root))

    def is_one_way(self, root: Value) -> bool:
        """Whether the memory is only read, only added to, or stored by one statement."""
        found = list(self.through(root))
        stores = [op for op in found if isinstance(op, Store)]
        return (
            all(isinstance(op, Load) for op in found)
            or (len(stores) == 1 and len(found) == 1)
            or all(
                isinstance(op, Atomic) and op.kind in ("add", "sub") and not self.used.get(op.result) for op in found
            )
        )


def _roots(function: Function) -> dict[Value, _Roots]:
    """Where each pointer, or value that holds pointers, may come from."""
    starts = (_ANY, _OTHER, *(p.value for p in function.params if _points(p.type)))
    found: dict[Value, _Roots] = {start: frozenset((start,)) for start in starts}
    flows = [pair for op in walk(function.body) for pair in _flows(op) if _points(pair[0].type)]
    changed = True
    while changed:  # loops carry pointers backwards
        changed = False
        for target, sources in flows:
            before = found.get(target, frozenset())
            after = before.union(*(found.get(v, frozenset()) for v in sources))
            changed = changed or after != before
            found[target] = after
    return found


def _flows(op: Op) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """(target, sources) for each value that an operation defines."""
    match op:
        case Load() | Atomic():
            yield op.result, (_ANY,)
        case Alloca() | GlobalRef() | Constant() | Undef():
            yield op.result, (_OTHER,)
        case If(_, then, orelse):
            yield from zip(op.results, zip(then.results, orelse.results, strict=True), strict=True)
        case For(inits=inits, body=body):
            for sources in zip(inits, body.results, body.args[1:], op.results, strict=True):
                yield from ((target, sources[:2]) for target in sources[2:])
        case While(inits=inits, before=before, body=body):
            yield from zip(before.args, zip(inits, body.results, strict=True), strict=True)
            for source, *targets in zip(before.results[1:], body.args, op.results, strict=True):
                yield from ((target, (source,)) for target in targets)
        case _:
            pointers = tuple(v for v in operands(op) if _points(v.type))
            yield from ((result, pointers or (_ANY,)) for result in op.results)


def _points(type: Type) -> bool:
    if isinstance(type, Struct):
        return any(_points(f.type) for f in type.fields)
    return isinstance(type, Pointer) or (isinstance(type, Array) and _points(type.element))
