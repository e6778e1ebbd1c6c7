"""For `explain()`: what becomes of a kernel's atomic additions on the CPU."""

from __future__ import annotations

from ...ir.ops import Barrier, BarrierReduce, Function, Warp
from ...ir.traverse import walk
from . import block_sums, totals, worker_sums


def atomic_notes(function: Function) -> list[str]:
    """A line for each parameter whose additions are not made one by one."""
    changed = block_sums.run(totals.expanded(function))
    meets = any(isinstance(op, Barrier | BarrierReduce | Warp) for op in walk(changed.body))
    summed = set(totals.find(changed, by_row=not meets))
    own = worker_sums.candidates(function)
    names, shown = {p.value: p.name for p in function.params}, {p.value: p.called for p in function.params}
    lines = []
    for root, additions in totals.additions_by_root(changed).items():
        if additions <= summed:
            lines.append(f"'{shown[root]}': added up in registers by the loop over threads, then one atomicAdd")
        elif names[root] in own:
            lines.append(f"'{shown[root]}': {worker_sums.TOLD}")
    return lines
