"""What a gradient's kernel will leave in memory, by its plan: before any of its code is emitted."""

from __future__ import annotations

import math

from ...deep import deeply
from ...ir.ops import Alloca, Atomic, Op, Print, Store, Value, While
from ...ir.traverse import walk
from ..accumulate.fewer_blocks import is_alone
from ..calculus.cooperate import cells_of
from ..calculus.shadows import is_dynamic
from ..prepare.prepared import Prepared
from .executed import Executed


def may_only_sum(prepared: Prepared) -> bool:
    """Whether nothing but adjoints of numbers may be written; what is emitted has the last word (see
    `fewer_blocks`)."""
    options, plan = prepared.options, prepared.plan
    if options.mode == "split" or plan.taped or prepared.sites or not has_numbers(prepared):
        return False
    if any(not _is_idle(op, prepared) for op in walk(prepared.function.body) if plan.has_adjoint(op)):
        return False
    left = (op for op in walk(prepared.function.body) if not (_is_dropped(op, prepared) or is_alone(op)))
    return not any(True for _ in left)


def is_idle(prepared: Prepared) -> bool:
    """Whether gathers do all there is to do."""
    if not prepared.accumulation.gathered or has_numbers(prepared):
        return False
    ops = list(walk(prepared.function.body))
    effects = (op for op in ops if isinstance(op, Store | Atomic | Print) and not _is_dropped(op, prepared))
    forward = any(not _is_local_write(op, prepared) for op in effects)
    return not forward and all(_is_idle(op, prepared) for op in ops if prepared.plan.has_adjoint(op))


@deeply
def loops_openly(prepared: Prepared) -> bool:
    """Whether there will be loops that do not count."""
    if _fills_in_loops(prepared):
        return True
    executed = Executed(prepared)
    loops = (op for op in walk(prepared.function.body) if isinstance(op, While))
    return any(id(op) in executed.forward or executed.again[id(op)] for op in loops)


def _fills_in_loops(prepared: Prepared) -> bool:
    """Whether the threads of a block zero shadows of shared memory that have not one cell for each of them."""
    block = prepared.options.facts.block
    threads = None if block is None else math.prod(block)
    return any(is_dynamic(v) or cells_of(v) != threads for v in prepared.planned.shared.of.values())


def has_numbers(prepared: Prepared) -> bool:
    """Whether the adjoint of a number is summed up."""
    values = {p.name: p.value for p in prepared.function.params}
    return any(values[name] in prepared.activity for name in prepared.options.listed)


def _is_dropped(op: Op, prepared: Prepared) -> bool:
    """Whether the forward sweep leaves it out; a reverse alone has none."""
    return id(op) in prepared.plan.silent or (prepared.options.mode == "reverse" and isinstance(op, Store | Atomic))


def _is_idle(op: Op, prepared: Prepared) -> bool:
    """Whether its adjoint leaves nothing in memory that others see."""
    match op:
        case Store(ptr):
            return bool(prepared.memory.of(ptr) & prepared.kept) or _is_local(ptr, prepared)
        case Atomic():
            return op.kind in ("add", "sub")
    if op in prepared.memory.loads:
        return id(op) in prepared.accumulation.gathered or _is_local(op.ptr, prepared)
    return True


def _is_local_write(op: Op, prepared: Prepared) -> bool:
    return isinstance(op, Store | Atomic) and _is_local(op.ptr, prepared)


def _is_local(ptr: Value, prepared: Prepared) -> bool:
    definition = prepared.structure.definition
    return all(isinstance(definition.get(root), Alloca) for root in prepared.memory.of(ptr))
