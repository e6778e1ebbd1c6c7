"""Gradients in two launches, the reverse alone and then the kernel, where these do no more than one kernel for both.

Note [In two]
One kernel that runs forward and then backward loads and computes once what both need. Where they need next to nothing
in common (sums and products, whose reverse asks for no result; loops that the reverse runs again anyway) it has nothing
to gain, and to lose: it takes more registers and shared memory than each of the two, threads wait at the barriers
of both, and the reverse alone may have plans that it has not. So for large launches both forms are derived, and what
their threads load, store and compute is estimated (autodiff/telling/work.py); where they compute little for each byte,
one kernel does it all. Where one kernel does less, but the compiler spills its registers and not those of the two,
these may do half as much again.

The reverse goes first: it wants buffers as they were before the kernel (rule 6), and writes none but adjoints. Of
outputs whose elements are stored once the adjoints are only read there, and zeroed by the kernel where it stores, as
it would without any other adjoint wanted. Where the reverse alone is refused, one kernel does both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .autodiff import rotate
from .autodiff.adding.affine import Shape, Sums
from .autodiff.adding.exclusive import is_shared
from .autodiff.adding.private import typical
from .autodiff.reverse import unique_roots
from .autodiff.telling.work import Work, work
from .errors import KernelGradError
from .gathers import kept_outputs
from .ir.ops import Barrier, BarrierReduce, For, Function, GlobalRef, Value, Warp, While
from .ir.traverse import walk
from .kernels import Kernel
from .known import Looking
from .locks import COMPILING
from .runtime.config import Launch
from .runtime.launch import BoundArguments
from .variants import ANY, Variant, Ways

if TYPE_CHECKING:
    from .gradients import Gradient

ENOUGH = Work(moved=2e8, operations=1e9)  # of one of them: less takes so little time that a launch more counts
AT_MOST = 16  # times what the kernel does: a gradient. To look at the gradient itself takes longer
DENSE = 32  # operations for each byte of the buffers: what does less waits for memory, in one launch or two
MORE = 1 / 16  # that the two may do more than the one
MORE_SPILLED = 1 / 2  # likewise, where the one spills
SPILLED = 64  # bytes of a thread's registers: fewer hardly matter
_LONG = (For, While, Barrier, BarrierReduce, Warp)

Spilled = Callable[[Kernel], int]  # bytes of local memory for each thread


class Halves(NamedTuple):
    """`reverse`: the gradient whose variants are the reverse alone. `forward`: the kernel to launch after it, and
    whether it takes the adjoints too. `asked`: the integers on which they depend."""

    reverse: Gradient
    forward: Kernel
    takes_adjoints: bool
    asked: tuple[Value, ...]


class InTwo:
    """Finds the two halves of one gradient's launches."""

    def __init__(self, gradient: Gradient):
        self.gradient = gradient
        self._reverses: dict[tuple[str, ...], Gradient | None] = {}
        self._forwards: dict[tuple[int, tuple[str, ...]], Kernel] = {}

    @property
    def gradients(self) -> list[Gradient]:
        """Those that were made."""
        return [reverse for reverse in self._reverses.values() if reverse is not None]

    def find(
        self,
        wanted: tuple[str, ...],
        launch: Launch,
        primal: BoundArguments,
        answers: Callable[[Any], Any],
        ways: Ways = ANY,
        spilled: Spilled | None = None,
    ) -> Halves | None:
        """None where one kernel had better do both, also since its threads can do several rows of a block each.
        `answers`: the integers among the arguments. `spilled`: what the compiler says of a kernel, on a GPU."""
        known, gradient = Looking(answers), self.gradient
        if not self._might(ways):
            return None
        measured = Measured(gradient.kernel, Shape(launch.grid, launch.block), known)
        if not measured.of_kernel(gradient.kernel).times(AT_MOST).reaches(ENOUGH):
            return None
        joint = gradient.variant_for(wanted, launch, primal)
        if len(joint.kernels) > 1 or (ways.on_gpu and self._shares_tiles(wanted, launch, primal, ways)):
            return None
        together = measured.of(joint)
        if not together.reaches(ENOUGH):
            return None

        def kept(by: Gradient) -> int:
            """In memory instead of registers. Its kernel is compiled for that: only asked of what may be launched."""
            return 0 if spilled is None else spilled(by.variant_for(wanted, launch, primal, ways).reverse)

        buffers = 2 * sum(b.nbytes for b in primal.buffers)  # with their adjoints, about
        dense = together.operations >= DENSE * buffers
        zeroed = self._zeroed(joint, Shape(launch.grid, launch.block), known)
        if not dense and kept(gradient) < SPILLED:
            return None
        halves = self._halves(zeroed, wanted, launch, primal, ways)
        if halves is None:
            return None
        apart = measured.of(halves.reverse.variant_for(wanted, launch, primal)) + measured.of_kernel(halves.forward)
        if not dense or apart.exceeds(together, MORE):
            most = kept(gradient)
            if spilled is None or most < SPILLED or apart.exceeds(together, MORE_SPILLED):
                return None
            if max(kept(halves.reverse), spilled(halves.forward)) >= most // 4:
                return None
        return halves._replace(asked=(*known.asked, *halves.asked))

    def _halves(
        self, zeroed: tuple[str, ...], wanted: tuple[str, ...], launch: Launch, primal: BoundArguments, ways: Ways
    ) -> Halves | None:
        """If there are any that share the work."""
        gradient = self.gradient
        reverse = self._reverse((*gradient.settings.kept, *zeroed)) if set(zeroed) < set(wanted) else None
        alone = None if reverse is None else reverse.variant_for(wanted, launch, primal)
        consuming = gradient.variant_for(zeroed, launch, primal) if zeroed else None
        if reverse is None or alone is None or not _is_apart(alone, consuming, ways):
            return None
        if alone.options.facts.unkept & set(zeroed):  # it would have the adjoints to itself, and the kernel zero them
            return None
        forward = gradient.kernel if consuming is None else self._forward(consuming, wanted)
        users = ((reverse, wanted), *(((gradient, zeroed),) if zeroed else ()))
        asked = (value for user, names in users for value in user._usual_for(names, launch).relevant.parts)
        return Halves(reverse, forward, consuming is not None, tuple(asked))

    def is_usual(self) -> bool:
        """Whether large launches are in two, as far as is known without one."""
        gradient, wanted = self.gradient, self.gradient.settings.listed
        joint = gradient.variant()
        if not self._might(ANY) or len(joint.kernels) > 1 or (self._has_tiles and joint.merges_rows):
            return False
        measured = Measured(gradient.kernel, None, lambda _: None)
        zeroed = self._zeroed(joint, None, lambda _: None)
        reverse = self._reverse((*gradient.settings.kept, *zeroed)) if set(zeroed) < set(wanted) else None
        consuming = gradient.variant(zeroed) if zeroed else None
        if reverse is None or not _is_apart(reverse.variant(), consuming, ANY):
            return False
        forward = gradient.kernel if consuming is None else self._forward(consuming, wanted)
        return not (measured.of(reverse.variant()) + measured.of_kernel(forward)).exceeds(measured.of(joint), MORE)

    @property
    def _has_tiles(self) -> bool:
        ops = walk(self.gradient.kernel.function.body)
        return any(isinstance(op, GlobalRef) and is_shared(op.result) for op in ops)

    def _shares_tiles(self, wanted: tuple[str, ...], launch: Launch, primal: BoundArguments, ways: Ways) -> bool:
        """Whether a thread of one kernel does several rows of a block: it loads once for them what is in shared memory,
        the forward's and the reverse's."""
        if not self._has_tiles:
            return False
        one = self.gradient.variant_for(wanted, launch, primal, ways)
        return one.started(one.reverse, launch.block) != launch.block

    def _might(self, ways: Ways) -> bool:
        """What has neither loops nor barriers takes its time for memory, of which one kernel moves less."""
        settings, function = self.gradient.settings, self.gradient.kernel.function
        one = ways.single or settings.mode != "joint" or settings.may_alias
        return not one and any(isinstance(op, _LONG) for op in walk(function.body))

    def _zeroed(self, joint: Variant, shape: Shape | None, known: Callable[[Any], Any]) -> tuple[str, ...]:
        """The outputs whose adjoints the kernel zeroes, so that the reverse only reads them."""
        prepared = joint.derivative.prepared
        unique = unique_roots(prepared.function, joint.options)
        sums = (
            typical(prepared.structure, prepared.function, unique)
            if shape is None
            else Sums(prepared.structure, shape, known, unique)
        )
        return tuple(name for name in kept_outputs(prepared, sums) if name not in self.gradient.settings.kept)

    def _reverse(self, kept: tuple[str, ...]) -> Gradient | None:
        with COMPILING:
            if kept not in self._reverses:
                self._reverses[kept] = self._derived(kept)
            return self._reverses[kept]

    def _derived(self, kept: tuple[str, ...]) -> Gradient | None:
        settings = replace(self.gradient.settings, mode="reverse", kept=kept, tape_budget=None)
        try:
            return type(self.gradient)(self.gradient.kernel, settings)
        except KernelGradError:  # it needs what the kernel overwrites, or cannot be told without the forward
            return None

    def _forward(self, variant: Variant, wanted: tuple[str, ...]) -> Kernel:
        """The kernel that zeroes adjoints where it stores; it is given all of them."""
        key = id(variant), wanted
        with COMPILING:
            if key not in self._forwards:
                self._forwards[key] = _with_all_adjoints(variant, self.gradient.variant(wanted).binder.function)
            return self._forwards[key]


class Measured:
    """What launches of a gradient do."""

    def __init__(self, kernel: Kernel, shape: Shape | None, known: Callable[[Any], Any]):
        params = {p.name: p.value for p in kernel.function.params}
        self.shape = shape
        self.known: Callable[[str], Any] = lambda name: known(params[name]) if name in params else None

    def of(self, variant: Variant) -> Work:
        return sum(map(self.of_kernel, variant.kernels), Work())

    def of_kernel(self, kernel: Kernel) -> Work:
        return work(rotate.run(kernel.function, kernel.module), self.shape, self.known)


def _is_apart(alone: Variant, consuming: Variant | None, ways: Ways) -> bool:
    """Whether the reverse leaves the kernel something else to do. If gathers do all of it, one kernel is the forward
    alone already. On a CPU, a loop that only counts is run by each thread, where barriers had a block go round."""
    loops = ways.on_cpu and any(isinstance(op, While) for op in walk(alone.reverse.function.body))
    return not (alone.is_idle or loops or _hides(consuming))


def _hides(variant: Variant | None) -> bool:
    """Whether its launcher has more to supply than the kernel's."""
    return variant is not None and any(
        p.variable is not None and p.name not in {q.name for q in variant.kernel.function.params}
        for p in variant.reverse.function.params
    )


def _with_all_adjoints(variant: Variant, like: Function) -> Kernel:
    kernel = variant.reverse
    function = kernel.function
    own = {p.name: p for p in function.params}
    shown = [own.get(p.name, p) for p in like.params if p.variable is None]
    hidden = [p for p in function.params if p.variable is not None]
    name = f"{variant.kernel.name}_forward"
    widened = replace(function, name=name, shown=function.called, params=(*shown, *hidden))
    return Kernel(name, replace(kernel.module, functions={name: widened}), variant.kernel.variable)
