"""Gathers on a GPU: the CPU's values, at sizes of the CPU's tests and at those where a thread has several elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from gather_cases import ATOMIC, GATHERED, arguments_of

cupy = pytest.importorskip("cupy")
CASES = {**GATHERED, **ATOMIC}


def _run(case: Any, settings: dict[str, Any], on_gpu: bool) -> list[np.ndarray[Any, Any]]:
    gradient = kg.gradient(kg.compile(case.source)["k"], case.names, **settings)
    arguments = arguments_of(case)
    adjoints: list[Any] = [np.random.default_rng(k).standard_normal(n) for k, n in enumerate(case.sizes)]
    if on_gpu:
        arguments = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
        adjoints = [cupy.asarray(a) for a in adjoints]
    gradient[case.grid, case.block](*arguments, *adjoints)
    return [cupy.asnumpy(a) if on_gpu else a for a in adjoints]


@pytest.mark.parametrize("form", ["joint", "deterministic"])
@pytest.mark.parametrize("name", CASES)
def test_values_of_the_cpu(name: str, form: str) -> None:
    settings = {"deterministic": True} if form == "deterministic" else {}
    for one, other in zip(*(_run(CASES[name], settings, on_gpu) for on_gpu in (False, True)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


STENCIL = """__global__ void k(float *y, const float *x, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, at = j * n + i;
    if (i < 1 || i >= n - 1 || j < 1 || j >= m - 1) return;
    y[at] = x[at - 1] * x[at + 1] - x[at - n] * x[at + n] + 3 * x[at];
}"""


@pytest.mark.parametrize("n, m", [(2048, 1024), (2049, 1021), (1500, 1999)])
@pytest.mark.parametrize("assign", [False, True])
def test_several_elements_a_thread(n: int, m: int, assign: bool) -> None:
    kernel = kg.compile(STENCIL)["k"]
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x" if assign else None)
    random = cupy.random.default_rng(1)
    x, d_y = (random.standard_normal(n * m, dtype=np.float32) for _ in range(2))
    d_x = cupy.full(n * m, np.nan if assign else 1.0, np.float32)
    gradient[(-(-n // 32), -(-m // 8)), (32, 8)](cupy.zeros_like(x), x, n, m, d_y, d_x)
    (facts,) = [facts for _, facts in gradient.forms.made if facts.gathered]
    assert [gather.span for gather in facts.gathered] == [4]
    v, g = cupy.asnumpy(x).astype(float).reshape(m, n), cupy.asnumpy(d_y).astype(float).reshape(m, n)
    inner, expected = g[1:-1, 1:-1], np.zeros((m, n)) if assign else np.ones((m, n))
    expected[1:-1, 1:-1] += 3 * inner
    expected[1:-1, :-2] += inner * v[1:-1, 2:]
    expected[1:-1, 2:] += inner * v[1:-1, :-2]
    expected[:-2, 1:-1] -= inner * v[2:, 1:-1]
    expected[2:, 1:-1] -= inner * v[:-2, 1:-1]
    np.testing.assert_allclose(cupy.asnumpy(d_x).reshape(m, n), expected, rtol=1e-4, atol=1e-4)


CONVOLUTION = """__global__ void k(float *y, const float *x, const float *w, int C, int H, int W) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, o = blockIdx.z;
    if (i >= W || j >= H) return;
    float sum = 0;
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s) {
                int v = j + r - 1, u = i + s - 1;
                if (v >= 0 && v < H && u >= 0 && u < W)
                    sum += x[(c * H + v) * W + u] * w[((o * C + c) * 3 + r) * 3 + s];
            }
    y[(o * H + j) * W + i] = sum;
}"""


@pytest.mark.parametrize("block", [(32, 8), (33, 3), (96, 1), (16, 16)])
def test_weights_that_blocks_add_up(block: tuple[int, int]) -> None:
    C, H, W = 16, 70, 65
    random = np.random.default_rng(0)
    x, w, g = (random.standard_normal(s).astype(np.float32) for s in ((C, H, W), (C, C, 3, 3), (C, H, W)))
    gradient = kg.gradient(kg.compile(CONVOLUTION)["k"], "y, x, w", primal=False, keep="y", assign="x, w")
    d_x, d_w = cupy.full(x.size, np.nan, np.float32), cupy.full(w.size, np.nan, np.float32)
    arrays = [cupy.asarray(a.ravel()) for a in (x, w, g)]
    grid = (-(-W // block[0]), -(-H // block[1]), C)
    gradient[grid, block](cupy.zeros(g.size, np.float32), *arrays[:2], C, H, W, arrays[2], d_x, d_w)
    padded, d_padded = np.pad(x, ((0, 0), (1, 1), (1, 1))), np.zeros((C, H + 2, W + 2))
    d_weights = np.zeros(w.shape)
    for r in range(3):
        for s in range(3):
            d_weights[:, :, r, s] = np.einsum("khw,chw->kc", g.astype(float), padded[:, r : r + H, s : s + W])
            d_padded[:, r : r + H, s : s + W] += np.einsum("khw,kc->chw", g.astype(float), w[:, :, r, s])
    np.testing.assert_allclose(cupy.asnumpy(d_w), d_weights.ravel(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(cupy.asnumpy(d_x), d_padded[:, 1:-1, 1:-1].ravel(), rtol=1e-3, atol=1e-3)
