"""What is kept is what takes the fewest bytes: what cannot be had again, or what is computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.autodiff.saving.max_flow import Network
from scrambling import scramble

N, TRIPS = 8, 5


@dataclass(frozen=True)
class Case:
    """A loop over k < m, in doubles unless said; `kept`: bytes for each iteration and thread. `a` and `b` are
    overwritten, `x` is not."""

    loop: str
    kept: int
    start: str = "double v = x[i], w = 0.5 * v, u = 0.25;"
    end: str = "y[i] = sum + v + w + u;"


CASES = {
    "one of three": Case("sum += exp(v + w + u); v = 0.5 * w - 0.2 * u; w = 0.3 * u; u = 0.1 * v;", 8),
    "what all come from": Case("v = 0.3 * exp(-v) + 0.2 * sin(v) + 0.1 * v * v;", 8),
    "overwritten memory": Case("double t = a[i] + 0.5 * b[i]; sum += sin(t); a[i] = 0.5 * t; b[i] = 0.25 * t;", 8),
    "a float of a double": Case("float f = v + w; sum += f * f; v = 0.5 * w; w = 0.5 * v + 0.1;", 4),
    "a bool of integers": Case(
        "c = 3 * c + 1; d = 5 * d + c; sum += ((c ^ d) % 3 == 0) ? x[i] * x[i] : x[i];",
        1,
        "int c = i, d = 7;",
        "y[i] = sum;",
    ),
    "a sum beside a part of it": Case(
        "sum += exp(v + w + u) + v * v; v = 0.5 * w - 0.2 * u; w = 0.3 * u; u = 0.1 * v;", 16
    ),
    "each of three": Case("sum += v * w * u; v = 0.5 * w - 0.2 * u; w = 0.3 * u; u = 0.1 * v;", 24),
    "a product of two": Case("sum += v * w; v = 0.5 * w; w = 0.5 * v + 0.1;", 16),
    "what another thread overwrites": Case(
        "double t = a[i] * b[i]; sum += t * t; __syncthreads(); a[(i + 1) % n] = 0.5 * x[i]; __syncthreads();", 8
    ),
    "in a loop around": Case(
        "double p = v + w; for (int l = 0; l < 3; l++) sum += exp(p * x[l]); v = 0.5 * w - 0.2; w = 0.3 * v;", 8
    ),
    "in a branch of it": Case(
        "if (k % 2) { sum += exp(v + w + u); } v = 0.5 * w - 0.2 * u; w = 0.3 * u; u = 0.1 * v;", 8
    ),
}


def compiled(case: Case) -> Any:
    source = f"""__global__ void k(double *y, const double *x, double *a, double *b, int n, int m) {{
        int i = threadIdx.x;
        double sum = 0;
        {case.start}
        for (int k = 0; k < m; k++) {{ {case.loop} }}
        {case.end}
    }}"""
    return kg.compile(source)["k"]


def arguments() -> list[Any]:
    rng = np.random.default_rng(3)
    return [np.zeros(N), *(rng.random(N) + 0.1 for _ in range(3)), N, TRIPS]


@pytest.mark.parametrize("name", CASES)
def test_bytes_and_values(name: str) -> None:
    case = CASES[name]
    kernel = compiled(case)
    gradient = kg.gradient(kernel)
    assert gradient.tape_bytes(1, N, *arguments()) == case.kept * TRIPS * N
    kg.check_gradient(kernel, None, 1, N, arguments())
    own, adjoints = arguments(), [np.ones(N), np.zeros(N), np.ones(N), np.ones(N)]
    assert not gradient.check(1, N, *own, *adjoints, seed=1).findings


@pytest.mark.parametrize("name", ("one of three", "overwritten memory", "each of three"))
def test_in_a_split(name: str) -> None:
    """A tape between launches, of which the function's own block is a part."""
    kernel = compiled(CASES[name])
    results = []
    for split in (False, True):
        own, adjoints = arguments(), [np.ones(N), np.zeros(N), np.ones(N), np.ones(N)]
        if split:
            forward, reverse = kg.split(kernel)
            tape = forward[1, N](*own)
            scramble(own)
            reverse[1, N](tape, *own, *adjoints)
        else:
            kg.gradient(kernel)[1, N](*own, *adjoints)
        results.append(np.concatenate(adjoints))
    np.testing.assert_array_equal(*results)


def test_explained() -> None:
    text = kg.gradient(compiled(CASES["overwritten memory"])).explain()
    assert "t (f64): takes less than what it is computed from" in text


def brute_force(edges: dict[tuple[int, int], int], nodes: int) -> int:
    inner = range(1, nodes - 1)
    sides = ({0, *chosen} for size in range(nodes - 1) for chosen in combinations(inner, size))
    return min(sum(c for (a, b), c in edges.items() if a in side and b not in side) for side in sides)


@pytest.mark.parametrize("seed", range(40))
def test_minimum_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 8))
    edges = {
        (a, b): int(rng.integers(0, 9)) for a in range(nodes) for b in range(nodes) if a != b and rng.random() < 0.5
    }
    network = Network()
    for (a, b), capacity in edges.items():
        network.add(a, b, capacity)
    side = network.source_side(0, nodes - 1)
    assert 0 in side and nodes - 1 not in side
    assert sum(c for (a, b), c in edges.items() if a in side and b not in side) == brute_force(edges, nodes)
