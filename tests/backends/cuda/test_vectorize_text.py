"""Gradients whose threads do several elements, as text: it compiles, and it runs."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from run_text import run_packed

import kernelgrad as kg
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.layout import param_layout
from kernelgrad.launches import vector_width
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways
from kernelgrad.runtime.launch import LaunchConfig
from kernelgrad.runtime.nvrtc import compile_only

EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
BODIES = {
    "sine": f"{I} if (i < n) y[i] = sin(x[i]) * x[i];",
    "polynomial": f"{I} if (i >= n) return; T p = 0; for (int k = 6; k > 0; --k) p = p * x[i] + 1 / T(k); y[i] = p;",
    "lower bound": f"{I} if (i > 1 && i < n - 1) y[i] = x[i] * x[i] * (1 + threadIdx.x);",
    "branch": f"{I} if (i < n) y[i] = x[i] > 0 ? x[i] * x[i] : -x[i];",
}
OPTIONS: dict[str, dict[str, Any]] = {"J": {}, "R": {"primal": False, "keep": "y", "assign": "x"}}


@pytest.fixture(autouse=True)
def small_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_width, "_ENOUGH", 1)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


@EMULATED
@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize("name", BODIES)
def test_runs_as_text(name: str, element: str, how: str) -> None:
    source = f"typedef {element} T; __global__ void k(T *y, const T *x, int n) {{ {BODIES[name]} }}"
    gradient = kg.gradient(kg.compile(source)["k"], "y, x", **OPTIONS[how])
    for n in (125, 126, 127, 128):
        rng = np.random.default_rng(n)
        type = np.float32 if element == "float" else np.float64
        native = [rng.uniform(-2, 2, n).astype(type) for _ in range(4)]
        emulated = [a.copy() for a in native]
        gradient[9, 16](*native[:2], n, *native[2:])
        text = _run_as_text(gradient, make_launch(9, 16), (*emulated[:2], n, *emulated[2:]))
        assert "float4" in text or "double2" in text
        for want, got in zip(native, emulated, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5 if element == "float" else 1e-12, atol=1e-6)


def _run_as_text(gradient: Any, launch: Any, args: tuple[Any, ...]) -> str:
    (step,), _, own = gradient._prepare(launch, args, {})
    kernel, sized = step.kernel, step.launch
    assert sized.grid[0] * sized.block[1] >= launch.grid[0] and sized.block[0] < launch.block[0]
    module, config = kernel.cuda_module, LaunchConfig(sized.grid, sized.block)
    packed = kernel._with_variables(module, step.bound, config, None, own.supplied).packed
    offsets, _ = param_layout(module.functions[kernel.name])
    run_packed(kernel.source, kernel_name(kernel.name), sized.grid, sized.block, packed, offsets)
    assert compile_only(kernel.source, "sm_90")
    return str(kernel.source)
