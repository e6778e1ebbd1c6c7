"""Messages about adjoints and tangents call them what the user does, and kernels too: no `_d_x`, no `k_grad`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
struct S { float *p; float c; };
__global__ void k(float *y, const float *x, float a, int n) { int i = threadIdx.x; if (i < n) y[i] = a * x[i] * x[i]; }
__global__ void in_struct(float *d_s, S s) { int i = threadIdx.x; d_s[i] = s.c * s.p[i]; }
__global__ __launch_bounds__(32) void tiles(float *y, const float *x) {
    extern __shared__ float t[];
    int i = threadIdx.x;
    t[i] = x[i];
    __syncthreads();
    y[i] = t[i] * t[0];
}
"""
_READ_ONLY = np.zeros(4, np.float32)
_READ_ONLY.flags.writeable = False
_SHARED = np.zeros(4, np.float32)


def f(n: int = 4, dtype: str = "f4") -> np.ndarray:
    return np.zeros(n, dtype)


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


@pytest.mark.parametrize(
    ("d_x", "message"),
    [
        (f(4, "f8"), r"k: parameter 'd_x' \(float \*\) wants a float32 array"),
        (f(8)[::2], r"k: parameter 'd_x' \(float \*\) wants a C-contiguous array"),
        (_READ_ONLY, r"k: parameter 'd_x' \(float \*\) wants a writable array"),
        (3.0, r"k: parameter 'd_x' \(float \*\) wants a float32 array, got float"),
        (f(3), r"k: the adjoint 'd_x' has 3 elements and its parameter 'x' has 4"),
        (_SHARED, r"k: 'd_y' and 'd_x' share memory"),
    ],
)
def test_adjoints(module: kg.Module, d_x: Any, message: str) -> None:
    args, rest = (f(), f(), 1.0, 4), (_SHARED, d_x, f(1))
    forward, reverse = kg.split(module["k"], "y, x, a")
    _refused(lambda: kg.gradient(module["k"], "y, x, a")[1, 4](*args, *rest), message)
    tape = forward[1, 4](*args)
    _refused(lambda: reverse[1, 4](tape, *args, *rest), message)
    told = message.replace("d_", "t_").replace("adjoint", "tangent").replace("float \\*", "(const )?float \\*")
    if d_x is not _READ_ONLY:  # nothing is written there
        _refused(lambda: kg.jvp(module["k"], "y, x, a")[1, 4](*args, *rest), told)


def _refused(launch: Callable[[], object], message: str) -> None:
    with pytest.raises(kg.ArgumentError, match=message) as found:
        launch()
    assert not re.search(r"(?<!t)_d_|_grad|_reverse|_jvp", str(found.value))


def test_members(module: kg.Module) -> None:
    """Where the kernel has a `d_s` of its own, the signature says what the adjoint is called."""
    gradient = kg.gradient(module["in_struct"], "d_s, s")
    assert gradient.signature.endswith("float *d_d_s, S _d_s)")
    struct, both = {"p": f(), "c": 1.0}, f()
    for adjoint, message in [
        ({"p": f(4, "f8"), "c": f(1)}, r"in_struct: parameter '_d_s\.p' \(float \*\) wants"),
        ({"p": f(), "c": f(1, "f8")}, r"in_struct: parameter '_d_s\.c' \(float \*\) wants"),
        ({"p": f(), "c": f(2)}, r"in_struct: the adjoint '_d_s\.c' has 2 elements and its parameter 's\.c' has 1"),
        ({"p": both, "c": both[:1]}, r"in_struct: '_d_s\.[pc]' and '_d_s\.[pc]' share memory"),
    ]:
        with pytest.raises(kg.ArgumentError, match=message):
            gradient[1, 4](f(), struct, f(), adjoint)


def test_launches_and_checks(module: kg.Module) -> None:
    tiles = kg.gradient(module["tiles"], "y, x")
    with pytest.raises(kg.LaunchError, match=r"block: tiles has __launch_bounds__"):
        tiles[1, 64, 256](f(64), f(64), f(64), f(64))
    with pytest.raises(kg.LaunchError, match=r"shared memory: tiles needs at least 128 bytes"):
        tiles[1, 32, 64](f(32), f(32), f(32), f(32))
    report = str(kg.gradient(module["k"], "y, x").check(1, 8, f(), f(), 1.0, 8, f(), f()))
    assert report.startswith("k: ") and "'d_x[4]'" in report and "_d_" not in report


def test_second_derivatives(module: kg.Module) -> None:
    second = kg.jvp(kg.gradient(module["k"], "y, x"), "d_x, d_y, x")
    args, both = (f(), f(), 1.0, 4, f(), f()), f()
    _refused(lambda: second[1, 4](*args, f(4, "f8"), f(), f()), r"k: parameter 't_d_x' \(float \*\) wants a float32")
    _refused(lambda: second[1, 4](*args, f(3), f(), f()), r"k: the tangent 't_d_x' has 3 elements and its .* 'd_x' has")
    _refused(lambda: second[1, 4](*args, both, both, f()), r"k: 't_d_x' and 't_d_y' share memory")
