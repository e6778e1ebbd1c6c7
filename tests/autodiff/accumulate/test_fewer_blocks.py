"""Fewer blocks, each for many of the launch: where a gradient only sums up the adjoints of numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.autodiff.accumulate import fewer_blocks
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways

HEAD = "struct P { double a; int k; double b[2]; };\n"
I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
PLANE = """int block = blockIdx.y * gridDim.x + blockIdx.x;
    int i = block * (blockDim.x * blockDim.y) + threadIdx.y * blockDim.x + threadIdx.x;"""
SPACE = "int i = ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;"

# parameters besides y, x and n; the body; grid, block; whether numbers are given
SUMS: dict[str, tuple[str, str, Any, Any]] = {
    "line": ("double a", f"{I} if (i < n) y[i] = x[i] * a;", 301, 8),
    "early return": ("double a", f"{I} if (i >= n) return; if (x[i] < 0.2) return; y[i] = x[i] * a * a;", 257, 7),
    "plane": ("double a", f"{PLANE} if (i < n) y[i] = x[i] * sin(a * (1 + blockIdx.y));", (23, 13), (4, 2)),
    "space": ("double a", f"{SPACE} if (i < n) y[i] = x[i] * cos(a + blockIdx.z + 2 * blockIdx.y);", (7, 5, 9), 8),
    "column": ("double a", "int i = blockIdx.y * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * a;", (1, 300), 8),
    "several": ("double a, double b", f"{I} if (i < n) y[i] = x[i] * a + b * b * gridDim.x;", 301, 8),
    "float": ("float a", f"{I} if (i < n) y[i] = x[i] * a;", 301, 8),
    "loop": (
        "double a",
        f"{I} if (i >= n) return; double v = 0; for (int k = 0; k < 3 + i % 2; k++) v += a * x[(i + k) % n]; y[i] = v;",
        300,
        8,
    ),
    "strides": (
        "double a",
        f"{I} for (int k = i; k < n; k += gridDim.x * blockDim.x) y[k] = x[k] * a;",
        120,
        7,
    ),
    "array": (
        "double a",
        f"{I} double v[3] = {{a, 2 * a, a * a}}; if (i < n) y[i] = v[(int)(3 * x[i])] * x[i];",
        301,
        8,
    ),
    "struct": ("P p", f"{I} if (i < n) y[i] = x[i] * p.a * p.b[i % 2] + p.k;", 301, 8),
    "both branches": (
        "double a",
        f"{I} if (i >= n) return; double v = a * a; if (i % 3) v = x[i] * a; y[i] = v;",
        299,
        8,
    ),
}
N = 2350


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, on a small scale."""
    monkeypatch.setattr(fewer_blocks, "_THREADS", 100)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def compiled(params: str, body: str) -> Any:
    return kernel_of(f"{HEAD}__global__ void k(double *y, const double *x, int n, {params}) {{ {body} }}")


def listed(kernel: Any) -> tuple[str, ...]:
    names = [p.name for p in kernel.function.params]
    return (names[0], *names[3:])


def variant_of(gradient: Any, kernel: Any, grid: Any, block: Any, args: tuple[Any, ...]) -> Any:
    primal, _ = kernel.bind(args)
    return gradient.variant_for(gradient.settings.listed, make_launch(grid, block), primal, Ways(on_gpu=True))


def numbers_of(kernel: Any) -> tuple[Any, ...]:
    kinds = [str(p.type) for p in kernel.function.params[3:]]
    values: list[Any] = []
    for k, kind in enumerate(kinds):
        values.append({"a": 0.3, "k": 2, "b": [0.7, 1.1]} if "P" in kind else 0.3 + k)
    return tuple(values)


def adjoints_of(kernel: Any, start: float) -> list[Any]:
    names, formats = ["a", "k", "b"], [np.float64, np.int32, (np.float64, 2)]
    layout = np.dtype({"names": names, "formats": formats, "offsets": [0, 8, 16], "itemsize": 32})
    types = {"f64": np.float64, "f32": np.float32}
    found = [np.zeros(1, types.get(str(p.type), layout)) for p in kernel.function.params[3:]]
    for adjoint in found:
        for name in adjoint.dtype.names or ():
            adjoint[name] = start
        if not adjoint.dtype.names:
            adjoint[:] = start
    return found


def floats(adjoints: list[Any]) -> Any:
    parts = [np.concatenate([a["a"], a["b"].ravel()]) if a.dtype.names else a.astype(np.float64) for a in adjoints]
    return np.concatenate(parts)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_values(name: str, deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    params, body, grid, block = SUMS[name]
    kernel = compiled(params, body)
    numbers = numbers_of(kernel)
    monkeypatch.setattr("kernelgrad.launches.choice.choose._MANY_BLOCKS", 100)
    gradient = kg.gradient(kernel, listed(kernel), primal=False, keep="y", deterministic=deterministic)
    rng = np.random.default_rng(4)
    x, seed = rng.random(N), rng.standard_normal(N)
    args = (np.zeros(N), x, N, *numbers)
    variant = variant_of(gradient, kernel, grid, block, args)
    assert variant.derivative.coarse is not None
    assert "atomicAdd" not in variant.source(0)
    found = adjoints_of(kernel, 2.0)
    gradient[grid, block](*args, seed, *found)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways()))
    plain = kg.gradient(kernel, listed(kernel), primal=False, keep="y")
    expected = adjoints_of(kernel, 2.0)
    plain[grid, block](*args, seed, *expected)
    tolerance = 1e-4 if name == "float" else 1e-11
    assert abs(floats(expected) - 2).min() > 1e-6
    np.testing.assert_allclose(floats(found), floats(expected), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SUMS)
def test_against_finite_differences(name: str) -> None:
    params, body, grid, block = SUMS[name]
    if params != "double a":
        pytest.skip("one number to move")
    kernel = compiled(params, body)
    rng = np.random.default_rng(5)
    x, seed = rng.random(N), rng.standard_normal(N)

    def run(a: float) -> float:
        y = np.zeros(N)
        kernel[grid, block](y, x, N, a)
        return float(y @ seed)

    d_a = np.zeros(1)
    kg.gradient(kernel, "y, a", primal=False, keep="y", deterministic=True)[grid, block](
        np.zeros(N), x, N, 0.3, seed, d_a
    )
    assert d_a[0] == pytest.approx((run(0.3 + 1e-6) - run(0.3 - 1e-6)) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("name", ["line", "early return", "space", "struct", "array"])
def test_no_races(name: str) -> None:
    params, body, grid, block = SUMS[name]
    kernel = compiled(params, body)
    gradient = kg.gradient(kernel, listed(kernel), primal=False, keep="y", deterministic=True)
    rng = np.random.default_rng(6)
    args = (np.zeros(N), rng.random(N), N, *numbers_of(kernel))
    for order in (None, 1, 2):
        report = gradient.check(grid, block, *args, rng.random(N), *adjoints_of(kernel, 0.0), seed=order)
        assert report.ok, str(report)


@pytest.mark.parametrize("name", ["line", "plane"])
def test_the_same_every_time(name: str) -> None:
    params, body, grid, block = SUMS[name]
    kernel = compiled(params, body)
    gradient = kg.gradient(kernel, listed(kernel), primal=False, keep="y", deterministic=True)
    rng = np.random.default_rng(7)
    x, seed, found = rng.random(N), rng.standard_normal(N), set()
    for _ in range(3):
        d_a = np.zeros(1)
        gradient[grid, block](np.zeros(N), x, N, 0.3, seed, d_a)
        found.add(d_a.tobytes())
    assert len(found) == 1


NOT_ONLY_SUMS = {
    "shared memory": (f"__shared__ double s[8]; {I} s[threadIdx.x] = a; __syncthreads(); y[i] = s[0] * x[i];", "y, a"),
    "another adjoint": (f"{I} if (i < n) y[i] = x[i] * a;", "y, x, a"),
    "an element for all": (f"{I} if (i < n) y[i] = x[0] * a;", "y, x, a"),
    "a shuffle": (f"{I} y[i] = __shfl_xor_sync(0xff, x[i] * a, 1);", "y, a"),
    "a tape": (f"{I} double v = x[i]; for (int k = 0; k < n; k++) v = v * v * a; y[i] = v;", "y, a"),
    "the lane": (f"{I} unsigned l; l = __activemask(); y[i] = x[i] * a * l;", "y, a"),
}


@pytest.mark.parametrize("name", NOT_ONLY_SUMS)
def test_not_chosen(name: str) -> None:
    body, names = NOT_ONLY_SUMS[name]
    kernel = compiled("double a", body)
    gradient = kg.gradient(kernel, names, primal=False, keep="y")
    variant = variant_of(gradient, kernel, 3000, 8, (np.zeros(24000), np.zeros(24000), 3, 0.3))
    assert variant.derivative.coarse is None
    assert "_grid_x" not in variant.source(0)


def test_not_chosen_where_outputs_are_written() -> None:
    kernel = compiled("double a", SUMS["line"][1])
    args = (np.zeros(24000), np.zeros(24000), 24000, 0.3)
    for options in ({}, {"primal": False}):
        gradient = kg.gradient(kernel, "y, a", **options)
        assert variant_of(gradient, kernel, 3000, 8, args).derivative.coarse is None


def test_not_chosen_for_few_blocks() -> None:
    kernel = compiled("double a", SUMS["line"][1])
    gradient = kg.gradient(kernel, "y, a", primal=False, keep="y", deterministic=True)
    args = (np.zeros(800), np.zeros(800), 800, 0.3)
    assert variant_of(gradient, kernel, 95, 8, args).derivative.coarse is None
    assert variant_of(gradient, kernel, 96, 8, args).derivative.coarse is not None


def test_loads_of_several_turns_are_under_way() -> None:
    kernel = compiled("double a", SUMS["line"][1])
    gradient = kg.gradient(kernel, "y, a", primal=False, keep="y", deterministic=True)
    source = variant_of(gradient, kernel, 300, 8, (np.zeros(N), np.zeros(N), N, 0.3)).source(0)
    assert "each does the sums of many" in gradient.explain()
    together, one_by_one = source.split("#pragma unroll 1")
    assert together.count("= _d_y[i];") == 4 and one_by_one.count("= _d_y[i];") == one_by_one.count("= x[i];") == 1
    added = re.search(r"_d_a_\w+ \+=", together)
    assert added is not None and together.rindex("= _d_y[i];") < added.start()
