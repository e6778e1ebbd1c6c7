"""The adjoints of values: one local variable per active value, zero at first, added to; promotion turns them into SSA.
And the adjoints of loads, stores and atomics: reads and updates of shadow memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...analysis.machine import FULL_WARP
from ...errors import UnsupportedError
from ...ir.builder import Builder, pointee
from ...ir.ops import Apply, Atomic, BarrierReduce, Block, Constant, If, Load, Op, Store, Value, Warp
from ...ir.types import I32, I64, U32, Array, Scalar, Struct, Type, element_types
from ..accumulate.choice import Accumulation
from ..calculus.activity import holds_floats
from ..calculus.shadows import ZERO, adjoint_type, shadow_name, zero_fill

if TYPE_CHECKING:
    from ..accumulate.block_cells import Cells
    from ..accumulate.deferred import Slots
    from ..accumulate.logs import Logs


class Adjoints:
    def __init__(self, b: Builder):
        self.b = b
        self._variables: dict[Value, Value] = {}
        self._untouched: dict[Value, list[Op]] = {}  # still zero, if nothing but this region has run
        self._only: dict[Value, tuple[list[Op], Value]] = {}  # a single contribution, and its region
        self._factors: dict[Value, tuple[Value, float]] = {}  # of adjoints that are products with a number
        self.tested: Callable[[Value], None] | None = None  # what is done with each contribution, see `report_nan`

    def create(self, value: Value, name: str | None = None) -> None:
        variable = self.b.alloca(adjoint_type(value.type), name or shadow_name(value.name))
        zero_fill(self.b, variable)
        self._variables[value] = variable
        self._untouched[value] = self.b.ops

    def __contains__(self, value: Value) -> bool:
        return value in self._variables

    def variable(self, value: Value) -> Value:
        """Where the adjoint is, for adding to a part of it."""
        self._untouched.pop(value, None)
        self._only.pop(value, None)
        return self._variables[value]

    def is_zero(self, value: Value) -> bool:
        """Whether nothing was added to the adjoint."""
        return value in self._untouched

    def get(self, value: Value) -> Value:
        adjoint = self.b.load(self._variables[value])
        region, only = self._only.get(value, (None, None))
        if region is self.b.ops and only in self._factors:
            self._factors[adjoint] = self._factors[only]
        return adjoint

    def get_times(self, value: Value, number: float) -> Value:
        """The adjoint times a number, which goes with a number that the adjoint has as a factor itself."""
        adjoint = self.get(value)
        factor, own = self._factors.get(adjoint, (adjoint, 1.0))
        if abs(number * own) != 1:
            return self.b.apply("mul", factor, self.b.constant(number * own, factor.type))
        return factor if number * own > 0 else self.b.apply("neg", factor)

    def add(self, value: Value, contribution: Value) -> None:
        """adjoint(value) += contribution; nothing for a value that has no adjoint."""
        if value not in self._variables:
            return
        region = self._untouched.pop(value, None)
        self._only.pop(value, None)
        if region is self.b.ops:  # the first contribution is the sum so far
            self._only[value] = region, contribution
            self._note_factors(contribution)
            self.b.store(self._variables[value], contribution)
        else:
            add_into(self.b, self._variables[value], contribution)
        if self.tested is not None:
            self.tested(contribution)

    def _note_factors(self, made: Value) -> None:
        """Of a product that was just made with a power of two."""
        match self.b.ops[-2:]:
            case [Constant(float(number)) as constant, Apply("mul", (factor, other)) as product]:
                if product.result is made and other is constant.result and abs(math.frexp(number)[0]) == 0.5:
                    self._factors[made] = factor, number


def add_into(b: Builder, variable: Value, contribution: Value) -> None:
    """`*variable += contribution` for every float in it."""
    type = pointee(variable)
    if isinstance(type, Scalar):
        if type.is_float:
            b.store(variable, b.apply("add", b.load(variable), contribution))
        return
    if isinstance(type, Struct | Array):
        for k, part in enumerate(element_types(type)):
            if holds_floats(part):
                add_into(b, part_of(b, variable, k), b.extract(contribution, k))


def part_of(b: Builder, ptr: Value, index: int) -> Value:
    if isinstance(pointee(ptr), Struct):
        return b.member(ptr, index)
    return b.offset(b.decay(ptr), b.constant(index, I32))


def zero(b: Builder, type: Type) -> Value:
    """A zero of any type; pointers inside are null."""
    if isinstance(type, Struct | Array):
        return b.aggregate(type, tuple(zero(b, part) for part in element_types(type)))
    is_float = isinstance(type, Scalar) and type.is_float
    return b.constant(ZERO if is_float else (False if str(type) == "bool" else 0), type)


# ---- of memory ------------------------------------------------------------------------------------------------------


_CONSUMED = "consumed: the element was overwritten"
_TAKEN = "consumed, by one of the threads that may have stored the element"


class MemoryAdjoints:
    def __init__(self, b: Builder, adjoints: Adjoints, accumulation: Accumulation, kept: frozenset[Value]):
        self.b, self.adjoints, self.accumulation, self.kept = b, adjoints, accumulation, kept
        self.logs: Logs | None = None  # where anything is logged
        self.cells: dict[str, Cells] = {}  # of the block, in shared memory
        self.deferred: dict[int, Slots] = {}  # of reads whose updates follow the launch

    def load(self, op: Load, shadow: Value) -> None:
        """A read in the primal is an update in the adjoint."""
        if id(op) not in self.accumulation.gathered:
            self.b.span = self.b.span.because(self.accumulation.why(op))
            own = self.accumulation.in_block.get(id(op))
            if own is not None and not own.inside:
                return self._in_block(self.cells[own.name], op, shadow)
            self.each_float(shadow, self.adjoints.get(op.result), self._how(op))

    def _how(self, op: Load) -> Callable[[Value, Value], None]:
        plan = self.accumulation
        if plan.is_logged(op):
            return partial(self._log, plan.logged[id(op)])
        if id(op) in self.deferred:
            return partial(self.deferred[id(op)].leave, self.b)
        if id(op) in plan.together:
            return self._together
        if plan.is_atomic(op):
            return self._update
        return self.b.store if id(op) in plan.writes else self.plain

    def _log(self, variable: str, ptr: Value, adjoint: Value) -> None:
        assert self.logs is not None
        self.logs.append(self.b, variable, ptr, adjoint)

    def _take_logged(self, op: Store | Atomic, shadow: Value) -> None:
        """What the thread itself has logged for the memory since the last barrier."""
        logs = self.logs
        if logs is None:
            return
        for variable in self.accumulation.taken.get(id(op), ()):
            for ptr in self._floats(shadow):
                logs.take(self.b, variable, ptr)

    def _floats(self, ptr: Value) -> Iterator[Value]:
        type = pointee(ptr)
        if isinstance(type, Struct | Array):
            for k, part in enumerate(element_types(type)):
                if holds_floats(part):
                    yield from self._floats(part_of(self.b, ptr, k))
        else:
            yield ptr

    def store(self, op: Store, shadow: Value, roots: frozenset[Value]) -> None:
        """The value stored gets what the memory's shadow has gathered, and the shadow starts anew."""
        self._take_logged(op, shadow)
        if op.value in self.adjoints and id(op) in self.accumulation.contested and not roots & self.kept:
            self.b.span = self.b.span.because(_TAKEN)
            self.adjoints.add(op.value, self._taken(shadow, adjoint_type(op.value.type)))
            return
        if op.value in self.adjoints:
            self.adjoints.add(op.value, self._gathered(shadow, op.value))
        if not roots & self.kept:
            self.b.span = self.b.span.because(_CONSUMED)
            self._clear(shadow)

    def _gathered(self, shadow: Value, value: Value) -> Value:
        return self._narrowed(self.b.load(shadow), adjoint_type(value.type))

    def _narrowed(self, value: Value, type: Type) -> Value:
        """What a shadow held, in the type of adjoints: that of wide ones is another."""
        if value.type == type:
            return value
        if isinstance(type, Struct | Array):
            parts = enumerate(element_types(type))
            return self.b.aggregate(type, tuple(self._narrowed(self.b.extract(value, k), part) for k, part in parts))
        assert isinstance(type, Scalar)
        return self.b.convert(value, type)

    def _taken(self, ptr: Value, wanted: Type) -> Value:
        """What the shadow has gathered, for one of the threads that stored the same value there."""
        type = pointee(ptr)
        if isinstance(wanted, Struct | Array):
            parts = enumerate(element_types(wanted))
            return self.b.aggregate(wanted, tuple(self._taken(part_of(self.b, ptr, k), part) for k, part in parts))
        if isinstance(type, Scalar) and type.is_float:
            return self._narrowed(self.b.atomic("take", ptr, self.b.constant(0.0, type)), wanted)
        return zero(self.b, wanted)

    def atomic(self, op: Atomic, shadow: Value) -> None:
        if op.kind not in ("add", "sub"):
            raise UnsupportedError(f"a derivative flows through an atomic '{op.kind}': not supported", op.span)
        self._refuse_old_value(op)
        self._take_logged(op, shadow)
        (value,) = op.args
        if value in self.adjoints:
            gathered = self._gathered(shadow, value)
            self.adjoints.add(value, gathered if op.kind == "add" else self.b.apply("neg", gathered))

    def winner(self, op: Atomic, shadow: Value, won: Value) -> None:
        """The execution whose value is in the cell at the end takes the adjoint; the others, and the old value, get
        none of it."""
        self._refuse_old_value(op)
        self._take_logged(op, shadow)
        (value,) = op.args
        with self.b.region() as taken:
            if value in self.adjoints:
                self.adjoints.add(value, self._gathered(shadow, value))
            self._clear(shadow)
        self.b.if_(won, taken.block())

    def _refuse_old_value(self, op: Atomic) -> None:
        if op.result in self.adjoints:
            raise UnsupportedError(
                "the value that an atomic operation on floats returned is used", op.span, "do not use the old value"
            )

    # ---- updates

    def each_float(self, ptr: Value, adjoint: Value, update: Callable[[Value, Value], None]) -> None:
        type = pointee(ptr)
        if isinstance(type, Scalar):
            update(ptr, self.b.convert(adjoint, type))
        elif isinstance(type, Struct | Array):
            for k, part in enumerate(element_types(type)):
                if holds_floats(part):
                    self.each_float(part_of(self.b, ptr, k), self.b.extract(adjoint, k), update)

    def plain(self, ptr: Value, adjoint: Value) -> None:
        self.b.store(ptr, self.b.apply("add", self.b.load(ptr), adjoint))

    def _update(self, ptr: Value, adjoint: Value) -> None:
        """Atomically, unless there is nothing to add."""
        b = self.b
        some = b.apply("ne", adjoint, b.constant(0.0, adjoint.type))
        with b.region() as region:
            b.atomic("add", ptr, adjoint)
        b.add(If(some, region.block(), _EMPTY, results=(), span=b.span))

    def _together(self, ptr: Value, adjoint: Value) -> None:
        """Zeros too: a warp adds up among its lanes if all of them are there."""
        op = Atomic("add", ptr, (adjoint,), together=True, results=(Value(adjoint.type),), span=self.b.span)
        self.b.add(op)

    def _in_block(self, cells: Cells, op: Load, shadow: Value) -> None:
        adjoint = self.adjoints.get(op.result)
        cells.update(
            self.b,
            shadow,
            adjoint_type(op.result.type),
            lambda ptr: self.each_float(ptr, adjoint, self._how(op)),
            lambda ptr: self.each_float(ptr, adjoint, self._update),
        )

    def add_block_sum(self, ptr: Value, adjoint: Value) -> None:
        """One update per block; all threads are here."""
        total = self.b.emit(BarrierReduce, "sum", adjoint, type=adjoint.type)
        self._by_first_thread(lambda: self._update(ptr, total))

    def store_block_sum(self, ptr: Value, adjoint: Value) -> None:
        """One element per block; all threads are here."""
        total = self.b.emit(BarrierReduce, "sum", adjoint, type=adjoint.type)
        self._by_first_thread(lambda: self.b.store(ptr, total))

    def store_warp_sum(self, ptr: Value, adjoint: Value) -> None:
        """One element per warp, without a barrier; the whole warp is here."""
        b = self.b
        everyone = b.constant(FULL_WARP, U32)
        total = b.emit(Warp, "reduce_add", (everyone, adjoint), type=adjoint.type)
        first = b.apply("eq", b.convert(b.builtin("lane_id"), I64), b.constant(0, I64))
        with b.region() as region:
            b.store(ptr, total)
        b.if_(first, region.block())

    def _by_first_thread(self, work: Callable[[], None]) -> None:
        b = self.b
        x, y, z = (b.builtin("thread_idx", axis) for axis in range(3))
        first = b.apply("eq", b.apply("or", b.apply("or", x, y), z), b.constant(0, U32))
        with b.region() as region:
            work()
        b.if_(first, region.block())

    def _clear(self, ptr: Value) -> None:
        type = pointee(ptr)
        if isinstance(type, Scalar):
            if type.is_float:
                self.b.store(ptr, self.b.constant(ZERO, type))
        elif isinstance(type, Struct | Array):
            for k, part in enumerate(element_types(type)):
                if holds_floats(part):
                    self._clear(part_of(self.b, ptr, k))


_EMPTY = Block((), (), ())
