"""`While` to `For`, where the loop counts.

Expects simplified IR. A loop counts when its condition is one comparison of a carried integer with a value from
outside, each iteration adds the same constant to it, and the condition's block does nothing else. Arithmetic there
that depends on the outside alone moves in front of the loop, and so do loads where the loop changes nothing. `<=` and
`>=` bounds are shifted by one, which only signed types (whose overflow C++ forbids) and constants allow. Where what is
compared is the carried integer and a constant, `z + 1 < n`, the loop counts that sum. The counter's
value after the loop is known for steps of one; a loop that needs it for others, and any other loop, stays a `While`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..ir.builder import Builder
from ..ir.effects import CHANGES
from ..ir.ops import (
    Alloca,
    Apply,
    Block,
    Builtin,
    Constant,
    Extract,
    Function,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Store,
    Value,
    While,
)
from ..ir.traverse import descend, operands, substitute, uses, walk, with_body
from ..ir.types import I32, I64, U32, U64, Scalar, limits
from .dce import eliminate

_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ne": "ne"}
_UPWARDS = {"lt": True, "le": True, "gt": False, "ge": False}


def run(function: Function, module: Module) -> Function:
    return with_body(function, eliminate(_Counted(function).block(function.body)))


@dataclass(frozen=True)
class _Counter:
    """Carried value `index`, with `more` added, is compared (as the type of `bound`) by `fn` with `bound`, and grows by
    `step`."""

    index: int
    fn: str
    bound: Value
    step: int
    more: int
    hoisted: tuple[Op, ...]


class _Counted:
    def __init__(self, function: Function):
        self.used = uses(function.body)
        self.constants: dict[Value, int] = {}
        self.roots = _Roots(function)

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        renamed: dict[Value, Value] = {}
        for op in block.ops:
            if isinstance(op, Constant) and isinstance(op.value, int):
                self.constants[op.result] = op.value
            rebuilt = descend(op, self.block)
            counter = self.match(rebuilt) if isinstance(rebuilt, While) else None
            if counter is None or not isinstance(rebuilt, While):
                ops.append(rebuilt)
            else:
                ops.extend(self.convert(rebuilt, counter, renamed))
        return substitute(Block(block.args, tuple(ops), block.results), renamed)

    # ---- matching

    def match(self, loop: While) -> _Counter | None:
        hoisted, kept = _split_invariant(loop, self.roots)
        condition = _last_defined(kept, loop.before.results[0])
        if condition is None or condition.fn not in _FLIPPED or not _forwards_only(loop.before):
            return None
        left, right = condition.args
        self.note_constants(hoisted)
        for value, bound, fn in ((left, right, condition.fn), (right, left, _FLIPPED[condition.fn])):
            found = self.counter(loop, kept, value, bound, fn)
            if found is not None:
                counter = _Counter(found[0], fn, bound, *found[1:], hoisted)
                return counter if self.fits(loop, counter) else None
        return None

    def counter(self, loop: While, kept: list[Op], value: Value, bound: Value, fn: str) -> tuple[int, int, int] | None:
        """The carried value compared, its step and what is added to it, if the comparison and at most a conversion, or
        that addition, is all there is."""
        expected, more = 1, 0
        before = _last_defined(kept[:-1], value)
        if before is not None and before.fn == "convert":
            value, expected = before.args[0], 2
        elif before is not None and fn != "ne" and (added := self.added(before)) is not None:
            (value, more), expected = added, 2
        inside = {v for op in kept for v in op.results} | set(loop.before.args)
        if len(kept) != expected or bound in inside or value not in loop.before.args:
            return None
        index = loop.before.args.index(value)
        step = self.step(loop, index)
        if step is None or step == 0 or not isinstance(value.type, Scalar):
            return None
        if fn == "ne":
            return (index, step, more) if step in (1, -1) else None
        return (index, step, more) if (step > 0) == _UPWARDS[fn] else None

    def added(self, op: Apply) -> tuple[Value, int] | None:
        """To a value, a constant."""
        if op.fn not in ("add", "sub"):
            return None
        left, right = op.args
        if op.fn == "add" and left in self.constants:
            left, right = right, left
        more = self.constants.get(right)
        return None if more is None else (left, more if op.fn == "add" else -more)

    def step(self, loop: While, index: int) -> int | None:
        """What is added to a carried value in each iteration."""
        following = next((op for op in loop.body.ops if loop.body.results[index] in op.results), None)
        if not isinstance(following, Apply) or following.fn not in ("add", "sub"):
            return None
        handed_on = zip(loop.body.args, loop.before.results[1:], strict=True)
        mine = [arg for arg, source in handed_on if source is loop.before.args[index]]
        left, right = following.args
        if following.fn == "add" and right in mine:
            left, right = right, left
        amount = self.constants.get(right)
        if left not in mine or amount is None:
            return None
        type = left.type
        if isinstance(type, Scalar) and type.kind == "uint" and amount > limits(type)[1] // 2:
            amount -= limits(type)[1] + 1  # `i - 1u` written as an addition
        return amount if following.fn == "add" else -amount

    def note_constants(self, ops: Iterable[Op]) -> None:
        self.constants |= {op.result: op.value for op in ops if isinstance(op, Constant) and isinstance(op.value, int)}

    # ---- what the types and the uses allow

    def fits(self, loop: While, counter: _Counter) -> bool:
        init = loop.inits[counter.index]
        narrow, wide = init.type, counter.bound.type
        assert isinstance(narrow, Scalar) and isinstance(wide, Scalar)
        if counter.step not in (1, -1) and self.needed_after(loop, counter.index):
            return False
        if narrow == wide:
            return self.bound_fits(counter, init, wide)
        if (narrow, wide) == (I32, I64):
            return counter.fn != "ne" and self.bound_fits(counter, init, wide)
        if narrow == I32 and wide in (U32, U64):  # unsigned comparison of an int that never is negative
            return counter.fn == "lt" and self.constants.get(init, -1) >= 0
        return False

    def bound_fits(self, counter: _Counter, init: Value, type: Scalar) -> bool:
        if type.kind == "int" or counter.fn in ("lt", "gt"):
            return True
        bound = self.constants.get(counter.bound)
        if counter.fn == "ne":  # unsigned: would count through the whole range if it started beyond
            first = self.constants.get(init)
            return first == 0 if counter.step > 0 else bound == 0
        return bound is not None and bound not in limits(type)

    def needed_after(self, loop: While, index: int) -> bool:
        pairs = zip(loop.results, loop.before.results[1:], strict=True)
        return any(self.used.get(v, 0) > 0 for v, source in pairs if source is loop.before.args[index])

    # ---- rewriting

    def convert(self, loop: While, counter: _Counter, renamed: dict[Value, Value]) -> list[Op]:
        b = Builder(loop.span)
        for op in counter.hoisted:
            b.add(op)
        counter = self.narrowed(b, loop, counter)
        type = counter.bound.type
        lower = self.moved(b, b.convert(loop.inits[counter.index], type), counter.more)
        upper = self.upper(b, counter)
        others = [k for k in range(len(loop.inits)) if k != counter.index]
        with b.region() as region:
            iv, args, values = self.enter(b, loop, counter, others)
            for op in loop.body.ops:
                b.add(op)
        body = region.block((iv, *args), tuple(loop.body.results[k] for k in others))
        inits = tuple(loop.inits[k] for k in others)
        results = b.for_(lower, upper, inits, counter.step, substitute(body, values), loop.unroll)
        final = dict(zip(others, results, strict=True))
        if self.needed_after(loop, counter.index):
            final[counter.index] = self.final(b, loop, counter, lower, upper)
        for result, source in zip(loop.results, loop.before.results[1:], strict=True):
            k = loop.before.args.index(source)
            if k in final:
                renamed[result] = final[k]
        return b.ops

    def narrowed(self, b: Builder, loop: While, counter: _Counter) -> _Counter:
        """An int that is compared with something wider goes no further than an int can: it counts in 32 bits."""
        if loop.inits[counter.index].type != I32 or counter.bound.type not in (I64, U64) or counter.fn != "lt":
            return counter
        wide = counter.bound.type
        assert isinstance(wide, Scalar)
        low, high = limits(I32)
        known = self.constants.get(counter.bound)
        if known is not None:
            bound = b.constant(max(low, min(known, high)), I32)
            self.constants[bound] = max(low, min(known, high))
            return replace(counter, bound=bound)
        bound = b.apply("min", counter.bound, b.constant(high, wide))
        bound = b.apply("max", bound, b.constant(low, wide)) if wide == I64 else bound
        return replace(counter, bound=b.convert(bound, I32))

    def upper(self, b: Builder, counter: _Counter) -> Value:
        by = {"le": 1, "ge": -1}.get(counter.fn, 0)
        if by == 0:
            return counter.bound
        known = self.constants.get(counter.bound)
        if known is not None:
            return b.constant(known + by, counter.bound.type)
        return b.apply("add", counter.bound, b.constant(by, counter.bound.type))

    def enter(
        self, b: Builder, loop: While, counter: _Counter, others: list[int]
    ) -> tuple[Value, list[Value], dict[Value, Value]]:
        """The body's arguments, and what stands for the While's: the counter may be narrower than the bound."""
        source = loop.before.args[counter.index]
        iv = Value(counter.bound.type, None if counter.more else source.name)
        narrow = iv if source.type == iv.type else b.apply("convert", iv, type=source.type, name=source.name)
        if counter.more:
            narrow = self.moved(b, iv, -counter.more, source.name)
        fresh = {k: Value(loop.before.args[k].type, loop.before.args[k].name) for k in others}
        fresh[counter.index] = narrow
        handed_on = zip(loop.body.args, loop.before.results[1:], strict=True)
        values = {arg: fresh[loop.before.args.index(value)] for arg, value in handed_on}
        return iv, [fresh[k] for k in others], values

    def final(self, b: Builder, loop: While, counter: _Counter, lower: Value, upper: Value) -> Value:
        """The counter's value after the loop, for a step of one."""
        value = upper if counter.fn == "ne" else b.apply("max" if counter.step > 0 else "min", lower, upper)
        return b.convert(self.moved(b, value, -counter.more), loop.inits[counter.index].type)

    def moved(self, b: Builder, value: Value, by: int, name: str | None = None) -> Value:
        """Constants are added up."""
        if by == 0:
            return value
        assert isinstance(value.type, Scalar)
        known = self.constants.get(value)
        if known is not None and known + by in range(limits(value.type)[0], limits(value.type)[1] + 1):
            return b.constant(known + by, value.type)
        bits = value.type.bits
        number = by if value.type.kind == "int" else by % (1 << bits)
        return b.apply("add", value, b.constant(number, value.type), name=name)


def _forwards_only(before: Block) -> bool:
    """Whether the condition's block hands on its arguments as they are."""
    return all(value in before.args for value in before.results[1:])


def _last_defined(ops: list[Op], value: Value) -> Apply | None:
    return ops[-1] if ops and isinstance(ops[-1], Apply) and ops[-1].result is value else None


class _Roots:
    """Where pointers come from, as far as addresses tell."""

    def __init__(self, function: Function):
        self.params = {p.value for p in function.params}
        self.definition = {v: op for op in walk(function.body) for v in op.results}

    def of(self, pointer: Value) -> Value:
        while isinstance(op := self.definition.get(pointer), Offset | Member | PtrCast):
            pointer = op.ptr
        return pointer

    def is_own(self, op: Op) -> bool:
        """Whether an operation writes nothing but an array of the thread's own."""
        return isinstance(op, Store) and isinstance(self.definition.get(self.of(op.ptr)), Alloca)

    def is_given(self, load: Load) -> bool:
        """Whether a load reads what no array of the thread's own is."""
        return self.of(load.ptr) in self.params


def _split_invariant(loop: While, roots: _Roots) -> tuple[tuple[Op, ...], list[Op]]:
    """Operations of the condition's block that may run once in front of the loop, and the others."""
    hoisted: list[Op] = []
    kept: list[Op] = []
    inside = set(loop.before.args)
    changes = [op for block in (loop.before, loop.body) for op in walk(block) if isinstance(op, CHANGES)]
    only_own = all(map(roots.is_own, changes))
    for op in loop.before.ops:
        # The condition is evaluated at least once: whatever is pure may be, in front.
        movable = isinstance(op, Constant | Apply | Extract | PtrDiff) or (
            isinstance(op, Builtin) and "clock" not in op.name
        )
        movable = movable or isinstance(op, Offset | Member | PtrCast)
        if isinstance(op, Load) and not op.volatile:
            movable = not changes or (only_own and roots.is_given(op))
        if movable and not any(v in inside for v in operands(op)):
            hoisted.append(op)
        else:
            kept.append(op)
            inside.update(op.results)
    return tuple(hoisted), kept
