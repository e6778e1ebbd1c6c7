"""Which sizes follow from a kernel's text."""

from __future__ import annotations

import pytest

import kernelgrad as kg
from kernelgrad.frameworks.sizes import Extent, extent_of

START = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
PLAIN = {
    "if": f"{START} if (i < n) y[i] = x[i] * w[0];",
    "early return": f"{START} if (i >= n) return; y[i] = x[i] * w[0];",
    "other order": "unsigned i = threadIdx.x + blockDim.x * blockIdx.x; if (n > i) y[i] = x[i] * w[0];",
    "le": f"{START} if (i <= n - 1) y[i] = x[i] * w[m];",
    "long": "size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i];",
    "pointers": f"{START} if (i < n) {{ x += i; float *p = y + i; *p = *x + w[n - 1]; }}",
    "more conditions": f"{START} if (i < n && i > 3) y[i] = x[i];",
    "loop": f"{START} if (i < n) for (int k = 0; k < m; k++) y[i] += x[i] * w[k];",
}
OTHER = {
    "stride": f"{START} for (; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];",
    "rows": "int i = blockIdx.x; if (i < n) y[i] = x[i];",
    "two axes": f"{START} int j = blockIdx.y; if (i < n) y[i + j] = x[i];",
    "no guard": f"{START} y[i] = x[i];",
    "a guard of some": f"{START} if (i < n) y[i] = x[i]; w[i] = 0;",
    "shifted": f"{START} if (i + 1 < n) y[i] = x[i];",
    "half of it": f"{START} if (i < n / 2) y[i] = x[i];",
    "two sizes": f"{START} if (i < n && i < m) y[i] = x[i];",
    "a number": f"{START} if (i < 396) y[i] = x[i];",
}


def extent(body: str) -> Extent | None:
    text = f"__global__ void k(float *y, const float *x, float *w, int n, int m) {{ {body} }}"
    return extent_of(kg.compile(text)["k"].function)


@pytest.mark.parametrize("name", PLAIN)
def test_plain(name: str) -> None:
    every = () if name == "more conditions" else ("y", "x")
    assert extent(PLAIN[name]) == Extent("n", ("y", "x"), every)


@pytest.mark.parametrize(
    "body, every",
    [
        ("if (i < n) { y[i] = x[i]; if (i < n / 2) w[i] = 1; }", ("y", "x")),
        ("if (i < n) { y[i] = x[i]; if (x[i] > 0) y[i] += w[i]; }", ("y", "x")),
        ("if (i < n) { if (m) y[i] = x[i]; else y[i] = w[i]; }", ("y",)),
        ("if (i >= n) return; if (m > 3) return; y[i] = x[i] + w[i];", ()),
        ("if (i < n) { float v = m ? x[i] : w[i]; y[i] = v; }", ("y",)),
    ],
)
def test_arrays_that_not_every_thread_accesses(body: str, every: tuple[str, ...]) -> None:
    """They may be smaller."""
    assert extent(f"{START} {body}") == Extent("n", ("y", "x", "w"), every)


@pytest.mark.parametrize("name", OTHER)
def test_not_plain(name: str) -> None:
    assert extent(OTHER[name]) is None


def test_neighbours_tell_the_grid_alone() -> None:
    assert extent(f"{START} if (i < n) y[i] = x[i] + x[i + 1];") == Extent("n", ("y",), ("y",))


def test_parts_of_structs_tell_no_size() -> None:
    text = "__global__ void k(float4 *y, const float4 *x, int n) { " + START + " if (i < n) y[i] = x[i]; }"
    assert extent_of(kg.compile(text)["k"].function) == Extent("n", ())
