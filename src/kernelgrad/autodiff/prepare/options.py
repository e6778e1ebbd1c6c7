"""What a derivative is asked for, and what follows from that for the kernel's memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ...analysis.promises import NONE, NOTHING, Promised, Promises
from ...analysis.roots import UNKNOWN, Memory, leads_on, named_roots
from ...ir.ops import Function, Value
from ..accumulate.choice import USUAL, Facts

if TYPE_CHECKING:
    from ...analysis.ownership.loads_before_stores import Early

Mode = Literal["joint", "split", "reverse"]


@dataclass(frozen=True)
class Options:
    """`listed`: the parameters to differentiate. `kept`: pure outputs whose adjoint is read and left as it is.

    joint: forward and reverse in one function. split: two functions with a tape between them. reverse: the reverse
    alone, on buffers that hold what they held before the kernel (rule 6). A kernel that writes nothing but outputs runs
    forward then too, but for those writes: `silent`.
    """

    listed: tuple[str, ...]
    kept: tuple[str, ...] = ()
    mode: Mode = "joint"
    may_alias: bool = False
    facts: Facts = USUAL
    silent: bool = False
    deterministic: bool = False
    promises: Promises = NONE  # of the user's
    changing: frozenset[str] = frozenset()  # buffers that may hold something else when the reverse of a split runs
    report_nan: bool = False  # see Note [Finite tests] in autodiff/sweep/finite_tests.py

    @property
    def results(self) -> tuple[str, ...]:
        """The outputs that hold the results, as promised: each element by one store."""
        alone = self.mode == "reverse" or self.silent
        return tuple(n for n in self.promises.results if n not in self.facts.unheld) if alone else ()

    @property
    def partials(self) -> bool:
        """Whether each block leaves its sum of a number's adjoint for a finishing step."""
        return self.facts.partials or (self.deterministic and not self.facts.alone)

    @property
    def planned(self) -> Options:
        """What the plan depends on: not how updates are added, nor what is made of the code."""
        facts = self.facts
        kept = Facts(
            refill=facts.refill,
            looks_back=facts.looks_back,
            copied=facts.copied,
            copies=facts.copies,
            cells=facts.cells,
            columns=facts.columns,
            wide=facts.wide,
            strips=facts.strips,
            taped=facts.taped,
            block=facts.block,
            passed=facts.passed,
            alone=facts.alone,
            inlined=facts.inlined,
            stacks=facts.stacks,
            arena=facts.arena,
            ragged=facts.ragged,
            apart_in_turn=facts.apart_in_turn,
            roomy=facts.roomy,
        )
        return replace(self, kept=(), promises=replace(NONE, results=self.results), facts=kept)


def changing_roots(function: Function, memory: Memory, options: Options) -> frozenset[Value]:
    """The memory that may change before the reverse runs, and of which no copy is kept: the launcher has none of what
    is behind pointers that memory holds."""
    behind = any(leads_on(root.type) for root in named_roots(function, memory, options.changing))
    taped = named_roots(function, memory, options.changing & options.facts.taped)
    return taped | {UNKNOWN} if behind else taped


def early_loads(function: Function, memory: Memory, options: Options) -> Early | None:
    """In the buffers themselves if the reverse runs alone, else in copies."""
    if options.mode == "joint":
        return None
    from ...analysis.ownership.loads_before_stores import find_early

    copied = named_roots(function, memory, options.changing - options.facts.taped)
    old = memory.lasting() | {UNKNOWN} if options.mode == "reverse" else copied
    loads = [op for op in memory.loads if memory.of(op.ptr) and memory.of(op.ptr) <= old]
    typical = options.mode == "reverse" and options.facts.apart_in_turn
    return find_early(loads, function, memory, options.may_alias, typical)


def promised_roots(function: Function, options: Options) -> Promised:
    """What the user promises of buffers, unless others may share their memory."""
    nothing = options.may_alias or options.promises == NONE
    return NOTHING if nothing else options.promises.of_roots(function)
