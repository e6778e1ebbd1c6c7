"""Which memory of a launch has adjoints in double precision (see autodiff/prepare/double_cells.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ...analysis.access.affine import Shape, Sums
from ...analysis.access.contribution_counts import LoopLengths
from ...analysis.machine import COPIES, WARP
from ...analysis.roots import Place
from ...autodiff.accumulate.replicas import NEIGHBOURS
from ...autodiff.prepare.contributions import Contributions
from ...autodiff.prepare.double_cells import Launched, needed
from ...autodiff.prepare.prepared import Prepared
from ...ir.ops import Fence
from ...ir.traverse import walk
from ...ir.types import F32, Pointer
from ...runtime.integers import KnownLaunch

_NONE = frozenset[str]()


def wide_memory(
    prepared: Prepared,
    launch: KnownLaunch,
    sums: Sums,
    private: frozenset[str],
    sizes: Mapping[str, int],
    elsewhere: frozenset[str] = _NONE,
    crowded: frozenset[str] | None = _NONE,
    copies: int = COPIES,
    exclusive: frozenset[Place] = frozenset(),
) -> frozenset[str]:
    """`private`: memory whose elements are touched by one thread each. `sizes`: of the listed buffers. `elsewhere`:
    those whose adjoints are written or gathered, or parts of larger ones. `crowded`: those of which there are so many
    copies; None on a CPU, where each core has its own sums of some. `exclusive`: where shared cells are read that one
    thread touches between two barriers."""
    lengths = LoopLengths(prepared.function, prepared.structure, Shape(launch.grid, launch.block), sums.known)
    counted = Contributions(prepared, sums, lengths, private, 1 if crowded is None else WARP, exclusive=exclusive)
    blocks, threads = math.prod(launch.grid), math.prod(launch.grid) * math.prod(launch.block)
    of_cores = frozenset(_added_by_cores(counted)) - private if crowded is None else _NONE
    of_copy = min(1.0, -(-blocks // (NEIGHBOURS * copies)) * NEIGHBOURS / blocks)

    def share(name: str) -> float:
        if crowded is None:
            return 1.0 if name not in of_cores else _share_of_core(sizes[name], threads)
        return of_copy if name in crowded else 1.0

    return needed(prepared, counted, Launched(sizes, private, elsewhere, share))


def _added_by_cores(counted: Contributions) -> Iterator[str]:
    """The buffers whose adjoints nothing but additions of floats touch, at addresses that begin at the parameter: what
    `backends/cpu/worker_sums` asks for."""
    memory, fences = counted.memory, any(isinstance(op, Fence) for op in walk(counted.function.body))
    chosen = {
        root for op in memory.loads if counted.origin(op.ptr) not in memory.of(op.ptr) for root in memory.of(op.ptr)
    }
    for param in counted.function.params:
        plain = isinstance(param.type, Pointer) and param.type.pointee == F32
        if plain and not fences and param.value not in chosen | memory.written():
            yield param.name


def _share_of_core(nbytes: int, threads: int) -> float:
    from ...backends.cpu.worker_sums import share

    return share(nbytes, F32.size, threads)
