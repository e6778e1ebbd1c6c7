"""A kernel whose threads cooperate: `k(double *y, const double *x, int n)` on 96 elements each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import kernelgrad as kg

SIZE = 96
_STEP = 1e-6
TREE = "for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) COMBINE; __syncthreads(); }"


@dataclass(frozen=True)
class Case:
    """`body` sees t = threadIdx.x and i = blockIdx.x * blockDim.x + t beside the parameters."""

    body: str
    grid: Any = 3
    block: Any = 32
    n: int = 70
    shared: int = 0
    before: str = ""
    template: str = ""
    kernel: str = "k"
    # Of the finite differences: what computes in float or half precision needs a larger step, and gets fewer digits.
    step: float = _STEP
    tolerance: float = 1e-5
    splits: bool = True

    @property
    def source(self) -> str:
        return (
            f"{self.before}\n{self.template} __global__ void k(double *y, const double *x, int n) {{\n"
            f"int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n{self.body}\n}}"
        )

    @property
    def is_double(self) -> bool:
        return self.step == _STEP

    @property
    def launch(self) -> tuple[Any, ...]:
        return (self.grid, self.block, self.shared, None)

    def compiled(self) -> Any:
        return _module(self.source)[self.kernel]


@cache
def _module(source: str) -> kg.Module:
    return kg.compile(source, name="cooperation.cu")


def inputs(seed: int = 3) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """y, x and the adjoint of y."""
    random = np.random.default_rng(seed)
    return random.random(SIZE), random.random(SIZE) + 0.2, random.standard_normal(SIZE)


def tree(combine: str) -> str:
    """The steps of a tree reduction over the block, each behind a barrier."""
    return TREE.replace("COMBINE", combine)
