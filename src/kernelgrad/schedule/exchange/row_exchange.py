"""Rows and keys: loops of all threads over the same elements, exchanged for the threads.

    i = blockIdx.x * blockDim.x + threadIdx.x;  for (j ...) { ... atomicAdd(&_d_k[j * D + d], v); }

Every thread, a row, adds to the same elements, those of a key j. In a launch of its own a thread has a key, runs over
the rows and sums up what they would have added in iteration j, in registers; blocks share out keys and chunks of rows,
and add what they have atomically once. What a row computed before the loop, its own launch leaves in memory, as few
numbers as a minimum cut finds (see `row_values`); the rest is computed again.

An update goes that way if its address depends on the iteration but not on the row, and its value on nothing that
iterations hand on. Of what the other launch reads, nothing is written by the first, which does nothing but add to what
the other adds to: a row that looked there would miss what was added before. Iterations that a row does not run do not
run there either: rows leave between which keys they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...analysis.block_interpreter.lanes import Update, updates
from ...analysis.roots import UNKNOWN, Memory
from ...analysis.roots import analyse as roots_of
from ...ir.effects import is_pure
from ...ir.ops import Atomic, Block, Builtin, For, Function, If, Load, Op, Store, Value
from ...ir.traverse import blocks, operands, uses, walk
from ...ir.types import F32, F64, Pointer, Scalar
from .partners import Needs, needs_of

# What a value depends on.
ROW, KEY = "row", "key"
Kind = frozenset[str]  # of these, and of the block's indices that it depends on
_NOTHING: Kind = frozenset()
_BLOCK_AXES = tuple(f"block {axis}" for axis in range(3))
_OF_LAUNCH = frozenset(("block_dim", "grid_dim", "warp_size"))


@dataclass(eq=False)
class Part:
    """Updates of a loop, exchanged together. `path`: the conditions around the loop. `axes`: of the grid, along which
    keys differ. `fixed`: all rows run all iterations, or none. `early`: operations of the body that depend on the key
    alone; `own`: those that depend on the row alone; both come before all iterations' work. `wanted`: what the work
    wants of its row; `again`: addresses that are made of it. `launched`: what it wants that is the same for all."""

    loop: For
    path: tuple[tuple[If, bool], ...]
    updates: tuple[Update, ...]
    needs: Needs
    axes: tuple[int, ...]
    fixed: bool
    early: list[Op] = field(default_factory=list)
    own: list[Op] = field(default_factory=list)
    wanted: dict[Value, None] = field(default_factory=dict)
    again: dict[Op, None] = field(default_factory=dict)
    launched: dict[Value, None] = field(default_factory=dict)


class Dependence:
    """What values of a function depend on, as a loop's iterations see it."""

    def __init__(self, function: Function, memory: Memory, loop: For):
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.params = {p.value for p in function.params}
        self.memory, self.loop = memory, loop
        self.written = memory.written()
        self.looked_at = _looked_at(function, memory)
        self.inside = {v for op in walk(loop.body) for v in op.results}
        self.inner_args = {v for op in walk(loop.body) for b in blocks(op) for v in b.args}
        self._kinds: dict[Value, Kind | None] = {loop.body.args[0]: frozenset((KEY,))}
        self._kinds |= dict.fromkeys(loop.body.args[1:])

    def of(self, value: Value) -> Kind | None:
        """None where another thread cannot have it."""
        if value not in self._kinds:
            self._kinds[value] = _NOTHING  # an argument of a loop inside, while that is looked at
            self._kinds[value] = self._found(value)
        return self._kinds[value]

    def _found(self, value: Value) -> Kind | None:
        if value in self.params or value in self.inner_args:
            return _NOTHING
        op = self.definition.get(value)
        if op is None:
            return frozenset((ROW,))  # what a loop around it carries
        match op:
            case Builtin(name, axis):
                if name in _OF_LAUNCH:
                    return _NOTHING
                found = {"thread_idx": ROW, "block_idx": _BLOCK_AXES[axis]}.get(name)
                return None if found is None else frozenset((found,))
            case Load() if not self.is_input(op):
                return None if value in self.inside else frozenset((ROW,))
        if is_pure(op) or isinstance(op, Load):
            return self.union(operands(op))
        if value not in self.inside:
            return frozenset((ROW,))
        return self.union(_all_of(op)) if isinstance(op, If | For) and self.can_copy(op) else None

    def union(self, values: Iterator[Value] | tuple[Value, ...]) -> Kind | None:
        found = _NOTHING
        for value in values:
            kind = self.of(value)
            if kind is None:
                return None
            found |= kind
        return found

    def can_copy(self, op: Op) -> bool:
        """Whether another thread can run it, with all that is inside."""
        inner = [op, *(o for b in blocks(op) for o in walk(b))]
        return all(is_pure(o) or isinstance(o, If | For) or (isinstance(o, Load) and self.is_input(o)) for o in inner)

    def is_input(self, op: Load) -> bool:
        """Of memory that outlives the launch and that nobody writes."""
        roots = self.memory.of(op.ptr)
        known = bool(roots) and UNKNOWN not in roots and roots <= self.params
        return known and not roots & self.written and not op.volatile


def _looked_at(function: Function, memory: Memory) -> frozenset[Value]:
    """Memory of which the order of additions and other accesses matters."""
    used = uses(function.body)
    others = (op for op in walk(function.body) if isinstance(op, Load | Store | Atomic) and not _adds(op, used))
    return frozenset(root for op in others for root in memory.of(op.ptr))


def _adds(op: Op, used: dict[Value, int]) -> bool:
    return isinstance(op, Atomic) and op.kind == "add" and not used.get(op.result)


def _all_of(op: Op) -> Iterator[Value]:
    yield from operands(op)
    for block in blocks(op):
        yield from (v for inner in walk(block) for v in operands(inner))
        yield from block.results


def find(function: Function) -> list[Part]:
    """All that can be exchanged, but for what it costs."""
    memory, found = roots_of(function), list[Part]()
    if any(isinstance(op, Store | Atomic) and UNKNOWN in memory.of(op.ptr) for op in walk(function.body)):
        return []
    for loop, path in loops_of(function.body):
        found += _parts(Dependence(function, memory, loop), path)
    return found


def loops_of(block: Block, path: tuple[tuple[If, bool], ...] = ()) -> Iterator[tuple[For, tuple[tuple[If, bool], ...]]]:
    for op in block.ops:
        if isinstance(op, For):
            yield op, path
        elif isinstance(op, If):
            yield from loops_of(op.then, (*path, (op, True)))
            yield from loops_of(op.orelse, (*path, (op, False)))


def _parts(known: Dependence, path: tuple[tuple[If, bool], ...]) -> Iterator[Part]:
    """Of one loop: by the axes of the grid, and by the array that is added to."""
    loop, groups = known.loop, dict[tuple[tuple[int, ...], Value], list[Update]]()
    bounds = known.union((loop.lower, loop.upper))
    fixed = bounds == _NOTHING
    if bounds is None or not (fixed or abs(loop.step) == 1):
        return
    for update in updates(loop):
        axes = _axes_of(update, known)
        if axes is not None:
            (root,) = known.memory.of(update.ptr)
            groups.setdefault((axes, root), []).append(update)
    for (axes, _), members in groups.items():
        part = Part(loop, path, tuple(members), needs_of(members, loop), axes, fixed)
        if not part.needs.carried and _Sorting(part, known).is_done():
            yield part


def _axes_of(update: Update, known: Dependence) -> tuple[int, ...] | None:
    """Of the grid, along which an update's address differs; None if that depends on the row, or not on the key."""
    type, roots = update.ptr.type, known.memory.of(update.ptr)
    kind = known.of(update.ptr)
    if kind is None or KEY not in kind or ROW in kind or update.value.type not in (F32, F64):
        return None
    if not isinstance(type, Pointer) or type.space != "global" or len(roots) != 1 or not roots <= known.params:
        return None
    if not known.looked_at.isdisjoint((*roots, UNKNOWN)):
        return None
    return tuple(axis for axis, name in enumerate(_BLOCK_AXES) if name in kind)


def merged(one: Part, other: Part, known: Dependence) -> Part | None:
    """Both in one launch: what they need in common is computed once."""
    if one.loop is not other.loop or one.axes != other.axes:
        return None
    members = (*one.updates, *other.updates)
    part = Part(one.loop, one.path, members, needs_of(list(members), one.loop), one.axes, one.fixed)
    return part if _Sorting(part, known).is_done() else None


class _Sorting:
    """Sorts what iterations do by what it depends on."""

    def __init__(self, part: Part, known: Dependence):
        self.part, self.known, self.kept = part, known, frozenset(_BLOCK_AXES[axis] for axis in part.axes)
        self.early, self.rows = set[Value](), set[Value]()

    def is_done(self) -> bool:
        part, known = self.part, self.known
        if not all(known.can_copy(op) or isinstance(op, Atomic) or op in part.needs.bare for op in part.needs.ops):
            return False
        for op in part.loop.body.ops:
            if op in part.needs.ops and (is_pure(op) or isinstance(op, Load)):
                self.sort(op)
        before = {*part.early, *part.own}
        left = [op for op in walk(part.loop.body) if op in part.needs.ops and op not in before]
        values = [v for op in left for v in (operands(op) if not isinstance(op, Atomic) else op.args)]
        values += [v for op in left if op not in part.needs.bare for b in blocks(op) for v in b.results]
        return all(self.want(v) for v in values) and all(self.want_address(u.ptr) for u in part.updates)

    def sort(self, op: Op) -> None:
        part, kind = self.part, self.known.of(op.results[0])
        if kind is None:
            return
        if kind - self.kept <= {KEY} and self.is_early(op):
            part.early.append(op)
            self.early.update(op.results)
        elif KEY not in kind:
            part.own.append(op)
            self.rows.update(op.results)

    def is_early(self, op: Op) -> bool:
        """Where rows begin and end at other iterations, only loads between two that happen are known to be right."""
        if not isinstance(op, Load) or self.part.fixed:
            return True
        return is_linear(op.ptr, self.known)

    def want(self, value: Value) -> bool:
        part, known = self.part, self.known
        kind = known.of(value)
        if kind is None:
            return False
        if value in self.early or value in known.inner_args or value is part.loop.body.args[0]:
            return True
        if value in known.inside and value not in self.rows:
            return True  # made in the work itself
        if not kind - self.kept:
            part.launched.setdefault(value)
            return True
        if not isinstance(value.type, Pointer):
            part.wanted.setdefault(value)
            return can_be_left(value)
        op = known.definition.get(value)
        if op is None or not is_pure(op) or not all(map(self.want, operands(op))):
            return False
        part.again.setdefault(op)
        return True

    def want_address(self, value: Value) -> bool:
        """Of what the address of an update is made; it is the same for all rows."""
        op, known = self.known.definition.get(value), self.known
        if value in self.early or value is self.part.loop.body.args[0]:
            return True
        if value in known.inside:
            return op is not None and is_pure(op) and all(map(self.want_address, operands(op)))
        self.part.launched.setdefault(value)
        return True


def is_linear(ptr: Value, known: Dependence) -> bool:
    """Whether an address grows or falls with the key, by the same each time."""

    def linear(value: Value) -> bool:
        if KEY not in (known.of(value) or _NOTHING):
            return True
        op = known.definition.get(value)
        if op is None:
            return value is known.loop.body.args[0]
        match getattr(op, "fn", type(op).__name__):
            case "convert" if not _is_wide(value):
                return False  # it comes round
            case "add" | "sub" | "neg" | "convert" | "Offset" | "PtrCast" | "Member":
                return all(map(linear, operands(op)))
            case "mul":
                return all(map(linear, operands(op))) and any(KEY not in (known.of(v) or ()) for v in operands(op))
        return False

    return linear(ptr)


def _is_wide(value: Value) -> bool:
    """Whether it has as many bits as the number of keys, so that it does not come round between two of them."""
    return isinstance(value.type, Scalar) and value.type.bits >= 32


def can_be_left(value: Value) -> bool:
    """In memory, for other threads."""
    return isinstance(value.type, Scalar) and (value.type.kind == "bool" or value.type.size in (4, 8))
