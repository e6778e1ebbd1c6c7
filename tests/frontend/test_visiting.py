"""Whatever the depth of the caller's stack, a kernel has all of its statements, or there is an error."""

from __future__ import annotations

import signal
import sys
import threading
import time

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.frontend.clang import Kind
from kernelgrad.frontend.unit import Options, Unit
from kernelgrad.frontend.visiting import children_of, walk
from kernelgrad.pipeline import lower

_SOURCE = """
struct P { float a, b; };
__device__ float f(float x) { float s = x; for (int k = 0; k < 2; k++) s *= x; return s; }
__global__ void k(float *y, const float *x) { P p; p.a = f(x[0]); p.b = 1; y[0] = p.a + p.b; y[1] = 2; }
"""


def _lowered() -> str:
    module, name = lower(Unit("k.cu", _SOURCE, Options()), "k")
    return str(len(repr(module.functions[name].body))) + repr(sorted(module.functions))


def _at_depth(depth: int) -> str:
    return _lowered() if depth == 0 else _at_depth(depth - 1)


@pytest.mark.usefixtures("no_garbage_collection")
def test_the_depth_of_the_stack_does_not_matter() -> None:
    expected = _lowered()
    free = sys.getrecursionlimit() - len(_stack())
    seen = set()
    for depth in range(free - 120, free, 3):
        try:
            seen.add(_at_depth(depth))
        except RecursionError:
            seen.add("error")
    assert seen == {expected, "error"}


def _stack() -> list[object]:
    frames: list[object] = []
    frame = sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return frames


@pytest.mark.usefixtures("no_garbage_collection")
def test_an_interrupt_is_not_lost() -> None:
    """Ctrl-C at any time while cursors are collected: an exception here, or all of them."""
    text = "__global__ void k(float *y) {" + "y[0] += 1;" * 2000 + "}"
    for attempt in range(12):
        unit = Unit("k.cu", text, Options())
        (function,) = unit.functions()
        counts: list[int] = []
        later = threading.Timer(0.0004 * attempt, signal.raise_signal, (signal.SIGINT,))
        with pytest.raises(KeyboardInterrupt):
            later.start()
            counts.append(sum(1 for c in walk(function) if c.kind == Kind.COMPOUND_ASSIGNMENT_OPERATOR))
            for _ in range(1000):  # the signal comes to another thread, and wakes nobody
                time.sleep(0.01)
        later.join()
        assert counts in ([], [2000])


def test_children_are_those_that_libclang_shows() -> None:
    unit = Unit("k.cu", _SOURCE, Options())
    nodes = list(walk(unit.tree.cursor))
    assert [c.kind for c in nodes] == [c.kind for c in unit.tree.cursor.walk_preorder()]
    assert children_of(nodes[1]) is children_of(nodes[1])


def test_the_kernel_runs() -> None:
    y = np.zeros(2, np.float32)
    kg.compile(_SOURCE)["k"][1, 1](y, np.array([2.0], np.float32))
    assert y.tolist() == [9, 2]
