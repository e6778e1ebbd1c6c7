"""Check mode: what it reports, where, and what it must not report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import KernelError
from kernelgrad.runtime.findings import CheckReport

SEEDS = [None, 1]


pytestmark = pytest.mark.usefixtures("cache_of_its_own")


def check(
    body: str, *args: Any, grid: int = 2, block: int = 64, seed: int | None = None, shared: int = 0
) -> CheckReport:
    source = f"""__device__ float total;
__global__ void k(float *y, const float *x, int n) {{
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
{body}
}}
"""
    return kg.compile(source)["k"].check(grid, block, *args, shared=shared, seed=seed)


def arrays(n: int = 128) -> tuple[np.ndarray, np.ndarray, int]:
    return np.zeros(n, np.float32), np.arange(n, dtype=np.float32), n


CLEAN = {
    "elementwise": "y[i] = x[i];",
    "neighbours": "if (i > 0 && i < n - 1) y[i] = x[i - 1] + x[i + 1];",
    "atomics": "atomicAdd(&y[0], x[i]); atomicAdd(&total, 1.0f);",
    "shared": "__shared__ float s[64]; s[t] = x[i]; __syncthreads(); y[i] = s[63 - t];",
    "dynamic": "extern __shared__ float s[]; s[t] = x[i]; __syncthreads(); y[i] = s[63 - t];",
    "warp": "__shared__ float s[64]; s[t] = x[i]; __syncwarp(); y[i] = s[t ^ 1];",
    "volatile": "__shared__ volatile float s[64]; s[t] = x[i]; y[i] = s[t ^ 1];",
    "shuffle": "y[i] = __shfl_xor_sync(0xffffffff, x[i], 1);",
    "local": "float a[4]; for (int k = 0; k < 4; k++) a[k] = x[i] * k; y[i] = a[i % 4];",
    "bytes": "((char *)y)[i] = t;",
    "bit fields": "struct { unsigned a : 4, b : 28; } f[2]; f[n & 1].a = t; f[n & 1].b = i; y[i] = f[n & 1].b;",
    "tree": """__shared__ float s[64]; s[t] = x[i]; __syncthreads();
  for (int d = 32; d > 0; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
  if (t == 0) y[blockIdx.x] = s[0];""",
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(CLEAN))
def test_clean_kernels(name: str, seed: int | None) -> None:
    report = check(CLEAN[name], *arrays(), seed=seed, shared=256 if name == "dynamic" else 0)
    assert report.ok and report, str(report)
    assert str(report) == "k: no problems found"
    report.raise_if_failed()


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_kernels_compute(seed: int | None) -> None:
    y, x, n = arrays()
    check(CLEAN["shared"], y, x, n, seed=seed)
    np.testing.assert_array_equal(y.reshape(2, 64), x.reshape(2, 64)[:, ::-1])


# ---- out of bounds ------------------------------------------------------------------------------------------------


def test_out_of_bounds_read_gives_zero() -> None:
    y, x, n = arrays()
    report = check("  y[i] = 1 + x[i + 2];", y, x, n)
    (finding,) = report.findings
    assert finding.kind == "out of bounds" and finding.count == 2
    assert "out-of-bounds read of 'x[128]' of 128 elements by thread (62, 0, 0) of block (1, 0, 0)" in str(report)
    assert (finding.span.line, finding.span.column) == (4, 14)
    assert "    4 |   y[i] = 1 + x[i + 2];\n      |              ^^^^^^^^" in str(report)
    np.testing.assert_array_equal(y[-2:], 1)


def test_out_of_bounds_write_is_skipped() -> None:
    memory = np.zeros(140, np.float32)
    report = check("  y[i - 3] = 7;", memory[3:131], np.zeros(1, np.float32), 0)
    (finding,) = report.findings
    assert "out-of-bounds write of 'y[-3]'" in finding.message and finding.count == 3
    np.testing.assert_array_equal(memory[:3], 0)


def test_beyond_shared_and_local_arrays() -> None:
    report = check("__shared__ float s[64], r[64]; r[t] = 0; s[t + 1] = 1; y[i] = r[0];", *arrays())
    assert [f.message.split(" by")[0] for f in report.findings][:1] == ["out-of-bounds write of 's[64]' of 64 elements"]
    report = check("float a[4]; for (int k = 0; k < n; k++) a[k] = k; y[i] = a[i % 4];", *arrays()[:2], 6)
    assert report.findings[0].message.startswith("out-of-bounds write of 'a[4]' of 4 elements")
    report = check("extern __shared__ float s[]; s[t] = 1; y[i] = s[t];", *arrays(), shared=128)
    assert "'s[32]' of 32 elements" in report.findings[0].message


def test_null_and_module_variables() -> None:
    assert "out-of-bounds read of 'x[0]'" in str(check("y[i] = x[i];", np.zeros(128, np.float32), None, 0))
    assert "out-of-bounds write of 'total[1]' of 1 elements" in str(
        check("(&total)[t] = 1;", *arrays(), grid=1, block=2)
    )


# ---- memory nothing wrote ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_reads_of_memory_nothing_wrote(seed: int | None) -> None:
    report = check("__shared__ float s[64]; if (t < 60) s[t] = 1; __syncthreads(); y[i] = s[t];", *arrays(), seed=seed)
    (finding,) = report.findings
    assert finding.kind == "uninitialised" and finding.count == 8 and finding.act.buffer == "s"
    report = check("float a[4]; for (int k = 0; k < n; k++) a[k] = k; y[i] = a[i % 4];", *arrays()[:2], 3)
    (finding,) = report.findings
    assert finding.kind == "uninitialised" and finding.act.place == "'a[3]'" and finding.count == 32


def test_each_block_starts_with_fresh_shared_memory() -> None:
    body = "__shared__ float s[64]; if (blockIdx.x == 0) s[t] = 1; __syncthreads(); y[i] = s[t];"
    (finding,) = check(body, *arrays()).findings
    assert finding.kind == "uninitialised" and finding.act.block == (1, 0, 0)


# ---- races ----------------------------------------------------------------------------------------------------------

RACES = {
    "missing barrier": "__shared__ float s[64]; s[t] = x[i]; y[i] = s[63 - t];",
    "missing second barrier": """__shared__ float s[64]; s[t] = 0; __syncthreads();
  y[i] = s[63 - t]; s[t] = x[i];""",
    "only a warp barrier": "__shared__ float s[64]; s[t] = x[i]; __syncwarp(); y[i] = s[63 - t];",
    "within a warp": "__shared__ float s[64]; s[t] = x[i]; y[i] = s[t ^ 1];",
    "missing atomic": "y[0] += x[i];",
    "across blocks": "if (t == 0) y[0] += x[i];",
    "write after read across blocks": "y[i] = 0; if (i + 64 < n) total += y[i + 64];",
    "atomic and plain": "atomicAdd(&y[0], x[i]); if (t == 1) y[1] = y[0];",
    "two writers": "y[i / 2] = x[i];",
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(RACES))
def test_races(name: str, seed: int | None) -> None:
    report = check(RACES[name], *arrays(), seed=seed)
    assert "race" in {f.kind for f in report.findings}, str(report)
    with pytest.raises(KernelError):
        report.raise_if_failed()


def test_a_race_names_both_sides() -> None:
    report = check("  __shared__ float s[64];\n  s[t] = x[i];\n  y[i] = s[63 - t];", *arrays(), grid=1)
    (race,) = (f for f in report.findings if f.kind == "race")
    assert race.other is not None
    assert (race.act.span.line, race.other.span.line) == (5, 6)
    assert {race.act.verb, race.other.verb} == {"write", "read"}
    assert race.act.buffer == race.other.buffer == "s" and race.act.index == race.other.index
    assert race.act.thread != race.other.thread and race.count == 64
    assert "kernel.cu:6:10: the other access" in str(report)


def test_a_race_across_blocks_names_both_blocks() -> None:
    report = check("if (t == 0) y[0] = x[i];", *arrays())
    (race,) = report.findings
    assert race.other is not None and race.act.block != race.other.block


def test_failures_are_raised() -> None:
    with pytest.raises(KernelError, match="divergent barrier"):
        check("if (t < 3) __syncthreads(); y[i] = 0;", *arrays())


def test_logs_grow() -> None:
    """More accesses than the log's first size, in one block."""
    y, x, n = arrays()
    report = check("float s = 0; for (int k = 0; k < 2000; k++) s += x[(i + k) % n]; y[i] = s;", y, x, n)
    assert report.ok
