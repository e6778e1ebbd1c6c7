"""Rows that stay in registers between the loops over them: in every spelling of the loops, for every length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced
from kernelgrad.analysis.tuning import KeptRows
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways

SUM = "for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d); return v;"
MAX = "for (int d = 16; d > 0; d >>= 1) v = max(v, __shfl_xor_sync(0xffffffff, v, d)); return v;"
HELPERS = f"""
__device__ T warp_sum(T v) {{ {SUM} }}
__device__ T warp_max(T v) {{ {MAX} }}
__device__ T block_sum(T v)
{{
    __shared__ T s[64];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int d = 32; d > 0; d /= 2) {{
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }}
    v = s[0];
    __syncthreads();
    return v;
}}
"""
WARP = "int row = blockIdx.x * 2 + threadIdx.x / 32, c0 = threadIdx.x % 32; if (row >= rows) return; "
BLOCK = "int row = blockIdx.x; "

# The body of `k(T *y, const T *x, const T *w, int rows, int n)`: blocks of 64 threads.
KEPT = {
    "softmax, a warp a row": WARP
    + "T top = -1e30, sum = 0; for (int c = c0; c < n; c += 32) top = max(top, x[row * n + c]); top = warp_max(top);"
    "for (int c = c0; c < n; c += 32) sum += exp(x[row * n + c] - top); sum = warp_sum(sum);"
    "for (int c = c0; c < n; c += 32) y[row * n + c] = exp(x[row * n + c] - top) / sum;",
    "softmax, a block a row, strides of the block": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += blockDim.x) sum += exp(x[row * n + c]); sum = block_sum(sum);"
    "for (int c = threadIdx.x; c < n; c += blockDim.x) y[row * n + c] = exp(x[row * n + c]) / sum;",
    "while and pointers": BLOCK
    + "const T *p = x + (size_t)row * n; T sum = 0; unsigned c = threadIdx.x; while (c < n) { sum += p[c] * p[c];"
    " c += 64; } sum = 1 + block_sum(sum);"
    "for (unsigned c = threadIdx.x; c < n; c += 64) y[row * n + c] = p[c] / sum;",
    "up to and with": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c <= n - 1; c += 64) sum += x[row * n + c] * w[c]; sum = block_sum(sum);"
    "for (int c = threadIdx.x; c <= n - 1; c += 64) y[row * n + c] = x[row * n + c] * sum * w[c];",
    "three sums": BLOCK
    + "T m = 0, q = 0; for (int c = threadIdx.x; c < n; c += 64) m += x[row * n + c]; m = block_sum(m) / n;"
    "for (int c = threadIdx.x; c < n; c += 64) { T d = x[row * n + c] - m; q += d * d; }"
    "q = rsqrt(block_sum(q) / n + (T)1e-3);"
    "for (int c = threadIdx.x; c < n; c += 64) y[row * n + c] = (x[row * n + c] - m) * q * w[c];",
    "sixty-four bits": BLOCK
    + "T sum = 0; for (long long c = threadIdx.x; c < (long long)n; c += 64) sum += sin(x[(long long)row * n + c]);"
    "sum = block_sum(sum); for (size_t c = threadIdx.x; c < n; c += 64) y[row * n + c] = sin(x[row * n + c]) * sum;",
    "blocks of two axes": "int row = blockIdx.x * 2 + threadIdx.y, t = threadIdx.x; if (row < rows) { T sum = 0;"
    "for (int c = t; c < n; c += 32) sum += x[row * n + c] * x[row * n + c]; sum = warp_sum(sum);"
    "for (int c = t; c < n; c += 32) y[row * n + c] = x[row * n + c] / (1 + sum); }",
    "columns of a row, transposed": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) sum += x[c * rows + row] * x[c * rows + row];"
    "sum = 1 + block_sum(sum); for (int c = threadIdx.x; c < n; c += 64) y[c * rows + row] = x[c * rows + row] / sum;",
}
NOT_KEPT = {
    "other turns": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) sum += x[row * n + c]; sum = block_sum(sum);"
    "for (int c = threadIdx.x; c < n - 1; c += 64) y[row * n + c] = x[row * n + c] * sum;",
    "other elements": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) sum += x[row * n + c]; sum = block_sum(sum);"
    "for (int c = threadIdx.x; c < n; c += 64) y[row * n + c] = x[row * n + n - 1 - c] * sum;",
    "in some turns": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) if (c % 3) sum += x[row * n + c] * x[row * n + c];"
    "sum = block_sum(sum); for (int c = threadIdx.x; c < n; c += 64) if (c % 2) y[row * n + c] = x[row * n + c] / sum;",
    "an element of all turns": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) sum += x[row * n + threadIdx.x] * c;"
    "sum = block_sum(sum); for (int c = threadIdx.x; c < n; c += 64) y[row * n + c] = c * sum;",
}
LENGTHS = (128, 192, 150, 64, 40, 1, 0, 1000)
ROWS = 6


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def compiled(body: str, element: str = "double") -> Any:
    params = "T *y, const T *x, const T *w, int rows, int n"
    return kg.compile(f"typedef {element} T; {HELPERS} __global__ void k({params}) {{ {body} }}")["k"]


def launch_of(body: str) -> tuple[Any, Any]:
    block = (32, 2) if "threadIdx.y" in body else 64
    return (ROWS if body.startswith(BLOCK) else (ROWS + 1) // 2), block


def arrays(n: int, element: Any = np.float64) -> list[Any]:
    rng = np.random.default_rng(n)
    return [rng.uniform(-2, 2, size).astype(element) for size in (ROWS * n + 3, ROWS * n + 3, n + 3)]


def rows_of(gradient: Any, body: str, n: int) -> KeptRows | None:
    y, x, w = arrays(n)
    found = gradient.planned(make_launch(*launch_of(body)), (y, x, w, ROWS, n), {}, on_gpu=True)
    rows: KeptRows | None = found.plan.variant.options.facts.rows
    return rows


def compare(
    kernel: Any, body: str, n: int, element: Any = np.float64, tolerance: float = 1e-10, **options: Any
) -> None:
    """With forward mode."""
    y, x, w = arrays(n, element)
    grid, block = launch_of(body)
    d_y, d_x, d_w = (np.cos(np.arange(a.size)).astype(element) for a in (y, x, w))
    before = {"x": d_x.copy(), "w": d_w.copy()}
    gradient = kg.gradient(kernel, "y, x, w", **options)
    seed = d_y.copy()
    gradient[grid, block](y, x, w, ROWS, n, d_y, d_x, d_w)
    forward = kg.jvp(kernel, "y, x, w")
    for name, got, size in (("x", d_x, ROWS * n), ("w", d_w, n)):
        base = 0 if name in options.get("assign", ()) else before[name]
        for at in range(0, size, max(1, size // 7)):
            tangents = {k: np.zeros_like(v) for k, v in (("x", x), ("w", w))}
            tangents[name][at] = 1
            t_y = np.zeros_like(y)
            forward[grid, block](y.copy(), x, w, ROWS, n, t_y, tangents["x"], tangents["w"])
            want = (t_y * seed).sum() + (base if np.isscalar(base) else base[at])
            np.testing.assert_allclose(got[at], want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", KEPT)
def test_values(name: str) -> None:
    kernel = compiled(KEPT[name])
    for n in LENGTHS:
        compare(kernel, KEPT[name], n, primal=False, keep="y", assign=["x", "w"])


@pytest.mark.parametrize("name", KEPT)
def test_is_kept(name: str) -> None:
    gradient = kg.gradient(compiled(KEPT[name]), "y, x, w", primal=False, keep="y", assign=["x"])
    assert rows_of(gradient, KEPT[name], 256) is not None
    assert rows_of(gradient, KEPT[name], 250) is not None
    assert rows_of(gradient, KEPT[name], 100_000) is None


@pytest.mark.parametrize("name", NOT_KEPT)
def test_is_not_kept(name: str) -> None:
    kernel = compiled(NOT_KEPT[name])
    assert rows_of(kg.gradient(kernel, "y, x, w", primal=False, keep="y"), NOT_KEPT[name], 256) is None
    compare(kernel, NOT_KEPT[name], 150, primal=False, keep="y", assign=["x", "w"])


@pytest.mark.parametrize("options", [{}, {"primal": False}, {"may_alias": True}, {"deterministic": True}], ids=str)
def test_added_to_what_is_there(options: dict[str, Any]) -> None:
    body = KEPT["three sums"]
    for n in (128, 150):
        compare(compiled(body), body, n, **options)


NORM = WARP + (
    "T m = 0, q = 0; for (int c = c0; c < n; c += 32) { T v = x[row * n + c]; m += v; q += v * v; }"
    "m = warp_sum(m) / n; q = rsqrt(warp_sum(q) / n - m * m + (T)0.01);"
    "for (int c = c0; c < n; c += 32) y[row * n + c] = (x[row * n + c] - m) * q * w[c] + b[c];"
)


@pytest.mark.parametrize("n", [64, 50, 96])
def test_sums_over_rows(n: int) -> None:
    """Blocks that have cells for the weights' adjoints: a thread adds to those when all of its rows are done."""
    params, rows, rng = "T *y, const T *x, const T *w, const T *b, int rows, int n", 160, np.random.default_rng(n)
    kernel: Any = kg.compile(f"typedef double T; {HELPERS} __global__ void k({params}) {{ {NORM} }}")["k"]
    y, x, w, b, d_y = (rng.uniform(-2, 2, size) for size in (rows * n, rows * n, n, n, rows * n))
    found = []
    for plan in ("in cells of blocks", "one kernel"):
        d_x, d_w, d_b = np.full_like(x, 3.0), np.full_like(w, 5.0), np.full_like(b, 7.0)
        with forced(plan):
            gradient = kg.gradient(kernel, "y, x, w, b", primal=False, keep="y", assign="x")
            gradient[rows // 2, 64](y, x, w, b, rows, n, d_y, d_x, d_w, d_b)
        kept = [v.options.facts.rows for v in gradient.forms.made.values() if v.options.facts.rows is not None]
        found.append((d_x, d_w, d_b))
        assert any(facts.sums for facts in kept) == (plan != "one kernel")
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
