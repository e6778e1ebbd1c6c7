"""Registers that hold copies: what a loop loaded in earlier iterations and carries along, of memory that nobody writes.

    float below = u[p], here = u[p + st];
    for (int z = 1; z < nz - 1; ++z) {
        float above = u[p + (z + 1) * st];
        ... below ... here ... above ...
        below = here; here = above;
    }

In iteration z, `here` is u[p + z * st], and `below` is u[p + (z - 1) * st]: also in the first ones, since that is where
both were loaded before the loop. Read from there, they are as other reads are, of which it is known who reads an
element. The last iteration may leave out its load (`if (z + 2 < nz) above = ...`): nobody uses it.

That the places before the loop are those which the loop would have had before depends on the launch: whether it is so
is asked of `found`, `run` takes its word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..analysis import roots, structure
from ..analysis.access.affine import Affine
from ..analysis.access.executions import Executions
from ..analysis.structure import carried_as
from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import (
    Apply,
    Block,
    Constant,
    For,
    Function,
    If,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Value,
    While,
)
from ..ir.traverse import blocks, clone, descend, operands, substitute, uses, walk, with_body
from ..ir.types import U64, Scalar, limits
from . import simplify

_ORDER = {"lt": 1, "gt": -1, "le": 1, "ge": -1}


class Rolled(NamedTuple):
    """What a loop carries, by the loops' number and its own: loaded so many iterations before."""

    loop: int
    carried: int
    before: int


def found(function: Function, sums: Executions | None = None) -> frozenset[Rolled]:
    """`sums`: of the function in a launch; without, what may be so in some."""
    memory = roots.analyse(function)
    return frozenset(
        Rolled(number, carried, source.before)
        for number, loop in enumerate(loops_in(function))
        for carried, source in _Sources(loop, function, sums, memory).all()
    )


def loops_in(function: Function) -> list[For | While]:
    return [op for op in walk(function.body) if isinstance(op, For | While) and op.inits]


class _Source(NamedTuple):
    """Of what is carried: the load that had it, so many iterations `before`."""

    load: Load
    before: int


class _Address(NamedTuple):
    """Of a load in a loop. `counted`: of what the loop counts, what it adds in each iteration."""

    counted: dict[Value, Value | int]
    ops: tuple[Op, ...]


class _Sources:
    """`sums`: where they are to be checked in a launch; else they were."""

    def __init__(self, loop: For | While, function: Function, sums: Executions | None, memory: roots.Memory):
        self.loop, self.sums, self.memory = loop, sums, memory
        places = {carried_as(loop, position): arg for position, arg in enumerate(loop.body.args)}
        self.args = [places.get(carried) for carried in range(len(loop.inits))]
        self.structure = structure.analyse(function, apart=False) if sums is None else sums.structure
        self.used = uses(function.body)
        self._found: dict[int, _Source | None] = {}

    def all(self) -> Iterator[tuple[int, _Source]]:
        for carried in range(len(self.loop.inits)):
            source = self.of(carried)
            if source is not None:
                yield carried, source

    def of(self, carried: int) -> _Source | None:
        if carried not in self._found:
            self._found[carried] = None  # of what goes round in circles, no load is the source
            self._found[carried] = self._of(carried)
        return self._found[carried]

    def _of(self, carried: int) -> _Source | None:
        if self.args[carried] is None or self.is_used_after(carried):
            return None
        following = self.loop.body.results[carried]
        if following in self.args:
            earlier = self.of(self.args.index(following))
            source = None if earlier is None else _Source(earlier.load, earlier.before + 1)
        else:
            load = self.loaded(following)
            source = None if load is None or not self.can_be_moved(load) else _Source(load, 1)
        return source if source is not None and (self.sums is None or self.starts_there(carried, source)) else None

    def is_used_after(self, carried: int) -> bool:
        loop = self.loop
        if isinstance(loop, For):
            return bool(self.used.get(loop.results[carried]))
        results = zip(loop.results, loop.before.results[1:], strict=True)
        return any(self.used.get(result) for result, source in results if source is loop.before.args[carried])

    def loaded(self, value: Value) -> Load | None:
        """The load that it is, in all iterations, or in all but the last."""
        match self.structure.definition.get(value):
            case Load() as load if load in self.loop.body.ops:
                return load
            case If(cond, then, orelse) as branch if branch in self.loop.body.ops:
                number = branch.results.index(value)
                sides = [(self.structure.definition.get(side.results[number]), side) for side in (then, orelse)]
                loads = [(op, side) for op, side in sides if isinstance(op, Load) and op in side.ops]
                if len(loads) == 1 and self.goes(cond, loads[0][1] is then):
                    return loads[0][0]
        return None

    def goes(self, cond: Value, holds: bool) -> bool:
        """Whether a condition is so in all iterations but the last."""
        if self.sums is None:
            return True
        counter = self.loop.body.args[0]
        test, trips = self.structure.definition.get(cond), self.sums.of(counter) and self.sums.extents[counter]
        if not isinstance(test, Apply) or test.fn not in _ORDER or not trips:
            return False
        left, right = map(self.sums.of, test.args)
        if left is None or right is None:
            return False
        more = left.plus(right, -1)
        if more.rest(counter):
            return False
        return all(_holds(test.fn, more.const + more.slope(counter) * k) == holds for k in (0, max(0, trips - 2)))

    def can_be_moved(self, load: Load) -> bool:
        """Whether it reads what nobody writes, at a place that is moved by what the loop counts."""
        read, written = self.memory.of(load.ptr), self.memory.written()
        known = bool(read) and roots.UNKNOWN not in read | written and read.isdisjoint(written | self.memory.escaped)
        return known and read <= self.memory.lasting() and not load.volatile and self.address(load) is not None

    def address(self, load: Load) -> _Address | None:
        """What computes it in the loop; None where that is more than sums and products of what the loop counts: they go
        on before its first iteration as they do in it."""
        wanted, needed, counted = [load.ptr], set[Op](), dict[Value, Value | int]()
        while wanted:
            value = wanted.pop()
            op = self.structure.definition.get(value)
            if not self.structure.is_inside(value, self.loop) or value in counted or op in needed:
                continue
            if op is None and (step := self.step(value)) is not None:
                counted[value] = step
            elif op is None or not is_pure(op) or not (_is_linear(op) or self.is_fixed(value)):
                return None
            else:
                needed.add(op)
                wanted += operands(op)
        return _Address(counted, tuple(op for op in walk(self.loop.body) if op in needed))

    def is_fixed(self, value: Value) -> bool:
        """Whether nothing that the loop carries is in it."""
        if not self.structure.is_inside(value, self.loop):
            return True
        op = self.structure.definition.get(value)
        return op is not None and is_pure(op) and not blocks(op) and all(map(self.is_fixed, operands(op)))

    def step(self, arg: Value) -> Value | int | None:
        """What each iteration adds to a number, of which there is less than it starts with, too."""
        if not isinstance(arg.type, Scalar) or arg.type.kind != "int":
            return None
        if isinstance(self.loop, For) and arg is self.loop.body.args[0]:
            return self.loop.step
        if arg not in self.args:
            return None
        match self.structure.definition.get(self.loop.body.results[self.args.index(arg)]):
            case Apply("add", (left, right)) if arg in (left, right) and left is not right:
                added = right if arg is left else left
                return self.constant(added)
        return None

    def constant(self, value: Value) -> Value | int | None:
        """A value that is there before the loop, or a number."""
        op = self.structure.definition.get(value)
        if isinstance(op, Constant) and isinstance(op.value, int):
            return op.value
        return None if self.structure.is_inside(value, self.loop) else value

    def starts_there(self, carried: int, source: _Source) -> bool:
        """Whether what was loaded before the loop is what the load would have found so many iterations before it."""
        assert self.sums is not None
        first = self.structure.definition.get(self.loop.inits[carried])
        if (
            not isinstance(first, Load)
            or first.volatile
            or self.memory.of(first.ptr) != self.memory.of(source.load.ptr)
        ):
            return False
        (root, *others) = self.memory.of(first.ptr)
        place, moving = self.sums.address(first.ptr, root), self.sums.address(source.load.ptr, root)
        if others or place is None or moving is None or first.result.type != source.load.result.type:
            return False
        rest = self.at(moving, -source.before)
        if place.plus(rest, -1).terms or place.const != rest.const:
            return False
        address = self.address(source.load)
        assert address is not None
        converted = [
            v for op in address.ops if isinstance(op, Apply) and op.fn == "convert" for v in (*op.args, op.result)
        ]
        indices = [op.index for op in address.ops if isinstance(op, Offset)]
        return all(self.fits(v, source.before) for v in (*address.counted, *converted, *indices))

    def at(self, sum_: Affine, iteration: int) -> Affine:
        """What it would be in an iteration before the first."""
        counted = self.loop.body.args
        by = sum(map(sum_.slope, counted))
        return Affine(sum_.const + iteration * by, tuple(sum_.rest(*counted).items()))

    def fits(self, value: Value, before: int) -> bool:
        """Whether it does not come round in so many iterations before the first."""
        assert self.sums is not None
        sum_ = self.sums.of(value)
        if sum_ is None or not isinstance(value.type, Scalar):
            return False
        least, most = limits(value.type)
        ranges = [self.sums.range(self.at(sum_, -k)) for k in range(1, before + 1)]
        return value.type == U64 or all(least <= low and high <= most for low, high in ranges)


def run(function: Function, module: Module, rolled: frozenset[Rolled]) -> Function:
    """Reads memory in place of what is carried."""
    memory = roots.analyse(function)
    numbers = {id(loop): number for number, loop in enumerate(loops_in(function))}
    found: dict[Value, Value] = {}

    def block(inner: Block) -> Block:
        return Block(inner.args, tuple(map(changed, inner.ops)), inner.results)

    def changed(op: Op) -> Op:
        own = {r.carried: r.before for r in rolled if r.loop == numbers.get(id(op))}
        if not isinstance(op, For | While) or not own:
            return descend(op, block)
        sources, b = _Sources(op, function, None, memory), Builder(op.span)
        for carried, before in own.items():
            source = sources.of(carried)
            assert source is not None and source.before == before
            arg = sources.args[carried]
            assert arg is not None
            found[arg] = _loaded(b, sources, source)
        body = block(op.body)
        return replace(op, body=Block(body.args, (*b.ops, *body.ops), body.results))

    body = block(function.body)
    return simplify.run(with_body(function, substitute(body, found)), module)


def _loaded(b: Builder, sources: _Sources, source: _Source) -> Value:
    address, mapping = sources.address(source.load), dict[Value, Value]()
    assert address is not None
    for number, step in address.counted.items():
        by = b.constant(step, number.type) if isinstance(step, int) else step
        mapping[number] = b.apply("sub", number, b.apply("mul", b.constant(source.before, number.type), by))
    b.ops += clone(Block((), (*address.ops, source.load), ()), mapping).ops
    return mapping[source.load.result]


def _is_linear(op: Op) -> bool:
    """What does not come round is the same sum of what the loop counts in every iteration, and before the first."""
    if isinstance(op, Offset | Member | PtrCast | Constant):
        return True
    if not isinstance(op, Apply) or not all(map(_is_signed_or_long, (op.result, *op.args))):
        return False
    if op.fn == "convert":
        source, type = op.args[0].type, op.result.type
        return source == type or (isinstance(source, Scalar) and source.kind == "int")
    return op.fn in ("add", "sub", "mul")


def _is_signed_or_long(value: Value) -> bool:
    return isinstance(value.type, Scalar) and (value.type.kind == "int" or value.type == U64)


def _holds(fn: str, more: int) -> bool:
    return {"lt": more < 0, "le": more <= 0, "gt": more > 0, "ge": more >= 0}[fn]
