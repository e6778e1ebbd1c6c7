"""Which buffers are updated plainly: those of which no two threads of the launch touch the same element (rule 11)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
ROW_COLUMN = """int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
                if (row >= h || col >= w) return;"""

CHANNEL = """int {}, t = threadIdx.x, m = 3 * w; double s = 0;
for (int i = {}; i < e; i += 4) {{ int j = i / w * 2 * w + c * w + i % w; s += x[{}] * x[j]; }}
for (int i = {}; i < m; i += 4) {{ int j = i / w * 2 * w + c * w + i % w; y[{}] = s * x[j]; }}"""

# The body of `k(double *y, const double *x, int w, int h)`, a launch, and what is updated plainly there.
CASES: dict[str, tuple[str, Any, Any, set[str]]] = {
    "own index": (f"{I} if (i < w) y[i] = x[i] * x[i];", 2, 8, {"y", "x"}),
    "constant block size": ("int i = blockIdx.x * 8 + threadIdx.x; y[i] = x[i] * x[i];", 2, 8, {"y", "x"}),
    "blocks that overlap": (
        "int i = blockIdx.x * 8 + threadIdx.x; y[16 * blockIdx.x + threadIdx.x] = x[i] * x[i];",
        2,
        16,
        {"y"},
    ),
    "neighbours": (f"{I} if (i < w) y[i] = x[i] * x[i + 1];", 2, 8, {"y"}),
    "three of its own": (f"{I} y[i] = x[3 * i] * x[3 * i + 1] + x[3 * i + 2];", 2, 8, {"y", "x"}),
    "three that overlap": (f"{I} y[i] = x[2 * i] * x[2 * i + 1] + x[2 * i + 2];", 2, 8, {"y"}),
    "rows": (f"{ROW_COLUMN} y[row * w + col] = x[row * w + col] * 2;", (2, 2), (4, 4), {"y", "x"}),
    "rows without a guard": (
        "int col = blockIdx.x * 4 + threadIdx.x, row = threadIdx.y; y[row * 8 + col] = x[row * 5 + col];",
        2,
        (4, 2),
        {"y"},
    ),
    "a guard on one row only": (f"{ROW_COLUMN} y[row * w + col] = x[row * 5 + col];", (2, 2), (4, 4), {"y"}),
    "2-D launch, x only": (f"{I} if (i < w) y[i + 16 * threadIdx.y] = x[i] * x[i];", 2, (8, 2), {"y"}),
    "a guard one column too wide": (
        ROW_COLUMN.replace("col >= w", "col > w") + " y[row * 8 + col] = x[row * w + col] * 2;",
        (2, 2),
        (4, 4),
        {"y"},
    ),
    "at two paces": (f"{I} y[i] = x[i] * x[2 * i];", 2, 8, {"y"}),
    "own row by a loop": (
        f"{I} if (i >= h) return; double s = 0; for (int k = 0; k < w; k++) s += x[i * w + k]; y[i] = s * s;",
        2,
        4,
        {"y", "x"},
    ),
    "own column by a loop": (
        f"{I} if (i >= w) return; double s = 0; for (int k = 0; k < h; k++) s += x[k * w + i]; y[i] = s * s;",
        2,
        4,
        {"y", "x"},
    ),
    "own column, its first element twice": (
        f"{I} if (i >= w) return; double s = x[i]; for (int k = 1; k < h; k++) s *= x[k * w + i]; y[i] = s * x[i];",
        2,
        4,
        {"y", "x"},
    ),
    "own column in strips": (
        f"{I} if (i >= w) return; double s = 1; for (int k = 0; k + 1 < h; k += 2)"
        " { s *= x[k * w + i]; s += x[(k + 1) * w + i]; } y[i] = s * x[(h - 1) * w + i];",
        2,
        4,
        {"y", "x"},
    ),
    "columns too narrow": (
        f"{I} if (i >= w) return; double s = x[i]; for (int k = 1; k < h; k++) s *= x[k * (w - 1) + i]; y[i] = s;",
        2,
        4,
        {"y"},
    ),
    "columns next to each other, but for single reads": (
        f"{I} if (i >= w) return; double s = x[i]; for (int k = 1; k < h; k++) s *= x[k * w + i + 1]; y[i] = s;",
        2,
        4,
        {"y", "x"},  # those are added after the launch
    ),
    "columns next to each other": (
        f"{I} if (i >= w) return; double s = 1; for (int k = 1; k < h; k++) s *= x[k * w + i + 1];"
        " for (int k = 1; k < h; k++) s += x[k * w + i]; y[i] = s;",
        2,
        4,
        {"y"},
    ),
    "a loop too long": (
        f"{I} if (i >= h) return; double s = 0; for (int k = 0; k <= w; k++) s += x[i * w + k]; y[i] = s * s;",
        2,
        4,
        {"y"},
    ),
    "grid stride": (
        f"{I} for (; i < w * h; i += blockDim.x * gridDim.x) y[i] = x[i] * x[i];",
        2,
        4,
        {"y", "x"},
    ),
    "a stride too short": (
        f"{I} double s = 0; for (int k = i; k < w * h; k += blockDim.x) s += x[k]; y[i] = s * s;",
        2,
        4,
        {"y"},
    ),
    "backwards, unsigned": (
        f"{I} double s = 0; for (unsigned k = i; k < 8; k--) s += x[k] * x[k]; y[i] = s;",
        2,
        4,
        {"y"},
    ),
    "grid stride, unsigned": (
        "unsigned i = blockIdx.x * blockDim.x + threadIdx.x;"
        "for (; i < w * h; i += blockDim.x * gridDim.x) y[i] = x[i] * x[i];",
        2,
        4,
        {"y", "x"},
    ),
    "grid stride, unsigned, to an unknown end": (
        f"{I} unsigned end = w * h - i / 100; for (unsigned k = i; k < end; k += blockDim.x * gridDim.x) y[k] = x[k];",
        2,
        4,
        {"y", "x"},
    ),
    # Nothing says how far these go: unsigned numbers come round to elements of other threads.
    "around, in steps": (
        f"""{I} double s = 0; unsigned at = i;
        for (int k = 0; k < 12 + i / 100; k++, at += 0x40000001u) if (at < 8) s += x[at] * x[at] * k;
        y[i] = s;""",
        2,
        4,
        {"y"},
    ),
    "around, by a product": (
        f"""{I} double s = 0;
        for (unsigned k = 0; k < 12 + i / 100; k++)
            if (k * 0x40000001u + i < 8) s += x[k * 0x40000001u + i] * x[k * 0x40000001u + i] * k;
        y[i] = s;""",
        2,
        4,
        {"y"},
    ),
    "two loops over one sum": (
        f"{I} double s = 0; for (int a = 0; a < 4; a++) for (int b = 0; b < 4; b++) s += x[4 * i + a + b]; y[i] = s;",
        2,
        4,
        {"y"},
    ),
    "a channel, in two loops": (CHANNEL.format("c = blockIdx.x, e = 21", "t", "j", "t", "j"), 2, 4, {"y", "x"}),
    "a channel, in loops of two lengths": (
        CHANNEL.format("c = blockIdx.x, e = 14", "t", "j", "t", "j"),
        2,
        4,
        {"y", "x"},
    ),
    "a channel, in other threads' order": (
        CHANNEL.format("c = blockIdx.x, e = 21", "t", "j", "3 - t", "j"),
        2,
        4,
        {"y"},
    ),
    "a channel, from the next thread on": (
        CHANNEL.format("c = blockIdx.x, e = 20", "t + 1", "j", "t", "j"),
        2,
        4,
        {"y"},
    ),
    "a channel and the next": (CHANNEL.format("c = blockIdx.x, e = 21", "t", "j + w", "t", "j"), 2, 4, {"y"}),
    "backwards": (f"{I} if (i < w) y[i] = x[w - 1 - i] * x[w - 1 - i];", 1, 8, {"y", "x"}),
    "there and back": (f"{I} if (i < w) y[i] = x[w - 1 - i] * x[i];", 1, 8, {"y"}),
    "apart by the block": (
        f"{I} double s = 0; for (int k = 0; k < 3; k++) s += x[i + 16 * k] * x[i + 16 * k]; y[i] = s;",
        2,
        8,
        {"y", "x"},
    ),
    "constants apart": (f"{I} y[i] = x[i] * x[i + 16] + x[i + 48];", 2, 8, {"y", "x"}),
    "constants too close": (f"{I} y[i] = x[i] * x[i + 12];", 2, 8, {"y"}),
    "a remainder": (f"{I} y[i] = x[i % 8];", 2, 8, {"y"}),
    "atomic": (f"{I} atomicAdd(&y[i % 4], x[i]);", 2, 8, {"x"}),
}
W, H = 7, 6


@pytest.mark.parametrize("name", CASES)
def test_plain_where_nobody_else_is(name: str) -> None:
    body, grid, block, expected = CASES[name]
    kernel = kg.compile(f"__global__ void k(double* y, const double* x, int w, int h) {{ {body} }}")["k"]
    gradient = kg.gradient(kernel)
    rng = np.random.default_rng(1)
    y, x, seed = rng.random(64), rng.random(64), rng.standard_normal(64)
    primal, _ = kernel.bind((y, x, W, H))
    variant = gradient.variant_for(("y", "x"), kg.runtime.config.make_launch(grid, block), primal)
    assert variant.derivative.prepared.accumulation.private == expected
    d_y, d_x = seed.copy(), np.zeros(64)
    gradient[grid, block](y.copy(), x, W, H, d_y, d_x)

    def run(x: Any, y: Any) -> Any:
        y = y.copy()
        kernel[grid, block](y, x, W, H)
        return y

    v, step = rng.standard_normal(64), 1e-6
    change = run(x + step * v, y) - run(x - step * v, y)
    assert d_x @ v == pytest.approx(change @ seed / (2 * step), rel=1e-6)
    for order in (None, 1):
        report = gradient.check(grid, block, y.copy(), x, W, H, seed.copy(), np.zeros(64), seed=order)
        assert report.ok, str(report)


def test_an_index_that_may_wrap_is_not_private() -> None:
    """Two threads whose unsigned indices are 2**32 apart touch the same element."""
    body = "unsigned i = threadIdx.x * 0x80000000u; y[i] += x[threadIdx.x];"
    kernel = kg.compile(f"__global__ void k(double* y, const double* x, int w, int h) {{ {body} }}")["k"]
    assert kg.gradient(kernel).variant().derivative.prepared.accumulation.private == {"x"}
