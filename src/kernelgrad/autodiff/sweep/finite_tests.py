"""`report_nan=True`: derivatives that look for the first number in them that is not finite.

Note [Finite tests]
What an operation's reverse contributes to an adjoint is tested; likewise the tangent that an operation gives. The tests
are ordinary code, put in before zero adjoints are masked (Note [Masks] in transforms/masks.py): they see what is left
after that, so infinities that nobody gets are none. A thread keeps the first it finds, in a record that the launcher
provides: who comes first has it, and a thread comes first to its own. So there is one record for each of many threads,
of which the launcher tells the first (launches/memory/finite_report.py).

In forward mode an infinite tangent may be dropped afterwards: what was found counts if a thread stores one, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import Span
from ...ir.builder import Builder, linear_block, linear_thread
from ...ir.ops import Apply, Atomic, BarrierReduce, Load, Op, Param, Store, Value, Warp
from ...ir.types import F64, I64, Pointer, Scalar

NAME = "_not_finite"
RECORDS = 4096
ARGUMENTS, LOOPS = 3, 4  # the operation's own first two, and its result
# The words of a record: who found it, where, whether it is stored; the number, the adjoint, arguments, loop counters.
OWNER, SITE, STORED, FOUND, ADJOINT, FIRST_ARGUMENT = range(6)
FIRST_LOOP = FIRST_ARGUMENT + ARGUMENTS
WORDS = FIRST_LOOP + LOOPS
NBYTES = 8 * WORDS * RECORDS

_TESTED = (Apply, Load, Store, Atomic, Warp, BarrierReduce)


class Loop(NamedTuple):
    """`name`: of its counter; without one its iterations are numbered."""

    line: int
    name: str | None


@dataclass(frozen=True)
class Site:
    """A test. `function`: whose derivative it is, None where numbers come from memory or from other threads. `given`:
    whether the arguments of that number, and the result, are in the record."""

    span: Span
    function: str | None
    given: tuple[bool, ...]
    loops: tuple[Loop, ...]


class FiniteTests:
    """Emits the tests of one function. `forward`: those of tangents."""

    def __init__(self, b: Builder, forward: bool = False):
        self.b, self.forward = b, forward
        self.memory = Param(Value(Pointer(I64, "global"), NAME), "long long *", variable=NAME)
        self.sites: list[Site] = []
        self.adjoint: Value | None = None
        self.args: tuple[Value | None, ...] = ()
        self._op: Op | None = None
        self._loops: list[tuple[Loop, Value]] = []

    @contextmanager
    def of(self, op: Op) -> Iterator[None]:
        """What is contributed meanwhile comes from this operation; from operations inside of it, if it has such."""
        self._op = op if isinstance(op, _TESTED) else None
        self.adjoint, self.args = None, ()
        try:
            yield
        finally:
            self._op = None

    @contextmanager
    def loop(self, op: Op, counter: Value) -> Iterator[None]:
        self._loops.append((Loop(op.span.line, counter.source_name), counter))
        try:
            yield
        finally:
            self._loops.pop()

    def at(self, args: Sequence[Value | None], result: Value | None) -> None:
        """What is known of the operation's arguments and its result."""
        first, second, *_ = (*args, None, None)
        self.args = first, second, result

    def test(self, value: Value) -> None:
        """A contribution of the operation at hand, or its tangent."""
        if self._op is None or not _is_float(value):
            return
        op, b = self._op, self.b
        site = self._site(op)
        with b.region() as found:
            record = self._record()
            owner = self._number()
            before = b.atomic("cas", record, b.constant(0, I64), owner)
            with b.region() as first:
                self._write(record, site, value)
            b.if_(b.apply("eq", before, b.constant(0, I64)), first.block())
        b.if_(self._is_bad(value), found.block())

    def stored(self, ptr: Value, value: Value) -> None:
        """A tangent that goes to memory that outlives the launch."""
        assert isinstance(ptr.type, Pointer)
        if not _is_float(value) or ptr.type.space in ("shared", "local"):
            return
        b = self.b
        with b.region() as found:
            record = self._record()
            with b.region() as own:
                b.store(self._word(record, STORED), b.constant(1, I64))
            b.if_(b.apply("eq", b.load(record), self._number()), own.block())
        b.if_(self._is_bad(value), found.block())

    # ---- parts of that

    def _is_bad(self, value: Value) -> Value:
        return self.b.apply("not", self.b.apply("isfinite", self.b.convert(value, F64)))

    def _site(self, op: Op) -> int:
        function = op.fn if isinstance(op, Apply) else None
        given = tuple(arg is not None and _is_float(arg) for arg in self.args)
        site = Site(op.span, function, given, tuple(loop for loop, _ in self._loops[-LOOPS:]))
        self.sites.append(site)
        return len(self.sites) - 1

    def _number(self) -> Value:
        """Of the thread in the grid, from 1 on."""
        b = self.b
        x, y, z = (b.convert(b.builtin("block_dim", axis), I64) for axis in range(3))
        before = b.apply("mul", linear_block(b), b.apply("mul", b.apply("mul", x, y), z))
        return b.apply("add", b.apply("add", before, linear_thread(b)), b.constant(1, I64))

    def _record(self) -> Value:
        b = self.b
        place = b.apply("rem", self._number(), b.constant(RECORDS, I64))
        return b.offset(self.memory.value, b.apply("mul", place, b.constant(WORDS, I64)))

    def _write(self, record: Value, site: int, value: Value) -> None:
        b = self.b
        self._keep(record, SITE, b.constant(site, I64))
        self._keep(record, FOUND, self._bits(value))
        if self.adjoint is not None and _is_float(self.adjoint):
            self._keep(record, ADJOINT, self._bits(self.adjoint))
        for k, arg in enumerate(self.args):
            if arg is not None and _is_float(arg):
                self._keep(record, FIRST_ARGUMENT + k, self._bits(arg))
        for k, (_, counter) in enumerate(self._loops[-LOOPS:]):
            self._keep(record, FIRST_LOOP + k, b.convert(counter, I64))

    def _keep(self, record: Value, word: int, value: Value) -> None:
        self.b.store(self._word(record, word), value)

    def _word(self, record: Value, word: int) -> Value:
        return self.b.offset(record, self.b.constant(word, I64))

    def _bits(self, value: Value) -> Value:
        return self.b.apply("bitcast", self.b.convert(value, F64), type=I64)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float
