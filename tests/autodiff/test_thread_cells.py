"""Shared arrays of which each thread has cells to itself: which launches get arrays of the thread's own, and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of, tangent_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch
from thread_cell_cases import ATTENTION, CASES, arguments


@pytest.mark.parametrize("options", [{}, {"primal": False}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_which(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgrad.launches.choice.short_loops._LONGEST", 0)  # another reason for another kernel
    case = CASES[name]
    gradient = kg.gradient(kernel_of(case.source), "y, x, z", **options)
    launch = make_launch(3, case.block, case.nbytes)
    plan = gradient.planned(launch, arguments(case), {}, on_gpu=True).plan
    text = gradient.source_for(3, case.block, *arguments(case), shared=case.nbytes, on_gpu=True)
    shared = {line.split("[")[0].split()[-1] for line in text.splitlines() if "__shared__" in line and "[" in line}
    assert not case.own & shared
    assert bool(case.own) == (plan.variant.kernel.function is not kernel_of(case.source).function) or case.nbytes


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU", "one kernel"])
@pytest.mark.parametrize("options", [{}, {"primal": False}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, options: dict[str, Any], plan: str) -> None:
    """Against forward mode, by products with random tangents."""
    case, rng = CASES[name], np.random.default_rng(4)
    kernel, launch = kernel_of(case.source), (3, case.block, case.nbytes)
    (y, x, z, *numbers), seed = arguments(case), rng.uniform(-1, 1, 160)
    adjoints = [seed.copy(), np.zeros(160), np.zeros(160)]
    with forced(plan):
        kg.gradient(kernel, "y, x, z", **options)[launch](y.copy(), x, z, *numbers, *adjoints)
    tangents = [rng.uniform(-1, 1, 160) for _ in range(3)]
    moved = [v.copy() for v in tangents]
    tangent_of(kernel, "y, x, z")[launch](y.copy(), x, z, *numbers, *moved)
    np.testing.assert_allclose(sum(map(np.dot, adjoints, tangents)), seed @ moved[0], rtol=1e-10)


def test_attention_in_one_array() -> None:
    """Against the formula, and next to no tape."""
    heads, N, d, B = 2, 12, 3, 4
    rng, kernel = np.random.default_rng(1), kg.compile(ATTENTION)["attention"]
    q, k, v, d_o = (rng.standard_normal((heads, N, d)) for _ in range(4))
    gradient = kg.gradient(kernel, "Q, K, V, O, l, m")
    state = [np.zeros((heads, N)), np.full((heads, N), -1e20), np.zeros((heads, N, d))]
    found = [np.zeros_like(q) for _ in range(3)]
    nbytes = 8 * (3 * B * d + B * B)
    arguments = (q, k, v, N, d, N // B, B, 0.7, *state)
    gradient[heads, B, nbytes](*arguments, *found, d_o.copy(), np.zeros((heads, N)), np.zeros((heads, N)))
    weights = np.exp(0.7 * q @ k.transpose(0, 2, 1))
    weights /= weights.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(state[2], weights @ v, rtol=1e-12)
    d_w = d_o @ v.transpose(0, 2, 1)
    d_s = 0.7 * weights * (d_w - (d_w * weights).sum(axis=2, keepdims=True))
    expected = d_s @ k, d_s.transpose(0, 2, 1) @ q, weights.transpose(0, 2, 1) @ d_o
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    steps = (N // B) ** 2
    assert gradient.tape_bytes(heads, B, *arguments, shared=nbytes) < heads * B * steps * 8 * (d + B + 4)
