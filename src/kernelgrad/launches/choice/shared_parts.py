"""Launches whose dynamic shared memory is several arrays, as the kernel lays them out in it: they are planned for the
kernel with these in its place, so that what is known of arrays (what fills a tile, who owns a cell) holds for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.access.intervals import Intervals
from ...analysis.access.shared_parts import SharedLayout, layout_of
from ...ir.ops import GlobalRef
from ...ir.traverse import walk
from ...runtime.integers import KnownLaunch, Looking
from ...transforms.static_shared import is_dynamic_array

if TYPE_CHECKING:
    from .forms import Forms

_REMEMBERED = 64  # layouts


class PartedLaunches:
    """Of one gradient."""

    def __init__(self, forms: Forms):
        self.forms = forms
        self._made: dict[SharedLayout, Forms] = {}
        function, globals = forms.kernel.function, forms.kernel.module.globals
        names = dict.fromkeys(op.name for op in walk(function.body) if isinstance(op, GlobalRef))
        self._variables = [name for name in names if name in globals and is_dynamic_array(globals[name])]

    def find(self, launch: KnownLaunch, known: Looking) -> tuple[Forms, KnownLaunch] | None:
        """The forms of the kernel with arrays, and the launch as that has it: without dynamic shared memory."""
        if len(self._variables) != 1 or not launch.shared_bytes or launch.segment is not None:
            return None
        function = self.forms.kernel.function
        values = {p.name: p.value for p in function.params}
        intervals = Intervals(function, launch.grid, launch.block, lambda path: known(values.get(path)))
        layout = layout_of(function, self._variables[0], launch.shared_bytes, intervals)
        if layout is None:
            return None
        forms, other = self._forms(layout), launch._replace(shared_bytes=0)
        return (forms, other) if forms.unrefused(other) is not None else None

    def _forms(self, layout: SharedLayout) -> Forms:
        if layout not in self._made:
            from ...transforms.shared_parts import parted

            kernel = self.forms.kernel
            while len(self._made) >= _REMEMBERED:
                del self._made[next(iter(self._made))]
            own = kernel.with_module(parted(kernel.function, kernel.module, layout), dict(layout.numbers))
            self._made[layout] = self.forms.of_kernel(own)
        return self._made[layout]
