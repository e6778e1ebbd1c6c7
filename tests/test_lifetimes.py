"""What is in memory, and for how long: syntax trees take megabytes, of which Python knows nothing."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.cache import Recent
from kernelgrad.runtime import cpu

SOURCE = "__device__ float scale = 2; __global__ void k(float *y) { y[threadIdx.x] *= scale; }"


def test_a_kernel_lives_without_the_tree_of_its_text() -> None:
    module = kg.compile(SOURCE)
    kernel, unit = module["k"], weakref.ref(module._unit)
    module.variable("scale")[...] = 3
    del module
    gc.collect()
    assert unit() is None
    y = np.ones(4, np.float32)
    kernel[1, 4](y)
    assert y.tolist() == [3] * 4


def test_a_tree_goes_with_its_module() -> None:
    """And not when Python next looks for cycles."""
    gc.disable()
    try:
        module = kg.compile(SOURCE)
        assert len(module.functions) == 1
        tree = weakref.ref(module._unit.tree)
        del module
        assert tree() is None
    finally:
        gc.enable()


def test_code_in_use_outlives_its_place_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_memory", Recent(1))
    text = "__global__ void k(float *y) {{ y[threadIdx.x] = {}; }}"
    kernels = [kg.compile(text.format(number))["k"] for number in (41, 42, 43)]
    for _ in range(2):
        for number, kernel in zip((41, 42, 43), kernels, strict=True):
            y = np.zeros(4, np.float32)
            kernel[1, 4](y)
            assert y.tolist() == [number] * 4
    assert len(cpu._memory) == 1
