"""`explain()`: the bytes that kernel and gradient move, as formulas and for one launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.trip_counts import Amount

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
KERNELS = f"""
__global__ void square(float *y, const float *x, int n) {{ {I} if (i < n) y[i] = x[i] * x[i]; }}
__global__ void steps(float *y, const float *x, int n, int count) {{
    {I}
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < count; k++) v = 3.7f * v * (1 - v);
    y[i] = v;
}}
__global__ void lists(float *y, const float *x, const int *start, int n) {{
    {I}
    if (i >= n) return;
    float v = 0;
    for (int k = start[i]; k < start[i + 1]; k++) v += x[k] * x[k];
    y[i] = v;
}}
__global__ void triangle(float *y, const float *x, int n) {{
    {I}
    float v = 0;
    for (int k = 0; k < i; k++) v += x[k];
    y[i] = v * v;
}}
__global__ void strided(float *y, const float *x, int n) {{
    float v = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) v += x[k] * x[k];
    y[threadIdx.x] = v;
}}
__global__ void mirrored(float *y, const float *x, int n) {{
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x] * s[threadIdx.x];
}}
__global__ void nested(float *y, const float *x, int n, int w) {{
    {I}
    float v = 0;
    for (int a = 1; a < n; a++) for (int b = 0; b < 2 * w; b++) v += x[a * w + b];
    y[i] = v;
}}
"""


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(KERNELS, name="bytes.cu")


def table(text: str, title: str = "bytes for each thread:") -> dict[str, list[str]]:
    """The rows of the table of bytes: kernel, gradient, and the ratio at the end."""
    lines = text.split("\n")
    start = next(k for k, line in enumerate(lines) if line.startswith(title))
    rows = {}
    for line in lines[start + 1 :]:
        cells = [cell.strip() for cell in line.strip().split("  ") if cell.strip()]
        rows[cells[0]] = cells[1:]
        if cells[0] == "total":
            break
    return rows


def test_formulas(module: kg.Module) -> None:
    assert table(kg.gradient(module["square"], "y, x").explain()) == {
        "read": ["4", "12"],
        "written": ["4", "12"],
        "total": ["8", "24", "3.0x"],
    }
    text = kg.gradient(module["steps"], "y, x").explain()
    assert table(text)["tape"] == ["-", "8 * count"]
    assert table(text)["total"] == ["8", "8 * count + 24"]
    assert text.endswith("tape: 4 * count bytes for each thread")


def test_the_table_is_aligned(module: kg.Module) -> None:
    text = kg.gradient(module["steps"], "y, x").explain()
    head, *rows = text[text.index("bytes for each thread:") :].split("\n")[:5]
    for row in rows:
        assert len(row) == len(head) and row[head.index("kernel") + len("kernel") - 1] != " "


def test_formulas_of_nested_loops(module: kg.Module) -> None:
    rows = table(kg.gradient(module["nested"], "y, x").explain())
    assert rows["read"][0] == "8 * n * w - 8 * w"
    assert rows["atomic"] == ["-", "16 * n * w - 16 * w"]


def test_formulas_of_loops_in_steps() -> None:
    body = "float v = 0; for (int k = 0; k < (n + 31) / 32; k++) v += x[k]; y[threadIdx.x] = v;"
    kernel = kg.compile(f"__global__ void k(float *y, const float *x, int n) {{ {body} }}")["k"]
    assert table(kg.gradient(kernel, "y, x").explain())["read"][0] == "n / 8"
    body = "float v = 0; for (int k = 0; k < n; k += 32) v += x[k] * x[k]; y[threadIdx.x] = v;"
    kernel = kg.compile(f"__global__ void k(float *y, const float *x, int n) {{ {body} }}")["k"]
    assert table(kg.gradient(kernel, "y, x").explain())["atomic"] == ["-", "n / 4"]


def test_loops_that_depend_on_memory_have_names(module: kg.Module) -> None:
    text = kg.gradient(module["lists"], "y, x").explain()
    assert table(text)["atomic"] == ["-", "8 * L14"]
    assert "L14: how often the loop at bytes.cu:14:5 runs" in text


def test_shared_memory_moves_no_bytes(module: kg.Module) -> None:
    assert table(kg.gradient(module["mirrored"], "y, x").explain())["total"][0] == "8"


def arrays(n: int) -> tuple[Any, Any]:
    return np.zeros(n, np.float32), np.ones(n, np.float32)


MOVED = "bytes moved, estimated:"


def test_a_launch_in_numbers(module: kg.Module) -> None:
    gradient = kg.gradient(module["square"], "y, x", primal=False, keep="y", assign="x")
    text = gradient.explain(4, 256, *arrays(1000), 1000)
    assert "launch: 1,024 threads, grid 4, block 256" in text
    assert table(text, MOVED) == {
        "read": ["4 KB", "8 KB"],
        "written": ["4 KB", "4 KB"],
        "total": ["8 KB", "12 KB", "1.5x"],
    }


def test_adjoints_that_are_cleared_first(module: kg.Module) -> None:
    gradient = kg.gradient(module["square"], "y, x", primal=False, keep="y", assign="x")
    rows = table(gradient.explain(4, 256, *arrays(1500), 1000), MOVED)  # more than the threads read
    assert rows["cleared"] == ["-", "6 KB"]


def test_the_tape_of_a_launch(module: kg.Module) -> None:
    gradient = kg.gradient(module["steps"], "y, x")
    arguments = (*arrays(512), 512, 50)
    text = gradient.explain(2, 256, *arguments)
    total = gradient.tape_bytes(2, 256, *arguments)
    assert total == 512 * 200 and "tape: 200 bytes for each thread, 102 KB in all" in text
    assert table(text, MOVED)["tape"] == ["-", "205 KB"]


def test_a_tape_within_a_budget(module: kg.Module) -> None:
    gradient = kg.gradient(module["steps"], "y, x", tape_budget=4000)
    text = gradient.explain(1, 8, *arrays(8), 8, 1000)
    assert "checkpointed to stay within tape_budget: segments of" in text


@pytest.mark.parametrize(("name", "grid", "elements"), [("triangle", 4, sum(range(256))), ("strided", 1, 1000)])
def test_loop_lengths_that_differ_from_thread_to_thread(module: kg.Module, name: str, grid: int, elements: int) -> None:
    rows = table(kg.gradient(module[name], "y, x").explain(grid, 64, *arrays(1000), 1000), MOVED)
    number, unit = rows["read"][0].split()
    assert float(number) * 1000 == pytest.approx(4 * elements, rel=0.01) and unit == "KB"


def test_what_memory_decides_keeps_its_name(module: kg.Module) -> None:
    start = np.arange(9, dtype=np.int32)
    text = kg.gradient(module["lists"], "y, x").explain(1, 8, *arrays(8), start, 8)
    assert "* L14" in table(text, MOVED)["total"][1] and "L14: how often" in text


def test_adjoints_choose_the_variant(module: kg.Module) -> None:
    y, x = arrays(256)
    gradient = kg.gradient(module["square"], "y, x")
    whole = gradient.explain(1, 256, y, x, 256, np.ones_like(y), np.zeros_like(x))
    assert whole == gradient.explain(1, 256, y, x, 256) == gradient.explain(1, 256, y, x, 256, d_y=y, d_x=x)
    assert "derivative of y\n" in gradient.explain(1, 256, y, x, 256, d_y=y, d_x=None)
    with pytest.raises(kg.ArgumentError, match="nothing to explain"):
        gradient.explain(1, 256, y, x, 256, None, None)


def test_a_launch_whose_threads_meet_is_explained_as_such(module: kg.Module) -> None:
    gradient = kg.gradient(module["square"], "y, x")
    assert "shadow of x: plain" in gradient.explain(2, 64, *arrays(128), 128)
    assert "shadow of x: atomicAdd" in gradient.explain((2, 2), 64, *arrays(128), 128)


def test_half_a_launch(module: kg.Module) -> None:
    with pytest.raises(kg.ArgumentError, match="give a launch as a whole"):
        kg.gradient(module["square"], "y, x").explain(4)


def test_functions_have_a_table_too() -> None:
    function = kg.compile("__device__ float f(const float *x, int n) { return x[0] * x[n]; }")["f"]
    assert "bytes for each thread:" in kg.gradient(function, "x").explain()


def test_amounts() -> None:
    n, m = Amount.named("n"), Amount.named("m")
    total = (n + Amount.of(-1)) * (m + n).times(4)
    assert total.text() == "4 * m * n + 4 * n * n - 4 * m - 4 * n"
    assert (n + n.times(-1)).number == 0 and (n + Amount.of(1)).number is None
    assert Amount.of(0).text() == "0"
    assert (n.times(3 / 64) + Amount.of(2.5)).text() == "3 * n / 64 + 2.5"
