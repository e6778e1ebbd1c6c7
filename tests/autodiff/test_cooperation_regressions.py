"""Cooperating kernels whose gradient was wrong once, or refused with no reason; found by random kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

HEAD = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"

KERNELS = {
    # A cell that one thread fills before a barrier and another after it.
    "filled_in_two_phases": f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[24]; {HEAD}
          s[t] = x[i];
          __syncthreads();
          if (t % 4 == 1) s[23 - t] = 2.0 * x[i];
          __syncthreads();
          y[i] = s[(t + 5) % 24] * s[t];
        }}""",
    # Two barriers of which each is a copy of the same one: only the second lies between the fill and the reads.
    "barriers_of_a_function": f"""
        __device__ void meet() {{ __syncthreads(); }}
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          meet();
          __shared__ double s[24];
          if (x[i] > 0.0) s[t] = x[i];
          else s[t] = 2.0 * x[i];
          meet();
          y[i] = s[23 - t] * s[t];
        }}""",
}


def differentiated(kernel: Any, way: str, y: Any, x: Any, seed: Any, n: int, block: int) -> Any:
    d_y, d_x, y = seed.copy(), np.zeros_like(x), y.copy()
    if way == "joint":
        kg.gradient(kernel)[2, block](y, x, n, d_y, d_x)
    else:
        forward, reverse = kg.split(kernel)
        tape = forward[2, block](y, x, n)
        reverse[2, block](tape, y, x, n, d_y, d_x)
    return d_x


@pytest.mark.parametrize("way", ["joint", "split"])
@pytest.mark.parametrize("name", KERNELS)
def test_gradient(name: str, way: str) -> None:
    kernel = kg.compile(KERNELS[name])["k"]
    n, block = 44, 24
    rng = np.random.default_rng(5)
    y, x, seed, direction = rng.standard_normal((4, 2 * block))

    def primal(x: Any) -> Any:
        result = y.copy()
        kernel[2, block](result, x, n)
        return result

    assert kernel.check(2, block, y.copy(), x, n, seed=1).ok
    d_x = differentiated(kernel, way, y, x, seed, n, block)
    step = 1e-6
    expected = (primal(x + step * direction) - primal(x - step * direction)) @ seed / (2 * step)
    assert d_x @ direction == pytest.approx(expected, rel=1e-6, abs=1e-6)
    report = kg.gradient(kernel).check(2, block, y.copy(), x, n, seed.copy(), np.zeros_like(x), seed=2)
    assert report.ok, str(report)


def test_tape_bytes_of_a_kernel_with_dynamic_shared_memory() -> None:
    """The count runs the kernel, with the shared memory of its launch."""
    source = """
        __global__ void k(double* y, const double* x, int n) {
          extern __shared__ double s[];
          int t = threadIdx.x;
          s[t] = x[t];
          __syncthreads();
          double v = x[t];
          for (int j = 0; s[(t + j) % 32] < 1.0 && j < 4; j++) v = sin(v * x[j]);
          y[t] = v;
        }"""
    gradient = kg.gradient(kg.compile(source)["k"])
    x = np.full(32, 0.5)
    assert gradient.tape_bytes(1, 32, np.zeros(32), x, 32, shared=256) >= 4 * 32 * 8


@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("around", ["if (x[62] > 0.5)", "for (int k = 0; k < (int)x[63]; k++)"])
def test_a_barrier_that_may_not_be_met_parts_no_phases(around: str, flag: int) -> None:
    """Without the branch, both reads of one cell are in the same phase, by different threads."""
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x, int n) {{
        __shared__ double s[32];
        int t = threadIdx.x;
        s[t] = x[t] * x[t];
        __syncthreads();
        double v = s[(7 * t + 3) % 32];
        {around} {{
            __syncthreads();
            v *= 2;
            __syncthreads();
        }}
        y[t] = v * s[(t + 3) % 32];
    }}""")["k"]
    gradient = kg.gradient(kernel, "y, x")
    x = np.random.default_rng(1).random(64)
    x[62] = x[63] = flag
    for order in (None, 1, 2):
        report = gradient.check(1, 32, np.zeros(32), x, 0, np.ones(32), np.zeros(64), seed=order)
        assert report.ok, str(report)


T = np.arange(32)
BEYOND = {  # what half of a warp reads, and from where: its own value, from a lane that the mask does not name
    "down": ("t < 16", "__shfl_down_sync(0xffffu, v * v, 8)", np.where(T < 8, T + 8, T)),
    "up": ("t >= 16", "__shfl_up_sync(0xffff0000u, v * v, 8)", np.where(T >= 24, T - 8, T)),
    "xor": ("t < 16", "__shfl_xor_sync(0xffffu, v * v, t < 32 ? 20 : 0)", T),
    "one": ("t < 16", "__shfl_sync(0xffffu, v * v, 20)", T),
    "lane by lane": ("t < 16", "__shfl_sync(0xffffu, v * v, (3 * t) % 32)", np.where(3 * T % 32 < 16, 3 * T % 32, T)),
}


@pytest.mark.parametrize("name", BEYOND)
def test_lanes_beyond_the_mask(name: str) -> None:
    half, read, source = BEYOND[name]
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x, int n) {{
        int t = threadIdx.x; double v = x[t], w = 1; if ({half}) w = {read}; y[t] = w * v; }}""")["k"]
    (x, seed), y, d_x = np.random.default_rng(5).random((2, 32)) + 0.5, np.zeros(32), np.zeros(32)
    reads = T < 16 if half == "t < 16" else T >= 16
    w = np.where(reads, x[source] ** 2, 1)
    expected = seed * w
    np.add.at(expected, source[reads], (seed * x * 2 * x[source])[reads])
    kg.gradient(kernel)[1, 32](y, x, 32, seed.copy(), d_x)
    np.testing.assert_allclose(y, w * x, rtol=1e-13)
    np.testing.assert_allclose(d_x, expected, rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"primal": False}, {"deterministic": True}], ids=str)
def test_shadows_are_cleared_by_others_before_they_are_used(options: dict[str, Any]) -> None:
    """In a kernel without a barrier of its own."""
    kernel = kg.compile("""__global__ void k(double *y, const double *x) {
        __shared__ double s[32]; int t = threadIdx.x;
        s[31 - t] = x[t];
        double v = s[31 - t];
        for (int k = 0; k < 3; ++k) { s[31 - t] = v * s[31 - t]; v = s[31 - t]; }
        y[t] = v; }""")["k"]
    gradient, x = kg.gradient(kernel, "y, x", **options), np.random.default_rng(1).random(32) + 0.5
    for order in (None, 1, 2):
        d_x = np.zeros(32)
        report = gradient.check(1, 32, np.zeros(32), x, np.ones(32), d_x, seed=order)
        assert report.ok, str(report)
        np.testing.assert_allclose(d_x, 8 * x**7, rtol=1e-12)
