"""The emulation itself, on CUDA C++ written by hand."""

import shutil

import numpy as np
import pytest
from run_text import EmulationError, run_emitted

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

KERNELS = """
__global__ void scale(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}

__global__ void tree(float *out, const float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    for (int k = 32; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, s[0]);
}

__global__ void shuffles(int *down, int *xored, unsigned int *ballots, int *broadcast)
{
    int t = threadIdx.x;
    down[t] = __shfl_down_sync(0xffffffffu, t, 1);
    xored[t] = __shfl_xor_sync(0xffffffffu, t, 3, 16);
    ballots[t] = __ballot_sync(0xffffffffu, t % 3 == 0);
    if (t % 32 < 8) broadcast[t] = __shfl_sync(0xffu, t, 5);
}

__global__ void dynamic(int *y)
{
    extern __shared__ __align__(16) int s[];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

__global__ void atomics(int *count, unsigned int *wrapped, int *largest)
{
    atomicAdd(count, 1);
    atomicInc(wrapped, 6u);
    atomicMax(largest, (int)(threadIdx.x * 7 % 13));
}

__global__ void early_exit(int *y)
{
    if (threadIdx.x >= 5) return;
    __syncthreads();
    y[threadIdx.x] = __syncthreads_count(threadIdx.x > 1);
}

__global__ void indices(int *y)
{
    int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    y[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t;
}

__global__ void divergent(int *y)
{
    if (threadIdx.x == 0) __syncwarp(3u);
    else __syncthreads();
}

__global__ void asserting(int n) { assert(n > 3); }

__global__ void halves(__half *y, float *z)
{
    y[0] += (__half)0.5f;
    z[0] = (float)(__nv_bfloat16)1.00390625f;
}
"""


def run(kernel: str, grid: int | tuple[int, ...], block: int | tuple[int, ...], *arguments: object) -> None:
    run_emitted(KERNELS, kernel, grid, block, arguments)


def test_elementwise() -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    run("scale", 4, 32, y, x, np.float32(3), np.int32(99))
    np.testing.assert_array_equal(y, np.where(np.arange(100) < 99, 3 * x, 0))


def test_tree_reduction() -> None:
    x, out = np.arange(192, dtype=np.float32), np.zeros(1, np.float32)
    run("tree", 3, 64, out, x)
    assert out[0] == x.sum()


def test_warp_functions() -> None:
    down, xored, broadcast = (np.zeros(64, np.int32) for _ in range(3))
    ballots = np.zeros(64, np.uint32)
    run("shuffles", 1, 64, down, xored, ballots, broadcast)
    t = np.arange(64)
    np.testing.assert_array_equal(down, np.where(t % 32 == 31, t, t + 1))
    np.testing.assert_array_equal(xored, t ^ 3)
    expected = [sum(1 << lane for lane in range(32) if (warp * 32 + lane) % 3 == 0) for warp in (0, 1)]
    np.testing.assert_array_equal(ballots, np.repeat(expected, 32))
    np.testing.assert_array_equal(broadcast, np.where(t % 32 < 8, t // 32 * 32 + 5, 0))


def test_dynamic_shared_memory() -> None:
    y = np.zeros(48, np.int32)
    run("dynamic", 1, 48, y)
    np.testing.assert_array_equal(y, np.arange(48)[::-1])


def test_atomics() -> None:
    count, wrapped, largest = np.zeros(1, np.int32), np.zeros(1, np.uint32), np.full(1, -5, np.int32)
    run("atomics", 2, 10, count, wrapped, largest)
    assert (count[0], wrapped[0], largest[0]) == (20, 20 % 7, 11)


def test_early_exit_before_a_barrier() -> None:
    y = np.zeros(8, np.int32)
    run("early_exit", 1, 8, y)
    np.testing.assert_array_equal(y, [3] * 5 + [0] * 3)


def test_three_dimensions() -> None:
    y = np.zeros(4 * 24, np.int32)
    run("indices", (2, 1, 2), (2, 3, 4), y)
    np.testing.assert_array_equal(y, [b * 1000 + t for b in range(4) for t in range(24)])


def test_a_deadlock_is_reported() -> None:
    with pytest.raises(EmulationError, match="deadlock"):
        run("divergent", 1, 2, np.zeros(1, np.int32))


def test_a_failed_assertion_is_reported() -> None:
    run("asserting", 1, 1, np.int32(4))
    with pytest.raises(EmulationError, match="n > 3"):
        run("asserting", 1, 1, np.int32(3))


def test_sixteen_bit_floats() -> None:
    y, z = np.array([1.25], np.float16), np.zeros(1, np.float32)
    run("halves", 1, 1, y, z)
    assert y[0] == 1.75
    assert z[0] == 1.0  # to even
