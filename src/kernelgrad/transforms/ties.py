"""Maxima and minima of equal numbers: who takes whose is decided so that threads and operations agree.

Before: a kernel whose derivatives are to be taken. After: it computes the same, and of equal numbers
- the maximum and the minimum of two in one thread are not the same one (sorting networks, leaky clamps);
- lanes that take a maximum of each other's, or threads of each other's in shared memory, take the same one. What is one
  number in all of them has one origin then, and the adjoints of a softmax, say, cancel where they meet.

Note [Ties]. A choice is `max(a, b)`, `min(a, b)`, or `a < b ? a : b` and its kind, also those that look for NaN; at a
tie, an order decides:
- by lane, where one is what another lane has of the other (`m = max(m, shfl_xor(m, 16))`): the lower lane's is the
  maximum, the upper one's the minimum, so that a sort by exchanges stays a permutation. That is an order for lanes that
  differ in one bit; if some exchange is by another mask, or around a ring, each gets half of it, in all of them;
- likewise where both are loaded from the same shared memory: by address, if there are minima and maxima of them, else,
  or if one is in a register, half of it. A tree, in which some threads are idle, gives it to one anyway;
- as a comparison of the two says, where that decides something else that has a derivative, too: the sum that goes with
  the maximum of an online softmax (`big = a.m > b.m ? a : b`) is made for it;
- what all threads load alike goes before what each of them brought along (`m = own; for (k) m = max(m, red[k])`);
- what is the maximum of two plain values is not their minimum.
All else goes to the first argument, or to where a `?:` says (docs/CONVENTIONS.md).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from ..analysis.single_bits import single_bits
from ..analysis.uniform import warp_uniform_values
from ..ir.builder import Builder
from ..ir.ops import Apply, Atomic, Block, For, Function, If, Load, Module, Offset, Op, Store, Value, Warp, While
from ..ir.traverse import blocks, descend, walk, with_body
from ..ir.types import I32, I64, Array, Pointer, Scalar, Struct, Type, element_types
from ..locks import cached_property

_CONVERSE = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_KINDS = {"gt": "max", "ge": "max", "lt": "min", "le": "min"}


def run(function: Function, _: Module) -> Function:
    work = _Ties(function)
    return with_body(function, work.block(function.body)) if work.choices else function


@dataclass(frozen=True)
class _Choice:
    """`kind` of two values; at a tie the result is `taken`."""

    op: Apply
    kind: str
    taken: Value
    left: Value

    @property
    def pair(self) -> frozenset[Value]:
        return frozenset((self.taken, self.left))

    def taking(self, value: Value) -> list[Op]:
        """The operation, made to take one of the two at ties."""
        if value is self.taken:
            return [self.op]
        if self.op.fn == self.kind:
            return [replace(self.op, args=(self.left, self.taken))]
        b, (cond, one, other) = Builder(self.op.span), self.op.args
        tied = b.apply("eq", one, other)
        cond = b.apply("or", cond, tied) if value is one else b.apply("and", cond, b.apply("not", tied))
        return [*b.ops, replace(self.op, args=(cond, one, other))]

    def ordered(self, b: Builder, takes: Value) -> list[Op]:
        """The operation, with `taken` at ties where `takes` holds."""
        if self.op.fn == self.kind:
            first = b.apply("select", takes, self.taken, self.left)
            second = b.apply("select", takes, self.left, self.taken)
            return [*b.ops, replace(self.op, args=(first, second))]
        _, one, other = self.op.args
        tied = b.apply("eq", one, other)
        cond = b.apply("select", tied, takes if self.taken is one else b.apply("not", takes), self.op.args[0])
        return [*b.ops, replace(self.op, args=(cond, one, other))]

    def halved(self) -> list[Op]:
        """The operation, with half of it from each at ties."""
        b, (one, other) = Builder(self.op.span), (self.taken, self.left)
        half, less = b.constant(0.5, one.type), b.constant(-0.5, one.type)
        both = b.apply("custom", b.apply("custom", one, one, less), other, half)
        result = replace(self.op, results=(Value(one.type, self.op.result.name),))
        b.add(result)
        args = (b.apply("eq", one, other), both, result.result)
        return [*b.ops, Apply("select", args, results=self.op.results, span=self.op.span)]


def _choices(definition: dict[Value, Op]) -> Iterator[_Choice]:
    for op in definition.values():
        match op:
            case Apply("max" | "min" as kind, (one, other)) if one is not other and _is_float(one):
                yield _Choice(op, kind, one, other)
            case Apply("select", (cond, one, other)) if one is not other and _is_float(one):
                test = _comparison(cond, definition)
                if test is not None and set(test.args) == {one, other}:
                    fn = test.fn if test.args[0] is one else _CONVERSE[test.fn]
                    taken, left = (one, other) if fn in ("ge", "le") else (other, one)
                    yield _Choice(op, _KINDS[fn], taken, left)


def _comparison(cond: Value, definition: dict[Value, Op]) -> Apply | None:
    """What a condition compares, but for NaN."""
    op = definition.get(cond)
    if isinstance(op, Apply) and op.fn == "or":
        sides = [side for side in op.args if not _asks_for_nan(definition.get(side))]
        return _comparison(sides[0], definition) if len(sides) == 1 else None
    return op if isinstance(op, Apply) and op.fn in _KINDS and _is_float(op.args[0]) else None


def _asks_for_nan(op: Op | None) -> bool:
    return isinstance(op, Apply) and (op.fn == "isnan" or (op.fn == "ne" and op.args[0] is op.args[1]))


def _compared(body: Block, definition: dict[Value, Op], choices: Container[Op]) -> dict[frozenset[Value], set[Value]]:
    """Pairs of which a comparison decides more than the choice between them: who is the larger at a tie, by that."""
    found: dict[frozenset[Value], set[Value]] = {}
    for op in walk(body):
        if op in choices or not _decides(op):
            continue
        test = _comparison(op.cond if isinstance(op, If) else op.args[0], definition)  # type: ignore[attr-defined]
        if test is not None:
            one, other = test.args
            found.setdefault(frozenset(test.args), set()).add(one if test.fn in ("ge", "lt") else other)
    return found


def _decides(op: Op) -> bool:
    """Whether it has a condition, on which floats depend."""
    if isinstance(op, If):
        return any(_holds_floats(r.type) for r in op.results) or any(isinstance(o, Store | Atomic) for o in _inner(op))
    return isinstance(op, Apply) and op.fn == "select" and _holds_floats(op.result.type)


class _Ties:
    def __init__(self, function: Function):
        self.function = function
        self.definition = {r: op for op in walk(function.body) for r in op.results}
        self.choices = {choice.op: choice for choice in _choices(self.definition)}
        self.kinds: dict[frozenset[Value], set[str]] = {}
        self.highest: dict[frozenset[Value], Value] = {}  # who is the maximum at a tie
        for choice in self.choices.values():
            self.kinds.setdefault(choice.pair, set()).add(choice.kind)
            if choice.kind == "max":
                self.highest.setdefault(choice.pair, choice.taken)
        self.carried: set[Value] = set()  # by the loops around
        self.is_apart = False  # under a condition that differs between threads

    @cached_property
    def compared(self) -> dict[frozenset[Value], set[Value]]:
        return _compared(self.function.body, self.definition, self.choices)

    @cached_property
    def uniform(self) -> set[Value]:
        return warp_uniform_values(self.function, whole_rows=False)

    @cached_property
    def single_bits(self) -> set[Value]:
        return single_bits(self.function)

    @cached_property
    def stored(self) -> set[tuple[Value, Value]]:
        """What is stored to shared memory, and there to which."""
        found = (op for op in walk(self.function.body) if isinstance(op, Store) and _is_shared(op.ptr))
        return {(op.value, self.base(op.ptr)) for op in found}

    def base(self, ptr: Value) -> Value:
        op = self.definition.get(ptr)
        return self.base(op.ptr) if isinstance(op, Offset) else ptr

    # ---- walking

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, Apply):
                ops += self.decided(self.choices[op]) if op in self.choices else [op]
            else:
                ops.append(self.inside(op) if blocks(op) else op)
        return Block(block.args, tuple(ops), block.results)

    def inside(self, op: Op) -> Op:
        before = self.carried, self.is_apart
        if isinstance(op, For | While):
            self.carried = self.carried | {*op.body.args, *(op.before.args if isinstance(op, While) else ())}
        elif isinstance(op, If):
            self.is_apart = self.is_apart or op.cond not in self.uniform
        result = descend(op, self.block)
        self.carried, self.is_apart = before
        return result

    # ---- orders

    def decided(self, choice: _Choice) -> list[Op]:
        if choice.pair in self.compared:
            return self.as_compared(choice)
        shuffle = self.exchange(choice)
        if shuffle is not None:
            return self.by_lane(choice, shuffle)
        loads = self.shared_loads(choice)
        are_sorted = len(self.kinds[choice.pair]) == 2
        if len(loads) == 2 and are_sorted:
            return self.by_address(choice, *loads)
        if are_sorted:
            return self.of_two(choice, self.highest[choice.pair])
        if any(v in self.carried for v in choice.pair) and (alike := self.loaded_alike(choice)):
            return choice.taking(alike)
        if loads and not self.is_apart and self.is_returned(choice, loads[0]):
            return choice.halved()
        return [choice.op]

    def as_compared(self, choice: _Choice) -> list[Op]:
        highest, *others = self.compared[choice.pair]
        return [choice.op] if others else self.of_two(choice, highest)

    def of_two(self, choice: _Choice, highest: Value) -> list[Op]:
        (lowest,) = choice.pair - {highest}
        return choice.taking(highest if choice.kind == "max" else lowest)

    # ---- lanes

    def exchange(self, choice: _Choice) -> Warp | None:
        """The shuffle, if one is what another lane has of the other."""
        for one, other in ((choice.taken, choice.left), (choice.left, choice.taken)):
            op = self.definition.get(self.bare(one))
            if isinstance(op, Warp) and op.fn in ("shfl_xor", "shfl_idx") and self.bare(op.args[1]) is self.bare(other):
                return op
        return None

    def bare(self, value: Value) -> Value:
        """Without sign and conversions."""
        op = self.definition.get(value)
        if isinstance(op, Apply) and op.fn in ("neg", "convert") and _is_float(op.args[0]):
            return self.bare(op.args[0])
        return value

    def by_lane(self, choice: _Choice, shuffle: Warp) -> list[Op]:
        if not self.differ_in_one_bit:
            return choice.halved()
        b = Builder(choice.op.span)
        is_lower = self.is_lower(b, shuffle)
        own = self.bare(choice.taken) is self.bare(shuffle.args[1])
        return choice.ordered(b, is_lower if own == (choice.kind == "max") else b.apply("not", is_lower))

    @cached_property
    def differ_in_one_bit(self) -> bool:
        return all(self.is_by_one_bit(op) for op in map(self.exchange, self.choices.values()) if op is not None)

    def is_by_one_bit(self, shuffle: Warp) -> bool:
        by = shuffle.args[2]
        if shuffle.fn == "shfl_idx":
            op = self.definition.get(self.converted(by))
            return isinstance(op, Apply) and op.fn == "xor" and any(self.is_single_bit(v) for v in op.args)
        return self.is_single_bit(by)

    def converted(self, value: Value) -> Value:
        op = self.definition.get(value)
        return self.converted(op.args[0]) if isinstance(op, Apply) and op.fn == "convert" else value

    def is_single_bit(self, value: Value) -> bool:
        return self.converted(value) in self.single_bits

    def is_lower(self, b: Builder, shuffle: Warp) -> Value:
        """Whether this is the lower lane of the two."""
        lane, by, width = (b.convert(v, I32) for v in (b.builtin("lane_id"), *shuffle.args[2:]))
        if shuffle.fn == "shfl_xor":
            partner = b.apply("xor", lane, by)
        else:  # counted from the first lane of so many, and around
            within = b.apply("sub", width, b.constant(1, I32))
            outside = b.apply("xor", within, b.constant(-1, I32))
            partner = b.apply("or", b.apply("and", lane, outside), b.apply("and", by, within))
        return b.apply("lt", lane, partner)

    # ---- memory

    def shared_loads(self, choice: _Choice) -> list[Load]:
        """Those of the two that are loaded from one shared array, in the choice's order."""
        found = [self.definition.get(v) for v in (choice.taken, choice.left)]
        loads = [op for op in found if isinstance(op, Load) and _is_shared(op.ptr)]
        return loads if len({self.base(op.ptr) for op in loads}) == 1 else []

    def by_address(self, choice: _Choice, taken: Load, left: Load) -> list[Op]:
        b = Builder(choice.op.span)
        distance = b.pointer_difference(taken.ptr, left.ptr)
        fn = "lt" if choice.kind == "max" else "gt"
        return choice.ordered(b, b.apply(fn, distance, b.constant(0, I64)))

    def loaded_alike(self, choice: _Choice) -> Value | None:
        """Which of the two all threads load, where the other is each one's."""
        for one, other in ((choice.taken, choice.left), (choice.left, choice.taken)):
            if isinstance(self.definition.get(one), Load | Warp) and one in self.uniform and other not in self.uniform:
                return one
        return None

    def is_returned(self, choice: _Choice, load: Load) -> bool:
        """Whether what is chosen goes to where the other was loaded from."""
        return (choice.op.result, self.base(load.ptr)) in self.stored


def _is_shared(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space == "shared"


def _holds_floats(type: Type) -> bool:
    if isinstance(type, Struct | Array):
        return any(map(_holds_floats, element_types(type)))
    return isinstance(type, Scalar) and type.is_float


def _inner(op: Op) -> Iterator[Op]:
    return (o for block in blocks(op) for o in walk(block))


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float
