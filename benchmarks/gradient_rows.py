"""The kernels whose gradients are measured, their sizes, and what is to be reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KERNELS = Path(__file__).parent / "kernels"
SOURCE = KERNELS / "gradients.cu"

# What an H200 reaches: bytes, and operations on floats (a fused multiply-add is two).
BYTES_PER_MS = 4.2e9
OPERATIONS_PER_MS = 67e9


@dataclass(frozen=True)
class Target:
    """`contract` takes at most `limit` times as long as `unit`: a contender, or a millisecond."""

    contract: str
    limit: float
    unit: str = "primal"

    def __str__(self) -> str:
        size = f"{self.limit:.2g}"
        how = {"primal": f"{size}x", "ms": f"{size} ms", "atomics": f"{size}x atomics"}[self.unit]
        return f"{self.contract} {how}"

    def is_met(self, times: Mapping[str, float]) -> bool:
        return times[self.contract] <= self.limit * (1.0 if self.unit == "ms" else times[self.unit])


@dataclass(frozen=True)
class Row:
    """A kernel's parameters are its outputs, its inputs, and the `rest`. `contract` is what is compared with adjoints
    by hand; `needs` are the inputs whose values such an adjoint reads, and `operations` how many it does at least."""

    name: str
    kernel: str
    grid: Any
    block: Any
    outputs: tuple[int, ...]  # sizes
    inputs: tuple[int, ...]
    rest: tuple[Any, ...]
    targets: tuple[Target, ...] = ()
    listed: tuple[str, ...] | None = None  # outputs and inputs unless said
    needs: tuple[int, ...] = (0,)
    operations: float = 0.0
    contract: str = "R"
    by_hand: str | None = None  # the kernel's name unless said


def _elementwise(n: int) -> list[Row]:
    flat, one = (n // 256, 256), ((n,), (n,), (n,))
    return [
        Row("sin(x) * x", "sine", *flat, *one, (Target("J", 1.8), Target("R", 1.2))),
        Row("polynomial, degree 16", "polynomial", *flat, *one, (Target("J", 3.2), Target("R", 1.7))),
        Row(
            "x * a, d_a only",
            "scale",
            *flat,
            (n,),
            (n,),
            (1.5, n),
            (Target("J", 2.3), Target("R", 1.3)),
            listed=("y", "a"),
        ),
    ]


def _contraction(side: int, inner: int) -> Row:
    a_dims, b_dims = np.array([side, side, inner], np.uint64), np.array([inner, 16, 16], np.uint64)
    elements = side * side * 256
    return Row(
        "tensor contraction",
        "contraction",
        side * side,
        256,
        (elements,),
        (side * side * inner, inner * 256),
        (a_dims, b_dims, 2, 0),
        (Target("R", 5, "ms"), Target("R", 2.5, "ms")),
        needs=(0, 1),
        operations=4.0 * elements * inner,
    )


def _stencil(side: int) -> Row:
    return Row(
        "7-point stencil",
        "stencil",
        (side // 32, side // 8, side),
        (32, 8),
        (side**3,),
        (side**3,),
        (side,),
        (Target("J", 1.3, "ms"), Target("R", 0.6, "ms")),
        needs=(),
    )


def _tiles(wide: int, bodies: int) -> list[Row]:
    return [
        Row(
            "tiled matrix product",
            "matmul",
            (wide // 32, wide // 32),
            (32, 32),
            (wide**2,),
            (wide**2,) * 2,
            (wide,),
            (Target("R", 4),),
            needs=(0, 1),
            operations=4.0 * wide**3,
        ),
        Row(
            "n-body tiles",
            "nbody",
            bodies // 256,
            256,
            (bodies,) * 3,
            (bodies,) * 3,
            (bodies,),
            (Target("R", 6),),
            needs=(0, 1, 2),
            operations=34.0 * bodies**2,
        ),
    ]


def _sums(n: int, lines: int) -> list[Row]:
    cells = lines * 1024
    return [
        Row("block sum", "block_sum", n // 256, 256, (n // 256,), (n,), (n,), (Target("R", 2.2),), needs=()),
        Row("row softmax", "softmax", lines, 256, (cells,), (cells,), (), (Target("R", 2.5),)),
        Row("layer norm", "layer_norm", lines, 256, (cells,), (cells, 1024, 1024), (), (Target("R", 3),), needs=(0, 1)),
        Row(
            "convolution, 31 taps",
            "convolution",
            n // 256,
            256,
            (n,),
            (n + 31, 31),
            (n,),
            (Target("R", 5),),
            needs=(0, 1),
            operations=4.0 * 31 * n,
        ),
    ]


def _logistic(few: int) -> list[Row]:
    """With 3 for r the slope neither grows nor vanishes, so that values can be compared."""
    launch = (few // 256, 256, (few,), (few,))
    common: dict[str, Any] = {"listed": ("y", "x"), "operations": 600.0 * few, "contract": "J"}
    return [
        Row("logistic map, 100 steps", "logistic", *launch, (3.0, few), (Target("J", 4),), **common),
        Row("logistic map, n steps", "logistic_runtime", *launch, (3.0, few, 100), (Target("J", 6),), **common),
    ]


def _gathers(n: int) -> list[Row]:
    ascending = np.repeat(np.arange(n // 64, dtype=np.int32), 64)
    random = np.random.default_rng(1).integers(0, n, n, dtype=np.int32)
    flat = (n // 256, 256, (n,))
    once, third = (Target("R", 1.1, "atomics"),), (Target("R", 1 / 3, "atomics"),)
    return [
        Row("gather, random", "gather", *flat, (n,), (random, n), once, needs=()),
        Row(
            "gather, sorted by 64",
            "gather",
            *flat,
            (n // 64,),
            (ascending, n),
            third,
            needs=(),
            by_hand="gather_sorted",
        ),
    ]


def rows(scale: float) -> list[Row]:
    """All of them; `scale` shrinks the sizes."""

    def shrunk(size: int, dimensions: float, multiple: int) -> int:
        return max(multiple, int(size * scale ** (1 / dimensions)) // multiple * multiple)

    n = shrunk(64 << 20, 1, 4096)
    matmul, nbody = _tiles(shrunk(2048, 3, 64), shrunk(65536, 2, 256))
    return [
        *_elementwise(n),
        _contraction(shrunk(256, 3, 8), shrunk(256, 3, 64)),
        _stencil(shrunk(512, 3, 32)),
        matmul,
        *_sums(n, shrunk(65536, 1, 4)),
        nbody,
        *_logistic(shrunk(4 << 20, 1, 4096)),
        *_gathers(n),
    ]
