"""What is measured: five kernels, their arguments and launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KERNELS = Path(__file__).parent / "kernels"

Extents = int | tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """`arrays` are the kernel's pointers, the result first, and `scalars` its other arguments, in its order; the C
    loops take `c_scalars`, since rows come from the grid in CUDA."""

    name: str
    file: str
    kernel: str
    arrays: Callable[[], tuple[Any, ...]]
    scalars: tuple[int, ...]
    c_scalars: tuple[int, ...]
    grid: Extents
    block: Extents

    @property
    def source(self) -> str:
        return (KERNELS / self.file).read_text()


def _random(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def cases(scale: float = 1.0) -> list[Case]:
    """All of them; `scale` shrinks the sizes, for a quick look."""
    n = max(256, int((1 << 24) * scale))
    side = max(32, int(256 * scale ** (1 / 3)) // 32 * 32)
    order = max(32, int(512 * scale ** (1 / 3)) // 32 * 32)
    rows, columns = max(4, int(8192 * scale)), 1024

    def matrices() -> tuple[Any, ...]:
        return np.zeros((order, order), np.float32), _random(order, order), _random(order, order)

    tiles = (order // 16, order // 16)
    return [
        Case(
            f"sin(x)*x, {n / 1e6:.3g} M",
            "elementwise.cu",
            "elementwise",
            lambda: (np.zeros(n, np.float32), _random(n)),
            (n,),
            (n,),
            -(-n // 256),
            256,
        ),
        Case(
            f"7-point stencil, {side}^3",
            "stencil.cu",
            "stencil",
            lambda: (np.zeros((side,) * 3, np.float32), _random(side, side, side)),
            (side,),
            (side,),
            (side // 32, side // 8, side),
            (32, 8, 1),
        ),
        Case(f"matmul, {order}^2", "matmul.cu", "matmul", matrices, (order,), (order,), tiles, (16, 16)),
        Case(f"matmul tiled, {order}^2", "matmul.cu", "matmul_tiled", matrices, (order,), (order,), tiles, (16, 16)),
        Case(
            f"softmax, {rows} x {columns}",
            "softmax.cu",
            "softmax",
            lambda: (np.zeros((rows, columns), np.float32), 4 * _random(rows, columns)),
            (columns,),
            (rows, columns),
            rows,
            256,
        ),
    ]
