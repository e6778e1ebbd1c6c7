"""Gradients whose shared arrays and shadows exceed 48 KB, on a GPU against the CPU backend's."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.devices import limits
from large_shared import CASES, SIZE

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_what_the_cpu_gives(name: str) -> None:
    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    random = np.random.default_rng(1)
    host = [np.zeros(SIZE), random.random(SIZE), random.random(SIZE), np.zeros(SIZE)]
    device = [cupy.asarray(a) for a in host]
    for arrays in (host, device):
        kg.gradient(kernel)[case.launch](*arrays)
    for want, got in zip(host, device, strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=1e-11)
    y = cupy.zeros(SIZE)
    kernel[case.launch](y, device[1])
    np.testing.assert_allclose(y.get(), host[0], rtol=1e-12)


def test_more_than_the_device_has() -> None:
    rows = limits(0).shared_per_block_optin // 1024 // 2 + 1
    source = f"""
        __global__ void k(double *y, const double *x) {{
          __shared__ double s[{rows}][128];
          for (int r = 0; r < {rows}; r++) s[r][threadIdx.x] = x[threadIdx.x] * r;
          __syncthreads();
          y[threadIdx.x] = s[threadIdx.x % {rows}][127 - threadIdx.x];
        }}"""
    gradient = kg.gradient(kg.compile(source)["k"])
    nbytes = rows * 1024
    message = f"a block needs {2 * nbytes} bytes of shared memory .{nbytes} in s, {nbytes} in the adjoint of s.; .* has"
    with pytest.raises(kg.LaunchError, match=message):
        gradient[1, 128](*(cupy.zeros(128) for _ in range(4)))
