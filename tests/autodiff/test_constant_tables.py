"""Tables of integers that are `const`: their elements are constants to a gradient, wherever they are declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import ArgumentError
from kernelgrad.runtime.config import make_launch

N, PLANES = 200, 3
VALUES = "{{0, 1}, {1, -2}, {-1, 3}}"
TABLES = {
    "constexpr": f"constexpr int c[3][2] = {VALUES};",
    "device constexpr": f"__device__ constexpr short c[3][2] = {VALUES};",
    "device const": f"__device__ const int c[3][2] = {VALUES};",
    "static const": f"static const long long c[3][2] = {VALUES};",
    "constant const": f"__constant__ const int c[3][2] = {VALUES};",
    "in a namespace": f"namespace lattice {{ constexpr int c[3][2] = {VALUES}; }} using lattice::c;",
}
CHANGING = f"__constant__ int c[3][2] = {VALUES};"
LOOP = (
    "for (int q = 0; q < 3; ++q) y[q * n + i] = 2 * x[q * n + (i + c[q][0] + n) % n] "
    "+ (q == 2 ? z[(i + c[q][1] + n) % n] : 0);"
)


def compiled(table: str, body: str = LOOP) -> Any:
    head = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    params = "const double *x, const double *z, double *y, int n"
    return kg.compile(f"{table} __global__ void k({params}) {{ {head} {body} }}")["k"]


def compare(kernel: Any, wanted: str = "y, x, z") -> Any:
    rng = np.random.default_rng(1)
    x, z, y, d_x, d_z, d_y, t_x, t_z = (rng.uniform(-1, 1, PLANES * N) for _ in range(8))
    t_y = np.zeros_like(y)
    kg.jvp(kernel, wanted)[4, 64](x, z, y, N, t_y, t_x, t_z)
    got_x, got_z = d_x.copy(), d_z.copy()
    gradient = kg.gradient(kernel, wanted, primal=False, keep="y")
    gradient[4, 64](x, z, y, N, d_y, got_x, got_z)
    np.testing.assert_allclose((got_x - d_x) @ t_x + (got_z - d_z) @ t_z, d_y @ t_y, rtol=1e-12)
    return gradient.planned(make_launch(4, 64), (x, z, y, N), {}, on_gpu=True).plan.variant.source(0)


@pytest.mark.parametrize("name", TABLES)
def test_elements_are_known(name: str) -> None:
    text = compare(compiled(TABLES[name]))
    assert "atomicAdd" not in text and "warp_add" not in text


def test_tables_that_change() -> None:
    kernel = compiled(CHANGING)
    assert "warp_add" in compare(kernel)
    kernel.variable("c")[...] = [[5, 1], [0, 0], [-7, 2]]
    compare(kernel)


@pytest.mark.parametrize("index", ["(i + q) % 3", "z[i] > 0 ? 1 : 2"])
def test_places_that_only_the_launch_knows(index: str) -> None:
    compare(compiled(TABLES["constexpr"], LOOP.replace("c[q][0]", f"c[{index}][0]")))


def test_constants_are_not_set() -> None:
    module = kg.compile(f"{TABLES['constant const']} __global__ void k(int *y) {{ y[0] = c[1][0]; }}")
    with pytest.raises(ArgumentError, match="'c' is const"):
        module["k"].variable("c")[...] = 1
