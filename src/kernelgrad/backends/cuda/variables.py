"""Gives every value that is not folded a C++ variable, and lets values of one source variable share one again.

SSA splits `acc` into the value before a loop, inside it and after it. Where their live ranges do not meet they go back
into one variable, so that the loop reads `acc += x[i]` and needs no copies. Assignments that happen at once in the IR
are put in an order in which none destroys what another still reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...ir.ops import Apply, Block, For, Function, If, Insert, Load, Member, Offset, Op, PtrCast, Value, While
from ...ir.traverse import blocks, walk
from ...ir.types import Pointer, Type
from .folding import Folding
from .liveness import live_ranges
from .names import is_own
from .qualifiers import const_pointers
from .syntax import Expr


@dataclass(eq=False)
class Variable:
    """`block` is where it is declared: together with what `opener` writes first, or before it if `bare`."""

    type: Type
    const: bool
    hint: str
    members: list[Value]
    block: Block
    opener: Op | None = None
    bare: bool = False
    name: str = ""
    own: bool = False  # the source has none of this name


@dataclass
class Variables:
    of: dict[Value, Variable] = field(default_factory=dict)
    bare: dict[Op, list[Variable]] = field(default_factory=dict)  # to declare before an operation
    const: frozenset[Value] = frozenset()


def assign_variables(function: Function, folding: Folding) -> Variables:
    shape = _Shape(function, folding)
    const = const_pointers(function)
    classes = _Classes(live_ranges(function, folding), const, shape)
    values = [v for v in shape.home if v in shape.params or folding.is_variable(v)]
    for value in values:
        classes.add(value)
    for one, other in _one_storage(function, folding):
        classes.merge(one, other)
    for one, other in _copies(function):
        classes.try_merge(one, other)
    _merge_by_name(values, classes, shape)
    return _variables(values, classes, shape, const)


class _Shape:
    """Where values are defined: the block, and the order of the operations."""

    def __init__(self, function: Function, folding: Folding):
        self.counters = {v for op in walk(function.body) for v in _counters(op, folding)}
        self.home: dict[Value, Block] = {p.value: function.body for p in function.params}
        self.params = {p.value for p in function.params}
        self.parent: dict[Block, Block] = {}
        self.place: dict[Op, Block] = {}
        self.owner: dict[Block, Op] = {}
        self.order = {op: k for k, op in enumerate(walk(function.body))}
        self.definer: dict[Value, Op] = {}
        self.starts = [pair for op in walk(function.body) for pair in _starts(op)]
        self._visit(function.body)

    def _visit(self, block: Block) -> None:
        for arg in block.args:
            # What a loop carries outlives an iteration: its variable belongs to the block around the loop.
            self.home[arg] = block if arg in self.counters else self.parent[block]
            self.definer[arg] = self.owner[block]
        for op in block.ops:
            self.place[op] = block
            for inner in blocks(op):
                self.parent[inner], self.owner[inner] = block, op
                self._visit(inner)
            for result in op.results:
                self.home[result] = block
                self.definer[result] = op

    def enclosing(self, block: Block) -> Iterator[Block]:
        """The block and those around it, from the inside."""
        current: Block | None = block
        while current is not None:
            yield current
            current = self.parent.get(current)

    def common(self, one: Block, other: Block) -> Block:
        around = set(self.enclosing(other))
        return next(b for b in self.enclosing(one) if b in around)

    def within(self, op: Op, block: Block) -> Op:
        """The operation of `block` that is or contains `op`."""
        while self.place[op] is not block:
            op = self.owner[self.place[op]]
        return op


@dataclass(eq=False)
class _Class:
    members: list[Value]
    live: int
    names: set[str]
    block: Block


class _Classes:
    def __init__(self, ranges: dict[Value, int], const: frozenset[Value], shape: _Shape):
        self.ranges, self.const, self.shape = ranges, const, shape
        self.of: dict[Value, _Class] = {}

    def add(self, value: Value) -> None:
        names = {value.name} if value.name else set()
        self.of[value] = _Class([value], self.ranges.get(value, 0), names, self.shape.home[value])

    def try_merge(self, one: Value, other: Value) -> None:
        a, b = self.of.get(one), self.of.get(other)
        if a is None or b is None or a is b or one.type != other.type:
            return
        if not self.shape.counters.isdisjoint((*a.members, *b.members)):
            return  # declared by their loop's header, and not seen outside
        fits = len(a.names | b.names) <= 1 and not a.live & b.live and (one in self.const) == (other in self.const)
        if fits:
            self.merge(one, other)

    def merge(self, one: Value, other: Value) -> None:
        a, b = self.of.get(one), self.of.get(other)
        if a is None or b is None or a is b:
            return
        a.members += b.members
        a.live |= b.live
        a.names |= b.names
        a.block = self.shape.common(a.block, b.block)
        for member in b.members:
            self.of[member] = a


def _counters(op: Op, folding: Folding) -> tuple[Value, ...]:
    """The values that the header of a `for` declares."""
    match op:
        case For(body=body):
            return (body.args[0],)
        case While(before=before, body=body) if op in folding.stepped:
            return before.args[folding.stepped[op]], body.args[folding.stepped[op]]
        case _:
            return ()


def _starts(op: Op) -> Iterator[tuple[Value, Value]]:
    """Values, and the loop's that begin with them."""
    match op:
        case For(lower, _, inits, _, body):
            yield from zip((lower, *inits), body.args, strict=True)
        case While(inits, before):
            yield from zip(inits, before.args, strict=True)
        case _:
            pass


def _one_storage(function: Function, folding: Folding) -> Iterator[tuple[Value, Value]]:
    """Values that are in one variable by the way loops are written: a loop's results are its last carried values, and
    the header of a `for` has no place for copies from what its test sees to what its body does."""
    for op in walk(function.body):
        if isinstance(op, While) and op in folding.stepped:
            yield from zip(op.before.args, op.body.args, strict=True)
        match op:
            case For(body=body):
                yield from zip(body.args[1:], op.results, strict=True)
            case While(body=body):
                yield from zip(body.args, op.results, strict=True)


def _copies(function: Function) -> Iterator[tuple[Value, Value]]:
    """Pairs that a statement would have to copy between if they were in two variables."""
    for op in walk(function.body):
        match op:
            case For(inits=inits, body=body):
                yield from zip(inits, op.results, strict=True)
                yield from zip(body.results, op.results, strict=True)
            case While(inits=inits, before=before, body=body):
                yield from zip(inits, before.args, strict=True)
                yield from zip(before.results[1:], body.args, strict=True)
                yield from zip(body.results, before.args, strict=True)
            case If(then=then, orelse=orelse):
                yield from zip(then.results, op.results, strict=True)
                yield from zip(orelse.results, op.results, strict=True)
            case Insert(aggregate=aggregate):
                yield aggregate, op.result
            case _:
                pass


def _merge_by_name(values: list[Value], classes: _Classes, shape: _Shape) -> None:
    """`v = v * 2;` in straight-line code: values of one name in one block, first with what they are computed from."""
    latest: dict[tuple[Block, str], Value] = {}
    for value in values:
        if value.name is None:
            continue
        block = shape.home[value]
        for previous in (*_updated(value, shape), latest.get((block, value.name))):
            if previous in classes.of and classes.of[previous].block is classes.of[value].block:
                classes.try_merge(previous, value)
        latest[block, value.name] = value


def _updated(value: Value, shape: _Shape) -> Iterator[Value]:
    """What a value is computed from that has its name, as each of several sums that are made side by side."""
    op = shape.definer.get(value)
    args = op.args if isinstance(op, Apply) else ()
    return (arg for arg in args if arg.name == value.name and shape.home.get(arg) is shape.home[value])


def _variables(values: list[Value], classes: _Classes, shape: _Shape, const: frozenset[Value]) -> Variables:
    result = Variables(const=const)
    for value in values:
        found = classes.of[value]
        if found.members[0] in result.of:
            result.of[value] = result.of[found.members[0]]
            continue
        named = next(iter(found.names), None)
        name = named or next((_hint(op, shape) for op in _definers(found, shape)), "t")
        is_const = isinstance(value.type, Pointer) and any(m in const for m in found.members)
        variable = Variable(value.type, is_const, name, found.members, found.block, own=is_own(named))
        for member in found.members:
            result.of[member] = variable
        _place_declaration(variable, shape)
        if variable.opener is not None and variable.bare:
            result.bare.setdefault(variable.opener, []).append(variable)
    _name_starts(result, shape)
    return result


def _name_starts(variables: Variables, shape: _Shape) -> None:
    """What a loop's variable begins with, where that is needed later too: the loop has the name."""
    for one, other in shape.starts:
        start, looping = variables.of.get(one), variables.of.get(other)
        if (
            one not in shape.params
            and start is not None
            and looping is not None
            and start is not looping
            and start.hint == looping.hint
        ):
            start.hint, start.own = f"{start.hint}_start", True


def _definers(found: _Class, shape: _Shape) -> Iterator[Op]:
    return (shape.definer[m] for m in found.members if m in shape.definer)


def _place_declaration(variable: Variable, shape: _Shape) -> None:
    """Finds the first operation that writes the variable; parameters and loop counters need none."""
    if any(m in shape.params for m in variable.members):
        return
    writers = [(shape.definer[m], m) for m in variable.members]
    first, value = min(writers, key=lambda pair: shape.order[pair[0]])
    if value in shape.counters:
        return
    variable.opener = shape.within(first, variable.block)
    variable.bare = variable.opener is not first or not _writes_at_once(first, variable)


def _writes_at_once(op: Op, variable: Variable) -> bool:
    """Whether the operation begins by writing the variable, in its own block: loops do, by their initial values."""
    members = set(variable.members)
    match op:
        case If():
            return False
        case For(body=body):
            return not members.isdisjoint((*body.args, *op.results))
        case While(before=before):
            return not members.isdisjoint(before.args)
        case _:
            return len(op.results) == 1


def _hint(op: Op, shape: _Shape) -> str:
    """A name for what the source did not name."""
    match op:
        case Load(ptr):
            root = _root_name(ptr, shape)
            return f"{root}_value" if root else "value"
        case Offset() | Member() | PtrCast():
            return "p"
        case _:
            return "t"


def _root_name(ptr: Value, shape: _Shape) -> str | None:
    """The name of the variable that an address starts from."""
    while ptr.name is None:
        op = shape.definer.get(ptr)
        if not isinstance(op, Offset | Member | PtrCast):
            return None
        ptr = op.ptr
    return ptr.name


# ---- assignments that happen at once --------------------------------------------------------------------------------


@dataclass(eq=False)
class Copy:
    target: Variable
    value: Expr
    reads: frozenset[Variable]


@dataclass(eq=False)
class Save:
    """Evaluate `copy`'s value into a temporary first, and assign it from there."""

    copy: Copy


def in_sequence(copies: list[Copy]) -> Iterator[Copy | Save]:
    """The copies in a safe order; where they form a cycle (`a, b = b, a`), one is saved before the others run."""
    waiting = list(copies)
    while waiting:
        ready = next((c for c in waiting if not _is_read(c.target, waiting, c)), None)
        if ready is not None:
            waiting.remove(ready)
            yield ready
        else:
            blocking = next(c for c in waiting if c.reads)
            yield Save(blocking)
            blocking.reads = frozenset()


def _is_read(target: Variable, copies: list[Copy], but: Copy) -> bool:
    return any(target in c.reads for c in copies if c is not but)
