"""Gradients for one shape of block, and of fewer blocks for mere sums, at sizes that choose them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")

KERNELS = Path(__file__).parents[2] / "benchmarks" / "kernels" / "gradients.cu"
ROWS = 3000


def run(
    name: str, listed: str, assign: str, launch: Any, arrays: list[Any], rest: tuple[Any, ...], on_gpu: bool
) -> Any:
    """The adjoints of the inputs, for an output's adjoint of ones and twos in turn."""
    module = cupy if on_gpu else np
    given = [module.asarray(a) for a in arrays]
    gradient = kg.gradient(kg.load(KERNELS)[name], listed, primal=False, keep="y", assign=assign)
    seed = module.asarray(1 + np.arange(arrays[0].size, dtype=np.float32) % 2)
    sizes = [
        next((a for a, n in zip(arrays, "yxwb", strict=False) if n == m.strip()), np.zeros(1, np.float32))
        for m in assign.split(",")
    ]
    adjoints = [module.full(a.size, 7, np.float32) for a in sizes]
    gradient[launch](*given, *rest, seed, *adjoints)
    return [cupy.asnumpy(a) if on_gpu else a for a in adjoints]


CASES = {
    "softmax": ("y, x", "x", (ROWS, 256), (ROWS * 1024,) * 2, ()),
    "layer_norm": ("y, x, w, b", "x, w, b", (ROWS, 256), (ROWS * 1024, ROWS * 1024, 1024, 1024), ()),
    "scale": ("y, a", "a", (40000, 256), (40000 * 256 - 5,) * 2, (1.5, 40000 * 256 - 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_what_the_cpu_gives(name: str) -> None:
    listed, assign, launch, sizes, rest = CASES[name]
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(size).astype(np.float32) for size in sizes]
    found, expected = (run(name, listed, assign, launch, arrays, rest, on_gpu) for on_gpu in (True, False))
    for got, want in zip(found, expected, strict=True):
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-4 * max(1.0, scale))
