"""Loops that load for several turns at once: which do, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch
from loop_cases import BATCHED, ELEMENT, STRIDES
from loop_cases import BATCHED_HEAD as HEAD

NOT = {
    "short": f"{ELEMENT} {{ float s = 0; for (int k = 0; k < 8; ++k) s += expf(x[i] * w[k]); y[i] = s; }}",
    "cheap": f"{STRIDES} y[i] = x[i] * w[i % c];",
    "with a tape": f"float s = x[0]; {STRIDES} {{ s = sinf(s) * s + x[i]; y[i] = expf(s); }}",
    "by an index from memory": f"{STRIDES} y[f[i]] += expf(x[f[i]]);",
    "meets": "__shared__ float s[64]; int t = threadIdx.x; float a = 0; for (int k = 0; k < n / 64; ++k) {"
    " s[t] = x[k * 64 + t]; __syncthreads(); a += expf(s[63 - t]) * w[0]; __syncthreads(); } y[t] = a;",
}
CASES = {**BATCHED, **NOT}
LAUNCH, N, C = (2, 64), 1000, 64


def gradient(name: str) -> Any:
    return kg.gradient(kernel_of(f"{HEAD} {{ {CASES[name]} }}"), "y, x, w", primal=False)


def arguments() -> list[Any]:
    rng = np.random.default_rng(2)
    arrays = [rng.uniform(-1, 1, size).astype(np.float32) for size in (N, N, C)]
    return [*arrays, rng.permutation(N).astype(np.int32), N, C]


def adjoints(name: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    found = [rng.uniform(-1, 1, size).astype(np.float32) for size in (N, N, C)]
    found[0][::5] = 0
    gradient(name)[LAUNCH](*arguments(), *found)
    return found


@pytest.mark.parametrize("name", CASES)
def test_which(name: str) -> None:
    try:
        text = gradient(name).source_for(*LAUNCH, *arguments(), on_gpu=True)
    except kg.UnsupportedError:
        assert name == "by an index from memory"
        return
    assert ("batch" in text) == (name in BATCHED)


@pytest.mark.parametrize("plan", ["as on a GPU", "in cells of blocks", "blocks in turns"])
@pytest.mark.parametrize("name", BATCHED)
def test_the_same_bits(name: str, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with forced(plan):
        found = adjoints(name)
    monkeypatch.setattr("kernelgrad.schedule.order.batched_loads._MOST_LOADS", -1)
    with forced(plan):
        expected = adjoints(name)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("turns", [0, 1, 3, 4, 5, 16, 17])
def test_any_number_of_turns(turns: int) -> None:
    kernel = kernel_of(f"{HEAD} {{ {BATCHED['a column']} }}")
    _, _, w, f, _, _ = arguments()
    rng = np.random.default_rng(4)
    x, seed = rng.uniform(-1, 1, 64 * 17).astype(np.float32), rng.uniform(-1, 1, 64).astype(np.float32)
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    with forced("as on a GPU"):
        d_y = seed.copy()
        kg.gradient(kernel, "y, x, w", primal=False)[1, 64](np.zeros_like(seed), x, w, f, 64 * turns, C, d_y, d_x, d_w)
    powers = 0.5 ** np.arange(turns - 1, -1, -1)[:, None] * seed if turns else np.zeros((0, 64))
    exps = np.exp(x[: 64 * turns].reshape(turns, 64).astype(float))
    np.testing.assert_allclose(d_x[: 64 * turns].reshape(turns, 64), powers * exps * w, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(d_w, (powers * exps).sum(0), rtol=2e-6, atol=1e-6)
    assert not d_x[64 * turns :].any()


def test_makes_no_load_that_was_not_made() -> None:
    """At the last turns of a thread, and behind guards: a GPU would be out of memory there."""
    for name in BATCHED:
        plan = gradient(name).planned(make_launch(*LAUNCH), tuple(arguments()), {}, on_gpu=True).plan
        assert plan.variant.options.facts.batched
        with forced("as on a GPU"):
            gradient(name).check(*LAUNCH, *arguments(), *(np.zeros(size, np.float32) for size in (N, N, C)))
