"""Sums of adjoints over very many equal floats on the GPU: nothing of what is added gets lost."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from long_sum_cases import CELLS, LENGTHS, PLACES, SEED, arguments, cells_source, expected, source

cp = pytest.importorskip("cupy")

_LOOPS = {
    "element": "for (int j = 0; j < n; j++) s += w[0] * 1.1f;",
    "local": "float v = w[0] * 1.0f; for (int j = 0; j < n; j++) s += v * 1.1f;",
    "branch": "for (int j = 0; j < 2 * n; j++) if (j % 2 == 0) s += w[0] * 1.1f;",
    "nested": "for (int j = 0; j < n / 2048; j++) for (int k = 0; k < 2048; k++) s += w[0] * 1.1f;",
    "threads": "for (int j = threadIdx.x; j < n; j += blockDim.x) s += w[0] * 1.1f;",
}


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", _LOOPS)
def test_one_threads_sum(name: str, deterministic: bool) -> None:
    head = "__global__ void k(float *y, const float *w, int n)"
    kernel = kg.compile(f"{head} {{ float s = 0; {_LOOPS[name]} y[threadIdx.x] = s; }}")["k"]
    n, threads = (1 << 26, 256) if name == "threads" else (1 << 24, 1)
    w, d_w = cp.full(1, 0.5, "f4"), cp.zeros(1, "f4")
    gradient = kg.gradient(kernel, "y, w", deterministic=deterministic)
    gradient[1, threads](cp.zeros(threads, "f4"), w, n, cp.ones(threads, "f4"), d_w)
    np.testing.assert_allclose(d_w.get(), [float(np.float32(1.1)) * n], rtol=1e-5)


@pytest.mark.parametrize("n", [1 << 24, 1 << 26])
def test_the_sum_of_a_number(n: int) -> None:
    kernel = kg.compile("""__global__ void k(float *y, float a) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = a * 1.1f;
    }""")["k"]
    d_a = cp.zeros(1, "f4")
    kg.gradient(kernel, "y, a")[n // 256, 256](cp.zeros(n, "f4"), 0.5, cp.ones(n, "f4"), d_a)
    np.testing.assert_allclose(d_a.get(), [float(np.float32(1.1)) * n], rtol=1e-5)


@pytest.mark.parametrize("blocks", [1, 300, 2_000, 5_000])
def test_numbers_of_launches_of_all_sizes(blocks: int) -> None:
    kernel = kg.compile("""__global__ void k(float *y, const float *w, float a) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = a + w[i & 1];
    }""")["k"]
    n, gradient = blocks * 256, kg.gradient(kernel, "y, w, a")
    for seed in np.random.default_rng(1).uniform(1, 2, 4).astype("f4"):
        d_a, d_w = cp.zeros(1, "f4"), cp.zeros(2, "f4")
        gradient[blocks, 256](cp.zeros(n, "f4"), cp.zeros(2, "f4"), 0.5, cp.full(n, seed), d_w, d_a)
        np.testing.assert_allclose(d_a.get().astype("f8"), [float(seed) * n], rtol=1e-5)
        np.testing.assert_allclose(d_w.get().astype("f8"), float(seed) * n / 2, rtol=1e-5)


@pytest.mark.parametrize("n", [1_000, 12_000, 60_000])
@pytest.mark.parametrize("count", [3, 20])
def test_pieces(count: int, n: int) -> None:
    """Of few sums in registers, of many in memory."""
    source = f"""__global__ void k(float *y, const float *w, int n) {{
        float q[{count}], s = 0;
        for (int k = 0; k < {count}; k++) q[k] = w[k];
        for (int j = 0; j < n; j++) for (int k = 0; k < {count}; k++) s += q[k];
        y[blockIdx.x * blockDim.x + threadIdx.x] = s;
    }}"""
    d_w, seed = cp.zeros(count, "f4"), np.float32(1.7)
    gradient = kg.gradient(kg.compile(source)["k"], "y, w")
    gradient[2, 64](cp.zeros(128, "f4"), cp.ones(count, "f4"), n, cp.full(128, seed), d_w)
    np.testing.assert_allclose(d_w.get().astype("f8"), float(seed) * n * 128, rtol=1e-5)


_MEMORY = {
    "modulo": "for (int j = 0; j < n; j++) s += w[j & 3] * 1.1f;",
    "inner": "for (int j = 0; j < n / 4; j++) for (int q = 0; q < 4; q++) s += w[q] * 1.1f;",
    "shared": "__shared__ float q[4]; if (threadIdx.x < 4) q[threadIdx.x] = w[threadIdx.x]; __syncthreads();"
    " for (int j = 0; j < n; j++) s += q[j & 3] * 1.1f;",
    "dynamic": "extern __shared__ float q[]; if (threadIdx.x < 4) q[threadIdx.x] = w[threadIdx.x]; __syncthreads();"
    " for (int j = 0; j < n; j++) s += q[j & 3] * 1.1f;",
    "local": "float q[4]; for (int j = 0; j < 4; j++) q[j] = w[j]; for (int j = 0; j < n; j++)"
    " s += q[(j * 7) & 3] * 1.1f;",
    "loaded": "for (int j = bounds[0]; j < bounds[1]; j++) s += w[j & 3] * 1.1f;",
}


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", _MEMORY)
def test_cells_in_memory(name: str, deterministic: bool) -> None:
    head = "__global__ void k(float *y, const float *w, const int *bounds, int n)"
    kernel = kg.compile(f"{head} {{ float s = 0; {_MEMORY[name]} y[threadIdx.x] = s; }}")["k"]
    threads, n = 32, 1 << (14 if deterministic else 18)
    w, d_w, bounds = cp.ones(4, "f4"), cp.zeros(4, "f4"), cp.array([0, n], "i4")
    gradient = kg.gradient(kernel, "y, w", deterministic=deterministic)
    gradient[1, threads, 16](cp.zeros(threads, "f4"), w, bounds, n, cp.ones(threads, "f4"), d_w)
    np.testing.assert_allclose(d_w.get(), float(np.float32(1.1)) * n * threads / 4, rtol=1e-5)


@pytest.mark.parametrize("primal", [True, False])
@pytest.mark.parametrize("name", [*PLACES, *LENGTHS])
def test_wherever_the_sum_is_kept_and_however_long(name: str, primal: bool) -> None:
    gradient = kg.gradient(kg.compile(source(name))["k"], "y, w, a", primal=primal)
    given = [cp.asarray(v) if isinstance(v, np.ndarray) else v for v in arguments()]
    d_w, d_a, want = cp.zeros(2, "f4"), cp.zeros(1, "f4"), expected(name)
    gradient[1, 1](*given, cp.full(1, SEED, "f4"), d_w, d_a)
    np.testing.assert_allclose([*d_w.get(), *d_a.get()], want, rtol=2e-5, atol=1e-5 * abs(want).max())


@pytest.mark.parametrize("primal", [True, False])
@pytest.mark.parametrize("n", [1 << 23, 1 << 26])
@pytest.mark.parametrize("cells", [3, 1000, 30_000])
def test_small_buffers(cells: int, n: int, primal: bool) -> None:
    """Copies of a small adjoint, and elements at addresses that memory holds."""
    source = """__global__ void k(float *y, const float *w, const float *x, const int *idx, int m) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = w[i % m] * 1.1f + x[idx[i]] * 1.1f;
    }"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, w, x", primal=primal)
    w, x, d_w, d_x = cp.ones(cells, "f4"), cp.ones(cells, "f4"), cp.zeros(cells, "f4"), cp.zeros(cells, "f4")
    gradient[n // 256, 256](cp.zeros(n, "f4"), w, x, cp.full(n, 2, "i4"), cells, cp.ones(n, "f4"), d_w, d_x)
    expected = np.bincount(np.arange(n) % cells, minlength=cells) * float(np.float32(1.1))
    np.testing.assert_allclose(d_w.get(), expected, rtol=1e-5)
    np.testing.assert_allclose(d_x.get()[2], n * float(np.float32(1.1)), rtol=1e-5)
    assert not np.delete(d_x.get(), 2).any()


def test_copies_in_a_split() -> None:
    kernel, n = (
        kg.compile("""__global__ void k(float *y, const float *w) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = w[i % 3] * 1.1f;
    }""")["k"],
        3 << 23,
    )
    forward, reverse = kg.split(kernel)
    y, w, d_w, launch = cp.zeros(n, "f4"), cp.ones(3, "f4"), cp.zeros(3, "f4"), (n // 256, 256)
    reverse[launch](forward[launch](y, w), y, w, cp.ones(n, "f4"), d_w)
    np.testing.assert_allclose(d_w.get(), float(np.float32(1.1)) * n / 3, rtol=1e-5)


_FLOATS = [name for name, (_, _, buffers, _, _) in CELLS.items() if all(b.dtype == "f4" for b in buffers.values())]


@pytest.mark.parametrize("name", _FLOATS)
def test_cells_of_many_threads(name: str) -> None:
    _, _, buffers, _, want = CELLS[name]
    n = 1 << 24
    gradient = kg.gradient(kg.compile(cells_source(name))["k"], ", ".join(("y", *buffers)))
    given = [cp.asarray(buffer) for buffer in buffers.values()]
    adjoints = {f"d_{at}": cp.zeros_like(buffer) for at, buffer in zip(buffers, given, strict=True)}
    gradient[n // 256, 256](cp.zeros(n, "f4"), *given, n, d_y=cp.full(n, SEED, "f4"), **adjoints)
    for at, cells in want.items():
        found = adjoints[f"d_{at}"].get()
        np.testing.assert_allclose(found[list(cells)], SEED * n * np.array(list(cells.values())), rtol=1e-5)
