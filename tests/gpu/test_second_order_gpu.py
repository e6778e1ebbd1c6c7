"""Second derivatives on a GPU, against those on the CPU: all kinds, threads that cooperate, launches of many blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cooperation_cases
import gradient_cases
import kernelgrad as kg

cupy = pytest.importorskip("cupy")

KINDS = {
    "gradient of the gradient": lambda k, listed: kg.gradient(kg.gradient(k, listed)),
    "gradient of the tangent": lambda k, listed: kg.gradient(kg.jvp(k, listed)),
    "tangent of the gradient": lambda k, listed: kg.jvp(kg.gradient(k, listed)),
    "hvp": kg.hvp,
}
ALONE = "early_return carried_nonlinearly while_break_do ping_pong scalar_read_by_all neighbours atomic_sum elementary"
TOGETHER = """tree_sum tiled_product shuffles dynamic_shared_memory views_of_bytes histogram_in_shared_memory layer_norm
    bitonic_sort lanes_leave_by_data group_sum shared_total double_buffered_scan"""


def on_both(made: Any, launch: Any, args: tuple[Any, ...], seed: int = 0) -> None:
    """Random numbers for all that comes after the kernel's arguments; zeros for the adjoints among it, too."""
    for zero in (False, True):
        _on_both(made, launch, args, seed, zero)


def _on_both(made: Any, launch: Any, args: tuple[Any, ...], seed: int, zero: bool) -> None:
    rng = np.random.default_rng(seed)
    by_name = {p.name: a for p, a in zip(made.kernel.function.params, args, strict=False)}
    slots = [rng.uniform(-1, 1, np.atleast_1d(by_name[slot.of]).shape) for slot in made.slots]
    slots = [a * 0 if zero and slot.role == "adjoint" else a for a, slot in zip(slots, made.slots, strict=True)]
    host = [a.copy() if isinstance(a, np.ndarray) else a for a in (*args, *slots)]
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in (*args, *slots)]
    made[launch](*host)
    made[launch](*device)
    for k, (got, want) in enumerate(zip(device, host, strict=True)):
        if isinstance(want, np.ndarray):
            close = {"rtol": 1e-9, "atol": 1e-10 * max(1.0, float(np.abs(want).max(initial=0)))}
            np.testing.assert_allclose(cupy.asnumpy(got), want, **close, err_msg=str(k))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALONE.split())
def test_threads_alone(name: str, kind: str) -> None:
    case = next(c for c in gradient_cases.ALL if c.name == name)
    on_both(KINDS[kind](case.compiled(), case.listed), (case.grid, case.block), case.arguments("f8"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TOGETHER.split())
def test_threads_together(name: str, kind: str) -> None:
    case = cooperation_cases.CASES[name]
    y, x, _ = cooperation_cases.inputs(3)
    on_both(KINDS[kind](case.compiled(), "y, x"), case.launch, (y, x, case.n))


@pytest.mark.parametrize("kind", KINDS)
def test_many_blocks_on_a_stream(kind: str) -> None:
    """Of a number, of four elements that all threads read, of elements of one thread each."""
    kernel = kg.compile("""__global__ void k(double *y, const double *x, const double *w, double a, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = sin(a * x[i]) * w[i % 4] * w[0];
    }""")["k"]
    n, rng = 1 << 20, np.random.default_rng(1)
    args = (np.zeros(n), rng.uniform(-1, 1, n), rng.uniform(-1, 1, 4), 0.7, n)
    made = KINDS[kind](kernel, "y, x, w, a")
    on_both(made, (n // 128, 128), args)
    with cupy.cuda.Stream(non_blocking=True):
        on_both(made, (n // 128, 128), args, seed=2)


def test_within_a_budget() -> None:
    kernel = kg.compile("""__global__ void k(double *y, const double *x, int n, int m) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        double s = x[i];
        for (int j = 0; j < m; ++j) s = s + 0.1 * sin(s) * x[(i + j) % n];
        y[i] = s;
    }""")["k"]
    made = kg.gradient(kg.gradient(kernel, "y, x", tape_budget=1 << 20))
    on_both(made, (4, 128), (np.zeros(512), np.random.default_rng(0).uniform(-1, 1, 512), 512, 1000))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_that_are_planned_as_rows(kind: str) -> None:
    """The gradient that is derived is for blocks of several rows, and so must the launch be."""
    kernel = kg.compile("""__global__ void k(double *y, const double *x, int n) {
        __shared__ double a[32][32], b[32][32];
        int r = threadIdx.x / 32, c = threadIdx.x % 32;
        double s = 0;
        for (int t = 0; t < n / 32; ++t) {
            a[r][c] = x[r * n + t * 32 + c];
            b[r][c] = x[(t * 32 + r) * 32 + c];
            __syncthreads();
            for (int q = 0; q < 32; ++q) s += a[r][q] * b[q][c];
            __syncthreads();
        }
        y[r * 32 + c] = s * s;
    }""")["k"]
    x = np.random.default_rng(4).uniform(-1, 1, 2048)
    on_both(KINDS[kind](kernel, "y, x"), (1, 1024), (np.zeros(1024), x, 64))
