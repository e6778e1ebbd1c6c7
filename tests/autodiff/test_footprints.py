"""Which bytes around its arguments a launch may touch: none too few, and none too many where indices are guarded."""

from __future__ import annotations

from typing import Any

import pytest

import kernelgrad as kg
from kernelgrad.analysis.access.footprints import footprints
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.reach import reaches_of

BODIES = {
    "plain": "if (i < n) y[i] = x[i];",
    "halo": "if (i >= n) return; y[i] = x[i - 1] + x[i + 1];",
    "inner": "if (i > 0 && i < n - 1) y[i] = x[i - 1] + x[i + 1];",
    "either": "if (i >= n || i < 3) return; y[i] = x[i];",
    "clamped": "if (i < n) { int l = i > 0 ? i - 1 : 0, r = i + 1 < n ? i + 1 : n - 1; y[i] = x[l] + x[r]; }",
    "periodic": "if (i < n) y[i] = x[(i + 1) % n] + x[(i - 1 + n) % n];",
    "strided": "for (; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];",
    "window": "if (i < n) for (int k = -m; k <= m; ++k) { int j = i + k; if (j >= 0 && j < n) y[i] += x[j]; }",
    "carried": "int at = i; if (i < n) for (int k = 0; k < 4; ++k) { y[i] += x[at]; at += n; }",
    "down": "if (i < n) for (int k = n - 1; k >= 0; --k) y[i] += x[k];",
    "loaded": "if (i < n) { int k = idx[i]; if (k >= 0 && k < m) y[i] = x[k]; }",
    "unsigned": "if ((unsigned)(i - 1) < n) y[i - 1] = x[i - 1];",
    "square": "int row = i / m, col = i % m; if (row < m) y[row * m + col] = x[col * m + row];",
    "nothing": "if (i < 0) y[i] = x[i];",
    "before": "size_t j = i; if (j < n) y[j] = x[j - 1];",
    "before_in_parts": "size_t j = i; if (j < n) y[j] = x[(j - 2) * 1 + j % 2];",
    "unsigned_strides": "unsigned j = i; while (j < n) { y[j] = x[j]; j += blockDim.x * gridDim.x; }",
    "unsigned_down": "unsigned j = n; for (int k = 0; k < n; ++k) { j -= 1; if (i == 0) y[j] = x[j]; }",
    "signed_by_unsigned": "int j = n - 1; for (int k = 0; k < n; ++k) { if (i == 0) y[j] = x[j]; j -= 1u; }",
    "tile": "__shared__ double t[33]; t[threadIdx.x] = i < n ? x[i] : 0.; __syncthreads();"
    " if (i < n) y[i] = t[threadIdx.x + 1];",
}
EXPECTED: dict[str, tuple[Any, Any]] = {  # elements of x, of y
    "plain": ((0, 100), (0, 100)),
    "halo": ((-1, 101), (0, 100)),
    "inner": ((0, 100), (1, 99)),
    "either": ((3, 100), (3, 100)),
    "clamped": ((0, 100), (0, 100)),
    "periodic": ((0, 100), (0, 100)),
    "strided": ((0, 100), (0, 100)),
    "window": ((0, 100), (0, 100)),
    "carried": ((0, 400), (0, 100)),
    "down": ((0, 100), (0, 100)),
    "loaded": ((0, 5), (0, 100)),
    "unsigned": ((0, 100), (0, 100)),
    "square": ((0, 25), (0, 25)),
    "nothing": (None, None),
    "before": ((-1, 99), (0, 100)),
    "before_in_parts": ((-2, 99), (0, 100)),
    "unsigned_strides": ((0, 100), (0, 100)),
    "unsigned_down": ((0, 1 << 32), (0, 1 << 32)),
    "signed_by_unsigned": ((0, 100), (0, 100)),
    "tile": ((0, 100), (0, 100)),
}
HEAD = "(double *y, const double *x, const int *idx, int n, int m) { int i = blockIdx.x * blockDim.x + threadIdx.x; "
SOURCE = "".join(f"__global__ void {name}_{HEAD}{body} }}\n" for name, body in BODIES.items())
OTHERS = r"""
struct View { double *p; int n; };
__global__ void members(View v) { int i = threadIdx.x; if (i < v.n) v.p[i] *= v.p[i + 1]; }
__global__ void walks(double *y, const double *x, int n) {
    const double *p = x + threadIdx.x;
    for (int k = 0; k < n; ++k) { y[threadIdx.x] += *p; p += n; }
}
__global__ void comes_round(double *y, const double *x, int n) {
    unsigned at = 0;
    for (int k = 0; k < n; ++k) { y[threadIdx.x] += x[(int)at + n]; at -= 1; }
}
__global__ void comes_round_again(double *y, const double *x, int n) {
    unsigned at = n;
    while (at != 0) { y[threadIdx.x] += x[at + (size_t)0]; at += 4294967295u; }
}
__global__ void steps_back(double *y, const double *x, int n) {
    int at = n;
    while (at >= 0) { y[threadIdx.x] += x[at - n]; at += -blockDim.x; }
}
__global__ void wanders(double *y, const double *x, int n) {
    const double *p = x + threadIdx.x;
    for (int k = 0; k < n; ++k) { y[threadIdx.x] += *p; p += (int)*p; }
}
__global__ void looked_up(double *y, const double *x, const int *idx) { y[threadIdx.x] = x[idx[threadIdx.x]]; }
__global__ void chosen(double *y, double *z, bool first) { double *p = first ? y : z; p[threadIdx.x] = 1; }
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return kg.compile(SOURCE + OTHERS)


@pytest.mark.parametrize("name", BODIES)
def test_guarded_indices(module: Any, name: str) -> None:
    numbers = {"n": 100, "m": 5}
    found = footprints(module[f"{name}_"].function, (4, 1, 1), (32, 1, 1), numbers.get)
    whole = [found[p].both if p in found else None for p in "xy"]
    assert whole == [None if e is None else (8 * e[0], 8 * e[1]) for e in EXPECTED[name]]


def test_members_of_structs(module: Any) -> None:
    found = footprints(module["members"].function, (1, 1, 1), (64, 1, 1), {"v.n": 10}.get)
    assert found["v.p"].loads == (0, 88) and found["v.p"].stores == (0, 80)


@pytest.mark.parametrize("name", ["comes_round", "comes_round_again", "steps_back"])
def test_numbers_that_come_round(module: Any, name: str) -> None:
    touched = {"comes_round": (1, 5), "comes_round_again": (1, 5), "steps_back": (-4, 1)}[name]
    least, most = footprints(module[name].function, (1, 1, 1), (4, 1, 1), {"n": 4}.get)["x"].both
    assert least <= 8 * touched[0] and most >= 8 * touched[1]


@pytest.mark.parametrize("name", ["wanders", "looked_up"])
def test_what_nobody_knows_is_anywhere(module: Any, name: str) -> None:
    least, most = footprints(module[name].function, (1, 1, 1), (32, 1, 1), {"n": 4}.get)["x"].both
    assert least <= -(8 << 31) and most >= 8 << 31


def test_where_a_pointer_walks(module: Any) -> None:
    assert footprints(module["walks"].function, (1, 1, 1), (32, 1, 1), {"n": 4}.get)["x"].loads == (0, 352)


def test_either_of_two_pointers(module: Any) -> None:
    found = footprints(module["chosen"].function, (1, 1, 1), (32, 1, 1), lambda path: None)
    assert found["y"].stores == found["z"].stores == (0, 256)


def test_only_integers_that_matter_are_looked_at_again(module: Any) -> None:
    kernel = module["plain_"]
    reaches = reaches_of(kernel.function)
    launch, packed = make_launch(4, 32), lambda n, m: bytes(24) + n.to_bytes(4, "little") + m.to_bytes(4, "little")
    first = reaches.find(launch, packed(100, 1))
    assert reaches.find(launch, packed(100, 2)) is first
    assert reaches.find(launch, packed(50, 2))["x"].loads == (0, 400)
