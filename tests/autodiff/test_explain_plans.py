"""What `explain` says of a launch is what runs: kernels, their atomic additions, and the memory that they are given.

And `source_for` is the text of the same kernels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import PLANS, forced
from kernelgrad.launches.memory.buffers import Memory
from kernelgrad.runtime.config import make_launch

HEAD = "__global__ void k(float *y, const float *x, const float *w, float *t, float a, int n)"
I = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"  # noqa: E741
KERNELS = {
    "a stencil": f"{HEAD} {{ {I} float s = 0; for (int k = 0; k < 5; ++k) s += x[i + k] * w[k]; y[i] = s * a; }}",
    "a tape": f"{HEAD} {{ {I} float v = x[i]; for (int k = 0; k < n; ++k) v = v * v * w[k % 5] + a; y[i] = v; }}",
    "a counted tape": f"""{HEAD} {{ {I} float v = x[i]; for (int k = 0; w[k % 5] < 2 && k < i % 7; ++k) v = v * v * a;
        y[i] = v; }}""",
    "an unlisted buffer": f"{HEAD} {{ {I} t[i] = x[i] * x[i]; y[i] = t[i] * a; }}",
    "elements": f"{HEAD} {{ {I} y[i] = x[i] * x[i] * a; }}",
    "scattered": f"{HEAD} {{ {I} y[i] = x[(i * 7) % n] * w[i % 5]; }}",
    "a winner": f"{HEAD} {{ {I} atomicMax((int *)&y[i % 3], __float_as_int(x[i] * x[i])); }}",
}
N, GRID, BLOCK = 90, 4, 32


def arguments() -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    x, w = rng.random(N + 8).astype("f4"), rng.random(8).astype("f4")
    return np.zeros(N + 8, "f4"), x, w, np.zeros(N + 8, "f4"), 0.5, N


def adjoints() -> tuple[Any, ...]:
    return np.ones(N + 8, "f4"), np.zeros(N + 8, "f4"), np.zeros(8, "f4"), np.zeros(1, "f4")


def sites(text: str) -> int:
    """The atomic additions that a kernel's text calls, those in helpers left out."""
    body = text[text.index('extern "C"') :]
    plain = len(re.findall(r"\b(?:atomicAdd|warp_add)\(", body))
    return plain + sum(map(int, re.findall(r"\bwarp_add_(\d+)\(", body)))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", KERNELS)
def test_explained_is_launched(name: str, plan: str) -> None:
    with forced(plan):
        gradient = kg.gradient(kernel_of(KERNELS[name]), "y, x, w, a")
        args, given = arguments(), adjoints()
        told = gradient.explain(GRID, BLOCK, *args, *given)
        launched, _, own = gradient._prepare(make_launch(GRID, BLOCK), (*args, *given), {}, watched=False)
        text = gradient.source_for(GRID, BLOCK, *args, *given)
        (chosen,) = gradient._plans._found.values()  # one for all three
        rows = re.findall(r"^  (\w+): grid ([\d x]+), block ([\d x]+): (\w+) atomic additions? ", told, re.MULTILINE)
        assert [row[0] for row in rows] == [step.kernel.name for step in launched]
        after = {addition.kernel.name for addition in chosen.additions}
        assert text.count("// Launch ") == len(launched) == len(re.findall(r"__global__ void", text)) - len(after)
        assert told.count("  afterwards ") == text.count("// Afterwards: ") == len(chosen.additions)
        for row, step in zip(rows, launched, strict=True):
            assert _extents(row[1]) == step.launch.grid and _extents(row[2]) == step.launch.block
            assert step.kernel.source.split('extern "C"')[1] in text
            if not chosen.launch.ways.on_cpu:
                assert int(row[3].replace("no", "0")) == sites(step.kernel.source)
        for need in (need for need in chosen.needs if isinstance(need, Memory)):
            nbytes = own.supplied[need.name].nbytes
            counted = "as much as a launch before counts" in need.role
            assert f"  {need.name}: {'' if counted else f'{nbytes:,} bytes: '}{need.role}" in told
            assert f"//   {need.name}:" in text
        own.finish()


def _extents(text: str) -> tuple[int, ...]:
    found = tuple(map(int, text.split(" x ")))
    return (*found, *(1 for _ in range(3 - len(found))))


def test_tapes() -> None:
    gradient = kg.gradient(kernel_of(KERNELS["a tape"]), "y, x, w, a")
    told = gradient.explain(GRID, BLOCK, *arguments())
    _, _, own = gradient._prepare(make_launch(GRID, BLOCK), (*arguments(), *adjoints()), {}, watched=False)
    nbytes = sum(s.nbytes for name, s in own.supplied.items() if name.startswith("_tape"))
    assert nbytes == gradient.tape_bytes(GRID, BLOCK, *arguments())
    assert f"tape: {nbytes // (GRID * BLOCK):,} bytes for each thread" in told


def test_the_text_of_a_launch_says_what_it_is_for() -> None:
    gradient = kg.gradient(kernel_of(KERNELS["a stencil"]), "y, x, w, a")
    text = gradient.source_for(GRID, BLOCK, *arguments())
    assert "dim3(4, 1, 1), dim3(32, 1, 1)" in text
    assert text == gradient.source_for(GRID, BLOCK, *arguments(), *adjoints())
    assert gradient.source != text and "// Launch" not in gradient.source


def test_the_text_for_a_gpu_without_one() -> None:
    from kernelgrad.runtime.cuda import compile_only

    n = 1 << 21
    gradient = kg.gradient(kernel_of(KERNELS["elements"]), "y, x")
    x, y = np.empty(n, "f4"), np.empty(n, "f4")
    text = gradient.source_for(n // 256, 256, y, x, None, None, 0.5, n, on_gpu=True)
    assert "float4" in text and "for a launch of the kernel with dim3(8192, 1, 1), dim3(256, 1, 1)" in text
    assert "float4" not in gradient.source_for(n // 256, 256, y, x, None, None, 0.5, n)
    assert compile_only(text, "sm_90")
