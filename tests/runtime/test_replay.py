"""Launches that come again: they do what the first one did, on other arrays and with other numbers."""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

MODULE = kg.compile("""
#include <assert.h>
#include <cuda_fp16.h>
__global__ void scale(float *y, const float *x, float a, double b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i] + b;
}
__global__ void total(float *sum, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, x[i] * x[i]);
}
__global__ void iterate(double *y, const double *x, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    for (int k = 0; k < steps; k++) v = sin(v) * x[i] + v;
    y[i] = v;
}
__global__ void counted(double *y, const double *x, const int *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i], u = 0.5;
    for (int k = 0; k < steps[i]; k++) { v = sin(v) * u + 0.5 * v; u = cos(u * v); }
    y[i] = v * u;
}
__global__ void rows(float *y, const float *x, int n) {
    extern __shared__ float tile[];
    int t = threadIdx.x;
    tile[t] = x[blockIdx.x * blockDim.x + t] * x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    if (t == 0) { float s = 0; for (int k = 0; k < blockDim.x; k++) s += tile[k]; y[blockIdx.x] = s; }
}
__global__ void halves(__half *y, const __half *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(__half2float(x[i]) * __half2float(x[i]));
}
__global__ void positive(float *y, const float *x) {
    assert(x[threadIdx.x] > 0);
    y[threadIdx.x] = x[threadIdx.x];
}
__constant__ float FACTOR[1];
__global__ void by_constant(float *y, const float *x) { y[threadIdx.x] = FACTOR[0] * x[threadIdx.x]; }
__global__ void shifted(float *y, const float *x) { y[threadIdx.x] = x[(int)threadIdx.x - 1]; }
""")
N = 40


def made(shape: Any, dtype: str = "f4", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_other_arrays_and_numbers(replayed: list[bool]) -> None:
    for k in range(6):
        x, y = made(N, seed=k), np.zeros(N, "f4")
        MODULE["scale"][2, 32](y, x, [1.5, 2, np.float32(0.5), np.float64(3), float("nan"), -0.0][k], 0.25 * k, N)
        number = [1.5, 2, 0.5, 3, np.nan, -0.0][k]
        np.testing.assert_allclose(y, number * x * x + 0.25 * k, rtol=1e-6)
    assert replayed[-4:] == [True] * 4


def test_other_sizes_and_shapes_are_other_launches(replayed: list[bool]) -> None:
    for n in (N, N, 7, 7, 7, N):
        x, y = made(n, seed=n), np.zeros(n, "f4")
        MODULE["scale"][2, 32](y, x, 2.0, 0.0, n)
        np.testing.assert_allclose(y, 2 * x * x, rtol=1e-6)
    for _ in range(3):
        x, y = made(N), np.zeros(N, "f4")
        MODULE["scale"][2, 32](y, x, 2.0, 0.0, 5)
        assert y[:5].any() and not y[5:].any()
    assert len(replayed) >= 3 and all(replayed)


def test_what_does_not_fit_is_said_as_ever() -> None:
    kernel = kg.compile(MODULE._unit.text)["scale"]
    for _ in range(3):
        kernel[2, 32](np.zeros(N, "f4"), made(N), 2.0, 1.0, N)
    with pytest.raises(kg.ArgumentError, match="'a'.*wants a number in its range"):
        kernel[2, 32](np.zeros(N, "f4"), made(N), 1e60, 1.0, N)
    with pytest.raises(kg.ArgumentError, match="'a'.*wants a number, got"):
        kernel[2, 32](np.zeros(N, "f4"), made(N), "1", 1.0, N)
    with pytest.raises(kg.ArgumentError, match="'x'.*wants a float32 array"):
        kernel[2, 32](np.zeros(N, "f4"), made(N, "f8"), 1.0, 1.0, N)
    with pytest.raises(kg.ArgumentError, match="'n'.*wants an integer"):
        kernel[2, 32](np.zeros(N, "f4"), made(N), 1.0, 1.0, 2.0)
    with pytest.raises(kg.ArgumentError, match="'y'.*read-only"):
        y = np.zeros(N, "f4")
        y.flags.writeable = False
        kernel[2, 32](y, made(N), 1.0, 1.0, N)
    with pytest.raises(kg.ArgumentError, match="takes 5 arguments, got 4"):
        kernel[2, 32](np.zeros(N, "f4"), made(N), 1.0, 1.0)


def test_read_only_and_strided_arrays(replayed: list[bool]) -> None:
    for _ in range(4):
        x, y = made(N), np.zeros(N, "f4")
        x.flags.writeable = False
        MODULE["scale"][2, 32](y, x, 1.0, 0.0, N)
        np.testing.assert_allclose(y, x * x, rtol=1e-6)
    assert replayed == []


CASES = {
    "scale": ("f4", lambda y, x: (y, x, 1.5, 0.5, N), ("f4", "f8")),
    "iterate": ("f8", lambda y, x: (y, x, 9, N), ()),
    "halves": ("f2", lambda y, x: (y, x, N), ()),
}


def gradient_of(name: str, **settings: Any) -> list[Any]:
    """What a gradient leaves in all arrays."""
    dtype, arguments, numbers = CASES[name]
    given = [made(N, dtype, seed=k) for k in range(2)]
    adjoints = [*(made(N, dtype, seed=5 + k) for k in range(2)), *(np.zeros(1, number) for number in numbers)]
    gradient = GRADIENTS.setdefault((name, str(settings)), kg.gradient(MODULE[name], **settings))
    gradient[2, 32](*arguments(*given), *adjoints)
    return [*given, *adjoints]


GRADIENTS: dict[Any, Any] = {}


@pytest.mark.parametrize("settings", [{}, {"primal": False}, {"deterministic": True}, {"assign": "x"}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, settings: dict[str, Any], replayed: list[bool]) -> None:
    found = [gradient_of(name, **settings) for _ in range(4)]
    for one in found[1:]:
        for a, b in zip(one, found[0], strict=True):
            np.testing.assert_array_equal(a, b)
    assert replayed[-2:] == [True] * 2


def test_sums_go_on_from_what_is_there(replayed: list[bool]) -> None:
    gradient = kg.gradient(MODULE["total"])
    total, x, d_total, d_x = np.zeros(1, "f4"), made(N), np.ones(1, "f4"), np.zeros(N, "f4")
    for k in range(1, 5):
        gradient[2, 32](total, x, N, d_total, d_x)
        np.testing.assert_allclose(d_x, 2 * k * x, rtol=1e-6)
        np.testing.assert_allclose(total, k * (x * x).sum(), rtol=1e-5)
    assert replayed[-2:] == [True] * 2


def test_adjoints_that_are_not_wanted(replayed: list[bool]) -> None:
    gradient = kg.gradient(MODULE["scale"], primal=False)
    for k in range(6):
        x, d_y, d_x, d_a = made(N, seed=k), made(N, seed=9), np.zeros(N, "f4"), np.zeros(1, "f4")
        seed = d_y.copy()
        gradient[2, 32](None, x, 2.0, 0.0, N, d_y, d_x if k % 2 else None, None if k % 2 else d_a, None)
        np.testing.assert_allclose(d_x, 4 * x * seed if k % 2 else 0 * x, rtol=1e-5)
        assert k % 2 or abs(d_a[0] - (x * x * seed).sum()) < 1e-4
    assert len(replayed) >= 2 and all(replayed)


def test_shared_memory(replayed: list[bool]) -> None:
    gradient = kg.gradient(MODULE["rows"])
    for k in range(4):
        x, y, d_x, d_y = made(64, seed=k), np.zeros(2, "f4"), np.zeros(64, "f4"), np.array([1, -3], "f4")
        gradient[2, 32, 128](y, x, 64, d_y, d_x)
        np.testing.assert_allclose(y, (x * x).reshape(2, 32).sum(1), rtol=1e-5)
        np.testing.assert_allclose(d_x, 2 * x * np.repeat(np.array([1, -3]), 32), rtol=1e-6)
    assert replayed[-2:] == [True] * 2
    with pytest.raises(kg.LaunchError, match="shared memory: rows needs at least 128 bytes"):
        for _ in range(3):
            MODULE["rows"][2, 32, 64](y, x, 64)


def test_tapes_that_are_counted_go_the_usual_way(replayed: list[bool]) -> None:
    gradient = kg.gradient(MODULE["counted"])
    for most in (3, 3, 3, 200):
        x, y, d_x, d_y = made(N, "f8"), np.zeros(N), np.zeros(N), np.ones(N)
        steps = np.full(N, most, np.int32)
        gradient[2, 32](y, x, steps, N, d_y, d_x)
        near = [np.zeros(N), np.zeros(N)]
        for out, side in zip(near, (1, -1), strict=True):
            MODULE["counted"][2, 32](out, x + side * 1e-6, steps, N)
        np.testing.assert_allclose(d_x, (near[0] - near[1]) / 2e-6, rtol=1e-4, atol=1e-6)


def test_assertions_that_fail_say_where() -> None:
    x, y = np.ones(8, "f4"), np.zeros(8, "f4")
    for _ in range(3):
        MODULE["positive"][1, 8](y, x)
    x[5] = -1
    with pytest.raises(kg.KernelError, match=r"assertion failed: x\[threadIdx.x\] > 0 \(block \(0, 0, 0\), thread \(5"):
        MODULE["positive"][1, 8](y, x)


def test_arguments_that_share_memory() -> None:
    gradient = kg.gradient(MODULE["scale"])
    x, y, d_x, d_y, d_a, d_b = (np.ones(N, t) for t in ("f4", "f4", "f4", "f4", "f4", "f8"))
    for _ in range(3):
        gradient[2, 32](y, x, 1.0, 1.0, N, d_y, d_x, d_a[:1].copy(), d_b[:1].copy())
    with pytest.raises(kg.ArgumentError, match="share memory"):
        gradient[2, 32](y, x, 1.0, 1.0, N, d_x, d_x, d_a[:1].copy(), d_b[:1].copy())


def test_parts_of_arrays_may_be_touched_around(replayed: list[bool]) -> None:
    whole = np.arange(10, dtype="f4")
    for _ in range(4):
        y = np.zeros(8, "f4")
        MODULE["shifted"][1, 8](y, whole[1:9])
        assert y.tolist() == list(range(8))
    assert replayed == []


def test_constants_may_change() -> None:
    x, y = np.ones(8, "f4"), np.zeros(8, "f4")
    for value in (1.0, 2.0, 3.0, 4.0):
        MODULE.constant("FACTOR")[...] = [value]
        MODULE["by_constant"][1, 8](y, x)
        assert y.tolist() == [value] * 8


def test_recordings_have_all_launches() -> None:
    kernel, x, y = MODULE["scale"], made(N), np.zeros(N, "f4")
    for _ in range(3):
        kernel[2, 32](y, x, 2.0, 0.0, N)
    with kg.record() as tape:
        kernel[2, 32](y, x, 3.0, 0.0, N)
    tape.backward(y, np.ones(N, "f4"))
    np.testing.assert_allclose(tape.grad(x), 6 * x, rtol=1e-6)


def test_several_threads() -> None:
    gradient, wrong = kg.gradient(MODULE["scale"]), list[float]()

    def go(seed: int) -> None:
        for k in range(200):
            x, y, d_x, d_y = made(N, seed=seed), np.zeros(N, "f4"), np.zeros(N, "f4"), np.ones(N, "f4")
            d_a, d_b = np.zeros(1, "f4"), np.zeros(1, "f8")
            gradient[2, 32](y, x, float(seed + k), 1.0, N, d_y, d_x, d_a, d_b)
            wrong.append(float(np.abs(d_x - 2 * (seed + k) * x).max()))

    threads = [threading.Thread(target=go, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 800 and max(wrong) < 1e-2


def test_many_kinds_of_launches_are_not_all_remembered() -> None:
    kernel = kg.compile(MODULE._unit.text)["total"]
    for n in [*range(1, 300), 5, 5, 5]:
        x, total = np.ones(n, "f4"), np.zeros(1, "f4")
        kernel[10, 32](total, x, n)
        kernel[10, 32](total, x, n)
        assert total[0] == 2 * n
    assert len(kernel.replays._found) <= 256


def test_numbers_are_rounded_as_the_kernel_has_them(replayed: list[bool]) -> None:
    for _ in range(4):
        x, y = np.ones(N, "f4"), np.zeros(N, "f4")
        MODULE["scale"][2, 32](y, x, 0.1, 0.0, N)
        assert y[0] == struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert replayed[-1]
