"""Lanes that share addresses in a loop add up eight iterations at a time: when they do, and what comes out.

The text runs under the emulation, where the lanes of a warp meet as on a GPU; the CPU, which has no such strips, says
what is right, and a formula says the same of the first kernel.
"""

from __future__ import annotations

import re
import shutil
from typing import Any

import numpy as np
import pytest
from run_text import run_emitted

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Atomic, Block, Function, If, Param, Value
from kernelgrad.ir.types import F32, I32, Pointer
from kernelgrad.schedule.sum_over.lane_sums import summed
from packed_sum_cases import HEAD, MANY, many

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

PRODUCT = """__global__ void k(double *c, const double *a, const double *b, const unsigned long long *sizes) {
    unsigned long long inner = sizes[0], columns = sizes[1];
    unsigned long long row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    double sum = 0;
    for (int m = 0; m < inner; ++m) sum += a[row * inner + m] * b[m * columns + column];
    c[row * columns + column] = sum;
}"""


def emitted(gradient: Any, grid: Any, block: Any, arguments: list[Any]) -> None:
    assert len(gradient.variant().reverse.function.params) == len(arguments)  # nothing that a launch would supply
    run_emitted(gradient.source, f"{gradient.kernel.name}_grad", grid, block, arguments)


@EMULATED
@pytest.mark.parametrize("inner", [0, 7, 8, 21, 32])
@pytest.mark.parametrize(("block", "lanes"), [((32, 2), 32), ((16, 4), 16), ((8, 4), 8), ((4, 8), 1), ((33, 1), 32)])
def test_a_matrix_product(inner: int, block: tuple[int, int], lanes: int) -> None:
    """Rows are shared by 32, 16, 8 or 4 lanes; the last block of a row has fewer columns than threads."""
    gradient = kg.gradient(kernel_of(PRODUCT), "c, a, b")
    assert "lane_sums" in gradient.source
    rng = np.random.default_rng(1)
    rows, columns = 2 * block[1], 2 * block[0] - 3
    a, b, seed = rng.random((rows, inner)), rng.random((inner, columns)), rng.standard_normal((rows, columns))
    c, d_c, d_a, d_b = np.zeros_like(seed), seed.copy(), np.ones((rows, inner)), np.ones((inner, columns))
    emitted(gradient, (2, 2), block, [c, a, b, np.array([inner, columns], "u8"), d_c, d_a, d_b])
    np.testing.assert_allclose(c, a @ b, rtol=1e-12)
    np.testing.assert_allclose(d_a, 1 + seed @ b.T, rtol=1e-12)
    np.testing.assert_allclose(d_b, 1 + a.T @ seed, rtol=1e-12)


# Each with `y`, `x`, `w` of 128 doubles and `n` of 64 ints between 0 and 20; threads i = 0..63 in two blocks. For each,
# the adjoints that are summed in strips.
KERNELS = {
    "constant_count": ("w", "double s = 0; for (int k = 0; k < 31; ++k) s += w[k] * x[i + k]; y[i] = s;"),
    "short_constant_count": ("w", "double s = 0; for (int k = 0; k < 5; ++k) s += w[k] * x[i + k]; y[i] = s;"),
    "few_iterations": ("", "double s = 0; for (int k = 0; k < 2; ++k) s += w[k] * x[i + k]; y[i] = s;"),
    "downwards": ("w", "double s = 0; for (int k = 40; k >= n[0]; --k) s += w[k] * x[i + k]; y[i] = s;"),
    "steps_of_three": ("w x", "double s = 0; for (int k = n[1]; k < 60; k += 3) s += w[k] * x[i + k]; y[i] = s;"),
    "unsigned_counter": ("w x", "double s = 0; for (unsigned k = n[2]; k < 60; ++k) s += w[k] * x[i + k]; y[i] = s;"),
    "long_counter": ("w x", "double s = 0; for (long long k = n[2]; k < 60; ++k) s += w[k] * x[i + k]; y[i] = s;"),
    "other_iterations_per_lane": (
        "w",
        "double s = 0; for (int k = 0; k < 30 + n[i]; ++k) s += w[k] * x[i + k]; y[i] = s;",
    ),
    "other_iterations_per_warp": (
        "w",
        "double s = 0; for (int k = 0; k < 30 + n[i / 32]; ++k) s += w[k] * x[i + k]; y[i] = s;",
    ),
    "half_of_the_lanes": (
        "w",
        "double s = 0; if (i % 2) for (int k = 0; k < 20 + n[0]; ++k) s += w[k] * x[i + k]; y[i] = s;",
    ),
    "guarded": (
        "w",
        "double s = 0; for (int k = 0; k < 20 + n[0]; ++k) { int at = i + k - n[1];"
        " if (at >= 0 && at < 50) s += w[k] * x[at + 3 * n[2]]; } y[i] = s;",
    ),
    "carried": (
        "w",
        "double s = x[i]; for (int k = 0; k < 20 + n[0]; ++k) s = 0.5 * s + w[k + n[1]] * x[i + k]; y[i] = s;",
    ),
    "updates_side_by_side": (
        "w x",
        "double s = 0; for (int k = 0; k < 20 + n[0]; ++k) s += w[k] * w[k + 1] * x[2 * k + n[1]]; y[i] = s * s;",
    ),
    "shared_by_some_lanes": (
        "w x",
        "double s = 0; int at = n[i / 8]; for (int k = 0; k < 20 + n[0]; ++k) s += w[k + at] * x[k + n[i / 16]];"
        " y[i] = s;",
    ),
    "other_indices_per_lane": (
        "",
        "double s = 0; for (int k = 0; k < 40; ++k) s += w[n[(k + i) % 64]] * x[i]; y[i] = s;",
    ),
    "every_second_weight": ("w", "double s = 0; for (int k = 0; k < 40; ++k) s += w[k / 2] * x[i + k]; y[i] = s;"),
    # Lanes with different i may share w[(i + k) / 32], so that comparing i would tell nothing.
    "not_linear": ("", "double s = 0; for (int k = 0; k < 20 + n[0]; ++k) s += w[(n[i] + k) / 32] * k; y[i] = s;"),
    "an_index_from_memory": ("w", "double s = 0; for (int k = 0; k < 40; ++k) s += w[n[k]] * x[i]; y[i] = s;"),
    # The reverse reads and clears what is updated, iteration by iteration.
    "written_in_the_loop": (
        "w",
        "double s = 0; int at = i * n[0] / n[0]; for (int k = 0; k < 20 + n[1]; ++k)"
        " { y[at] = w[k] * x[i]; s += y[at] * k; } y[i] = s;",
    ),
    "loops_in_loops": (
        "w",
        "double s = 0; for (int r = 0; r < n[0]; ++r) for (int k = 0; k < 9 + r; ++k) s += w[k + r] * x[i + k];"
        " y[i] = s;",
    ),
}

TILES = f"""
__global__ void k(double *y, const double *x, const double *w, const int *n) {{
    __shared__ double tile[32], other[32]; {HEAD} int t = threadIdx.x;
    double s = 0;
    for (int first = 0; first < 64; first += 32) {{
        tile[t] = x[first + t]; other[t] = w[first + t];
        __syncthreads();
        for (int k = 0; k < 32; ++k) {{ double d = tile[k] - x[i]; s += d * d * other[31 - k]; }}
        __syncthreads();
    }}
    y[i] = s;
}}"""


def kernel(name: str) -> Any:
    if name == "tiles":
        return kernel_of(TILES)
    params = "double *y, const double *x, const double *w, const int *n"
    return kernel_of(f"__global__ void k({params}) {{ {HEAD} {KERNELS[name][1]} }}")


def arguments() -> list[Any]:
    rng = np.random.default_rng(3)
    return [*(rng.uniform(0.2, 1, 128) for _ in range(3)), rng.integers(3, 20, 64).astype("i4")]


def adjoints() -> list[Any]:
    rng = np.random.default_rng(4)
    return [rng.standard_normal(128) for _ in range(3)]


@pytest.mark.parametrize("name", KERNELS)
def test_chosen(name: str) -> None:
    source = kg.gradient(kernel(name), "y, x, w").source
    summed = set(re.findall(r"lane_sums\(_d_(\w)_parts", source))
    assert summed == set(KERNELS[name][0].split())


def test_cells_of_shared_memory() -> None:
    source = kg.gradient(kernel("tiles"), "y, x, w").source
    assert set(re.findall(r"lane_sums\(_d_(\w+)_parts", source)) == {"tile", "other"}


@EMULATED
@pytest.mark.parametrize("name", [*KERNELS, "tiles"])
def test_values(name: str) -> None:
    gradient = kg.gradient(kernel(name), "y, x, w")
    args, got, want = arguments(), adjoints(), adjoints()
    emitted(gradient, 2, 32, [*args, *got])
    gradient[2, 32](*arguments(), *want)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MANY)
def test_packed(name: str) -> None:
    source = kg.gradient(many(name), "y, x, w").source
    found = [source.count(f"{fn}(sums") for fn in ("lane_sums", "lanes_totals", "lanes_total")]
    assert tuple(found) == MANY[name][0]


@EMULATED
@pytest.mark.parametrize(
    "loop", ["for (int k = 0; k < 10 + n[0]; ++k)", "for (int k = 19; k >= n[i / 32] - 2; k -= 2)"]
)
@pytest.mark.parametrize("name", MANY)
def test_packed_values(name: str, loop: str) -> None:
    gradient = kg.gradient(many(name, loop=loop), "y, x, w")
    for grid, block in ((2, 32), (1, 40)):
        args, got, want = arguments(), adjoints(), adjoints()
        emitted(gradient, grid, block, [*args, *got])
        gradient[grid, block](*arguments(), *want)
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


@EMULATED
@pytest.mark.parametrize("block", [24, 40])
def test_warps_that_are_not_whole(block: int) -> None:
    gradient = kg.gradient(kernel("other_iterations_per_warp"), "y, x, w")
    args, got, want = arguments(), adjoints(), adjoints()
    emitted(gradient, 1, block, [*args, *got])
    gradient[1, block](*arguments(), *want)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*KERNELS, "tiles"])
def test_against_differences(name: str) -> None:
    report = kg.check_gradient(kernel(name), "y, x, w", 2, 32, arguments())
    assert not report.notes, report


@pytest.mark.parametrize("seed", [None, 5])
def test_watched(seed: int | None) -> None:
    gradient = kg.gradient(kernel("shared_by_some_lanes"), "y, x, w")
    assert not gradient.check(2, 32, *arguments(), *adjoints(), seed=seed).findings


def test_tangent_of_the_gradient() -> None:
    """The strips are CUDA's own: forward mode of the gradient has them too, of its own loop."""
    gradient = kg.gradient(kernel("constant_count"), "y, x, w")
    second = kg.jvp(gradient, "x, w, d_y, d_x, d_w")
    assert "warp_add" in second.source


def test_explained() -> None:
    rows = kg.gradient(kernel("constant_count"), "y, x, w").explain().splitlines()
    told = ["eight sums at a time" in next(r for r in rows if f"shadow of {name}" in r) for name in "xw"]
    assert told == [False, True]


def test_without_strips() -> None:
    """Where the order of additions is fixed; where the buffers may overlap; where nothing is shared."""
    assert "lane_sums" not in kg.gradient(kernel("constant_count"), "y, x, w", deterministic=True).source
    assert "lane_sums" not in kg.gradient(kernel("constant_count"), "y, x, w", may_alias=True).source
    assert "lane_sums" not in kernel("constant_count").source


def test_compiles() -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    for name in KERNELS:
        assert compile_only(kg.gradient(kernel(name), "y, x, w").source, "sm_90")


def test_a_counter_that_would_wrap() -> None:
    """Strips count in int if the loop uses its counter as one, and only as far as an int goes."""
    wide = PRODUCT.replace("for (int m = 0; m < inner; ++m)", "for (long long l = 0; l < inner; ++l) { int m = (int)l;")
    wide = wide.replace("b[m * columns + column];", "b[m * columns + column]; }")
    source = kg.gradient(kernel_of(wide), "c, a, b").source
    assert re.search(r"(\w+) == \(int\)\1", source)


@pytest.mark.parametrize(("number", "kind"), [(0.0, If), (1.0, Atomic)])
def test_only_tests_for_zero_are_part_of_an_update(number: float, kind: type) -> None:
    adjoint, others = (Value(Pointer(F32, "global"), name) for name in ("adjoint", "others"))
    n, counter, b = Value(I32, "n"), Value(I32, "k"), Builder()
    value = b.convert(b.builtin("thread_idx"), F32)
    with b.region() as region:
        b.emit(Atomic, "add", b.offset(adjoint, counter), (value,), together=True, type=F32)
        with b.region() as then:
            b.atomic("add", b.offset(others, counter), value)
        b.if_(b.apply("ne", value, b.constant(number, F32)), then.block())
    b.for_(b.constant(0, I32), n, (), 1, region.block((counter,)))
    params = (*(Param(p, "float *", restrict=True) for p in (adjoint, others)), Param(n, "int"))
    (found,) = summed(Function("k", "kernel", params, Block((), tuple(b.ops), ()))).values()
    assert [type(s.op) for s in found] == [Atomic, kind]


@EMULATED
@pytest.mark.parametrize("seed", [2, 4])
def test_lanes_in_different_iterations(seed: int) -> None:
    """All lanes stand at the sums at once, each at those of the first of its own iterations that has some."""
    text = """__global__ void k(double *y, const double *x, const double *w, int m) {
        int i = threadIdx.x;
        double out = 0;
        for (int j = 0; j < m; ++j) if (x[i * 16 + j] > 0) {
            double s = 0;
            for (int k = 0; k < 16; ++k) s += w[j * 16 + k] * x[i * 16 + k];
            out += s * s;
        }
        y[i] = out;
    }"""
    gradient = kg.gradient(kernel_of(text), "y, x, w", primal=False, keep="y")
    assert "lane_sums" in gradient.source
    rng = np.random.default_rng(seed)
    x, w, d_y = rng.standard_normal(32 * 16), rng.standard_normal(80), rng.standard_normal(32)
    expected, got = np.zeros((5, 16)), [np.zeros(x.size), np.zeros(80)]
    for seeded, row in zip(d_y, x.reshape(32, 16), strict=True):
        sums = w.reshape(5, 16) @ row * (row[:5] > 0)
        expected += 2 * seeded * np.outer(sums, row)
    emitted(gradient, 1, 32, [np.zeros(32), x, w, np.int32(5), d_y.copy(), *got])
    np.testing.assert_allclose(got[1].reshape(5, 16), expected, rtol=1e-10, atol=1e-10)
