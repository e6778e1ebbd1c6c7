"""Launch configurations: what CUDA takes and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import LaunchError
from kernelgrad.runtime.config import MAX_SHARED_BYTES, check_launch_bounds, check_shared, parse_launch


@pytest.mark.parametrize(
    ("key", "launch"),
    [
        ((4, 256), ((4, 1, 1), (256, 1, 1), 0, None)),
        (((4, 5), (16, 16)), ((4, 5, 1), (16, 16, 1), 0, None)),
        (((4, 5, 6), [8, 8, 8], 1024), ((4, 5, 6), (8, 8, 8), 1024, None)),
        ((np.int64(4), (np.uint8(32),), np.int32(8), "s"), ((4, 1, 1), (32, 1, 1), 8, "s")),
        ((2**31 - 1, 1024), ((2**31 - 1, 1, 1), (1024, 1, 1), 0, None)),
        (((1, 65535, 65535), (16, 1, 64)), ((1, 65535, 65535), (16, 1, 64), 0, None)),
        ((1, 1, MAX_SHARED_BYTES), ((1, 1, 1), (1, 1, 1), MAX_SHARED_BYTES, None)),
        ((1, 1, None, None), ((1, 1, 1), (1, 1, 1), 0, None)),
    ],
)
def test_valid_launches(key: Any, launch: Any) -> None:
    assert parse_launch(key)[:4] == launch


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (4, "a launch is kernel.grid, block. or .*; got 1"),
        ((), "got 0"),
        ((1, 2, 3, 4, 5), "got 5"),
        ((0, 256), r"grid: the x extent must be positive, got 0 \(grid=0\)"),
        (((2, -1), 256), r"grid: the y extent must be positive, got -1 \(grid=\(2, -1\)\)"),
        ((1, 0), "block: the x extent must be positive"),
        ((2**31, 1), "grid: the x extent is at most 2147483647, got 2147483648"),
        (((1, 65536), 1), "grid: the y extent is at most 65535, got 65536"),
        (((1, 1, 65536), 1), "grid: the z extent is at most 65535"),
        ((1, 1025), "block: the x extent is at most 1024, got 1025"),
        ((1, (1, 1, 65)), "block: the z extent is at most 64, got 65"),
        ((1, (32, 33)), r"block: at most 1024 threads, got 1056 \(block=\(32, 33\)\)"),
        ((1.0, 32), "grid: wants integers, got float in grid=1.0"),
        ((True, 32), "grid: wants integers, got bool"),
        ((1, "32"), "block: wants integers, got str"),
        ((np.array([1, 2]), 32), "grid: wants integers"),
        (((1, 2, 3, 4), 32), "grid: wants an integer or a tuple of 1 to 3 of them"),
        (((), 32), "grid: wants an integer or a tuple of 1 to 3 of them"),
        ((1, 32, -1), "shared memory: wants a number of bytes, got -1"),
        ((1, 32, 1.5), "shared memory: wants integers, got float"),
        ((1, 32, MAX_SHARED_BYTES + 1), "shared memory: at most 232448 bytes per block, got 232449 bytes"),
    ],
)
def test_invalid_launches(key: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        parse_launch(key)


INVALID = {(0, 1): "grid: the x extent must be", (1, 1025): "block: the x extent is", 4: "a launch is"}


def test_errors_name_the_kernel() -> None:
    kernel = kg.compile("__global__ void square(double *y, const double *x) { y[0] = x[0] * x[0]; }")["square"]
    forward, reverse = kg.split(kernel)
    for launched in (kernel, kg.gradient(kernel), kg.jvp(kernel), kg.hvp(kernel), forward, reverse):
        for key, message in INVALID.items():
            with pytest.raises(LaunchError, match=f"^square: {message}"):
                launched[key]
    for call in (kernel.launch, kernel.check, kg.gradient(kernel).explain):
        with pytest.raises(LaunchError, match="^square: block: at most 1024 threads"):
            call(grid=1, block=(32, 64))


def test_the_device_has_the_last_word_on_shared_memory() -> None:
    assert check_shared(1000, 1000) == 1000
    with pytest.raises(LaunchError, match="at most 1000 bytes per block, got 600 bytes and the kernel's own 401"):
        check_shared(600, 1000, static=401)


def test_launch_bounds() -> None:
    check_launch_bounds("k", (), (1024, 1, 1))
    check_launch_bounds("k", (128, 2), (16, 8, 1))
    with pytest.raises(LaunchError, match=r"block: k has __launch_bounds__\(128\), got 129 threads"):
        check_launch_bounds("k", (128,), (129, 1, 1))
