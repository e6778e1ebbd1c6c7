"""What is in memory, and for how long: syntax trees take megabytes, of which Python knows nothing."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.cache import Recent
from kernelgrad.locks import compiling
from kernelgrad.runtime import cpu

SQUARE = "__global__ void k(double *y, const double *x) { y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }"
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


@pytest.mark.usefixtures("no_garbage_collection")
def test_a_tree_goes_with_its_module() -> None:
    """And not when Python next looks for cycles."""
    module = kg.compile(SOURCE)
    assert len(module.functions) == 1
    tree = weakref.ref(module._unit.tree)
    del module
    assert tree() is None


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


@pytest.mark.parametrize("use", ["recorded", "reversed", "kept", "custom", "program", "checkpoint"])
@pytest.mark.usefixtures("no_garbage_collection")
def test_what_a_recording_saved_goes_with_it(use: str) -> None:
    """Python knows nothing of the gigabytes that hang on it: a loop that records and reverses would run out of them."""
    assert [found() for found in _recorded(use)] == [None] * 3


def _recorded(use: str) -> list[Any]:
    kernel, u, v = kg.compile(SQUARE)["k"], np.ones(4), np.zeros(4)
    if use == "checkpoint":
        made = kg.checkpoint(lambda s, k: kernel[1, 4](s[1], s[0]) or (s[1], s[0]), (u, v), 4)
        made.backward(u, None)
        return [weakref.ref(made)] * 3
    with kg.record(tape_budget="1 MB") as tape:
        for _ in range(3):
            kernel[1, 4](v, u)
            kernel[1, 4](u, v)
        tape.watch(u)
        if use == "custom":
            _doubled(u)
    found = [weakref.ref(tape), weakref.ref(tape.store), weakref.ref(tape.cells)]
    if use == "program":
        program = tape.program(inputs=(u,), outputs=(u,))
        gradient = kg.gradient(program)
        gradient(u, u)
        return [*found[:1], weakref.ref(program), weakref.ref(gradient)]
    if use != "recorded":
        tape.backward(u, np.ones(4), keep=use == "kept")
        assert tape.grad(u).any()
        found[1] = weakref.ref(tape.shadows)
    return found


@kg.custom_gradient(updates="u")
def _doubled(u: Any) -> None:
    u *= 2


@_doubled.reverse
def _(u: Any, d_u: Any) -> None:
    d_u *= 2


def test_passes_are_seldom_stopped_to_look_for_cycles() -> None:
    usual = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        nested = compiling(lambda: (compiling(gc.get_threshold)(), gc.get_threshold()))()
        assert nested == ((50_000, 10, 10), (50_000, 10, 10))
        assert gc.get_threshold() == (700, 10, 10)
        gc.set_threshold(0, 10, 10)  # never: that is the user's choice
        assert compiling(gc.get_threshold)() == (0, 10, 10)
    finally:
        gc.set_threshold(*usual)
