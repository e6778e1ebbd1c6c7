"""Several rows of a block for each thread, and sums of neighbours through an index, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from exchange_cases import CASES, SIZE, Case, arguments, typed
from kernelgrad.schedule.coarsen import block_rows
from row_cases import ROWS

cupy = pytest.importorskip("cupy")
EVERY = pytest.mark.parametrize("case", [*ROWS.values(), *CASES.values()], ids=[*ROWS, *CASES])


@pytest.mark.parametrize("joint", [True, False])
@EVERY
def test_gpu_gives_what_the_cpu_gives(case: Case, joint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_rows, "FILLING_THREADS", 1)
    monkeypatch.setattr(block_rows, "_FEWEST", 32)
    gradient = kg.gradient(kg.compile(case.source)["k"], primal=joint)
    seed = np.random.default_rng(3).standard_normal(SIZE)
    host = typed(case, [*arguments(case), seed, np.zeros(SIZE), np.zeros(SIZE)])
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    for values in (host, device):
        gradient[case.launch](*values)
    tolerance = 1e-11 if case.dtype == np.float64 else 2e-5
    for want, got in zip(host[5:], device[5:], strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=tolerance, atol=tolerance * abs(want).max())


N, ELEMENTS = (1 << 20) + 3, 30011
INDICES: dict[str, Any] = {
    "ascending": lambda rng: np.sort(rng.integers(0, ELEMENTS, N)),
    "sorted by 64": lambda rng: np.arange(N) // 64,
    "the same": lambda rng: np.full(N, 7),
    "all over": lambda rng: rng.integers(0, ELEMENTS, N),
}


@pytest.mark.parametrize("options", [{}, {"primal": False, "keep": "y", "assign": "x"}], ids=["J", "R"])
@pytest.mark.parametrize("kind", INDICES)
def test_through_an_index(kind: str, options: dict[str, Any]) -> None:
    body = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[c[i]] * w[i];"
    params = "double *y, const double *x, const double *w, const int *c, int n"
    gradient = kg.gradient(kg.compile(f"__global__ void k({params}) {{ {body} }}")["k"], "y, x", **options)
    rng = np.random.default_rng(1)
    index = INDICES[kind](rng).astype(np.int32)
    x, w, d_y = rng.standard_normal(ELEMENTS), rng.standard_normal(N), rng.standard_normal(N)
    d_x = cupy.zeros(ELEMENTS)
    arrays = [cupy.asarray(a) for a in (np.zeros(N), x, w, index)]
    gradient[-(-N // 256), 256](*arrays, N, cupy.asarray(d_y), d_x)
    assert any(v.options.facts.vector is not None for v in gradient.forms.made.values())
    want = np.bincount(index, weights=w * d_y, minlength=ELEMENTS)
    np.testing.assert_allclose(d_x.get(), want, rtol=1e-9, atol=1e-9 * abs(want).max())
