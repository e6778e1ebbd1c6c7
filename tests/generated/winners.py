"""Atomic maxima and minima of doubles: a block's threads offer values for one cell, and one of them wins."""

from __future__ import annotations

from .expressions import BOUNDED, Real
from .generator import Nodes
from .phases import READ
from .program import Nest
from .warps import Warps

FUNCTIONS = """
__device__ void take_max(double *cell, double v) {
  unsigned long long *bits = (unsigned long long *)cell, old = *bits, assumed;
  do {
    assumed = old;
    old = atomicCAS(bits, assumed, __double_as_longlong(fmax(v, __longlong_as_double(assumed))));
  } while (assumed != old);
}
__device__ void take_min(double *cell, double v) {
  unsigned long long *bits = (unsigned long long *)cell, old = *bits;
  while (v < __longlong_as_double(old)) {
    unsigned long long assumed = old;
    old = atomicCAS(bits, assumed, __double_as_longlong(v));
    if (old == assumed) break;
  }
}"""

OFFERS = (  # how a cell is updated, and what it holds before: beyond what is offered, or between
    ("atomicMax((long long *)&{cell}, __double_as_longlong({value}));", ("0.5", "1.7")),
    ("atomicMin((unsigned long long *)&{cell}, __double_as_longlong({value}));", ("4.0", "2.2")),
    ("take_max(&{cell}, {value});", ("-1.0", "1.7")),
    ("take_min(&{cell}, {value});", ("4.0", "2.2")),
)


class Winners(Warps):
    def winner(self) -> Nodes:
        (array,) = self.arrays("best")
        cell = f"{array.name}[0]"
        offer, starts = self.pick(OFFERS)
        made = self.claim(array)
        start = self.pick((*starts, f"2.0 + sin({self.bounded()})"))
        made += [f"if (tid == 0) {cell} = {start};", *self.sync()]
        value = offer.format(cell=cell, value=f"2.0 + sin({self.bounded()})")  # positive: bits have its order
        made += [value] if self.chance(60) else [Nest(f"if ({self.guard()}) {{", [value])]
        made += [*self.sync(), *self.keep(Real(cell, BOUNDED))]
        self.release(array, READ)
        return made
