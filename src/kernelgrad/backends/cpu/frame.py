"""What is at hand while a kernel's block function is emitted: the builder, the launch's numbers, values, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from ...ir.ops import Apply, Assert, Barrier, BarrierReduce, Block, Op, Trap, Value, Warp
from ...ir.traverse import walk
from . import llvm_types as lt
from .llvm_types import I8, PTR, i32

if TYPE_CHECKING:
    from .loops import Row
    from .sections import Invariants
    from .watch import Watch

Axes = tuple[ir.Value, ir.Value, ir.Value]


class Failure(IntEnum):
    """Why a kernel stopped; `runtime.cpu` words them."""

    NONE = 0
    ASSERT = 1
    TRAP = 2
    DIVERGENT_BARRIER = 3
    OTHER_MASK = 4


@dataclass(frozen=True)
class Failing:
    """A place that can fail: what the status's number stands for."""

    kind: Failure
    op: Op


def failing_ops(body: Block) -> list[Op]:
    """The operations that can fail, in program order: the order stays when other operations come and go."""
    return [op for op in walk(body) if isinstance(op, Assert | Trap | Barrier | BarrierReduce | Warp)]


@dataclass(frozen=True)
class Thread:
    """The thread whose code is being emitted: its index (i32) and its linear id in the block (i64)."""

    index: Axes
    linear: ir.Value


@dataclass(frozen=True)
class WorkerMemory:
    """Memory that a worker adds to for itself: where it begins and ends, and what it stands for."""

    begin: ir.Value
    end: ir.Value
    target: ir.Value


class Definitions(dict[Value, ir.Value]):
    """With what was set since a mark, to be undone: a copy for each block would be as long as the program."""

    def __init__(self) -> None:
        super().__init__()
        self._log: list[tuple[Value, ir.Value | None]] = []

    def __setitem__(self, value: Value, code: ir.Value) -> None:
        self._log.append((value, self.get(value)))
        super().__setitem__(value, code)

    def update(self, pairs: Iterable[tuple[Value, ir.Value]]) -> None:  # type: ignore[override]
        for value, code in pairs:
            self[value] = code

    def mark(self) -> int:
        return len(self._log)

    def back_to(self, mark: int) -> None:
        while len(self._log) > mark:
            value, before = self._log.pop()
            if before is None:
                super().__delitem__(value)
            else:
                super().__setitem__(value, before)


@dataclass
class Frame:
    """`values` holds what the current position can use. `thread` is None between the loops over threads."""

    b: ir.IRBuilder
    function: ir.Function
    allocas: ir.Block  # the function's first block, for stack memory
    grid_dim: Axes
    block_dim: Axes
    block_idx: Axes
    threads: ir.Value  # in the block, i64
    linear_block: ir.Value
    status: ir.Value
    shared: dict[str, ir.Value]
    failing: list[Failing]
    nowrap: frozenset[Apply] = frozenset()
    address_parts: frozenset[Value] = frozenset()  # Note [Masked indices]
    values: Definitions = field(default_factory=lambda: Definitions())
    thread: Thread | None = None
    access_group: Any = None
    own_memory: dict[Value, Callable[[], ir.Value]] = field(
        default_factory=dict
    )  # for allocas that are not on the stack
    leave: Callable[[], None] | None = None  # marks the thread as gone, where that is asked for
    watch: Watch | None = None
    row: Row | None = None  # the blocks to run, where a row of them is run at once (Note [Rows] in `loops`)
    known: dict[Value, ir.Value] = field(default_factory=dict)  # what need not be computed
    conditional_divisions: frozenset[Apply] = frozenset()
    unseen_zero: ir.Value | None = None  # Note [Conditional divisions]: i64
    summed: Mapping[Op, Invariants] = field(default_factory=dict)  # Note [Totals]
    ordered: frozenset[Op] = frozenset()  # Note [Interleaved accesses]
    alone: frozenset[Op] = frozenset()  # atomics on memory that no other worker sees
    strays: Mapping[Op, WorkerMemory] = field(default_factory=dict)  # those of them that may be outside of it
    totals: dict[Op, ir.Value] = field(default_factory=dict)  # of the loops over threads at hand: where they are kept

    def get(self, value: Value) -> ir.Value:
        return self.values[value]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Definitions made inside do not outlast it."""
        mark = self.values.mark()
        try:
            yield
        finally:
            self.values.back_to(mark)

    def stack(self, size: int, align: int) -> ir.Value:
        """Stack memory, allocated once per call whatever loop it is used in."""
        with self.b.goto_block(self.allocas):
            memory = self.b.alloca(ir.ArrayType(I8, max(1, size)))
            memory.align = max(1, align)
            memory.type = PTR
        return memory

    def fail_if(self, condition: ir.Value, failing: Failing, thread: ir.Value | None = None) -> None:
        """Record the failure and leave the block."""
        linear = thread if thread is not None else self.thread.linear if self.thread else lt.i64(0)
        failed = self.function.append_basic_block("failed")
        passed = self.function.append_basic_block("passed")
        self.b.cbranch(condition, failed, passed)
        self.b.position_at_end(failed)
        self.failing.append(failing)
        record = record_failure(self.b.module)
        self.b.call(record, [self.status, i32(len(self.failing)), linear, self.linear_block])
        self.b.ret_void()
        self.b.position_at_end(passed)


# ---- the status: {i32 which, i64 thread, i64 block}, all zero while nothing failed ----------------------------------

STATUS_THREAD, STATUS_BLOCK, STATUS_SIZE = 8, 16, 24


def record_failure(module: ir.Module) -> ir.Function:
    """A function (status, which, thread, block): the first failure is kept."""
    name = "kg.fail"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(lt.VOID, [PTR, lt.I32, lt.I64, lt.I64]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("cold")
    status, which, thread, block = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    won = b.extract_value(b.cmpxchg(status, i32(0), which, "seq_cst"), 1)
    with b.if_then(won):
        b.store(thread, lt.byte_offset(b, status, STATUS_THREAD), align=8)
        b.store(block, lt.byte_offset(b, status, STATUS_BLOCK), align=8)
    b.ret_void()
    return function


# ---- what phases are asked to do, and for whom ----------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Something to do for each thread at the end of a phase, with the values it needs."""

    uses: tuple[Value, ...]
    emit: Callable[[], None]


@dataclass(frozen=True)
class Active:
    """The threads that take part (Note [Masks] in `blocks`). `parted`: some that are live may not."""

    mask: ir.Value | None = None
    parted: bool = False
