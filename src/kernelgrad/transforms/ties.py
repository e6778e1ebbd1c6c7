"""Maxima and minima of equal numbers: which argument gets the adjoint is decided so that threads and operations agree.

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
"The two" are told by their difference, but for a factor: `fmax(x, 0)`, `fmax(-x, 0)` and `fmin(x, -x)` are at one kink,
and `q + fmax(m - q, 0)` is a maximum of m and q. So all that depends on one difference is as on one side of its zero.
All else goes to the first argument, or to where a `?:` says (docs/CONVENTIONS.md).
"""

from __future__ import annotations

from typing import NamedTuple

from ..analysis.linear_forms import Key
from ..analysis.single_bits import single_bits
from ..analysis.uniform import warp_uniform_values
from ..ir.builder import Builder
from ..ir.ops import Apply, Block, For, Function, If, Load, Module, Offset, Op, Store, Value, Warp, While
from ..ir.traverse import blocks, descend, walk, with_body
from ..ir.types import I32, I64, Pointer
from ..locks import cached_property
from .choices import Choice, Compared, Kinks, bent, depend_on


def run(function: Function, _: Module) -> Function:
    work = _Ties(function)
    return with_body(function, work.block(function.body)) if work.choices or work.bends else function


class Exchange(NamedTuple):
    """A choice between a lane's own value and another's, which it gets by `shuffle`. `takes_other`: whether
    `taken - left` is `other's - own` times something positive."""

    shuffle: Warp
    takes_other: bool


class _Ties:
    def __init__(self, function: Function):
        self.function = function
        kinks = Kinks(function.body)
        self.kinks, self.definition = kinks, kinks.definition
        self.choices, self.bends = kinks.choices, kinks.bends
        self.by_key: dict[Key, list[Choice]] = {}
        for choice in self.choices.values():
            self.by_key.setdefault(choice.key, []).append(choice)
        self.around: dict[Op, tuple[Op, ...]] = {}  # loops and branches around choices
        self.find_around(function.body, ())

    def find_around(self, block: Block, around: tuple[Op, ...]) -> None:
        for op in block.ops:
            if op in self.choices:
                self.around[op] = around
            for inner in blocks(op):
                self.find_around(inner, (*around, op))

    @cached_property
    def compared(self) -> Compared:
        return self.kinks.compared()

    @cached_property
    def uniform(self) -> set[Value]:
        return warp_uniform_values(self.function, whole_rows=False)

    @cached_property
    def single_bits(self) -> set[Value]:
        return single_bits(self.function)

    @cached_property
    def stored(self) -> set[tuple[Value, Value]]:
        """Values that are stored to shared memory, each with the variable that it is stored to."""
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
            if op in self.choices:
                ops += self.decided_choice(self.choices[op])
            elif isinstance(op, Apply):
                ops += self.decided_distance(op) if op in self.bends else [op]
            else:
                ops.append(descend(op, self.block))
        return Block(block.args, tuple(ops), block.results)

    # ---- orders

    def decided_choice(self, choice: Choice) -> list[Op]:
        if choice.key in self.compared:
            return self.on_side(choice)
        exchange = self.exchange(choice)
        if exchange is not None:
            return self.by_lane(choice, exchange)
        loads, are_several = self.shared_loads(choice), len(self.by_key[choice.key]) > 1
        if are_several and len(loads) == 2:
            return choice.halved() if choice.key in self.halved else self.by_address(choice, *loads)
        if are_several:
            return self.on_side(choice)
        if uniform := self.uniform_one(choice):
            return choice.taking(uniform)
        return choice.halved() if self.is_stored_back(choice) else [choice.op]

    def on_side(self, choice: Choice) -> list[Op]:
        side = self.side(choice.key)
        return [choice.op] if side is None else choice.on(side)

    def side(self, key: Key) -> bool | None:
        """The side of the kink for all of a thread's operations at a tie: that of comparisons, the first maximum, or
        `fdim`."""
        sides = set(self.compared.get(key, {}).values())
        if sides:
            return sides.pop() if len(sides) == 1 else None
        if key not in self.by_key:
            return self.cut[key]
        first = next((c for c in self.by_key[key] if c.kind == "max"), self.by_key[key][0])
        uniform = self.uniform_one(first) if len(self.by_key[key]) == 1 else None
        return first.side(uniform or first.taken)

    @cached_property
    def cut(self) -> dict[Key, bool]:
        """Of the differences in `fdim(a, b)`: the side on which it is zero."""
        cuts = [d for op, d in self.bends.items() if isinstance(op, Apply) and op.fn == "fdim"]
        return {d.key: not d.is_positive for d in reversed(cuts)}

    @cached_property
    def halved(self) -> set[Key]:
        """Choices between values of two threads whose distance `|a - b|` is taken too: each gets half of the maximum's
        adjoint, so that the distance has none."""
        keys = {d.key for d in self.bends.values()} - self.compared.keys()
        several = (c for c in self.choices.values() if c.key in keys)
        return {c.key for c in several if self.exchange(c) or len(self.shared_loads(c)) == 2 or self.is_stored_back(c)}

    def decided_distance(self, op: Apply) -> list[Op]:
        """`|a - b|` or `fdim`: at a tie, on the side that the maximum of the two is on."""
        difference = self.bends[op]
        key, deciding = difference.key, self.compared.get(difference.key, {})
        is_one_of_several = key in self.by_key or key in self.cut or key in self.kinks.masked
        if key in self.halved or not (is_one_of_several or depend_on(op.result, deciding, self.function.body)):
            return [op]
        side = self.side(key)
        return [op] if side is None else bent(op, side == difference.is_positive)

    # ---- lanes

    def exchange(self, choice: Choice) -> Exchange | None:
        """None unless the two are this lane's value and another's."""
        for value, _ in choice.key:
            op = self.definition.get(value) if value is not None else None
            if isinstance(op, Warp) and op.fn in ("shfl_xor", "shfl_idx"):
                own = self.kinks.forms.difference(op.result, op.args[1])
                if own is not None and own.key == choice.key:
                    return Exchange(op, own.is_positive == choice.difference.is_positive)
        return None

    def by_lane(self, choice: Choice, exchange: Exchange) -> list[Op]:
        if choice.key in self.halved or not self.differ_in_one_bit:
            return choice.halved()
        b = Builder(choice.op.span)
        is_lower = self.is_lower(b, exchange.shuffle)
        is_upper = exchange.takes_other == (choice.kind == "max")
        return choice.ordered(b, b.apply("not", is_lower) if is_upper else is_lower)

    @cached_property
    def differ_in_one_bit(self) -> bool:
        exchanges = map(self.exchange, self.choices.values())
        return all(self.is_by_one_bit(found.shuffle) for found in exchanges if found is not None)

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
        else:  # `by` is a lane of each `width`, modulo that
            within = b.apply("sub", width, b.constant(1, I32))
            outside = b.apply("xor", within, b.constant(-1, I32))
            partner = b.apply("or", b.apply("and", lane, outside), b.apply("and", by, within))
        return b.apply("lt", lane, partner)

    # ---- memory

    def shared_loads(self, choice: Choice) -> list[Load]:
        """The loads, from one shared array, that the two come from; if both do, that of the taken one first."""
        found = [(self.definition.get(v), part) for v, part in choice.key if v is not None]
        loads = [(op, part) for op, part in found if isinstance(op, Load) and _is_shared(op.ptr)]
        if len({self.base(op.ptr) for op, _ in loads}) != 1:
            return []
        if len(loads) == 2 and (len(choice.key) > 2 or loads[0][1] != -loads[1][1]):
            return []
        ordered = [op for op, _ in loads]  # the first has a positive part
        return ordered if choice.difference.is_positive else ordered[::-1]

    def by_address(self, choice: Choice, taken: Load, left: Load) -> list[Op]:
        b = Builder(choice.op.span)
        distance = b.pointer_difference(taken.ptr, left.ptr)
        fn = "lt" if choice.kind == "max" else "gt"
        return choice.ordered(b, b.apply(fn, distance, b.constant(0, I64)))

    def uniform_one(self, choice: Choice) -> Value | None:
        """The one of the two that is uniform, where the other is each thread's own: from a shuffle, from shared memory,
        or loaded in a loop that carries one of them."""
        around = self.around[choice.op]
        carried = {v for op in around if isinstance(op, For | While) for block in blocks(op) for v in block.args}
        for one, other in ((choice.taken, choice.left), (choice.left, choice.taken)):
            op = self.definition.get(one)
            if not isinstance(op, Load | Warp) or one not in self.uniform or other in self.uniform:
                continue
            if isinstance(op, Warp) or _is_shared(op.ptr) or not carried.isdisjoint((one, other)):
                return one
        return None

    def is_stored_back(self, choice: Choice) -> bool:
        """Whether the result is stored to where one of the two was loaded from, in all threads alike."""
        branches = (op for op in self.around[choice.op] if isinstance(op, If))
        if any(op.cond not in self.uniform for op in branches):
            return False
        return any((choice.op.result, self.base(load.ptr)) in self.stored for load in self.shared_loads(choice))


def _is_shared(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space == "shared"
