"""Programs as Clad's users write them, on a GPU: integers, handles, structs by value, and thrust by key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from clad_programs import PASSED, PASSED_TOLD, STRUCTS, STRUCTS_TOLD, integer_gradient
from in_source_cases import CLAD


@pytest.mark.parametrize("name", ["launched", "direct", "in_turn", "with_numbers"])
def test_integers(name: str) -> None:
    assert integer_gradient(name, "int", np.int32, "cuda") == integer_gradient(name, "double", np.float64, "cpu")


@pytest.mark.parametrize(("text", "told"), [(PASSED, PASSED_TOLD), (STRUCTS, STRUCTS_TOLD)])
def test_handles_and_structs(text: str, told: list[str], capsys: Any) -> None:
    kg.compile(CLAD + text)["main"](device="cuda")
    assert capsys.readouterr().out.splitlines() == told


BY_KEY = r"""
#include <thrust/device_vector.h>
#include <thrust/adjacent_difference.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
void run(double *x, double *y, int *keys, double start, int n) {
    thrust::device_vector<double> v(x, x + n), w(n), sums(n);
    thrust::device_vector<int> k(keys, keys + n), j(n);
    thrust::adjacent_difference(v.begin(), v.end(), v.begin());
    auto end = thrust::reduce_by_key(k.begin(), k.end(), v.begin(), j.begin(), sums.begin());
    long count = end.first - j.begin();
    thrust::inclusive_scan_by_key(k.begin(), k.end(), v.begin(), w.begin());
    thrust::exclusive_scan_by_key(k.begin(), k.end(), w.begin(), v.begin(), start);
    for (int i = 0; i < n; i++) { y[i] = v[i] * w[i] + sums[i % count]; x[i] = j[i % count] * v[i]; }
}
"""


def test_thrust_by_key() -> None:
    """As on the CPU, where finite differences have the last word (tests/programs/test_thrust.py)."""
    rng, n = np.random.default_rng(3), 600
    given = [rng.normal(size=n), rng.normal(size=n), np.sort(rng.integers(0, 40, n)).astype(np.int32), 0.3, n]
    g = kg.gradient(kg.compile(BY_KEY)["run"], "x, y, start")
    found = []
    for device in ("cpu", "cuda"):
        args = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
        adjoints = [np.ones(n), np.linspace(-1, 1, n), np.zeros(1)]
        g.execute(*args, *adjoints, device=device)
        found.append([*args[:2], *adjoints])
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-9)
