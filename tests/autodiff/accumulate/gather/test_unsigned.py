"""Neighbours by unsigned indices: `x[i - 1]` is a sum, where what comes round is behind the end of the buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.analysis.access.affine import BytesOf, Shape, Sums
from kernelgrad.analysis.structure import analyse
from kernelgrad.ir.ops import Load
from kernelgrad.ir.traverse import walk
from kernelgrad.runtime.config import make_launch

N, SIDE, BLOCK = 200, 12, 32
I = "I i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
TYPES = ("unsigned", "size_t")

# The body of `k(double *y, const double *x, const double *w, I n)`.
GATHERED = {
    "the one before": f"{I} if (i < n && i > 0) y[i] = x[i - 1] * x[i] + w[i];",
    "by a truth": f"{I} if (i && i + 1 < n) y[i] = x[i - 1] * w[i] + x[i + 1];",
    "before it is tested": f"{I} double left = i > 0 ? x[i - 1] : 0.0; if (i < n) y[i] = left * x[i] + w[i];",
    "halos of blocks": "I t = threadIdx.x, at = ((I)blockIdx.x - 1) * blockDim.x + t;"
    " if (blockIdx.x > 0 && at + 40 < n) y[at] = x[at + 33] * x[at + 32] + w[at];",
    "multiplied": f"{I} I r = i / {SIDE}, c = i % {SIDE}; if (r > 0 && c > 0 && i < n)"
    f" y[i] = x[(r - 1) * {SIDE} + c] * x[r * {SIDE} + (c - 1)] + w[i];",
    "added to what came round": f"{I} I j = i - 5; if (i < n - 5) y[i] = x[j + 5] * x[j + 7] + w[i];",
    "by int": "int i = blockIdx.x * blockDim.x + threadIdx.x; I m = 1; if (i > 0 && i < (int)n)"
    " y[i] = x[i - m] * x[i] + w[i];",
}
# Of which nothing is said: where it comes round, it is somewhere else.
OTHERS = {
    "the end of a ring": f"{I} I j = i - 1; if (i < n) y[i] = x[j < n ? j : n - 1] * x[i] + w[i];",
    "half of it": f"{I} if (i > 1 && i < n) y[i] = x[(i - 2) / 2] * x[i] + w[i];",
    "a remainder": f"{I} if (i < n) y[i] = x[(i - 3) % n] * x[i] + w[i];",
    "of two": f"{I} I j = i - 1; if (i < n) {{ double a = x[i]; if (j < n) a *= x[j]; y[i] = a + w[i]; }}",
}


def compiled(body: str, index: str) -> Any:
    text = f"typedef {index} I; __global__ void k(double *y, const double *x, const double *w, I n) {{ {body} }}"
    return kernel_of(text)


def launched(kernel: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """What was given, and all adjoints."""
    rng = np.random.default_rng(2)
    arrays = [rng.uniform(0.5, 1.5, N) for _ in range(3)]
    given = [rng.uniform(-1, 1, N) for _ in range(3)]
    adjoints = [a.copy() for a in given]
    kg.gradient(kernel, "y, x, w", **options)[-(-N // BLOCK), BLOCK](*arrays, N, *adjoints)
    return given, adjoints


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU"])
@pytest.mark.parametrize("index", TYPES)
@pytest.mark.parametrize("name", [*GATHERED, *OTHERS])
def test_values(name: str, index: str, plan: str) -> None:
    kernel = compiled((GATHERED | OTHERS)[name], index)
    with forced(plan):
        given, adjoints = launched(kernel)
    rng = np.random.default_rng(2)
    arrays = [rng.uniform(0.5, 1.5, N) for _ in range(3)]
    for _ in range(2):
        tangents = [rng.uniform(-1, 1, N) for _ in range(3)]
        moved = [t.copy() for t in tangents]
        kg.jvp(kernel, "y, x, w")[-(-N // BLOCK), BLOCK](*(a.copy() for a in arrays), N, *moved)
        found = [adjoints[0], adjoints[1] - given[1], adjoints[2] - given[2]]
        np.testing.assert_allclose(sum(map(np.dot, found, tangents)), moved[0] @ given[0], rtol=1e-10)


@pytest.mark.parametrize("index", TYPES)
@pytest.mark.parametrize("name", GATHERED)
def test_is_gathered(name: str, index: str) -> None:
    gradient = kg.gradient(compiled(GATHERED[name], index), "y, x, w")
    arrays = [np.empty(N) for _ in range(3)]
    plan = gradient.planned(make_launch(-(-N // BLOCK), BLOCK), (*arrays, N), {}).plan
    assert {gather.name for gather in plan.variant.options.facts.gathered} == {"x"}


@pytest.mark.parametrize("nbytes, is_sum", [(8 << 31, True), ((8 << 31) + 8, False), (None, False)])
def test_buffers_that_hold_what_comes_round(nbytes: int | None, is_sum: bool) -> None:
    """In 32 bits `x[0 - 1]` is an element of a buffer of four billion."""
    function = compiled(GATHERED["the one before"], "unsigned").function
    sums = Sums(analyse(function, apart=False), Shape((8, 1, 1), (32, 1, 1)), {BytesOf(param(function)): nbytes}.get)
    before = next(op for op in walk(function.body) if isinstance(op, Load))
    found = sums.address(before.ptr, param(function))
    assert (found is not None and found.const == -8) == is_sum


def param(function: Any) -> Any:
    return next(p.value for p in function.params if p.name == "x")
