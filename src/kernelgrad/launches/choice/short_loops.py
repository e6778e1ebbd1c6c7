"""Launches that tell how often short loops run, `for (r = 0; r < taps; ++r)`: they are planned for the kernel in which
that is a constant, where that does less.

Of windows, weights and small matrices of constant size more is known: loops over them are unrolled, what they read
stays in registers, and weights are added up together. The kernel is compiled for each number that launches come with,
as long as there are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf, prod
from typing import TYPE_CHECKING

from ...analysis.access.affine import Shape, Sums
from ...analysis.machine import ATOMIC_INSTRUCTIONS
from ...analysis.structure import analyse
from ...ir.ops import Apply, Constant, For, Load, Op, Value, While
from ...ir.traverse import walk
from ...ir.types import Scalar
from ...locks import cached_property
from ...runtime.integers import KnownLaunch, Looking
from ...transforms import simplify
from ...transforms.fixed_numbers import with_numbers
from .without_copies import estimated

if TYPE_CHECKING:
    from .forms import Forms

_LONGEST = 32  # turns
_LARGEST = 64  # number, of which there are not many others
_STEP = 4  # of windows, at most
_MOST_KERNELS = 8
_LESS, _MORE = 0.9, 1.05  # of what is estimated: of what is unrolled, some operations count that others hide
_TAPED = 4.0

Numbers = tuple[tuple[str, int], ...]


class ShortLoops:
    """Of one gradient."""

    def __init__(self, forms: Forms):
        self.forms = forms
        self._made: dict[Numbers, Forms] = {}

    def find(self, launch: KnownLaunch, known: Looking) -> Forms | None:
        """Lengths of the innermost loops had better be constants; so had strides, and lengths of all loops, if that is
        clearly less."""
        ways, halves = launch.ways, self.forms.settings.mode == "split"  # which must have the same tape
        if not ways.on_gpu or ways.single or halves or launch.segment is not None or not self._loops:
            return None
        trips = self._trips(launch, known)
        if not trips:
            return None
        inner = self._numbers([loop for loop in trips if _turns(loop, trips) <= _LONGEST], known)
        chosen, least = None, _MORE * self._cost(self.forms, launch, known)
        more = self._with_steps(inner, known)
        for numbers, part in ((inner, 1.0), (more, _LESS), (self._numbers(trips, known), _LESS)):
            forms = self._forms(numbers) if numbers and numbers != chosen else None
            cost = inf if forms is None else self._cost(forms, launch, known)
            if cost < part * least:
                chosen, least = numbers, cost
        return None if chosen is None else self._made[chosen]

    @cached_property
    def _loops(self) -> dict[For, tuple[Value, ...]]:
        """Loops that read memory, and the arguments that tell their lengths, if nothing else does."""
        function = self.forms.kernel.function
        params = {p.value for p in function.params if p.variable is None and _is_integer(p.value)}
        definition = {v: op for op in walk(function.body) for v in op.results}
        found = dict[For, tuple[Value, ...]]()
        for loop in (op for op in walk(function.body) if isinstance(op, For)):
            told = list(_told_by((loop.lower, loop.upper), definition))
            if told and set(told) <= params and any(isinstance(op, Load) for op in walk(loop.body)):
                found[loop] = tuple(dict.fromkeys(told))
        return found

    def _trips(self, launch: KnownLaunch, known: Looking) -> dict[For, int]:
        """How often short loops run that small arguments tell of."""
        function, found = self.forms.kernel.function, dict[For, int]()
        sums = Sums(analyse(function, apart=False), Shape(launch.grid, launch.block), known)
        for loop, told in self._loops.items():
            if all(isinstance(number := known(value), int) and abs(number) <= _LARGEST for value in told):
                trips = _trips(loop, sums)
                found |= {loop: trips} if 0 < trips <= _LONGEST else {}
        return found

    def _numbers(self, loops: Iterable[For], known: Looking) -> Numbers:
        told = {value for loop in loops for value in self._loops[loop]}
        return tuple(sorted((value.name or "", known(value)) for value in told))

    def _with_steps(self, numbers: Numbers, known: Looking) -> Numbers:
        """With the smallest of the arguments, such as strides, if there are any others."""
        params = (p.value for p in self.forms.kernel.function.params if p.variable is None and _is_integer(p.value))
        small = {p.name or "": number for p in params if abs(number := known(p) or 0) <= _STEP} if numbers else {}
        return tuple(sorted((dict(numbers) | small).items()))

    def _forms(self, numbers: Numbers) -> Forms | None:
        if numbers not in self._made:
            if len(self._made) >= _MOST_KERNELS:
                return None
            kernel, function = self.forms.kernel, self.forms.kernel.function
            written = simplify.run(with_numbers(function, dict(numbers)), kernel.module)
            self._made[numbers] = self.forms.of_kernel(kernel.with_function(written, dict(numbers)))
        return self._made[numbers]

    def _cost(self, forms: Forms, launch: KnownLaunch, known: Looking) -> float:
        """In operations, and what is on the tape in others."""
        variant = forms.unrefused(launch)
        if variant is None:
            return inf
        found = estimated(forms, launch, known, merging=True)
        taped = _TAPED if variant.keeps else 1.0
        return taped * (found.operations + ATOMIC_INSTRUCTIONS * found.atomics / 8)


def _turns(loop: For, trips: Mapping[For, int]) -> int:
    """Of all loops in it together, each of which is short."""
    inner = [op for op in walk(loop.body) if isinstance(op, For | While)]
    if any(op not in trips for op in inner):
        return _LONGEST + 1
    return prod((trips[loop], *(trips[op] for op in inner if isinstance(op, For))))


def _told_by(bounds: tuple[Value, ...], definition: Mapping[Value, Op]) -> Iterator[Value]:
    """The values that bounds are computed from."""
    todo = list(bounds)
    while todo:
        value = todo.pop()
        op = definition.get(value)
        if isinstance(op, Apply):
            todo += op.args
        elif not isinstance(op, Constant):
            yield value


def _trips(loop: For, sums: Sums) -> int:
    lower, upper = sums.of(loop.lower), sums.of(loop.upper)
    if lower is None or upper is None or lower.terms or upper.terms:
        return 0
    return len(range(lower.const, upper.const, loop.step))


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float
