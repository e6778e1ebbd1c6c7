"""Memory that both the host and kernels use, of a program whose kernels run on a GPU: it is the host's here, and
kernels get a twin on the device, which is copied to before a launch and from after it. Copies are steps of a recording
as others are, so that derivatives go through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..analysis.roots import holds_pointers
from ..errors import Span, UnsupportedError
from ..ir.types import Type
from .memory import Allocation, read_bytes

if TYPE_CHECKING:
    from .machine import Machine


class Staging:
    def __init__(self, machine: Machine):
        self._machine, self._memory = machine, machine.memory
        self._used: list[Allocation] = []  # by the launch that is prepared

    def concerns(self, found: Allocation) -> bool:
        is_of_both = found.kind in ("managed", "argument") or found.pinned
        return is_of_both and self._memory.device is not None and found.device is None

    def twin(self, found: Allocation, pointee: Type, span: Span) -> Allocation:
        """With what it holds now."""
        if holds_pointers(pointee) and self._leads_to_host(found):
            problem = "passes a kernel managed or pinned memory that holds pointers to such: not supported on a GPU"
            raise UnsupportedError(problem, span, "use cudaMalloc and cudaMemcpy for it, or run with device='cpu'")
        if found.twin is None:
            found.twin = self._memory.allocate(found.nbytes, "device", span)
        if found not in self._used:
            self._used.append(found)
            self._machine.copy(found.twin.start, found.start, found.nbytes, span)
        return found.twin

    def _leads_to_host(self, found: Allocation) -> bool:
        """What a kernel left there, as tapes, leads to the device."""
        words = np.frombuffer(read_bytes(found.start, found.nbytes // 8 * 8), np.uint64)
        targets = (self._memory.find(int(word)) for word in np.unique(words[words != 0]))
        return any(target is not None and target.device is None for target in targets)

    def bring_back(self, span: Span) -> None:
        """What the launch has left there."""
        used, self._used = self._used, []
        for found in used:
            assert found.twin is not None
            self._machine.copy(found.start, found.twin.start, found.nbytes, span)
