"""CUB's collectives from headers of ours: their values, and gradients through them."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from cub_cases import CASES, SOURCE


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, module: kg.Module) -> None:
    case = CASES[name]
    kernel, x = module[case.kernel], case.input()
    expected = case.expected(x)
    outputs = [np.zeros_like(y) for y in expected]
    args = (*outputs, x, *case.numbers)
    kernel[case.grid, case.block](*args)
    for y, right in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(y, right, rtol=1e-12, atol=1e-12)
    report = kg.check_gradient(kernel, grid=case.grid, block=case.block, args=args)
    assert not report.notes


def test_sums_of_blocks_need_no_atomics(module: kg.Module) -> None:
    x = np.ones((64, 1024))
    gradient = kg.gradient(module["rms_norm<96>"], "y, x", primal=False, keep="y", assign="x")
    assert "atomicAdd" not in gradient.source_for(64, 96, x, x, 1024, x, x).split("__global__")[1]


def test_whole_device(module: kg.Module) -> None:
    n, rng = 1000, np.random.default_rng(2)
    x, seed = rng.normal(size=n), rng.normal(size=n)
    sums, best, d_x = np.zeros(n), np.zeros(1), np.zeros(n)
    gradient = kg.gradient(module["on_device"], "sums, best, x")
    gradient.execute(sums, best, x, n, seed.copy(), np.ones(1), d_x, device="cpu")
    np.testing.assert_allclose(sums, np.cumsum(x), rtol=1e-12)
    assert best[0] == sums.max()
    seed[np.argmax(sums)] += 1
    np.testing.assert_allclose(d_x, seed[::-1].cumsum()[::-1], rtol=1e-10)


STRUCTS = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
struct Running { float largest, sum; bool any; short count; };
__global__ void softmax(float *y, float *counts, const float *x, int n) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  Running own = {-1e30f, 0, false, 0};
  for (int c = warp.thread_rank(); c < n; c += 32) {
    float v = x[blockIdx.x * n + c], largest = fmaxf(own.largest, v);
    own = {largest, own.sum * expf(own.largest - largest) + expf(v - largest), true, short(own.count + 1)};
  }
  Running all = cg::reduce(warp, own, [](Running a, Running b) {
    Running high = a.largest > b.largest ? a : b, low = a.largest > b.largest ? b : a;
    float sum = high.sum + low.sum * expf(low.largest - high.largest);
    return Running{high.largest, sum, a.any || b.any, short(a.count + b.count)};
  });
  for (int c = warp.thread_rank(); c < n; c += 32)
    y[blockIdx.x * n + c] = expf(x[blockIdx.x * n + c] - all.largest) / all.sum;
  if (warp.thread_rank() == 0) counts[blockIdx.x] = all.any ? all.count : -1;
}
__global__ void pointers(const float **y, const float *x) {
  y[threadIdx.x] = cg::tiled_partition<32>(cg::this_thread_block()).shfl(x + threadIdx.x, 3);
}
"""


def test_groups_shuffle_structs() -> None:
    kernel, x = kg.compile(STRUCTS)["softmax"], np.random.default_rng(3).normal(size=(2, 45)).astype("f")
    y, counts = np.zeros_like(x), np.zeros(2, "f")
    kernel[2, 32](y, counts, x, 45)
    raised = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, raised / raised.sum(1, keepdims=True), rtol=1e-6)
    assert (counts == 45).all()
    assert not kg.check_gradient(kernel, "y, x", 2, 32, (y, counts, x, 45)).notes


def test_a_shuffled_pointer_is_refused() -> None:
    with pytest.raises(kg.UnsupportedError, match="a pointer is shuffled"):
        kg.compile(STRUCTS)["pointers"]
