"""Branches and loops that hold meetings: the block goes through them as a whole (Note [Masks] in `blocks`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from llvmlite import ir

from ...ir.ops import Block, For, If, Leave, Op, Value, While
from ...ir.types import Scalar
from . import llvm_types as lt
from .frame import Active, Step
from .plan import LIVE, Mask, is_divergent
from .threads import for_condition, for_next

if TYPE_CHECKING:
    from .blocks import BlockCode


def emit_structure(code: BlockCode, op: Op, pending: list[Op], active: Active) -> None:
    """The operation after the phase of `pending`, which its preparations join."""
    match op:
        case If() if is_divergent(op, code.plan):
            _divergent_if(code, op, pending, active)
        case If():
            code.phase(pending, active)
            _uniform_if(code, op, active)
        case For() if op in code.plan.in_step:
            _counts_down(code, op, pending, active)
        case For():
            _for(code, op, pending, active)
        case While():
            _while(code, op, pending, active)


# ---- branches -------------------------------------------------------------------------------------------------------


def _uniform_if(code: BlockCode, op: If, active: Active) -> None:
    b = code.b
    then, orelse, merge = (b.append_basic_block(name) for name in ("then", "else", "endif"))
    b.cbranch(code.frame.get(op.cond), then, orelse)
    scalars = [k for k, result in enumerate(op.results) if result not in code.plan.varying]
    sides: list[tuple[list[ir.Value], ir.Block]] = []
    for start, side in ((then, op.then), (orelse, op.orelse)):
        b.position_at_end(start)
        code.region(side, active, code.copies(side.results, op.results))
        sides.append(([code.frame.get(side.results[k]) for k in scalars], b.block))
        b.branch(merge)
    b.position_at_end(merge)
    for n, k in enumerate(scalars):
        phi = code.frame.values[op.results[k]] = b.phi(lt.register_type(op.results[k].type))
        for values, block in sides:
            phi.add_incoming(values[n], block)


def _divergent_if(code: BlockCode, op: If, pending: list[Op], active: Active) -> None:
    sides = {"then": op.then, "else": op.orelse}
    masks = {side: code.slots[Mask(op, side)] for side in sides}
    if active.mask is not None:
        for mask in masks.values():
            code.fill(mask, 0)

    def split() -> None:
        cond = code.frame.get(op.cond)
        code.mark(masks["then"], cond)
        code.mark(masks["else"], code.b.not_(cond))
        idle = _idle_side(op) if op.exits else None
        if idle is not None:
            stays = cond if idle == "else" else code.b.not_(cond)
            live = code.slots[LIVE]
            code.mark(live, code.b.and_(stays, code.test(live)))

    code.phase(pending, active, [Step((op.cond,), split)])
    parted = active.parted or not op.exits
    # Threads that leave on one side must be gone when those of the other meet.
    for side, block in sorted(sides.items(), key=lambda item: any(o in code.plan.meetings for o in item[1].ops)):
        copies = code.copies(block.results, op.results)
        if block.ops or copies:
            with code.b.if_then(code.any_set(masks[side])):
                code.region(block, Active(masks[side], parted), copies)


def _idle_side(op: If) -> str | None:
    """The side that does nothing but leave, if the other does more."""
    idle = [name for name, block in (("then", op.then), ("else", op.orelse)) if _only_leaves(block)]
    return idle[0] if len(idle) == 1 else None


def _only_leaves(block: Block) -> bool:
    return all(isinstance(op, Leave) for op in block.ops)


# ---- loops ----------------------------------------------------------------------------------------------------------


def _for(code: BlockCode, op: For, pending: list[Op], active: Active) -> None:
    """The counter is a scalar if all threads start at the same number; they may still leave at different times."""
    b, frame, type, counter = code.b, code.frame, op.lower.type, op.body.args[0]
    assert isinstance(type, Scalar)
    code.phase(pending, active, code.copies((op.lower, *op.inits), op.body.args))
    varies = counter in code.plan.varying
    with _loop(code, op, op.body.args, (op.lower, *op.inits), active) as loop:

        def condition() -> ir.Value:
            return for_condition(b, frame.get(counter), frame.get(op.upper), type, op.step)

        def narrow() -> None:
            code.mark(loop.mask, condition())

        if loop.divergent:
            leaving = code.copies(op.body.args[1:], op.results)
            code.phase([], loop.active, [*leaving, Step((counter, op.upper), narrow)])
        loop.go_on(None if loop.divergent else condition())

        def advance() -> None:
            code.put(counter, for_next(b, frame.get(counter), type, op.step))

        steps = code.copies(op.body.results, op.body.args[1:])
        code.region(op.body, loop.active, [*steps, Step((counter,), advance)] if varies else steps)
        following = [counter if varies else for_next(b, frame.get(counter), type, op.step), *op.body.results]
        loop.repeat(following)
    _scalar_results(code, op.results, op.body.args[1:])


def _counts_down(code: BlockCode, op: For, pending: list[Op], active: Active) -> None:
    """In step, from the last trip of any thread on (see `strides`): most trips are made by all threads, without a mask;
    before them, some threads have not joined in."""
    b, frame, counter, args = code.b, code.frame, op.body.args[0], op.body.args[1:]
    code.phase(pending, active, code.copies(op.inits, args))
    first, everyone = _ends_of(code, op, active)
    mask, upper = code.slots[Mask(op, "loop")], frame.get(op.upper)
    before, header, body, end = b.block, *(b.append_basic_block(f"down{part}") for part in ("", ".body", ".end"))
    b.branch(header)
    b.position_at_end(header)
    k = frame.values[counter] = b.phi(lt.register_type(counter.type))
    k.add_incoming(first, before)
    b.cbranch(b.icmp_signed(">", k, upper), body, end)
    b.position_at_end(body)
    again = code.copies(op.body.results, args)

    def trip(taking_part: Active) -> None:
        with frame.scope():
            code.region(op.body, taking_part, again)

    def join() -> None:
        code.mark(mask, b.icmp_signed("<=", k, frame.get(op.lower)))

    if active.mask is not None:
        code.fill(mask, 0)
    all_joined = b.icmp_signed("<=", k, everyone)
    with b.if_else(all_joined) as (unmasked, masked):
        with unmasked:
            trip(active)
        with masked:
            code.phase([], active, [Step((op.lower,), join)])
            trip(Active(mask, parted=True))
    k.add_incoming(b.sub(k, ir.Constant(k.type, 1)), b.block)
    b.branch(header)
    b.position_at_end(end)
    code.phase([], active, code.copies(args, op.results))


def _ends_of(code: BlockCode, op: For, active: Active) -> tuple[ir.Value, ir.Value]:
    """The largest and the least number that an active thread begins at."""
    b, type = code.b, op.lower.type
    assert isinstance(type, Scalar)
    register, least = lt.register_type(type), -(1 << (type.bits - 1))
    ends = ((">", ir.Constant(register, least)), ("<", ir.Constant(register, -1 - least)))
    cells = [code.frame.stack(type.size, type.size) for _ in ends]
    for cell, (_, start) in zip(cells, ends, strict=True):
        b.store(start, cell, align=type.size)

    def widen() -> None:
        lower = code.frame.get(op.lower)
        for cell, (further, _) in zip(cells, ends, strict=True):
            known = b.load(cell, typ=register, align=type.size)
            b.store(b.select(b.icmp_signed(further, lower, known), lower, known), cell, align=type.size)

    code.phase([], active, [Step((op.lower,), widen)])
    largest, smallest = (b.load(cell, typ=register, align=type.size) for cell in cells)
    return largest, smallest


def _while(code: BlockCode, op: While, pending: list[Op], active: Active) -> None:
    cond, forwarded = op.before.results[0], op.before.results[1:]
    code.phase(pending, active, code.copies(op.inits, op.before.args))
    with _loop(code, op, op.before.args, op.inits, active) as loop:
        steps = code.copies(forwarded, op.body.args)
        if loop.divergent:
            narrow = Step((cond,), lambda: code.mark(loop.mask, code.frame.get(cond)))
            steps += [*code.copies(forwarded, op.results), narrow]
        code.region(op.before, loop.active, steps)
        _scalar_results(code, op.body.args, forwarded)
        loop.go_on(None if loop.divergent else code.frame.get(cond))
        again = code.copies(op.body.results, op.before.args)
        if loop.divergent and op in code.plan.in_step:
            # Most trips are made by all threads: those run code without a mask.
            with code.b.if_then(code.all_set(loop.mask)):
                code.region(op.body, Active(None), again)
                loop.repeat(op.body.results)
        code.region(op.body, loop.active, again)
        loop.repeat(op.body.results)
    _scalar_results(code, op.results, forwarded)


def _scalar_results(code: BlockCode, targets: tuple[Value, ...], sources: tuple[Value, ...]) -> None:
    for target, source in zip(targets, sources, strict=True):
        if target not in code.plan.varying:
            code.frame.values[target] = code.frame.get(source)


@contextmanager
def _loop(
    code: BlockCode, op: Op, args: tuple[Value, ...], inits: tuple[Value, ...], active: Active
) -> Iterator[_Loop]:
    """A loop whose scalar arguments are phis of its header; emission starts there and ends after the loop."""
    b, divergent = code.b, is_divergent(op, code.plan)
    inside = active
    if divergent:
        inside = Active(code.slots[Mask(op, "loop")], parted=True)
        code.copy_mask(inside.mask, active.mask)
    before, header = b.block, b.append_basic_block("loop")
    b.branch(header)
    b.position_at_end(header)
    phis: list[ir.PhiInstr | None] = []
    for arg, init in zip(args, inits, strict=True):
        phi = None if arg in code.plan.varying else b.phi(lt.register_type(arg.type))
        phis.append(phi)
        if phi is not None:
            phi.add_incoming(code.frame.get(init), before)
            code.frame.values[arg] = phi
    loop = _Loop(code, divergent, inside, header, phis)
    yield loop
    b.position_at_end(loop.end)


class _Loop:
    def __init__(
        self, code: BlockCode, divergent: bool, active: Active, header: ir.Block, phis: list[ir.PhiInstr | None]
    ):
        self.code, self.divergent, self.active, self.header, self.phis = code, divergent, active, header, phis
        self.end = code.b.append_basic_block("loop.end")

    @property
    def mask(self) -> ir.Value:
        assert self.active.mask is not None
        return self.active.mask

    def go_on(self, condition: ir.Value | None) -> None:
        """Into the body if the condition holds; without one, if any thread is still in the mask."""
        b = self.code.b
        body = b.append_basic_block("loop.body")
        b.cbranch(self.code.any_set(self.mask) if condition is None else condition, body, self.end)
        b.position_at_end(body)

    def repeat(self, following: tuple[Value, ...] | list[Value | ir.Value]) -> None:
        """Back to the header with the scalars' next values."""
        for phi, value in zip(self.phis, following, strict=True):
            if phi is not None:
                phi.add_incoming(self.code.frame.get(value) if isinstance(value, Value) else value, self.code.b.block)
        self.code.b.branch(self.header)
