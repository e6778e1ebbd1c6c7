"""Running a block's threads phase by phase (Note [Phases] in `plan`), under a mask where threads part.

Note [Masks]
Where a branch or loop around a meeting depends on the thread, the block goes through it as a whole, and a mask says
which threads take part. No mask means all threads; code whose ways do not part has none and pays nothing. A barrier
is met by the mask's threads: if one that is still live (Note [Exit] in ir.ops) is not among them, that is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from llvmlite import ir

from ...ir.ops import Barrier, BarrierReduce, Block, Op, Value, Warp
from ...ir.traverse import operands
from ...ir.types import BOOL
from . import llvm_types as lt
from .frame import Active, Failing, Failure, Frame, Step
from .llvm_types import byte_offset, i64
from .loops import Section, counted, each_thread, sections
from .memory import load, store
from .plan import LIVE, Mask, Plan, all_uses, is_volatile_shared
from .sections import Middle
from .threads import emit_op
from .totals import added_up

if TYPE_CHECKING:
    from .narrow import Narrow


class BlockCode:
    """Emits a kernel's body for one block. `slots` gives the address of each slot's first element."""

    def __init__(self, frame: Frame, plan: Plan, slots: dict[Value | Mask, ir.Value], narrow: Narrow | None):
        self.frame, self.plan, self.slots, self.narrow = frame, plan, slots, narrow
        for value in plan.allocas:
            frame.own_memory[value] = partial(self.element, value)

    @property
    def b(self) -> ir.IRBuilder:
        return self.frame.b

    def run(self, body: Block) -> None:
        if LIVE in self.slots:
            self.fill(self.slots[LIVE], 1)
            self.frame.leave = lambda: self.mark(self.slots[LIVE], ir.Constant(lt.I1, 0))
        self.region(body, Active(), [])

    # ---- regions and phases

    def region(self, block: Block, active: Active, finish: list[Step]) -> None:
        """The block's operations for all active threads; `finish` joins its last phase."""
        pending: list[Op] = []
        for op in block.ops:
            if op in self.plan.meetings:
                self.meeting(op, pending, active)
                pending = []
            elif self.plan.is_scalar_op(op):
                emit_op(self.frame, op)
            else:
                if is_volatile_shared(op):
                    self.phase(pending, active)
                    self.met(whole_block=False)
                    pending = []
                pending.append(op)
        self.phase(pending, active, finish)

    def phase(self, ops: list[Op], active: Active, steps: list[Step] | None = None) -> None:
        steps = steps or []
        if not ops and not steps:
            return
        with added_up(self.frame, ops):
            for section in sections(self.frame):
                self.phase_in(section, ops, active, steps)

    def phase_in(self, section: Section, ops: list[Op], active: Active, steps: list[Step]) -> None:
        narrow = self.narrow.threads(self.frame, ops) if self.narrow and not steps else None
        with self.each_thread(active, section, narrow):
            defined = {v for op in ops for v in op.results}
            uses = [v for op in ops for v in all_uses(op)] + [v for step in steps for v in step.uses]
            for value in uses:
                if value not in defined:
                    self.materialise(value)
            for op in ops:
                self.thread_op(op)
            for step in steps:
                step.emit()

    def thread_op(self, op: Op) -> None:
        emit_op(self.frame, op)
        for value in op.results:
            if self.plan.has_slot(value):
                self.put(value, self.frame.get(value))

    def materialise(self, value: Value) -> None:
        """Bring a value from another phase into this one."""
        if value in self.frame.values:
            return
        if value in self.plan.allocas:
            self.frame.values[value] = self.element(value)
        elif value in self.plan.again:
            op = self.plan.again[value]
            for operand in operands(op):
                self.materialise(operand)
            emit_op(self.frame, op)
        else:
            self.frame.values[value] = self.fetch(value)

    # ---- slots

    def element(self, slot: Value, thread: ir.Value | None = None) -> ir.Value:
        """The address of a thread's element of a slot; the current thread's unless one is given."""
        if thread is None:
            assert self.frame.thread is not None
            thread = self.frame.thread.linear
        size = self.plan.slots[slot]
        return self.b.gep(self.slots[slot], [thread], inbounds=True, source_etype=_stride(size))

    def fetch(self, value: Value, thread: ir.Value | None = None) -> ir.Value:
        address = self.element(self.plan.slot_of(value), thread)
        return load(self.b, address, value.type, self.frame.access_group)

    def put(self, value: Value, content: ir.Value, thread: ir.Value | None = None) -> None:
        address = self.element(self.plan.slot_of(value), thread)
        store(self.b, address, content, value.type, self.frame.access_group)

    def copies(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> list[Step]:
        """One step that sets the targets' slots; all sources are read before the first is set."""
        slot_of = self.plan.slot_of
        pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if self.plan.has_slot(t)]
        pairs = [(s, t) for s, t in pairs if slot_of(s) is not slot_of(t)]

        def emit() -> None:
            contents = [self.frame.get(s) for s, _ in pairs]
            for (_, target), content in zip(pairs, contents, strict=True):
                self.put(target, content)

        return [Step(tuple(s for s, _ in pairs), emit)] if pairs else []

    # ---- masks

    def mask_byte(self, mask: ir.Value, thread: ir.Value | None = None) -> ir.Value:
        """The address of a thread's byte of a mask."""
        if thread is None:
            assert self.frame.thread is not None
            thread = self.frame.thread.linear
        return byte_offset(self.b, mask, thread)

    def test(self, mask: ir.Value, thread: ir.Value | None = None) -> ir.Value:
        return load(self.b, self.mask_byte(mask, thread), BOOL, self.frame.access_group)

    def mark(self, mask: ir.Value, bit: ir.Value) -> None:
        store(self.b, self.mask_byte(mask), bit, BOOL, self.frame.access_group)

    def fill(self, mask: ir.Value, byte: int) -> None:
        args = [mask, ir.Constant(lt.I8, byte), self.frame.threads, ir.Constant(lt.I1, 0)]
        lt.intrinsic(self.b, "llvm.memset", lt.VOID, args, [lt.PTR, lt.I64])

    def copy_mask(self, target: ir.Value, source: ir.Value | None) -> None:
        if source is None:
            return self.fill(target, 1)
        args = [target, source, self.frame.threads, ir.Constant(lt.I1, 0)]
        lt.intrinsic(self.b, "llvm.memcpy", lt.VOID, args, [lt.PTR, lt.PTR, lt.I64])

    def any_set(self, mask: ir.Value) -> ir.Value:
        return self.combined(mask, 0, self.b.or_)

    def all_set(self, mask: ir.Value) -> ir.Value:
        return self.combined(mask, 1, self.b.and_)

    def combined(self, mask: ir.Value, start: int, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        """Over all threads' bytes, without leaving early, so that it vectorises."""
        before = self.b.block
        with counted(self.b, i64(0), self.frame.threads, 1) as thread:
            total = self.b.phi(lt.I8)
            total.add_incoming(ir.Constant(lt.I8, start), before)
            following = combine(total, self.b.load(self.mask_byte(mask, thread), typ=lt.I8, align=1))
            total.add_incoming(following, self.b.block)
        return self.b.icmp_unsigned("!=", following, ir.Constant(lt.I8, 0))

    def find(self, wanted: Callable[[ir.Value], ir.Value]) -> ir.Value:
        """The linear id of the first thread for which `wanted` holds, or the number of threads."""
        b, before = self.b, self.b.block
        loop, test, done = (b.append_basic_block(f"find{suffix}") for suffix in ("", ".test", ".done"))
        b.branch(loop)
        b.position_at_end(loop)
        thread = b.phi(lt.I64)
        thread.add_incoming(i64(0), before)
        b.cbranch(b.icmp_unsigned("<", thread, self.frame.threads), test, done)
        b.position_at_end(test)
        found = wanted(thread)
        thread.add_incoming(b.add(thread, i64(1), flags=("nuw", "nsw")), b.block)
        b.cbranch(found, done, loop)
        b.position_at_end(done)
        return thread

    @contextmanager
    def each_thread(self, active: Active, section: Section = "all", narrow: Middle | None = None) -> Iterator[None]:
        """A loop over the active threads around what is emitted inside."""
        with each_thread(self.frame, section, narrow):
            if active.mask is None:
                yield
            else:
                with self.b.if_then(self.test(active.mask)):
                    yield

    # ---- meetings

    def meeting(self, op: Op, pending: list[Op], active: Active) -> None:
        match op:
            case Barrier():
                self.phase(pending, active)
                self.barrier(op, active)
            case BarrierReduce() | Warp():
                self.phase(pending, active)
                from .collectives import emit_collective

                emit_collective(self, op, active)
                self.met(whole_block=isinstance(op, BarrierReduce))
            case _:
                from .structure import emit_structure

                emit_structure(self, op, pending, active)

    def met(self, whole_block: bool) -> None:
        if self.frame.watch is not None:
            self.frame.watch.meet(self.b, whole_block)

    def barrier(self, op: Barrier | BarrierReduce, active: Active) -> None:
        if isinstance(op, Barrier):
            self.met(whole_block=op.scope == "block")
        if not active.parted or (isinstance(op, Barrier) and op.scope == "warp"):
            return
        live, mask = self.slots.get(LIVE), active.mask
        assert mask is not None

        def missing(thread: ir.Value) -> ir.Value:
            absent = self.b.not_(self.test(mask, thread))
            return absent if live is None else self.b.and_(absent, self.test(live, thread))

        thread = self.find(missing)
        some = self.b.icmp_unsigned("<", thread, self.frame.threads)
        self.frame.fail_if(some, Failing(Failure.DIVERGENT_BARRIER, op), thread)


def _stride(size: int) -> ir.Type:
    """A type of that size, an integer where one has it: what addresses of slot elements are counted in."""
    return ir.IntType(size * 8) if size in (1, 2, 4, 8) else ir.ArrayType(lt.I8, size)
