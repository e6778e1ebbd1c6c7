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
- what is the maximum of two plain values is not their minimum; nor is their distance anything else than that maximum
  less that minimum: `fmax(a, b) + log1p(exp(-fabs(a - b)))` is smooth, and so is a softplus at zero. The distance also
  follows a comparison that decides what becomes of it: `z = exp(-fabs(x)); x >= 0 ? 1 / (1 + z) : z / (1 + z)`.
All else goes to the first argument, or to where a `?:` says (docs/CONVENTIONS.md).
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.single_bits import single_bits
from ..analysis.uniform import warp_uniform_values
from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Constant, For, Function, If, Load, Module, Offset, Op, Store, Value, Warp, While
from ..ir.traverse import blocks, descend, walk, with_body
from ..ir.types import I32, I64, Pointer
from ..locks import cached_property
from .choices import Choice, Compared, depend_on, find_choices, find_compared, find_distances


def run(function: Function, _: Module) -> Function:
    work = _Ties(function)
    return with_body(function, work.block(function.body)) if work.choices or work.distances else function


class _Ties:
    def __init__(self, function: Function):
        self.function = function
        self.definition = {r: op for op in walk(function.body) for r in op.results}
        self.choices = {choice.op: choice for choice in find_choices(self.definition)}
        self.kinds: dict[frozenset[Value], set[str]] = {}
        self.highest: dict[frozenset[Value], Value] = {}  # who is the maximum at a tie
        for choice in self.choices.values():
            self.kinds.setdefault(choice.pair, set()).add(choice.kind)
            if choice.kind == "max":
                self.highest.setdefault(choice.pair, choice.taken)
        self.carried: set[Value] = set()  # by the loops around
        self.is_apart = False  # under a condition that differs between threads

    @cached_property
    def compared(self) -> Compared:
        return find_compared(self.function.body, self.definition, self.choices)

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
        while isinstance(op := self.definition.get(ptr), Offset):
            ptr = op.ptr
        return ptr

    # ---- walking

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, Apply):
                ops += self.ordered(op)
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

    def ordered(self, op: Apply) -> list[Op]:
        if op in self.choices:
            return self.decided(self.choices[op])
        return self.distance(op, *self.distances[op]) if op in self.distances else [op]

    # ---- orders

    def decided(self, choice: Choice) -> list[Op]:
        if choice.pair in self.compared:
            return self.as_compared(choice)
        shuffle = self.exchange(choice)
        if shuffle is not None:
            return self.by_lane(choice, shuffle)
        loads, are_sorted = self.shared_loads(choice), len(self.kinds[choice.pair]) == 2
        if are_sorted and len(loads) == 2:
            return choice.halved() if choice.pair in self.halved else self.by_address(choice, *loads)
        if are_sorted:
            return self.of_two(choice, self.highest[choice.pair])
        if common := self.common(choice):
            return choice.taking(common)
        if loads and not self.is_apart and self.is_returned(choice, loads[0]):
            return choice.halved()
        return [choice.op]

    @cached_property
    def distances(self) -> dict[Op, tuple[Value, Value]]:
        return find_distances(self.definition, {*self.kinds, *self.compared})

    @cached_property
    def halved(self) -> set[frozenset[Value]]:
        """Pairs of several threads whose distance is taken too: each is half of the maximum, so that it has none."""
        apart = {frozenset(pair) for pair in self.distances.values()} - self.compared.keys()
        several = (c for c in self.choices.values() if c.pair in apart)
        return {c.pair for c in several if self.exchange(c) is not None or len(self.shared_loads(c)) == 2}

    def distance(self, op: Apply, one: Value, other: Value) -> list[Op]:
        """`one` minus `other` where that is not negative: at a tie, as the maximum has it."""
        pair, b = frozenset((one, other)), Builder(op.span)
        deciding = self.compared.get(pair, {})
        tops = set(deciding.values()) or {self.top(c) for c in self.choices.values() if c.pair == pair}
        if pair in self.halved or len(tops) != 1:
            return [op]
        if pair not in self.kinds and not depend_on(op.result, deciding, self.function.body):
            return [op]
        fn = "ge" if one in tops else "gt"
        if isinstance(self.definition.get(other), Constant):  # it may come later
            other = b.constant(0.0, one.type)
        args = b.apply(fn, one, other), op.args[0], b.apply("neg", op.args[0])
        return [*b.ops, replace(op, fn="select", args=args)]

    def top(self, choice: Choice) -> Value:
        """Which of two plain values is the maximum at a tie."""
        if len(self.kinds[choice.pair]) == 2:
            return self.highest[choice.pair]
        taken = self.common(choice) or choice.taken
        (left,) = choice.pair - {taken}
        return taken if choice.kind == "max" else left

    def as_compared(self, choice: Choice) -> list[Op]:
        highest, *others = set(self.compared[choice.pair].values())
        return [choice.op] if others else self.of_two(choice, highest)

    def of_two(self, choice: Choice, highest: Value) -> list[Op]:
        (lowest,) = choice.pair - {highest}
        return choice.taking(highest if choice.kind == "max" else lowest)

    # ---- lanes

    def exchange(self, choice: Choice) -> Warp | None:
        """The shuffle, if one is what another lane has of the other."""
        for one, other in ((choice.taken, choice.left), (choice.left, choice.taken)):
            op = self.definition.get(self.bare(one))
            if isinstance(op, Warp) and op.fn in ("shfl_xor", "shfl_idx") and self.bare(op.args[1]) is self.bare(other):
                return op
        return None

    def bare(self, value: Value) -> Value:
        """Without sign and conversions."""
        while isinstance(op := self.definition.get(value), Apply) and op.fn in ("neg", "convert"):
            value = op.args[0]
        return value

    def by_lane(self, choice: Choice, shuffle: Warp) -> list[Op]:
        if choice.pair in self.halved or not self.differ_in_one_bit:
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
        while isinstance(op := self.definition.get(value), Apply) and op.fn == "convert":
            value = op.args[0]
        return value

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

    def shared_loads(self, choice: Choice) -> list[Load]:
        """Those of the two that are loaded from one shared array, in the choice's order."""
        found = [self.definition.get(v) for v in (choice.taken, choice.left)]
        loads = [op for op in found if isinstance(op, Load) and _is_shared(op.ptr)]
        return loads if len({self.base(op.ptr) for op in loads}) == 1 else []

    def by_address(self, choice: Choice, taken: Load, left: Load) -> list[Op]:
        b = Builder(choice.op.span)
        distance = b.pointer_difference(taken.ptr, left.ptr)
        fn = "lt" if choice.kind == "max" else "gt"
        return choice.ordered(b, b.apply(fn, distance, b.constant(0, I64)))

    def common(self, choice: Choice) -> Value | None:
        """Which of the two all threads load in a loop that carries the other, which is each one's."""
        if choice.pair.isdisjoint(self.carried):
            return None
        for one, other in ((choice.taken, choice.left), (choice.left, choice.taken)):
            if isinstance(self.definition.get(one), Load | Warp) and one in self.uniform and other not in self.uniform:
                return one
        return None

    def is_returned(self, choice: Choice, load: Load) -> bool:
        """Whether what is chosen goes to where the other was loaded from."""
        return (choice.op.result, self.base(load.ptr)) in self.stored


def _is_shared(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space == "shared"
