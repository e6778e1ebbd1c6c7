"""What each thread has for itself in a launch: buffers, cells of shared memory between barriers, and what it stores. Of
a typical launch that is found once for all forms that share a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...analysis.access.affine import Sums
from ...analysis.block_interpreter.coverage import Threads
from ...analysis.ownership.disjoint_stores import stores_apart
from ...analysis.ownership.exclusive import Place as SharedPlace
from ...analysis.ownership.exclusive import exclusive_loads
from ...analysis.ownership.private import private_roots, typical
from ...locks import cached_property
from .options import Options, unique_roots

if TYPE_CHECKING:
    from .prepared import Planned


class Owned(NamedTuple):
    """`private`: the buffers and shared variables whose elements are touched by one thread each. `exclusive`: the same
    of cells between two barriers. `apart`: stores by which no two threads write the same element."""

    private: frozenset[str]
    exclusive: frozenset[SharedPlace]
    apart: frozenset[SharedPlace]


class TypicallyOwned:
    """For a launch like those that the kernel is made for."""

    def __init__(self, planned: Planned, options: Options):
        self.planned = planned
        self.sums: Sums = typical(planned.structure, planned.function, unique_roots(planned.function, options))

    @cached_property
    def _threads(self) -> Threads:
        return Threads(self.sums.shape.block, self.planned.structure, self.sums.known)

    @cached_property
    def private(self) -> frozenset[str]:
        at = self.planned
        return private_roots(at.memory, at.structure, at.function, at.activity.roots, self.sums)

    @cached_property
    def exclusive(self) -> frozenset[SharedPlace]:
        at = self.planned
        return exclusive_loads(at.function, at.memory, at.activity.roots, self._threads)

    @cached_property
    def apart(self) -> frozenset[SharedPlace]:
        at = self.planned
        return stores_apart(at.function, at.memory, at.structure, at.activity.roots, self.sums, self._threads)


def owned(planned: Planned, options: Options, usual: TypicallyOwned) -> Owned:
    """Of the launch, where that is known, else of a typical one."""
    if options.may_alias:
        return Owned(frozenset(), frozenset(), frozenset())
    facts = options.facts
    return Owned(
        usual.private if facts.private is None else facts.private,
        usual.exclusive if facts.exclusive is None else facts.exclusive,
        usual.apart if facts.apart is None else facts.apart,
    )
