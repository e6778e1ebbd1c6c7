"""How the threads of a block are run: what is done once per block, and which values outlive a loop over threads.

Note [Phases]
A block's threads run one after another in a loop, and that loop ends where threads must meet: at a barrier, a warp
function, a volatile access of shared memory (each a *meeting*), and around every loop or branch that holds one. The
body of a kernel is thus a sequence of *phases*, each a maximal run of operations without a meeting, and meetings
between them; a loop around a meeting runs once for the block, with phases inside. A kernel without meetings is one
phase. Values reach a later phase in one of three ways:

- scalar: the same for every thread of the block, computed once, between the loops: also by branches and loops;
- again: cheap arithmetic on scalars and the thread's index, computed anew where it is used;
- slot: kept in an array with one element per thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...ir import effects
from ...ir.ops import (
    Alloca,
    Apply,
    Barrier,
    BarrierReduce,
    Block,
    Builtin,
    For,
    Function,
    If,
    Leave,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.traverse import blocks, free_values, operands, walk
from ...ir.types import Pointer, Scalar

_BLOCK_BUILTINS = frozenset(("block_idx", "block_dim", "grid_dim", "warp_size"))
_CHEAP = frozenset("add sub mul neg and or xor not shl shr lt le gt ge eq ne select convert min max".split())
_CHEAP_OPS = 12  # recomputing more than this costs more than a load


@dataclass(frozen=True)
class Mask:
    """Which threads take part: one byte each. `side` tells the two sides of a branch apart."""

    op: Op | None
    side: str = ""


LIVE = Mask(None, "live")  # the threads that have not left the kernel


@dataclass
class Plan:
    phased: bool = True  # whether threads meet at all
    meetings: set[Op] = field(default_factory=set)  # and the structured operations around them
    in_step: frozenset[Op] = frozenset()  # those of them that are loops no thread meets another in (`strides`)
    varying: set[Value] = field(default_factory=set)  # defined between phases or in one, not the same for every thread
    again: dict[Value, Op] = field(default_factory=dict)
    slots: dict[Value | Mask, int] = field(default_factory=dict)  # bytes per thread
    allocas: set[Value] = field(default_factory=set)  # slots that are the memory pointed to
    shares: dict[Value, Value] = field(default_factory=dict)  # a loop's result and the argument whose slot it is

    def is_scalar_op(self, op: Op) -> bool:
        return bool(op.results) and is_pure(op) and not self.varying.intersection(op.results)

    def slot_of(self, value: Value) -> Value:
        while value in self.shares:
            value = self.shares[value]
        return value

    def has_slot(self, value: Value) -> bool:
        return self.slot_of(value) in self.slots and value not in self.allocas

    def own_memory(self, value: Value, apart: int = 0) -> None:
        """Keep what this alloca allocates in a slot."""
        assert isinstance(value.type, Pointer)
        type = value.type.pointee
        self.allocas.add(value)
        self.slots.setdefault(value, max(1, -(-(type.size + apart) // type.align) * type.align))


def make_plan(function: Function, in_step: frozenset[Op] = frozenset(), own_allocas: int = 0) -> Plan:
    """`in_step`: loops that threads go through together although nothing meets in them. `own_allocas`: if not 0, every
    local array gets memory of its own for each thread, that many bytes apart."""
    meetings, phased = _meetings(function.body, in_step)
    plan = Plan(phased, meetings, in_step)
    for op in walk(function.body) if own_allocas else ():
        if isinstance(op, Alloca):
            plan.own_memory(op.result, own_allocas)
    if not phased:
        plan.varying = {v for op in function.body.ops for v in op.results}
        return plan
    _find_varying(function.body, plan)
    _find_again(function.body, plan)
    for op in walk(function.body):
        if op in plan.meetings:
            _share_slots(op, plan)
    _Lifetimes(plan).region(function.body)
    _add_masks(function.body, plan)
    return plan


# ---- meetings -----------------------------------------------------------------------------------------------------


def is_volatile_shared(op: Op) -> bool:
    """Warp-synchronous code: volatile accesses order the threads of a warp."""
    if not isinstance(op, Load | Store) or not op.volatile:
        return False
    assert isinstance(op.ptr.type, Pointer)
    return op.ptr.type.space == "shared"


def _meetings(body: Block, in_step: frozenset[Op]) -> tuple[set[Op], bool]:
    """The meetings (volatile accesses, which split phases but do nothing more, apart), and whether there are any."""
    found: set[Op] = set()

    def visit(block: Block) -> bool:
        meets = False
        for op in block.ops:
            inner = [visit(b) for b in blocks(op)]
            if isinstance(op, Barrier | BarrierReduce | Warp) or any(inner) or op in in_step:
                found.add(op)
                meets = True
            meets = meets or is_volatile_shared(op)
        return meets

    phased = visit(body)
    return found, phased


# ---- what varies between threads -----------------------------------------------------------------------------------


def is_pure(op: Op) -> bool:
    if isinstance(op, If | For | While):
        return all(is_pure(x) for inner in blocks(op) for x in inner.ops)
    return effects.is_pure(op)


def _find_varying(body: Block, plan: Plan) -> None:
    """Assume that nothing varies, and go round until no more is found to."""
    before = -1
    while before != len(plan.varying):
        before = len(plan.varying)
        _mark_block(body, plan)


def _mark_block(block: Block, plan: Plan) -> None:
    for op in block.ops:
        if op in plan.meetings:
            _mark_meeting(op, plan)
        elif not is_pure(op) or _differs(op, plan):
            plan.varying.update(op.results)


def _differs(op: Op, plan: Plan) -> bool:
    if isinstance(op, Builtin):
        return op.name not in _BLOCK_BUILTINS
    inside = (x for inner in blocks(op) for x in walk(inner))
    return any(v in plan.varying for v in all_uses(op)) or any(
        _differs(x, plan) for x in inside if isinstance(x, Builtin)
    )


def _mark_meeting(op: Op, plan: Plan) -> None:
    match op:
        case If(cond, then, orelse):
            _mark_block(then, plan)
            _mark_block(orelse, plan)
            for result, *sides in zip(op.results, then.results, orelse.results, strict=True):
                _vary_with(plan, result, cond, *sides)
        case For(inits=inits, body=body) if op in plan.in_step:
            plan.varying.update(body.args[1:], op.results)  # threads join in at different trips
            _mark_block(body, plan)
        case For(lower, _, inits, _, body):
            _mark_block(body, plan)
            _vary_with(plan, body.args[0], lower)
            for result, arg, init, following in zip(op.results, body.args[1:], inits, body.results, strict=True):
                _vary_with(plan, arg, init, following)
                _vary_with(plan, result, arg)
        case While(inits, before, body):
            _mark_block(before, plan)
            _mark_block(body, plan)
            for arg, init, following in zip(before.args, inits, body.results, strict=True):
                _vary_with(plan, arg, init, following)
            for result, arg, forwarded in zip(op.results, body.args, before.results[1:], strict=True):
                _vary_with(plan, arg, forwarded)
                _vary_with(plan, result, forwarded)
        case Warp():
            plan.varying.update(op.results)
    # In a loop that threads leave at different times, those still inside may well agree; what comes out differs.
    if is_divergent(op, plan):
        plan.varying.update(op.results)


def _vary_with(plan: Plan, value: Value, *sources: Value) -> None:
    if any(s in plan.varying for s in sources):
        plan.varying.add(value)


def is_divergent(op: Op, plan: Plan) -> bool:
    """Whether threads may take different ways at this branch or leave this loop at different times."""
    match op:
        case If(cond):
            return cond in plan.varying
        case For(lower, upper):
            return lower in plan.varying or upper in plan.varying
        case While(_, before):
            return before.results[0] in plan.varying
    return False


# ---- what is computed again ----------------------------------------------------------------------------------------


def _find_again(body: Block, plan: Plan) -> None:
    cost: dict[Value, int] = {}
    for block in regions(body, plan):
        for op in block.ops:
            if not _is_cheap(op) or op.result not in plan.varying:
                continue
            inputs = [v for v in operands(op) if v in plan.varying]
            total = 1 + sum(cost.get(v, _CHEAP_OPS) for v in inputs)
            if total <= _CHEAP_OPS:
                cost[op.result] = total
                plan.again[op.result] = op


def _is_cheap(op: Op) -> bool:
    if isinstance(op, Builtin):
        return op.name in ("thread_idx", "lane_id")
    if isinstance(op, Apply):
        return op.fn in _CHEAP and isinstance(op.result.type, Scalar) and not op.result.type.is_float
    return isinstance(op, Offset | Member | PtrCast)


def regions(block: Block, plan: Plan) -> Iterator[Block]:
    """The blocks that are run phase by phase, outer before inner."""
    yield block
    for op in block.ops:
        if op in plan.meetings:
            for inner in blocks(op):
                yield from regions(inner, plan)


# ---- what shares a slot ---------------------------------------------------------------------------------------------


def _share_slots(op: Op, plan: Plan) -> None:
    """A loop's results stay where its arguments were, and so does what the body makes of an argument, if nothing uses
    the argument from there on; then going round the loop copies nothing."""
    if isinstance(op, For):
        _share(op.results, op.body.args[1:], plan)
        _share_with_next(op.body, op.body.args[1:], op.body.results, plan)
    elif isinstance(op, While):
        _share(op.results, op.body.args, plan)
        inner: dict[Value, Value] = {}  # the body's argument for an argument that `before` just passes on
        for arg, forwarded in zip(op.body.args, op.before.results[1:], strict=True):
            if forwarded in op.before.args and forwarded not in inner:
                inner[forwarded] = arg
                _share((arg,), (forwarded,), plan)
        for arg, following in zip(op.before.args, op.body.results, strict=True):
            if arg in inner:
                _share_with_next(op.body, (inner[arg],), (following,), plan)


def _share(values: tuple[Value, ...], owners: tuple[Value, ...], plan: Plan) -> None:
    plan.shares.update((v, owner) for v, owner in zip(values, owners, strict=True) if owner in plan.varying)


def _share_with_next(body: Block, args: tuple[Value, ...], results: tuple[Value, ...], plan: Plan) -> None:
    defined = {v: k for k, op in enumerate(body.ops) if op not in plan.meetings for v in op.results}
    for arg, result in zip(args, results, strict=True):
        at = defined.get(result)
        if at is None or result in plan.again or result in plan.shares or body.results.count(result) > 1:
            continue
        later = (v for op in body.ops[at + 1 :] for v in all_uses(op))
        if arg in plan.varying and result in plan.varying and arg not in later and arg not in body.results:
            plan.shares[result] = arg


# ---- what needs a slot ---------------------------------------------------------------------------------------------


class _Lifetimes:
    """Numbers the phases, and gives a slot to each varying value that is used outside the phase that defines it."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.phase = 0  # the last one begun
        self.defined: dict[Value, int] = {}

    def region(self, block: Block) -> None:
        self.next_phase()
        self.define(block.args, between=True)
        for op in block.ops:
            if op in self.plan.meetings:
                self.meeting(op)
            elif not self.plan.is_scalar_op(op):
                self.phase += is_volatile_shared(op)
                self.use(all_uses(op))
                self.define(op.results)
                if isinstance(op, Alloca):  # pointers into it may reach any later phase
                    self.plan.own_memory(op.result)
        self.use(block.results)

    def next_phase(self) -> None:
        self.phase += 1

    def define(self, values: Iterable[Value], between: bool = False) -> None:
        """`between`: set by a meeting, so no phase holds the value in a register."""
        for value in values:
            self.defined[value] = -1 if between else self.phase

    def use(self, values: Iterable[Value]) -> None:
        for value in values:
            if self.defined.get(value, self.phase) != self.phase:
                self.need_slot(value)

    def need_slot(self, value: Value, even_if_cheap: bool = False) -> None:
        if value in self.plan.varying and (even_if_cheap or value not in self.plan.again):
            self.plan.slots.setdefault(self.plan.slot_of(value), value.type.size)

    def meeting(self, op: Op) -> None:
        if isinstance(op, Warp | BarrierReduce):
            self.exchange(op)
        else:
            self.use(operands(op))  # by the phase before it
            if isinstance(op, For):  # each thread compares with its bound again before every trip
                self.next_phase()
                self.use((op.lower if op in self.plan.in_step else op.upper,))
            for inner in blocks(op):
                self.region(inner)
                for value in inner.args:
                    self.need_slot(value)
        self.next_phase()
        self.define(op.results, between=True)

    def exchange(self, op: Warp | BarrierReduce) -> None:
        """What other threads read must lie in a slot, however cheap; the result is always one."""
        exchanged = operands(op)[:2] if isinstance(op, Warp) else operands(op)
        for value in exchanged:
            self.need_slot(value, even_if_cheap=True)
        self.next_phase()
        self.use(operands(op))
        for value in op.results:
            self.need_slot(value)


def _add_masks(body: Block, plan: Plan) -> None:
    for block in regions(body, plan):
        for op in block.ops:
            if op in plan.meetings and is_divergent(op, plan):
                for side in ("then", "else") if isinstance(op, If) else ("loop",):
                    plan.slots[Mask(op, side)] = 1
    if any(isinstance(op, Leave) or (isinstance(op, If) and op.exits) for op in walk(body)):
        plan.slots[LIVE] = 1


def all_uses(op: Op) -> Iterator[Value]:
    yield from operands(op)
    for inner in blocks(op):
        yield from free_values(inner)
