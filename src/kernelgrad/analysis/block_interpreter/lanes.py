"""Where all threads of a block are, and how a gradient's updates are found and moved there.

What `warp_rotation` and `loop_exchange` share: they rewrite loops of a finished gradient at *convergent* places, those
that every thread of the block reaches, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ...ir.builder import Builder
from ...ir.effects import PURE
from ...ir.ops import Alloca, Apply, Atomic, Block, Constant, For, If, Load, Op, Store, Value, While
from ...ir.traverse import blocks, descend, operands, rebuild, uses, walk
from ...ir.types import F32, F64, I32, I64, Type
from ..aliases import Aliases

_LONGEST = 1 << 30

Change = Callable[[Op, Op], Iterable[Op]]


@dataclass(frozen=True, eq=False)
class Update:
    """An atomic addition in a loop; `guarded` is the If around it that skips zeros, if there is one."""

    atomic: Atomic
    guarded: If | None

    @property
    def ptr(self) -> Value:
        return self.atomic.ptr

    @property
    def value(self) -> Value:
        return self.atomic.args[0]

    def sum_name(self, aliases: Aliases) -> str:
        return f"{aliases.root(self.ptr).name or 'adjoint'}_sum"


def updates(loop: For) -> list[Update]:
    """The additions of floats in a loop, but for those in loops inside it."""
    used = uses(loop.body)
    definition = {v: op for op in walk(loop.body) for v in op.results}
    found: list[Update] = []

    def visit(block: Block, around: If | None) -> None:
        for op in block.ops:
            if isinstance(op, Atomic) and op.kind == "add" and op.args[0].type in (F32, F64):
                if not op.results or not used.get(op.result):
                    found.append(Update(op, around if around and skips_zeros(around, op, definition) else None))
            elif isinstance(op, If):
                visit(op.then, op)
                visit(op.orelse, None)

    visit(loop.body, None)
    return found


def skips_zeros(op: If, atomic: Atomic, definition: dict[Value, Op]) -> bool:
    cond = definition.get(op.cond)
    if not (isinstance(cond, Apply) and cond.fn == "ne" and cond.args[0] is atomic.args[0]):
        return False
    zero = definition.get(cond.args[1])
    return isinstance(zero, Constant) and zero.value == 0 and op.then.ops == (atomic,) and not op.orelse.ops


def is_free_of_order(loop: For, aliases: Aliases) -> bool:
    """Whether other threads, or the same one in another order, could run the iterations: nothing but additions is
    written, and nothing that is written is read."""
    inside = list(walk(loop.body))
    own = {op.result for op in inside if isinstance(op, Alloca)}
    used = uses(loop.body)
    added: list[Value] = []
    for op in inside:
        match op:
            case Atomic("add", ptr) if not op.results or not used.get(op.result):
                added.append(ptr)
            case Store(ptr, _, False) if aliases.root(ptr) in own:
                pass
            case Load(_, False) | Alloca() | If() | For() | While():
                pass
            case _ if isinstance(op, PURE):
                pass
            case _:
                return False
    loads = [op.ptr for op in inside if isinstance(op, Load)]
    return not any(aliases.may_meet(a, p) for a in added for p in loads)


# ---- copies of code ------------------------------------------------------------------------------------------------


def copy_block(block: Block, mapping: dict[Value, Value], change: Change) -> Block:
    """A copy with fresh values; `change(op, copy)` says what stands in the place of each copied operation."""

    def fresh(v: Value) -> Value:
        mapping[v] = made = Value(v.type, v.name)
        return made

    def value(v: Value) -> Value:
        return mapping.get(v, v)

    def inner(b: Block, given: bool = False) -> Block:
        args = b.args if given else tuple(map(fresh, b.args))
        ops: list[Op] = []
        for op in b.ops:
            made = replace(rebuild(op, value, inner), results=tuple(map(fresh, op.results)))
            ops += change(op, made)
        return Block(args, tuple(ops), tuple(map(value, b.results)))

    return inner(block, given=True)


class Recomputed:
    """Computes values again from other ones, by the operations that define them; `leaves` stop that."""

    def __init__(
        self,
        definition: dict[Value, Op],
        is_leaf: Callable[[Value], bool],
        is_allowed: Callable[[Op], bool] = lambda op: True,
    ):
        self.definition, self.is_leaf, self.is_allowed = definition, is_leaf, is_allowed
        self._possible: dict[Value, bool] = {}

    def is_possible(self, value: Value) -> bool:
        if value not in self._possible:
            op = self.definition.get(value)
            simple = isinstance(op, PURE) and self.is_allowed(op)
            again = simple and op is not None and all(map(self.is_possible, operands(op)))
            self._possible[value] = again or self.is_leaf(value)
        return self._possible[value]

    def emit(self, b: Builder, value: Value, mapping: dict[Value, Value]) -> Value:
        if value in mapping or self.is_leaf(value):
            return mapping.get(value, value)
        op = self.definition[value]
        for operand in operands(op):
            self.emit(b, operand, mapping)
        made = Value(value.type, value.name)
        b.add(replace(rebuild(op, lambda v: mapping.get(v, v), lambda inner: inner), results=(made,)))
        mapping[value] = made
        return made


def from_counter(loop: For, definition: dict[Value, Op]) -> Recomputed:
    """Computes values of the loop's body again, for any value of its counter."""
    inside = {v for op in walk(loop.body) for v in op.results}
    counter, *carried = loop.body.args
    return Recomputed(definition, lambda v: v is counter or (v not in inside and v not in carried))


def added(total: Value, value: Value, op: Op) -> list[Op]:
    """In an update's place: the addition to its sum."""
    b = Builder(op.span)
    b.store(total, b.apply("add", b.load(total), value))
    return b.ops


# ---- iterations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trips:
    """How often a loop runs: as a number where it is one, and as a value; `type` is that of its iterations' numbers."""

    loop: For
    number: int | None
    type: Type

    def count(self, b: Builder) -> Value:
        if self.number is not None:
            return b.constant(self.number, self.type)
        step = abs(self.loop.step)
        first, last = (b.convert(v, I64) for v in (self.loop.lower, self.loop.upper))
        low, high = (first, last) if self.loop.step > 0 else (last, first)
        distance = b.apply("sub", high, low)
        more = b.apply("add", distance, b.constant(step - 1, I64)) if step > 1 else distance
        count = b.apply("div", more, b.constant(step, I64)) if step > 1 else more
        nothing = b.constant(0, I64)
        return b.apply("select", b.apply("gt", distance, nothing), count, nothing)

    def counter(self, b: Builder, iteration: Value) -> Value:
        """The loop's own counter, iterations numbered from the lower end: the reverse of a loop counts down, and reads
        better upwards where the order does not matter."""
        type, loop = self.loop.lower.type, self.loop
        at = b.convert(iteration, type)
        if loop.step == -1:
            return b.apply("add", b.apply("add", loop.upper, b.constant(1, type)), at)
        by = at if loop.step == 1 else b.apply("mul", at, b.constant(loop.step, type))
        return b.apply("add", loop.lower, by)


def trips_of(loop: For, constants: dict[Value, int]) -> Trips:
    if loop.lower not in constants or loop.upper not in constants:
        return Trips(loop, None, I64)
    number = len(range(constants[loop.lower], constants[loop.upper], loop.step))
    return Trips(loop, number, I32) if number < _LONGEST else Trips(loop, None, I64)


# ---- convergent places ---------------------------------------------------------------------------------------------


Rewrite = Callable[[For, tuple[Op, ...], list[Op]], list[Op] | None]


def rewrite_loops(body: Block, uniform: set[Value], change: Rewrite) -> Block:
    """The body with loops at convergent places replaced by what `change(loop, behind, before)` gives: `behind` follows
    the loop in its block, to `before` the change may add."""

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for position, op in enumerate(b.ops):
            changed = None
            if isinstance(op, For) and _is_together(op, uniform):
                changed = change(op, b.ops[position + 1 :], ops)
            if changed is not None:
                ops += changed
            else:
                ops.append(descend(op, block) if _is_together(op, uniform) else op)
        return Block(b.args, tuple(ops), b.results)

    return block(body)


def _is_together(op: Op, uniform: set[Value]) -> bool:
    """Whether all threads go the same way through an operation's blocks."""
    match op:
        case For(lower, upper):
            return lower in uniform and upper in uniform
        case If(cond):
            return cond in uniform
        case While(_, before):
            return before.results[0] in uniform
    return not blocks(op)


def nested(ops: Iterable[Op]) -> Iterator[Op]:
    for op in ops:
        yield op
        for inner in blocks(op):
            yield from walk(inner)
