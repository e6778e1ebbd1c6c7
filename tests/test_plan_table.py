"""Plans survive edits that change nothing: atomics, barriers, bytes and tape of a GPU's launch stay what they were."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.explain.counted import Counts, counts
from kernelgrad.runtime.config import make_launch
from plan_table import Written, pairs, segmented, tiled
from plan_tiles import SIDE

PAIRS = {(kernel, edit): made for kernel, edit, made in pairs()}


def in_suite() -> set[tuple[str, str]]:
    """Each edit of every other of the kernels that have it, and each kernel: the others are for a long run."""
    edits, chosen = Counter[str](), set[tuple[str, str]]()
    for kernel, edit in PAIRS:
        if edits[edit] % 2 == 0 or kernel not in {k for k, _ in chosen}:
            chosen.add((kernel, edit))
        edits[edit] += 1
    return chosen


IN_SUITE = in_suite()


@cache
def cost(written: Written) -> Counts:
    """Of the reverse alone, outputs' adjoints kept and inputs' assigned. No memory is touched."""
    kernel: Any = kg.compile(written.text)["k"]
    names = [p.name for p in kernel.function.params if p.variable is None]
    inputs = names[1 : len(written.sizes)]
    promised = kg.assume(**dict(written.promised))
    gradient = kg.gradient(kernel, [names[0], *inputs], primal=False, keep=names[0], assign=inputs, assume=promised)
    indices = (np.empty(size, np.int32) for size in written.indices)
    args = (*(np.empty(size, np.float32) for size in written.sizes), *indices, *written.numbers)
    launch = make_launch(written.grid, written.block, written.shared)
    return counts(gradient.planned(launch, args, {}, on_gpu=True))


@pytest.mark.parametrize(
    ("kernel", "edit"), [pytest.param(*pair, marks=() if pair in IN_SUITE else pytest.mark.slow) for pair in PAIRS]
)
def test_the_plan_stays(kernel: str, edit: str) -> None:
    base, edited = map(cost, PAIRS[kernel, edit]())
    assert edited.atomics <= base.atomics * 1.01, (base, edited)
    fewer = edited.atomics < base.atomics / 50  # in memory: worth adding up in blocks
    assert edited.barriers <= base.barriers or fewer, (base, edited)
    assert edited.moved <= base.moved * 1.1, (base, edited)
    assert edited.tape <= base.tape, (base, edited)
    assert edited.shared <= base.shared * 1.01 or fewer, (base, edited)
    assert not edited.is_rough or base.is_rough, (base, edited)


def test_two_tiles_in_dynamic_memory_meet_once_more() -> None:
    """They are one variable, whose cells go along one axis: the others wait until those are done."""
    base, dynamic = cost(tiled("tiled")), cost(tiled("dynamic"))
    assert (dynamic.atomics, dynamic.shared, dynamic.tape) == (base.atomics, base.shared, base.tape)
    assert dynamic.barriers <= base.barriers + SIDE // 16


def test_promised_segments_need_no_atomics() -> None:
    base = segmented("rows")
    assert cost(base).atomics == 0 and cost(base).tape == 0
    assert cost(base._replace(promised=())).atomics > 0


def test_the_table_is_long() -> None:
    assert len(PAIRS) >= 200
