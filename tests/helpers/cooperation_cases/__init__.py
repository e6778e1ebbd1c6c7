"""Kernels whose threads cooperate, for the tests on the CPU and on a GPU."""

from . import atomics, barriers, basic, blocks, groups, in_step, memory, parting, rows, shuffles, tiles, warps
from .case import SIZE, Case, inputs

__all__ = ["CASES", "SIZE", "Case", "inputs"]

_PARTS = (basic, memory, barriers, tiles, blocks, rows, warps, parting, shuffles, groups, in_step, atomics)
CASES: dict[str, Case] = {name: case for part in _PARTS for name, case in part.CASES.items()}
assert len(CASES) == sum(len(part.CASES) for part in _PARTS), "two cases have one name"
