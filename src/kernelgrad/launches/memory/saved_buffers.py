"""What a split saves of its buffers, since anything may change between its two launches (rule 25).

Note [Saving]
Every buffer, module variable and buffer behind a struct's pointers may hold something else when the reverse runs, but
for those that the user promises not to change. Of those that the reverse reads again, the forward keeps a copy, made
before it runs, and the reverse is given the copy's address; or what is read of them goes on the tape, as other values
do. Whichever is fewer bytes for the launch: a small table that many threads read is copied, of a large one that few
threads look into, the values are kept. What is behind pointers that memory holds is always taped: nobody knows its
size. `__constant__` variables change from the host alone, which keeps their bytes.

Which buffers the reverse reads is looked up in its finished code: what a plan may have overlooked is saved as well. A
gradient's own two launches (`winner_memory`) follow each other, and save nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...analysis.roots import analyse, holds_pointers, named_roots
from ...autodiff.prepare.options import Options, changing_roots, early_loads
from ...autodiff.refusals.unsaved import split_plan
from ...autodiff.saving import tape_capacity
from ...autodiff.saving.plan import Plan
from ...autodiff.saving.reread import reread
from ...errors import ArgumentError, UnsupportedError
from ...ir.layout import leaves, param_layout
from ...ir.ops import Function
from ...ir.types import Pointer
from ...kernel import Kernel
from ...requests import Names, names_in
from ...runtime.arguments import Placement, Supplied
from ...runtime.config import Launch
from ...runtime.launch import BoundArguments, Buffer
from ...runtime.reach import Copy
from ...runtime.scratch import Scratch
from ...runtime.signature import c_signature, user_params
from ..choice.variant import Variant

_WORTH_COUNTING = 1 << 26  # bytes of copies: to count a tape takes a launch
_TOP = 8  # bytes in which a thread notes where its stack ends
_TRIED = 4  # buffers, each by itself: the largest


def changing(kernel: Kernel, unchanged: Names) -> frozenset[str]:
    """The buffers and variables that may change between the two launches: all but those that are promised not to."""
    function = kernel.function
    memory, params = analyse(function), {p.name: p.value for p in function.params if holds_pointers(p.type)}
    variables = {n: r for n, r in memory.global_names.items() if kernel.module.globals[n].space != "shared"}
    known, written = {**params, **variables}, memory.written()
    promised = names_in(unchanged, function.params, "unchanged")
    for name in promised:
        if name not in known:
            raise ArgumentError(f"unchanged: {function.name} has no buffer '{name}'\n  {c_signature(function)}")
        if known[name] in written:
            raise ArgumentError(f"unchanged: the kernel itself writes '{name}'; what it overwrites is kept in any case")
    return frozenset(known) - set(promised)


# ---- copies -------------------------------------------------------------------------------------------------------


@dataclass
class Saved:
    """`buffers`: copies, by the pointer's path and where its address is in the packed arguments. `variables`: copies of
    module variables. `constants`: the bytes of those that the host keeps."""

    buffers: dict[tuple[str, int], Copy] = field(default_factory=dict)
    variables: dict[str, Scratch] = field(default_factory=dict)
    constants: dict[str, bytes] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(copy.nbytes for copy in self.buffers.values()) + sum(c.nbytes for c in self.variables.values())

    @property
    def supplied(self) -> dict[str, Supplied]:
        return {name: Supplied(copy.address, copy.nbytes) for name, copy in self.variables.items()}

    def in_place_of(self, bound: BoundArguments) -> BoundArguments:
        """The arguments of the reverse, with the copies instead of what the buffers hold by then."""
        packed, copies = bytearray(bound.packed), {path: copy for (path, _), copy in self.buffers.items()}
        for (_, offset), copy in self.buffers.items():
            packed[offset : offset + 8] = copy.address.to_bytes(8, "little")
        own = (copies.get(b.name) for b in bound.buffers)
        buffers = [
            b if copy is None else b._replace(address=copy.address) for b, copy in zip(bound.buffers, own, strict=True)
        ]
        return bound._replace(packed=bytes(packed), buffers=tuple(buffers))


def save(
    kernel: Kernel, names: Iterable[str], bound: BoundArguments, placement: Placement, stream: int | None
) -> Saved:
    """Copies of what the parameters and variables of a kernel hold."""
    found, wanted = Saved(), set(names)
    function = kernel.function
    buffers = {b.name: b for b in bound.buffers}
    for param, start in zip(user_params(function), param_layout(function)[0], strict=False):
        for path, offset, type in leaves(param.type, param.name, start) if param.name in wanted else ():
            address = int.from_bytes(bound.packed[offset : offset + 8], "little")
            if isinstance(type, Pointer) and address:
                found.buffers[path, offset] = Copy(_found(path, buffers, function), placement.cuda, stream)
    for name in sorted(wanted - {p.name for p in user_params(function)}):
        _save_variable(kernel, name, placement, stream, found)
    return found


def _found(path: str, buffers: Mapping[str, Buffer], function: Function) -> Buffer:
    if path not in buffers:
        problem = f"{function.name}: '{path}' may change before the reverse runs, and its size is not known"
        raise ArgumentError(f"{problem}; pass an array for it, or promise unchanged='{path.partition('.')[0]}'")
    return buffers[path]


def _save_variable(kernel: Kernel, name: str, placement: Placement, stream: int | None, found: Saved) -> None:
    variable = kernel.variable(name)
    is_param = any(p.variable == name for p in kernel.function.params)
    if placement.cuda is not None and variable.space == "constant" and not is_param:
        found.constants[name] = variable.bytes()
        return
    on_host = placement.cuda is None
    address = variable.host_address() if on_host else variable.device_address(placement.cuda or 0, stream or 0)
    found.variables[name] = Scratch(variable.type.size, placement.cuda, stream).copy_from(address)


def saved_names(variant: Variant) -> frozenset[str]:
    """What must be copied: the buffers that the reverse reads, and that may change. Who bids wants those that the
    forward overwrites as they were, too."""
    forward, reverse, *bidding = variant.kernels
    memory, changing = analyse(forward.function), variant.options.changing
    written = [name for name in changing if named_roots(forward.function, memory, (name,)) & memory.written()]
    bid = (name for kernel in bidding for name in read_by(kernel.function, written))
    return frozenset((*read_by(reverse.function, changing), *bid))


def read_by(function: Function, names: Iterable[str]) -> list[str]:
    """Those of the parameters and variables that a kernel loads from."""
    memory = analyse(function)
    read = frozenset(root for op in memory.loads for root in memory.of(op.ptr))
    return [name for name in names if named_roots(function, memory, (name,)) & read]


# ---- copies or the tape -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Bytes of a plan: of the tape, None where it must be counted, and of the copies of these buffers."""

    tape: int | None
    copies: int
    copied: frozenset[str]

    @property
    def total(self) -> float:
        return math.inf if self.tape is None else self.tape + self.copies


class Choice:
    """Which buffers had better be read again from copies, and of which the values be taped: for the variants of a split
    that differ in nothing else."""

    def __init__(self, variant: Variant):
        self.prepared, self.options = variant.derivative.prepared, variant.options
        self._plans: dict[frozenset[str], Plan | None] = {}

    def taped(
        self,
        launch: Launch,
        known: Callable[[Any], Any],
        sizes: Mapping[str, int],
        count: Callable[[frozenset[str]], int],
    ) -> frozenset[str]:
        """For a launch. `sizes`: of buffers and variables. `count`: the tape's bytes, where they depend on contents."""
        at_first = self._cost(frozenset(), launch, known, sizes)
        if not at_first.copies or (at_first.tape is None and at_first.copies <= _WORTH_COUNTING):
            return frozenset()

        def cost(names: frozenset[str]) -> Cost:
            found = self._cost(names, launch, known, sizes)
            counts = found.tape is None and at_first.copies > _WORTH_COUNTING and self._plan(names) is not None
            return replace(found, tape=count(names)) if counts else found

        # A tape has a byte for each thread at least, and a first one notes where it ends.
        fewest = math.prod(launch.grid) * math.prod(launch.block) * (1 if at_first.tape else 1 + _TOP)
        best, least = frozenset[str](), cost(frozenset()).total
        each = sorted(at_first.copied, key=lambda name: (-sizes.get(name, 0), name))[:_TRIED]
        for names in (*(frozenset((name,)) for name in each), at_first.copied):
            if sum(sizes.get(name, 0) for name in names) <= fewest:
                continue
            total = cost(best | names).total
            if total < least:
                best, least = best | names, total
        return best

    def _cost(
        self, taped: frozenset[str], launch: Launch, known: Callable[[Any], Any], sizes: Mapping[str, int]
    ) -> Cost:
        plan = self._plan(taped)
        if plan is None:
            return Cost(None, 0, frozenset())
        task, extents = self.prepared.task, {"block_dim": launch.block, "grid_dim": launch.grid}
        read = reread(plan, task.memory, task.structure)
        copied = frozenset(
            name for name in self.options.changing - taped if named_roots(task.function, task.memory, (name,)) & read
        )
        tape = tape_capacity.by_arithmetic(plan, known, lambda name, axis: extents[name][axis])
        threads = math.prod(launch.grid) * math.prod(launch.block)
        total = None if tape is None else threads * sum(type.size * n + _TOP for type, n in tape.items())
        return Cost(total, sum(sizes.get(name, 0) for name in copied), copied)

    def _plan(self, taped: frozenset[str]) -> Plan | None:
        """None where it cannot be had."""
        if taped not in self._plans:
            self._plans[taped] = self._planned(taped)
        return self._plans[taped]

    def _planned(self, taped: frozenset[str]) -> Plan | None:
        task = self.prepared.task
        options: Options = replace(self.options, facts=replace(self.options.facts, taped=taped), mode="split")
        changing = changing_roots(task.function, task.memory, options)
        early = early_loads(task.function, task.memory, options)
        altered = named_roots(task.function, task.memory, options.changing)
        try:
            return split_plan(
                replace(task, changing=changing, early=early), self.prepared.shadowed.of.values(), altered
            )
        except UnsupportedError:
            return None
