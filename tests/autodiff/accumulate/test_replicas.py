"""Launches of so many blocks that they would wait for each other: sums per warp, copies of small adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.config import make_launch

SOURCE = """__global__ void k(double *y, const double *x, const double *w, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * w[i % 3] * a;
}"""
LAUNCH, N = (3000, 40), 3000 * 40 - 7


def finished(gradient: Any) -> list[Any]:
    """The kernels that launches have used."""
    return [k for variant in gradient.forms.made.values() for k in vars(variant).get("kernels", ())]


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("form", ["joint", "split", "primal=False"])
def test_many_blocks(form: str, on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the sums of blocks need no finishing step; the one for GPUs runs here all the same."""
    if on_gpu:
        monkeypatch.setattr("kernelgrad.launches.choice.choose.on_cores", lambda facts: facts)
    kernel = kg.compile(SOURCE)["k"]
    rng = np.random.default_rng(1)
    x, w, seed, a = rng.random(N), rng.random(3), rng.standard_normal(N), 1.5
    y, d_x, d_w, d_a = np.zeros(N), np.zeros(N), np.ones(3), np.full(1, 2.0)
    if form == "split":
        forward, reverse = kg.split(kernel)
        reverse[LAUNCH](forward[LAUNCH](y, x, w, a, N), y, x, w, a, N, seed.copy(), d_x, d_w, d_a)
    else:
        gradient = kg.gradient(kernel, primal=form == "joint")
        primal, _ = kernel.bind((y, x, w, a, N))
        facts = gradient.variant_for(("y", "x", "w", "a"), make_launch(*LAUNCH), primal).options.facts
        assert facts.partials and facts.copied == {"w"}
        gradient[LAUNCH](y, x, w, a, N, seed.copy(), d_x, d_w, d_a)
        assert any("_sums_a" in k.source for k in finished(gradient)) == on_gpu
    weight = w[np.arange(N) % 3]
    np.testing.assert_allclose(d_x, seed * weight * a, rtol=1e-13)
    np.testing.assert_allclose(d_w, 1 + a * np.bincount(np.arange(N) % 3, seed * x), rtol=1e-9)
    np.testing.assert_allclose(d_a, 2 + seed @ (x * weight), rtol=1e-9)


def test_an_adjoint_shorter_than_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgrad.launches.choice.choose.on_cores", lambda facts: facts)
    gradient = kg.gradient(kg.compile(SOURCE)["k"], "y, w", shorter="w")
    x, w, y, seed, d_w = np.ones(N), np.ones(1000), np.zeros(N), np.ones(N), np.full(100, -7.0)
    gradient[LAUNCH](y, x, w, 1.0, N, seed, d_w[50:53])
    np.testing.assert_array_equal(d_w[50:53], np.bincount(np.arange(N) % 3) - 7)
    assert (d_w[:50] == -7).all() and (d_w[53:] == -7).all()
    assert any(facts.copied == {"w"} for _, facts in gradient.forms.made)


def test_an_adjoint_that_is_shorter_than_its_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing behind it is touched, not even by adding zero, which -0.0 would show."""
    monkeypatch.setattr("kernelgrad.launches.choice.choose.on_cores", lambda facts: facts)
    forward, reverse = kg.split(kg.compile(SOURCE)["k"], "y, w", shorter="w")
    x, w, seed, y = np.ones(N), np.ones(60), np.ones(N), np.zeros(N)
    memory = np.full(60, -0.0)
    tape = forward[LAUNCH](y, x, w, 1.0, N)
    assert tape.variant.options.facts.copied == {"w"}
    reverse[LAUNCH](tape, y, x, w, 1.0, N, seed, memory[:3])
    np.testing.assert_array_equal(memory[:3], np.bincount(np.arange(N) % 3))
    assert np.signbit(memory[3:]).all()
