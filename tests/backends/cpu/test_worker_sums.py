"""Small buffers that workers add to in memory of their own (Note [Worker sums]): where, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.access.ranges import Indices, Ranges
from kernelgrad.backends.cpu.indexing import Variant
from kernelgrad.backends.cpu.kernel import lower
from kernelgrad.backends.cpu.native import optimise
from kernelgrad.backends.cpu.worker_sums import candidates
from kernelgrad.ir.ops import Store
from kernelgrad.ir.traverse import walk

HEAD = """
__global__ void k({type} *{restrict} out, const {type} *__restrict__ x, int *__restrict__ at, int n) {{
    __shared__ {type} s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    {body}
}}
"""
CASES = {
    "columns": "if (i < n) atomicAdd(out + t, x[i]);",
    "shared by neighbours": "if (i < n) atomicAdd(out + t / 2, x[i]);",
    "all of one block": "if (i < n) atomicAdd(out + blockIdx.x % 64, x[i]);",
    "a histogram": "if (i < n) atomicAdd(out + at[i], x[i]);",
    "backwards, after a barrier": "s[t] = i < n ? x[i] : 0; __syncthreads(); atomicAdd(out + t, s[63 - t]);",
    "a long loop": "if (i < n) for (int k = 0; k < 64; ++k) atomicAdd(out + k, x[i] * k);",
    "two places": "if (i < n) { atomicAdd(out + t, x[i]); atomicAdd(out + 63 - t, x[i]); }",
}
OTHERS = {
    "in a register": "if (i < n) atomicAdd(out, x[i]);",
    "read too": "if (i < n) { atomicAdd(out + t, x[i]); if (out[0] < 0) at[i] = 0; }",
    "stored too": "if (i < n) { atomicAdd(out + t, x[i]); if (i == n) out[0] = 0; }",
    "the old value is used": "if (i < n) at[i] = atomicAdd(out + t, x[i]) < 0 ? at[i] : at[i] + 0;",
    "a fence": "if (i < n) { atomicAdd(out + t, x[i]); __threadfence(); }",
}
N, BLOCKS = 60_000, 1000


def compiled(body: str, type: str = "float", restrict: str = "__restrict__") -> Any:
    return kg.compile(HEAD.format(body=body, type=type, restrict=restrict))["k"]


@pytest.mark.parametrize("name", [*CASES, *OTHERS])
def test_is_chosen_where_it_is_right(name: str) -> None:
    found = candidates(compiled({**CASES, **OTHERS}[name]).function)
    assert {name: candidate.size for name, candidate in found.items()} == ({"out": 4} if name in CASES else {})


def test_pointers_that_may_overlap() -> None:
    assert not candidates(compiled(CASES["columns"], restrict="").function)


@pytest.mark.parametrize("type", ["float", "double"])
@pytest.mark.parametrize("name", [*CASES, *OTHERS])
def test_values(name: str, type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against atomics."""
    random, dtype = np.random.default_rng(2), np.float32 if type == "float" else np.float64
    x, start = random.random(N).astype(dtype), random.random(64).astype(dtype)
    at = random.integers(0, 64, N, dtype=np.int32)
    outs = []
    for own in (True, False):
        if not own:
            monkeypatch.setattr("kernelgrad.backends.cpu.worker_sums._MOST_BYTES", 0)
        kernel, out = compiled({**CASES, **OTHERS}[name], type), start.copy()
        kernel[BLOCKS, 64](out, x, at.copy(), N)
        (executable,) = kernel.compiled
        assert {v.worker_sums for v in executable._loaded} == ({("out",)} if own and name in CASES else {()})
        outs.append(out)
    np.testing.assert_allclose(*outs, rtol=1e-3 if type == "float" else 1e-11)
    assert (outs[0] != start).any()


@pytest.mark.parametrize(("blocks", "size"), [(2, 64), (1000, 1 << 17)])
def test_few_threads_add_where_it_is(blocks: int, size: int) -> None:
    """Too few for the buffer's elements, or too large a buffer."""
    kernel, out = compiled(CASES["columns"]), np.zeros(size, np.float32)
    kernel[blocks, 64](out, np.ones(N, np.float32), np.zeros(N, np.int32), N)
    (executable,) = kernel.compiled
    assert {v.worker_sums for v in executable._loaded} == {()}
    assert out.sum() == min(N, blocks * 64)


def test_is_vectorised() -> None:
    kernel = compiled(CASES["columns"])
    text = str(optimise(lower(kernel.module, "k", Variant(True, (64, 1, 1), worker_sums=("out",))).text))
    assert " x float>" in text


# Whether the launch shows that all additions are inside of 64 elements.
INSIDE = {
    "columns": True,
    "shared by neighbours": True,
    "all of one block": True,
    "a histogram": False,
    "a long loop": True,
    "two places": True,
}


@pytest.mark.parametrize("name", INSIDE)
def test_what_may_be_outside_is_checked(name: str) -> None:
    kernel, out = compiled(CASES[name]), np.zeros(64, np.float32)
    kernel[BLOCKS, 64](out, np.ones(N, np.float32), np.zeros(N, np.int32), N)
    (executable,) = kernel.compiled
    assert {v.checked for v in executable._loaded} == {() if INSIDE[name] else ("out",)}


@pytest.mark.parametrize(("body", "shift"), [("t - 8", -8), ("t + 8", 8), ("n - 60000 + t + 8", 8), ("at[i]", None)])
def test_additions_outside_arrive_where_they_belong(body: str, shift: int | None) -> None:
    """The buffer is a slice of an array; the kernel adds around it, too."""
    kernel, whole = compiled(f"if (i < n) {{ atomicAdd(out + ({body}), x[i]); }}"), np.zeros(80, np.float32)
    random = np.random.default_rng(3)
    x, at = random.random(N, np.float32), random.integers(-8, 72, N, dtype=np.int32)
    kernel[BLOCKS, 64](whole[8:72], x, at, N)
    (executable,) = kernel.compiled
    assert {(v.worker_sums, v.checked) for v in executable._loaded} == {(("out",), ("out",))}
    index = at if shift is None else np.arange(N) % 64 + shift
    np.testing.assert_allclose(whole, np.bincount(index + 8, x, minlength=80), rtol=1e-4)


def test_ranges() -> None:
    kernel = kg.compile("""__global__ void k(int *y, int n, unsigned u, const int *x) {
        int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
        y[i] = 0; y[n - i] = 1; y[i % 7] = 2; y[min(i, n) / 2] = 3; y[u & 12] = 4; y[x[i]] = 5;
        y[2000000000 + t * 9999999] = 6;
        for (int k = n; k > -3; --k) y[k] = 7;
        for (int k = 2; k < t; k += 4) y[k] = 8;
        y[t < 5 ? -t : i] = 9;
    }""")["k"]
    indices = Indices(kernel.function)
    ints = dict(zip((p.value for p in kernel.function.params[1:3]), (50, 30), strict=True))
    ranges = Ranges(indices, (4, 1, 1), (32, 1, 1), ints)
    stored = {
        indices.definitions[op.value].value: ranges.offset(op.ptr)
        for op in walk(kernel.function.body)
        if isinstance(op, Store)
    }
    assert stored == {
        0: (0, 508),
        1: (-77 * 4, 200),
        2: (0, 24),
        3: (0, 100),
        4: (0, 48),
        5: None,
        6: None,
        7: (-8, 200),
        8: (8, 120),
        9: (-124, 508),
    }
