"""Atomic maxima and minima of doubles: a block's threads offer values for one cell, and one of them wins."""

from __future__ import annotations

from .expressions import BOUNDED, Real
from .generator import Nodes
from .phases import READ
from .program import Nest
from .warps import Warps

# Numbers of either sign: the order of the bits is that of the numbers, or the reverse of it.
FUNCTIONS = """
__device__ void take_max(double *cell, double v) {
  if (v >= 0) atomicMax((long long *)cell, __double_as_longlong(v));
  else atomicMin((unsigned long long *)cell, (unsigned long long)__double_as_longlong(v));
}
__device__ void take_min(double *cell, double v) {
  if (!signbit(v)) atomicMin((long long *)cell, __double_as_longlong(v));
  else atomicMax((unsigned long long *)cell, (unsigned long long)__double_as_longlong(v));
}"""

OFFERS = (  # how a cell is updated, what is offered, and what it holds before: beyond that, or between
    ("atomicMax((long long *)&{cell}, __double_as_longlong({value}));", "2.0 + sin({})", ("0.5", "1.7")),
    ("atomicMin((unsigned long long *)&{cell}, __double_as_longlong({value}));", "2.0 + sin({})", ("4.0", "2.2")),
    ("take_max(&{cell}, {value});", "1.5 * sin({})", ("-2.0", "0.3")),
    ("take_min(&{cell}, {value});", "1.5 * sin({})", ("2.0", "-0.3")),
)


class Winners(Warps):
    def winner(self) -> Nodes:
        (array,) = self.arrays("best")
        cell = f"{array.name}[0]"
        offer, form, starts = self.pick(OFFERS)
        made = self.claim(array)
        start = self.pick((*starts, form.format(self.bounded())))
        made += [f"if (tid == 0) {cell} = {start};", *self.sync()]
        value = offer.format(cell=cell, value=form.format(self.bounded()))
        made += [value] if self.chance(60) else [Nest(f"if ({self.guard()}) {{", [value])]
        made += [*self.sync(), *self.keep(Real(cell, BOUNDED))]
        self.release(array, READ)
        return made
