"""Launches in which shared arrays are threads' own: planned for the kernel with local arrays in their place, where less
goes on the tape then. What a thread has to itself is filled again without a barrier, and may end up in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis import structure
from ...analysis.access.affine import Shape
from ...analysis.access.executions import Executions
from ...analysis.ownership.thread_cells import ThreadCells, thread_cells
from ...ir.ops import GlobalRef
from ...ir.traverse import walk
from ...runtime.integers import KnownLaunch, Looking
from ...transforms.static_shared import is_dynamic_array

if TYPE_CHECKING:
    from .forms import Forms

_REMEMBERED = 64


class OwnCellLaunches:
    """Of one gradient."""

    def __init__(self, forms: Forms):
        self.forms = forms
        self._made: dict[tuple[ThreadCells, ...], Forms] = {}
        function, variables = forms.kernel.function, forms.kernel.module.globals
        names = dict.fromkeys(op.name for op in walk(function.body) if isinstance(op, GlobalRef))
        shared = (name for name in names if name in variables and variables[name].space == "shared")
        self._names = [name for name in shared if not is_dynamic_array(variables[name])]

    def find(self, launch: KnownLaunch, known: Looking) -> Forms | None:
        """The forms of the kernel with local arrays, where that has a smaller tape."""
        if not self._names or launch.segment is not None or not self.forms.for_launch(launch).keeps:
            return None
        function = self.forms.kernel.function
        sums = Executions(structure.analyse(function, apart=False), Shape(launch.grid, launch.block), known)
        sizes = {name: self.forms.kernel.module.globals[name].type.size for name in self._names}
        each = (thread_cells(function, name, sums, nbytes) for name, nbytes in sizes.items())
        cells = tuple(found for found in each if found is not None)
        if not cells:
            return None
        forms = self._forms(cells)
        if forms.unrefused(launch) is None:
            return None
        before, after = _tape(self.forms, launch, known), _tape(forms, launch, known)
        return forms if before is not None and after is not None and after < before else None

    def _forms(self, cells: tuple[ThreadCells, ...]) -> Forms:
        if cells not in self._made:
            from ...transforms import thread_cells

            kernel, module = self.forms.kernel, self.forms.kernel.module
            while len(self._made) >= _REMEMBERED:
                del self._made[next(iter(self._made))]
            own = thread_cells.run(kernel.function, module, cells)
            self._made[cells] = self.forms.of_kernel(kernel.with_function(own))
        return self._made[cells]


def _tape(forms: Forms, launch: KnownLaunch, known: Looking) -> int | None:
    """Bytes of a thread's tape; None where a launch counts them."""
    variant = forms.for_launch(launch)
    for value in forms.chooser(launch).relevant.parts:
        known(value)
    found = variant.elements(known, launch)
    return None if found is None else sum(getattr(key, "size", 8) * count for key, count in found.items())
