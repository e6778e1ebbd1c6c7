"""What is in memory, and for how long: syntax trees take megabytes, of which Python knows nothing."""

from __future__ import annotations

import gc
import weakref

import numpy as np

import kernelgrad as kg

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
