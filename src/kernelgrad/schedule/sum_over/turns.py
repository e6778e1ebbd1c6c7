"""Additions to cells of shared memory that threads make in turns, not atomically.

    _d_s[t + 2] += a;  _d_s[t + 1] += b;  _d_s[t] += a;      of all threads, between two barriers

Each of these statements alone keeps the threads of a block apart: they add plainly, if a barrier stands between one
statement and the next. On a GPU that costs less than an atomic addition of floats, which is a loop in shared memory.

A statement keeps threads apart if its address is a sum of multiples of their indices, as the digits of a number are,
and of what is the same for all. Statements with the same address take the same turn. All of this is about the atomic
additions between two barriers: what else is done to a cell meanwhile is done by a thread that has it for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...analysis.access.affine import Affine
from ...analysis.access.block_affine import BlockAffine
from ...analysis.aliases import Aliases
from ...analysis.uniform import uniform_values
from ...ir.builder import Builder
from ...ir.effects import is_pure
from ...ir.ops import (
    Apply,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Constant,
    For,
    Function,
    If,
    Load,
    Module,
    Op,
    Store,
    Value,
)
from ...ir.traverse import blocks, operands, rebuild, uses, walk, with_body, with_ops
from ...ir.types import F32, F64, I64, Pointer

_ACCESSES = (Load, Store, Atomic)
_MOST = 6  # turns: as many barriers cost what the atomics do


def run(function: Function, module: Module, block: tuple[int, int, int]) -> Function:
    found = _Turns(function, module, block)
    return with_body(function, found.block(function.body, ())) if found.may_help else function


@dataclass(frozen=True)
class _Addition:
    """`path`: the branches that it is in, and on which side."""

    atomic: Atomic
    path: tuple[tuple[If, bool], ...]


@dataclass(frozen=True)
class _Around:
    """The operations of a block before and after a loop, and the loop's body."""

    before: tuple[Op, ...]
    after: tuple[Op, ...]
    inside: Block


class _Turns:
    def __init__(self, function: Function, module: Module, block: tuple[int, int, int]):
        self.module, self.extents = module, block
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.aliases, self.used = Aliases(function), uses(function.body)
        atomics = [op for op in walk(function.body) if isinstance(op, Atomic)]
        self.may_help = any(self.variable(op.ptr) for op in atomics) and any(
            isinstance(op, Barrier) for op in walk(function.body)
        )
        self.sums = BlockAffine(self.definition, uniform_values(function) if self.may_help else set(), Value(I64))

    def variable(self, ptr: Value) -> str | None:
        """The shared variable that a pointer leads to."""
        name = self.aliases.variable(self.aliases.root(ptr))
        found = self.module.globals.get(name or "")
        return name if found is not None and found.space == "shared" else None

    def block(self, block: Block, around: tuple[_Around, ...]) -> Block:
        ops: list[Op] = []
        for k, op in enumerate(block.ops):
            if isinstance(op, For) and has_barrier(op.body.ops):
                here = _Around(block.ops[:k], block.ops[k + 1 :], op.body)
                op = replace(op, body=self.block(op.body, (*around, here)))
            ops.append(op)
        found: list[Op] = []
        at = 0
        while at < len(ops):
            end = next((k for k in range(at, len(ops)) if has_barrier((ops[k],))), len(ops))
            found += self.phase(ops[at:end], tuple(ops[:at]), tuple(ops[end:]), around)
            found += ops[end : end + 1]
            at = end + 1
        is_met = any(isinstance(op, Barrier) and op.scope == "block" for op in ops)
        return with_ops(block, found) if is_met else with_ops(block, ops)

    # ---- what happens between two barriers

    def phase(
        self, ops: list[Op], before: tuple[Op, ...], after: tuple[Op, ...], around: tuple[_Around, ...]
    ) -> list[Op]:
        """Operations of a block in which threads meet, none of them a barrier."""
        names = dict.fromkeys(name for a in _atomics(ops) if (name := self.variable(a.ptr)))
        for name in names:
            turns = self.turns(name, ops)
            if turns is not None and self.is_quiet(name, before, after, around):
                ops = self.emitted(ops, turns)
                self.definition |= {v: op for op in _each(ops) for v in op.results}
        return ops

    def turns(self, name: str, ops: list[Op]) -> list[list[_Addition]] | None:
        """The additions to a variable, by their addresses; None if they are not all such."""
        found: dict[Affine, list[_Addition]] = {}
        for addition in _additions(ops, ()):
            own = self.variable(addition.atomic.ptr)
            if own is None and _is_shared(addition.atomic.ptr):
                return None  # it may be any
            if own == name:
                address = self.sums.address(addition.atomic.ptr)
                if address is None or not self.is_apart(addition.atomic, address) or not self.can_move(addition):
                    return None
                found.setdefault(address, []).append(addition)
        number = sum(len(group) for group in found.values())
        every = sum(self.variable(op.ptr) == name for op in _atomics(ops))
        complete = number == every and 0 < len(found) <= _MOST
        # Neighbours come one after the other: for those of a warp, its own barrier will do.
        chosen = [found[address] for address in sorted(found, key=lambda address: address.const)]
        return chosen if complete and self.is_last(name, ops) else None

    def is_apart(self, op: Atomic, address: Affine) -> bool:
        """Whether different threads are at different cells."""
        if op.kind != "add" or self.used.get(op.result) or op.result.type not in (F32, F64):
            return False
        reach, terms = op.result.type.size, address.coefficients
        steps = [(abs(terms.get(("thread_idx", axis), 0)), n) for axis, n in enumerate(self.extents) if n > 1]
        for step, number in sorted(steps):
            if step < reach:
                return False
            reach += step * (number - 1)
        return True

    def can_move(self, addition: _Addition) -> bool:
        """Whether its address and its condition can be had behind the branches that it is in."""
        inside = {id(op) for branch, _ in addition.path for side in blocks(branch) for op in walk(side)}
        todo = [addition.atomic.ptr, *(branch.cond for branch, _ in self.tests(addition))]
        while todo:
            op = self.definition.get(todo.pop())
            if op is not None and id(op) in inside:
                if not is_pure(op) or any(blocks(op)):
                    return False
                todo += operands(op)
        return True

    def tests(self, addition: _Addition) -> list[tuple[If, bool]]:
        """The branches that decide whether it is made, but for a test for zero: nothing is added then."""
        return [(branch, side) for branch, side in addition.path if not (side and self.is_test(branch, addition))]

    def is_test(self, branch: If, addition: _Addition) -> bool:
        match self.definition.get(branch.cond):
            case Apply("ne", (value, other)) if value is addition.atomic.args[0]:
                zero = self.definition.get(other)
                return isinstance(zero, Constant) and zero.value == 0
        return False

    def is_last(self, name: str, ops: list[Op]) -> bool:
        """Whether nothing else is done to the variable from the first addition to the last."""
        places = [k for k, op in enumerate(ops) if any(self.variable(a.ptr) == name for a in _atomics((op,)))]
        return self.touched_after(name, ops[places[0] : places[-1] + 1], False) is not None

    def touched_after(self, name: str, ops: Iterable[Op], started: bool) -> bool | None:
        """Whether an addition was made by the end; None if something else is done behind one. Of the two sides of a
        branch, neither is behind the other."""
        for op in ops:
            if isinstance(op, Atomic) and self.variable(op.ptr) == name:
                started = True
            elif isinstance(op, If):
                sides = [self.touched_after(name, side.ops, started) for side in blocks(op)]
                if None in sides:
                    return None
                started = any(sides)
            elif started and any(self.may_touch(o.ptr, name) for o in _each((op,)) if isinstance(o, _ACCESSES)):
                return None
        return started

    def may_touch(self, ptr: Value, name: str) -> bool:
        own = self.variable(ptr)
        return own == name or (own is None and _is_shared(ptr))

    # ---- whether others add to the variable before the next barrier, or after the last

    def is_quiet(self, name: str, before: tuple[Op, ...], after: tuple[Op, ...], around: tuple[_Around, ...]) -> bool:
        return self.meets(name, after, around, 1) and self.meets(name, before[::-1], around, -1)

    def meets(self, name: str, ops: tuple[Op, ...], around: tuple[_Around, ...], way: int) -> bool:
        """Whether threads meet, or are done, before one of them adds to the variable. `way`: 1 forwards, -1
        backwards."""
        for op in ops:
            if isinstance(op, Barrier) and op.scope == "block":
                return True
            if isinstance(op, For) and has_barrier(op.body.ops):
                if self.first(name, op.body.ops[::way]) is not True:
                    return False
            elif has_barrier((op,)) or self.adds(name, (op,)):
                return False
        if not around:
            return True
        here = around[-1]
        again = self.first(name, here.inside.ops[::way])
        outside = here.after if way > 0 else here.before[::-1]
        return again is True and self.meets(name, outside, around[:-1], way)

    def first(self, name: str, ops: tuple[Op, ...]) -> bool:
        """Whether a barrier comes before all additions."""
        for op in ops:
            if isinstance(op, Barrier) and op.scope == "block":
                return True
            if has_barrier((op,)) or self.adds(name, (op,)):
                return False
        return False

    def adds(self, name: str, ops: Iterable[Op]) -> bool:
        return any(self.may_touch(op.ptr, name) for op in _atomics(ops))

    # ---- the code

    def emitted(self, ops: list[Op], turns: list[list[_Addition]]) -> list[Op]:
        """Branches give what is to be added; the additions follow the last of them."""
        gone = {id(a.atomic): a for group in turns for a in group}
        values: dict[int, Value] = {}
        found: list[Op] = []
        last = max(k for k, op in enumerate(ops) if any(id(a) in gone for a in _atomics((op,))))
        for k, op in enumerate(ops):
            found += self.without(op, gone, values)
            if k == last:
                b = Builder(op.span)
                for number, group in enumerate(turns):
                    if number:
                        b.effect(Barrier, "block")
                    for addition in group:
                        self.add(b, addition, values[id(addition.atomic)])
                found += b.ops
        return found

    def without(self, op: Op, gone: dict[int, _Addition], values: dict[int, Value]) -> list[Op]:
        """The operation without its additions, whose values it gives."""
        if isinstance(op, Atomic) and id(op) in gone:
            values[id(op)] = op.args[0]
            return []
        inside = [a for a in _atomics((op,)) if id(a) in gone]
        if not inside:
            return [op]
        assert isinstance(op, If)
        sides = [[o for inner in side.ops for o in self.without(inner, gone, values)] for side in blocks(op)]
        results, given = list(op.results), [list(op.then.results), list(op.orelse.results)]
        b = Builder(op.span)
        for atomic in inside:
            if self.is_test(op, gone[id(atomic)]):  # known before it, and so is what a tangent of it needs
                values[id(atomic)] = atomic.args[0]
                continue
            value = values[id(atomic)]
            of_then = any(a is atomic for a in _atomics(op.then.ops))
            nothing = b.constant(-0.0, value.type)
            for k, is_own in enumerate((of_then, not of_then)):
                given[k].append(value if is_own else nothing)
            values[id(atomic)] = Value(value.type, value.name)
            results.append(values[id(atomic)])
        then, orelse = (Block((), tuple(own), tuple(out)) for own, out in zip(sides, given, strict=True))
        return [*b.ops, If(op.cond, then, orelse, op.exits, results=tuple(results), span=op.span)]

    def add(self, b: Builder, addition: _Addition, value: Value) -> None:
        b.span = addition.atomic.span.because("the threads of a block take turns")
        copies: dict[Value, Value] = {}
        inside = {id(op) for branch, _ in addition.path for side in blocks(branch) for op in walk(side)}

        def copied(wanted: Value) -> Value:
            op = self.definition.get(wanted)
            if op is None or id(op) not in inside:
                return wanted
            if wanted not in copies:
                fresh = tuple(Value(v.type, v.name) for v in op.results)
                made = b.add(rebuild(op, copied, lambda inner: inner, results=fresh))
                copies.update(zip(op.results, made.results, strict=True))
            return copies[wanted]

        ptr, test = copied(addition.atomic.ptr), None
        for branch, side in self.tests(addition):
            holds = copied(branch.cond)
            holds = holds if side else b.apply("not", holds)
            test = holds if test is None else b.apply("and", test, holds)
        with b.region() as region:
            b.store(ptr, b.apply("add", b.load(ptr), value))
        if test is None:
            b.ops += region.block().ops
        else:
            b.if_(test, region.block())


def has_barrier(ops: Iterable[Op]) -> bool:
    return any(isinstance(op, Barrier | BarrierReduce) for op in _each(ops))


def _each(ops: Iterable[Op]) -> Iterator[Op]:
    for op in ops:
        yield op
        for inner in blocks(op):
            yield from walk(inner)


def _atomics(ops: Iterable[Op]) -> Iterator[Atomic]:
    return (op for op in _each(ops) if isinstance(op, Atomic))


def _additions(ops: Iterable[Op], path: tuple[tuple[If, bool], ...]) -> Iterator[_Addition]:
    """Those that are in branches alone."""
    for op in ops:
        if isinstance(op, Atomic):
            yield _Addition(op, path)
        elif isinstance(op, If):
            yield from _additions(op.then.ops, (*path, (op, True)))
            yield from _additions(op.orelse.ops, (*path, (op, False)))


def _is_shared(ptr: Value) -> bool:
    return isinstance(ptr.type, Pointer) and ptr.type.space not in ("global", "local")
