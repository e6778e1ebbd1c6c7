"""The reverse alone of kernels that write what they read (rule 6): loads that no store can come before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of

N = 20
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
HEAD = "__global__ void k(double *p, const double *g, int n)"

HAS_REVERSE = {
    "in place": f"{HEAD} {{ {INDEX} double v = p[i]; p[i] = v * v * g[i]; }}",
    "compound": f"{HEAD} {{ {INDEX} p[i] *= p[i] * g[i]; }}",
    "in one branch": f"{HEAD} {{ {INDEX} if (g[i] > 0) p[i] = p[i] * p[i]; else p[i] = sin(p[i]); }}",
    "helper": f"""__device__ void step(double &a, double b) {{ a = a * a * b; }}
        {HEAD} {{ {INDEX} step(p[i], g[i]); }}""",
    "loop before the store": f"""{HEAD} {{ {INDEX}
        double s = 1; for (int j = 0; j < 3; j++) s = s * p[i] + g[j]; p[i] = s; }}""",
    "pointer": f"{HEAD} {{ {INDEX} double *q = p + i; double v = *q; *q = exp(v) * g[i]; }}",
    "neighbours, then a barrier": """__global__ void k(double *p, const double *g, int n) {
        int t = threadIdx.x; int j = (t + 1) % blockDim.x;
        double a = p[t], b = p[j]; __syncthreads(); p[t] = a * b * g[t]; }""",
    "grid stride": """__global__ void k(double *p, const double *g, int n) {
        int stride = n / 4; if (threadIdx.x >= stride) return;
        for (int i = threadIdx.x; i < n; i += stride) { double v = p[i]; p[i] = v * v * g[i]; } }""",
    "row of each thread": """__global__ void k(double *p, const double *g, int n) {
        int t = threadIdx.x; if (t >= 5) return;
        for (int j = 0; j < 4; j++) if (g[j] > 0) p[j + 4 * t] *= p[j + 4 * t] * g[j]; }""",
    "two stores": f"{HEAD} {{ {INDEX} double v = p[i], w = g[i]; p[i] = v * w; p[i] = v * v * w; }}",
    "read where it was stored": f"{HEAD} {{ {INDEX} double w = g[i]; p[i] = p[i] * p[i]; p[i] = sin(p[i]) * w; }}",
    "by another pointer": f"{HEAD} {{ {INDEX} double w = g[i], *q = p; *(q + i) = w * p[i]; p[i] = p[i] * p[i]; }}",
}

MEET = "__syncthreads();"  # or a register has the element while the loop runs
NEEDS_SPLIT = {
    "a fence": (f"{HEAD} {{ {INDEX} double v = p[i]; __threadfence_block();\n p[i] = v * v * g[i]; }}", 2),
    "loop": (f"{HEAD} {{ {INDEX} for (int j = 0; j < 3; j++) {{\n p[i] = p[i] * p[i] * g[i]; {MEET} }} }}", 2),
    "the one before": (
        f"{HEAD} {{ if (threadIdx.x) return;\n for (int i = 1; i < n; i++)\n p[i] = p[i] * p[i - 1] * g[i]; }}",
        3,
    ),
    "rounds of a loop": (
        f"{HEAD} {{ {INDEX} for (int r = 0; r < 2; r++) for (int j = i; j < n; j += 64)\n p[j] *= p[j] * g[j]; }}",
        2,
    ),
    "meeting in the loop": (
        """__global__ void k(double *p, const double *g, int n) {
        for (int i = threadIdx.x; i < n; i += 4) { double v = p[i]; __syncthreads();
        p[i] = v * v; __syncthreads(); } }""",
        3,
    ),
    "while": (f"{HEAD} {{ {INDEX} while (p[i] > 1)\n p[i] = p[i] * p[i] * 0.1; }}", 2),
    "at another index": (
        f"""{HEAD} {{ {INDEX} int a = 2 * i + (g[i] > 0), b = 2 * i + (g[i] > 1);
        p[a] = g[i]; p[b] = p[b] * p[b]; }}""",
        2,
    ),
    "after a barrier": (
        """__global__ void k(double *p, const double *g, int n) {
        int t = threadIdx.x; double a = p[t];
        p[t] = a * a; __syncthreads(); double b = p[(t + 1) % blockDim.x];
        __syncthreads(); p[t] = b * b; }""",
        3,
    ),
    "a neighbour's, after a barrier": (
        """__global__ void k(double *p, const double *g, int n) {
        int t = threadIdx.x; double a = p[t];
        p[t] = a * a; __syncthreads(); double b = p[t + 1];
        __syncthreads(); p[t] = b * b; }""",
        3,
    ),
    "branches that meet": (
        """__global__ void k(double *p, const double *g, int n) {
        int t = threadIdx.x; double b = 0;
        if (t < 8) {
            p[t + 8] = g[t]; __syncwarp(); }
        else { __syncwarp(); b = p[t]; p[t] = b * b; } }""",
        4,
    ),
    "branches that meet in a vote": (
        """__global__ void k(double *p, const double *g, int n) {
        int t = threadIdx.x; double b = 0;
        if (t < 8) {
            p[t + 8] = g[t]; b = __all_sync(~0u, 1); }
        else { int all = __all_sync(~0u, 1); b = p[t]; p[t] = b * b * all; } }""",
        4,
    ),
    "atomic": (f"{HEAD} {{ {INDEX}\n atomicAdd(p + (i + 1) % n, g[i]); __syncthreads(); p[i] = p[i] * p[i]; }}", 2),
}


def adjoints(kernel: Any, primal: bool, **options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p, g, d_p, d_g = (rng.random(N) + 0.5 for _ in range(4))
    kg.gradient(kernel, "p, g", primal=primal, **options)[1, N](p, g, N, d_p, d_g)
    return p, d_p, d_g


LOOPS = ("grid stride", "row of each thread")  # where g may be p, what is stored in one iteration is read in the next
PLAIN = [(name, options) for name in HAS_REVERSE for options in ({}, {"deterministic": True})]


@pytest.mark.parametrize(
    ("name", "options"), [*PLAIN, *((name, {"may_alias": True}) for name in HAS_REVERSE if name not in LOOPS)]
)
def test_in_place_kernels_have_a_reverse_alone(name: str, options: dict[str, Any]) -> None:
    kernel = kernel_of(HAS_REVERSE[name])
    before = np.random.default_rng(0).random(N) + 0.5
    p, *found = adjoints(kernel, False, **options)
    np.testing.assert_array_equal(p, before)  # not written
    for one, other in zip(found, adjoints(kernel, True)[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)
    kg.check_gradient(kernel, "p, g", 1, N, (before, before + 1, N))


@pytest.mark.parametrize("name", NEEDS_SPLIT)
def test_what_the_kernel_made_and_overwrote_is_an_error_at_that_store(name: str) -> None:
    source, line = NEEDS_SPLIT[name]
    with pytest.raises(kg.UnsupportedError, match=r"primal=False[^$]*split") as error:
        kg.gradient(kernel_of(source), "p, g", primal=False)
    assert f"kernel.cu:{line}:" in str(error.value)


def test_another_buffer_may_be_the_same_memory() -> None:
    source = f"""__global__ void k(double *p, double *g, int n) {{ {INDEX}
        g[i] = 2; p[i] = p[i] * p[i]; }}"""
    kernel = kernel_of(source)
    assert kg.gradient(kernel, "p, g", primal=False)
    with pytest.raises(kg.UnsupportedError, match="split"):
        kg.gradient(kernel, "p, g", primal=False, may_alias=True)


def test_large_launches_in_two_leave_what_the_kernel_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reverse alone goes first, then the kernel that writes what it read."""
    from kernelgrad.autodiff.costs.work import Work
    from kernelgrad.launches.choice import split_launch

    source = f"""{HEAD} {{ {INDEX} double v = p[i], s = 1;
        for (int j = 0; j < 20; j++) s = s * v + g[j]; p[i] = s; }}"""
    kernel = kernel_of(source)
    want = adjoints(kernel, True)
    monkeypatch.setattr(split_launch, "ENOUGH", Work(moved=1, operations=1))
    monkeypatch.setattr(split_launch, "DENSE", 0)
    monkeypatch.setattr(split_launch, "MORE", 100)
    args = (np.ones(N), np.ones(N), N)
    assert "two launches, the reverse alone and then the kernel" in kg.gradient(kernel, "p, g").explain(1, N, *args)
    for one, other in zip(want, adjoints(kernel, True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)
