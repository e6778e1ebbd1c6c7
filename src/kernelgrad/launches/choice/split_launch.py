"""Gradients in two launches, the reverse alone and then the kernel, where these do no more than one kernel for both.

Note [In two]
One kernel that runs forward and then backward loads and computes once what both need. Where they need next to nothing
in common (sums and products, whose reverse asks for no result; loops that the reverse runs again anyway) it has nothing
to gain, and to lose: it takes more registers and shared memory than each of the two, threads wait at the barriers
of both, and the reverse alone may have plans that it has not. So for large launches both are planned, and what their
threads will load, store and compute is estimated from the plans (autodiff/costs/plan_work.py); where they compute
little for each byte, one kernel does it all. Where one kernel does less, but the compiler spills its registers and not
those of the two, these may do half as much again.

The reverse goes first: it wants buffers as they were before the kernel (rule 6), and writes none but adjoints. Of
outputs whose elements are stored once the adjoints are only read there, and zeroed by the kernel where it stores, as
it would without any other adjoint wanted. Where the reverse alone is refused, one kernel does both.

What waits for memory is in two as well where these do no more than the one and the reverse alone has a form that loads
and stores more at once (loops whose turns are spread over blocks, say), and the one has none such.

On a GPU, a reverse that reads memory where the kernel reads copies of it (`without_copies`) has plans
that one kernel has not: then they are two, and the kernel keeps its tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ...analysis.access.affine import Shape, Sums
from ...analysis.ownership.private import typical
from ...analysis.roots import is_shared
from ...autodiff.costs.plan_effects import has_numbers, is_idle, loops_openly
from ...autodiff.costs.plan_work import planned_work
from ...autodiff.costs.work import Work, work
from ...autodiff.prepare.options import promised_roots
from ...errors import KernelGradError
from ...ir.ops import Barrier, BarrierReduce, For, Function, GlobalRef, Value, Warp, While
from ...ir.traverse import kinds, walk
from ...kernel import Kernel
from ...locks import COMPILING, cached_property
from ...runtime.integers import ANY, KnownLaunch, Ways
from ...schedule.coarsen import block_rows
from ...transforms import rotate
from .forms import Forms
from .gathers import kept_outputs
from .variant import Variant

ENOUGH = Work(moved=2e8, operations=1e9)  # of one of them: less takes so little time that a launch more counts
AT_MOST = 16  # times what the kernel does: a gradient. To plan the gradient itself takes longer
DENSE = 32  # operations for each byte of the buffers: what does less waits for memory, in one launch or two
MORE = 1 / 16  # that the two may do more than the one
MORE_SPILLED = 1 / 2  # likewise, where the one spills
SPILLED = 64  # bytes of a thread's registers: fewer hardly matter
_LONG = (For, While, Barrier, BarrierReduce, Warp)

Known = Callable[[Any], Any]
Spilled = Callable[[Kernel], int]  # bytes of local memory for each thread
IsWide = Callable[[Forms, bool], bool]  # whether a launch's form loads and stores several elements at once (in turns)


class Halves(NamedTuple):
    """`reverse`: the forms of the reverse alone. `consuming`: the kernel that zeroes adjoints where it stores, None
    where it need not; it is launched last. `asked`: the integers on which they depend."""

    reverse: Forms
    consuming: Variant | None
    asked: tuple[Value, ...]


class InTwo:
    """Finds the two halves of one gradient's launches."""

    def __init__(self, forms: Forms):
        self.forms = forms
        self._reverses: dict[tuple[str, ...], Forms | None] = {}
        self._forwards: dict[tuple[Variant, tuple[str, ...]], Kernel] = {}

    @property
    def reverses(self) -> list[Forms]:
        """Those that were made."""
        return [reverse for reverse in self._reverses.values() if reverse is not None]

    def find(
        self, launch: KnownLaunch, known: Known, spilled: Spilled | None = None, is_wide: IsWide | None = None
    ) -> Halves | None:
        """None where one kernel had better do both, also since its threads can do several rows of a block each.
        `known`: the integers among the arguments. `spilled`: what the compiler says of a kernel, on a GPU."""
        forms = self.forms
        if launch.segment is not None or not self._might(launch.ways):
            return None
        estimated = Estimated(forms.kernel, Shape(launch.grid, launch.block), known)
        if not estimated.kernel.times(AT_MOST).reaches(ENOUGH):
            return None
        joint = forms.for_launch(launch)
        if (direct := self._reading_directly(joint, estimated, launch)) is not None:
            return direct
        if _is_split(joint) or (launch.ways.on_gpu and self._shares_tiles(joint, launch)):
            return None
        together = estimated.of(joint)
        if not together.reaches(ENOUGH):
            return None

        def kept(by: Forms) -> int:
            """Bytes in memory instead of registers. The kernel is compiled for that: only asked of what may run."""
            return 0 if spilled is None else spilled(by.for_launch(launch).reverse)

        buffers = 2 * sum(nbytes for name, nbytes in launch.sizes if self._is_own(name))  # with their adjoints, about
        dense = together.operations >= DENSE * buffers
        zeroed = self._zeroed(joint, estimated.shape, known)
        may_widen = is_wide is not None and not is_wide(forms, False)
        if not dense and not may_widen and kept(forms) < SPILLED:
            return None
        halves = self._halves(zeroed, launch)
        if halves is None:
            return None
        apart = estimated.of(halves.reverse.for_launch(launch)) + estimated.of_forward(halves.consuming)
        widens = may_widen and is_wide is not None and is_wide(halves.reverse, True)
        if not (dense or widens) or apart.exceeds(together, MORE):
            most = kept(forms)
            if spilled is None or most < SPILLED or apart.exceeds(together, MORE_SPILLED):
                return None
            if max(kept(halves.reverse), spilled(self.forward(halves, launch.wanted))) >= most // 4:
                return None
        return halves

    def _reading_directly(self, joint: Variant, estimated: Estimated, launch: KnownLaunch) -> Halves | None:
        """Where the reverse alone reads memory itself (see `without_copies`), and the kernel keeps its copies."""
        if not launch.ways.on_gpu or not self.forms.may_have_copies or joint.options.facts.gathered or _is_split(joint):
            return None
        halves = self._halves(self._zeroed(joint, estimated.shape, estimated.known), launch)
        return halves if halves is not None and halves.reverse.reads_directly(launch) else None

    def _halves(self, zeroed: tuple[str, ...], launch: KnownLaunch) -> Halves | None:
        """If there are any that share the work."""
        forms, wanted = self.forms, launch.wanted
        reverse = self._reverse((*forms.settings.kept, *zeroed)) if set(zeroed) < set(wanted) else None
        if reverse is None:
            return None
        alone = reverse.unrefused(launch)  # where rows overlap in this launch, it is refused
        if alone is None:
            return None
        consumed = launch._replace(wanted=zeroed, ways=ANY, aligned=())  # it is launched as the kernel is
        consuming = forms.for_launch(consumed) if zeroed else None
        if not _is_apart(alone, consuming, launch.ways) and not reverse.reads_directly(launch):
            return None
        if alone.options.facts.unkept & set(zeroed):  # it would have the adjoints to itself, and the kernel zero them
            return None
        asked = reverse.chooser(launch).relevant.parts
        return Halves(reverse, consuming, (*asked, *(forms.chooser(consumed).relevant.parts if zeroed else ())))

    def is_usual(self) -> bool:
        """Whether large launches are in two, as far as is known without one."""
        forms, wanted = self.forms, self.forms.settings.listed
        joint = forms.variant()
        if not self._might(ANY) or _is_split(joint) or (self._has_tiles and self._merges_rows(joint)):
            return False
        estimated = Estimated(forms.kernel, None, lambda _: None)
        zeroed = self._zeroed(joint, None, lambda _: None)
        reverse = self._reverse((*forms.settings.kept, *zeroed)) if set(zeroed) < set(wanted) else None
        consuming = forms.variant(zeroed) if zeroed else None
        if reverse is None or not _is_apart(reverse.variant(), consuming, ANY):
            return False
        apart = estimated.of(reverse.variant()) + estimated.of_forward(consuming)
        return not apart.exceeds(estimated.of(joint), MORE)

    def _is_own(self, name: str) -> bool:
        return name.partition(".")[0] in self._own_names

    @cached_property
    def _own_names(self) -> frozenset[str]:
        return frozenset(p.name for p in self.forms.kernel.function.params)

    @cached_property
    def _has_tiles(self) -> bool:
        ops = walk(self.forms.kernel.function.body)
        return any(isinstance(op, GlobalRef) and is_shared(op.result) for op in ops)

    def _shares_tiles(self, joint: Variant, launch: KnownLaunch) -> bool:
        """Whether a thread of one kernel does several rows of a block: it loads once for them what is in shared memory,
        the forward's and the reverse's."""
        each = joint.options.facts.tuning.each
        if not self._has_tiles or has_numbers(joint.derivative.prepared):  # their sums are taken by the whole block
            return False
        return block_rows.applies_to(self.forms.kernel.function, launch.block, each)

    def _merges_rows(self, joint: Variant) -> bool:
        if has_numbers(joint.derivative.prepared):
            return False
        return joint.adds_in_loops and block_rows.applies(self.forms.kernel.function)

    def _might(self, ways: Ways) -> bool:
        """What has neither loops nor barriers takes its time for memory, of which one kernel moves less."""
        settings, function = self.forms.settings, self.forms.kernel.function
        one = ways.single or settings.mode != "joint" or settings.may_alias
        return not one and not kinds(function.body).isdisjoint(_LONG)

    def _zeroed(self, joint: Variant, shape: Shape | None, known: Known) -> tuple[str, ...]:
        """The outputs whose adjoints the kernel zeroes, so that the reverse only reads them."""
        prepared = joint.derivative.prepared
        promised = promised_roots(prepared.function, joint.options)
        sums = (
            typical(prepared.structure, prepared.function, promised)
            if shape is None
            else Sums(prepared.structure, shape, known, promised)
        )
        return tuple(name for name in kept_outputs(prepared, sums) if name not in self.forms.settings.kept)

    def _reverse(self, kept: tuple[str, ...]) -> Forms | None:
        with COMPILING:
            if kept not in self._reverses:
                self._reverses[kept] = self._derived(kept)
            return self._reverses[kept]

    def _derived(self, kept: tuple[str, ...]) -> Forms | None:
        forms = self.forms.like(replace(self.forms.settings, mode="reverse", kept=kept, tape_budget=None))
        try:
            forms.variant()
        except KernelGradError:  # it needs what the kernel overwrites, or cannot be told without the forward
            return None
        return forms

    def forward(self, halves: Halves, wanted: tuple[str, ...]) -> Kernel:
        """The kernel that is launched last; if it zeroes adjoints where it stores, it is given all of them."""
        variant = halves.consuming
        if variant is None:
            return self.forms.kernel
        with COMPILING:
            if (variant, wanted) not in self._forwards:
                like = self.forms.variant(wanted).binder.function
                self._forwards[variant, wanted] = _with_all_adjoints(variant, like)
            return self._forwards[variant, wanted]


class Estimated:
    """What launches of a gradient's kernels will do."""

    def __init__(self, kernel: Kernel, shape: Shape | None, known: Known):
        self.shape, self.known = shape, known
        params = {p.name: p.value for p in kernel.function.params}
        rotated = rotate.run(kernel.function, kernel.module)
        self.kernel = work(rotated, shape, lambda name: known(params[name]) if name in params else None)

    def of(self, variant: Variant) -> Work:
        return planned_work(variant.derivative.prepared, self.shape, self.known)

    def of_forward(self, consuming: Variant | None) -> Work:
        return self.kernel if consuming is None else self.of(consuming)


def _is_split(variant: Variant) -> bool:
    """Whether it takes several launches itself."""
    return variant.derivative.prepared.options.mode == "split"


def _is_apart(alone: Variant, consuming: Variant | None, ways: Ways) -> bool:
    """Whether the reverse leaves the kernel something else to do. If gathers do all of it, one kernel is the forward
    alone already. On a CPU, a loop that only counts is run by each thread, where barriers had a block go round."""
    prepared = alone.derivative.prepared
    loops = ways.on_cpu and loops_openly(prepared)
    return not (is_idle(prepared) or loops or _hides(consuming))


def _hides(variant: Variant | None) -> bool:
    """Whether its launcher has more to supply than the kernel's."""
    if variant is None:
        return False
    derivation = variant.derivative
    prepared = derivation.prepared
    kept = prepared.plan.taped or prepared.sites or derivation.shared_params
    added = derivation.partials or derivation.copies or derivation.deferred
    return bool(kept or derivation.internal or added or derivation.won_buffers)


def _with_all_adjoints(variant: Variant, like: Function) -> Kernel:
    kernel = variant.reverse
    function = kernel.function
    own = {p.name: p for p in function.params}
    shown = [own.get(p.name, p) for p in like.params if p.variable is None]
    variables = [p for p in function.params if p.variable is not None]
    name = f"{variant.kernel.name}_forward"
    widened = replace(function, name=name, shown=function.called, params=(*shown, *variables))
    return Kernel(name, replace(kernel.module, functions={name: widened}), variant.kernel.variable)
