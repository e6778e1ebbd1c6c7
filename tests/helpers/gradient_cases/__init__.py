"""Kernels whose gradients are checked: in double and in float, on the CPU and on the GPU."""

from . import calls, contention, control_flow, data, functions, overwritten, seeds
from .case import Case, adjoints, run_gradient

__all__ = ["ALL", "Case", "adjoints", "run_gradient"]

ALL: list[Case] = [
    case for part in (control_flow, overwritten, data, calls, contention, functions, seeds) for case in part.CASES
]
