"""Text for pointers that go over the tape: what a compiler must not take for granted, and updates of memory that may be
a thread's own, where CUDA has no atomics."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.nvrtc import compile_only
from pointer_cases import BODIES, HEAD, START, arguments, gradient

SHARED = {"an array and a buffer": {"add_anywhere", "take_anywhere"}, "an element of all": {"add_anywhere"}}


@pytest.mark.parametrize("name", BODIES)
def test_text(name: str) -> None:
    source = gradient(name).source_for(3, 16, *arguments())
    assert re.search(r"double \*\*_tape_pointers\d", source)
    assert "__restrict__ _tape_pointers" not in source
    used = set(re.findall(r"= kg::(\w+_anywhere)\(|^ *kg::(\w+_anywhere)\(", source, re.M))
    assert {one or other for one, other in used} == SHARED.get(name, set())
    assert compile_only(source, "sm_90")


def test_the_hardware_is_asked_whose_memory_it_is() -> None:
    """NVRTC 13.0 crashes on `__isLocal` of pointers that a loop exchanges between global and shared memory."""
    source = gradient("an array and a buffer").source
    assert "if (is_local(address)) {" in source and "isspacep.local" in source
    assert "if (__isLocal(" not in source


def test_what_they_lead_to_is_not_restricted() -> None:
    source = gradient("an array and a buffer").source
    assert "double *_d_t" in source and "__restrict__ _d_t" not in source
    assert "double *__restrict__ _d_y" in source


OPTIONS: list[dict[str, object]] = [{}, {"deterministic": True}, {"tape_budget": "1 MB"}]
# In a fixed order, adjoints behind one pointer are of one memory.
WAYS = [
    (name, options) for name in BODIES for options in OPTIONS if name not in SHARED or "deterministic" not in options
]


@pytest.mark.parametrize(("name", "options"), WAYS, ids=str)
def test_values(name: str, options: dict[str, object]) -> None:
    args = arguments()
    gradient(name, **options)[3, 16](*args)
    *before, n, m, d_y, d_t, d_x = arguments()
    kernel, step = kg.compile(HEAD + START + BODIES[name])["k"], 1e-6
    for of, found in ((1, args[-2]), (2, args[-1])):
        for i in range(0, n, 5):
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in before]
                moved[of][i] += sign * step
                kernel[3, 16](*moved, n, m)
                # What t and x hold afterwards has adjoints, too.
                ends.append(moved[0] @ d_y + moved[1] @ d_t + moved[2] @ d_x)
            assert found[i] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7), (name, of, i)
    assert (args[-3] == 0).all() and np.isfinite(args[-1]).all()
