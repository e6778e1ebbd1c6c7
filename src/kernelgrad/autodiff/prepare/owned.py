"""What each thread has for itself in a launch: buffers, cells of shared memory between barriers, and what it stores. Of
a typical launch that is found once for all forms that share a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...analysis.access.affine import Sums
from ...analysis.ownership.disjoint_stores import stores_apart
from ...analysis.ownership.exclusive import Place as SharedPlace
from ...analysis.ownership.private import private_roots, typical
from ...locks import cached_property
from .options import Options, unique_roots

if TYPE_CHECKING:
    from .planned import Planned


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
    def private(self) -> frozenset[str]:
        at = self.planned
        return private_roots(at.memory, at.structure, at.function, at.activity.roots, self.sums)

    @cached_property
    def of_stores(self) -> tuple[frozenset[SharedPlace], frozenset[SharedPlace]]:
        return of_stores(self.planned, self.sums)


def of_stores(planned: Planned, sums: Sums) -> tuple[frozenset[SharedPlace], frozenset[SharedPlace]]:
    """`exclusive` and `apart`. Where there is shared memory, a block is played through for them."""
    of = planned.function, planned.memory
    if not planned.memory.global_names:
        return frozenset(), stores_apart(*of, planned.structure, planned.activity.roots, sums, None)
    from ...analysis.block_interpreter.coverage import Threads
    from ...analysis.ownership.exclusive import exclusive_loads

    threads = Threads(sums.shape.block, planned.structure, sums.known)
    exclusive = exclusive_loads(*of, planned.activity.roots, threads)
    return exclusive, stores_apart(*of, planned.structure, planned.activity.roots, sums, threads)


def owned(planned: Planned, options: Options, usual: TypicallyOwned) -> Owned:
    """Of the launch, where that is known, else of a typical one."""
    if options.may_alias:
        return Owned(frozenset(), frozenset(), frozenset())
    facts = options.facts
    return Owned(
        usual.private if facts.private is None else facts.private,
        usual.of_stores[0] if facts.exclusive is None else facts.exclusive,
        usual.of_stores[1] if facts.apart is None else facts.apart,
    )
