"""Whether a launch's loops are exchanged for its threads (see `schedule/exchange/row_exchange`), and the launches that
sum up over those."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ...analysis.access.affine import Shape, Sums
from ...autodiff.accumulate.choice import Facts
from ...autodiff.prepare.prepared import Prepared
from ...ir.ops import Atomic, Barrier, BarrierReduce, Load, Value, Warp
from ...ir.traverse import kinds, walk
from ...kernel import Kernel
from ...runtime.arguments import Supplied
from ...runtime.config import Launch, make_launch
from ...runtime.integers import KnownLaunch
from ...schedule.exchange import exchanged
from ...schedule.exchange.exchanged import Groups
from ...schedule.exchange.key_kernels import BLOCK
from .variant import Variant

_MOST_THREADS = 2**31 - 2**17  # 32 bits hold the number of a thread, and of one a chunk further on
_FEW_THREADS = 1 << 16  # the chunks of which are so few that sums of them are within 1e-5 in floats
Numbers = Callable[[str], int | None]


def may_exchange(variant: Variant, launch: KnownLaunch) -> bool:
    """Whether it is worth a look."""
    ways, options = launch.ways, variant.options
    asked = options.may_alias or options.deterministic or options.report_nan or options.mode == "split"
    if not ways.on_gpu or ways.single or asked or launch.segment is not None or options.facts.alone:
        return False
    if math.prod(launch.grid) * math.prod(launch.block) > _MOST_THREADS or not variant.adds_in_loops:
        return False
    if not kinds(variant.kernel.function.body).isdisjoint((Barrier, BarrierReduce, Warp)):
        return False  # loops in which threads meet; no code is made to look at them
    prepared, shape = variant.derivative.prepared, Shape(launch.grid, launch.block)
    sums = Sums(prepared.structure, shape, launch.answers(variant.kernel.function))
    alike = (op for op in prepared.memory.loads if id(op) in prepared.accumulation.together)
    return any(_has_keys(op, prepared, sums) for op in alike if prepared.plan.has_adjoint(op))


def _has_keys(op: Load, prepared: Prepared, sums: Sums) -> bool:
    """Whether it may read elements that the counter of a long loop picks."""
    for root in prepared.memory.of(op.ptr):
        address = sums.address(op.ptr, root)
        if address is None:
            return prepared.structure.home[op.result].in_loop
        for basis in address.coefficients:
            length = sums.extents.get(basis) if isinstance(basis, Value) else 0
            if length is None or length >= exchanged.FEWEST:
                return True
    return False


def with_exchange(
    form: Callable[[Facts], Variant], facts: Facts, launch: KnownLaunch, known: Callable[[Any], Any]
) -> Facts:
    """The facts, with the loops that are exchanged: what launches of their own add up, each element a few times, needs
    neither doubles nor copies. Of many threads it is more often: then doubles are added to, also in place of copies."""
    many = math.prod(launch.grid) * math.prod(launch.block) > _FEW_THREADS
    if many and facts.copied:
        wide = replace(facts, wide=facts.wide | facts.copied, copied=frozenset(), coarse=0)
        in_registers = facts.coarse and form(facts).derivative.coarse is not None
        if in_registers or not facts.copied <= form(wide).derivative.wide.keys():
            return facts
        return _exchanged(form, wide, frozenset(), launch, known) or facts
    return _exchanged(form, facts, frozenset() if many else facts.wide | facts.copied, launch, known) or facts


def _exchanged(
    form: Callable[[Facts], Variant],
    facts: Facts,
    added: frozenset[str],
    launch: KnownLaunch,
    known: Callable[[Any], Any],
) -> Facts | None:
    """`added`: what needs neither doubles nor copies if all additions to it are made by these launches."""
    bare = _without(facts, added)
    found = _found(form(bare), launch, known)
    if not found:
        return None
    kept = added - _names(form(bare), found)
    if kept:
        bare = _without(facts, added - kept)
        found = _found(form(bare), launch, known)
    return replace(bare, exchanged=found) if found else None


def _without(facts: Facts, names: frozenset[str]) -> Facts:
    return replace(facts, wide=facts.wide - names, copied=facts.copied - names, coarse=0)


def _found(variant: Variant, launch: KnownLaunch, known: Callable[[Any], Any]) -> Groups:
    derivation = variant.derivative
    several = len(derivation.functions) != 1 or derivation.won_buffers or variant.places
    if several or derivation.coarse is not None or variant.logged:
        return ()
    return variant.exchangeable.groups(launch.grid, launch.block, _numbers(variant, known))


def _names(variant: Variant, groups: Groups) -> frozenset[str]:
    """The parameters all of whose additions are made by these launches."""
    found = variant.exchangeable
    gone = {id(u.atomic) for group in groups for n in group for u in found.parts[n].updates}
    memory = found.known(found.parts[0].loop).memory
    left = {
        r
        for op in walk(found.function.body)
        if isinstance(op, Atomic) and id(op) not in gone
        for r in memory.of(op.ptr)
    }
    adjoints = {p.name: name for name, p in variant.derivative.adjoints.items()}
    roots = {r for group in groups for n in group for u in found.parts[n].updates for r in memory.of(u.ptr)}
    return frozenset(adjoints[r.name] for r in roots - left if r.name in adjoints)


def _numbers(variant: Variant, known: Callable[[Any], Any]) -> Numbers:
    """The integers among the arguments, by their names."""
    params = {p.name: p.value for p in variant.kernel.function.params}

    def number(name: str) -> int | None:
        found = known(params[name]) if name in params else None
        return int(found) if found is not None else None

    return number


def launches(variant: Variant, launch: KnownLaunch) -> Iterator[tuple[Kernel, Launch, dict[str, Supplied]]]:
    """The kernels that sum up over threads, how they are launched, and what they are told."""
    numbers = _numbers(variant, launch.answers(variant.kernel.function))
    common = told(variant, launch)
    for group, kernel in zip(variant.options.facts.exchanged, variant.keys_kernels, strict=True):
        found = variant.exchangeable.launch(group, launch.grid, launch.block, numbers)
        own = {name: Supplied(value) for name, value in found.told.items()}
        yield kernel, make_launch(found.grid, BLOCK), {**common, **own}


def told(variant: Variant, launch: KnownLaunch) -> dict[str, Supplied]:
    numbers = _numbers(variant, launch.answers(variant.kernel.function))
    found = variant.exchangeable.told(variant.options.facts.exchanged, launch.grid, launch.block, numbers)
    return {name: Supplied(value) for name, value in found.items()}
