"""Small buffers that workers add to in memory of their own (Note [Own sums]): where, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cpu.kernel import lower
from kernelgrad.backends.cpu.native import optimise
from kernelgrad.backends.cpu.own_sums import candidates
from kernelgrad.backends.cpu.variant import Variant

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
    assert candidates(compiled({**CASES, **OTHERS}[name]).function) == ({"out": 4} if name in CASES else {})


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
            monkeypatch.setattr("kernelgrad.backends.cpu.own_sums._MOST_BYTES", 0)
        kernel, out = compiled({**CASES, **OTHERS}[name], type), start.copy()
        kernel[BLOCKS, 64](out, x, at.copy(), N)
        (executable,) = kernel.compiled
        assert {v.own_sums for v in executable._loaded} == ({("out",)} if own and name in CASES else {()})
        outs.append(out)
    np.testing.assert_allclose(*outs, rtol=1e-3 if type == "float" else 1e-11)
    assert (outs[0] != start).any()


@pytest.mark.parametrize(("blocks", "size"), [(2, 64), (1000, 1 << 17)])
def test_few_threads_add_where_it_is(blocks: int, size: int) -> None:
    """Too few for the buffer's elements, or too large a buffer."""
    kernel, out = compiled(CASES["columns"]), np.zeros(size, np.float32)
    kernel[blocks, 64](out, np.ones(N, np.float32), np.zeros(N, np.int32), N)
    (executable,) = kernel.compiled
    assert {v.own_sums for v in executable._loaded} == {()}
    assert out.sum() == min(N, blocks * 64)


def test_is_vectorised() -> None:
    kernel = compiled(CASES["columns"])
    text = str(optimise(lower(kernel.module, "k", Variant(True, (64, 1, 1), own_sums=("out",))).text))
    assert " x float>" in text
