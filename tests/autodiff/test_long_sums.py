"""Sums of adjoints over very many equal floats: nothing of what is added gets lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from long_sum_cases import CELLS, LENGTHS, PLACES, SEED, arguments, cells_source, expected, source
from some_cases import in_turn

N = 1 << 22

_LOOPS = {
    "element": "for (int j = 0; j < n; j++) s += w[0] * 1.1f;",
    "downward": "for (int j = n; j > 0; j -= 1) s += w[0] * 1.1f;",
    "strided": "for (int j = 3; j < 2 * n + 2; j += 2) s += w[0] * 1.1f;",
    "local": "float v = w[0] * 1.0f; for (int j = 0; j < n; j++) s += v * 1.1f;",
    "branch": "for (int j = 0; j < 2 * n; j++) if (j % 2 == 0) s += w[0] * 1.1f;",
    "choice": "for (int j = 0; j < 2 * n; j++) s += j % 2 == 0 ? w[0] * 1.1f : 0.5f;",
    "nested": "for (int j = 0; j < n / 2048; j++) for (int k = 0; k < 2048; k++) s += w[0] * 1.1f;",
    "nested_unknown": "for (int j = 0; j < n / m; j++) for (int k = 0; k < m; k++) s += w[0] * 1.1f;",
    "while": "int j = 0; while (j < n) { s += w[0] * 1.1f; j++; }",
    "minus": "for (int j = 0; j < n; j++) s -= w[0] * -1.1f;",
    "long_long": "for (long long j = 0; j < n; j++) s += w[0] * 1.1f;",
    "threads": "for (int j = threadIdx.x; j < n; j += blockDim.x) s += w[0] * 1.1f;",
}


def _gradient(loop: str, listed: str = "y, w", **options: Any) -> Any:
    head = "__global__ void k(float *y, const float *w, float a, int n, int m)"
    return kg.gradient(kernel_of(f"{head} {{ float s = 0; {loop} y[threadIdx.x] = s; }}"), listed, **options)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", _LOOPS)
def test_one_threads_sum(name: str, deterministic: bool) -> None:
    gradient = _gradient(_LOOPS[name], deterministic=deterministic)
    threads = 4 if name == "threads" else 1
    y, d_y, w, d_w = np.zeros(threads, "f4"), np.ones(threads, "f4"), np.full(1, 0.5, "f4"), np.zeros(1, "f4")
    gradient[1, threads](y, w, 0.5, N, 512, d_y, d_w)
    np.testing.assert_allclose(d_w, [float(np.float32(1.1)) * N], rtol=1e-5)


_NESTS = {
    "for (int j = 0; j < n / m; j++) for (int k = 0; k < m; k++) s += v * 1.1f;": 1,
    "for (int i = 0; i < m; i++) for (int j = 0; j < m; j++) for (int k = 0; k < n / m / m; k++) s += v * 1.1f;": 1,
    # The loop around adds something, or looks at it.
    "for (int j = 0; j < n / m; j++) { s += v * 1.1f; for (int k = 1; k < m; k++) s += v * 1.1f; }": 2,
    "for (int j = 0; j < n / m; j++) { if (j & 1) for (int k = 0; k < 2 * m; k++) s += v * 1.1f; }": 2,
}


@pytest.mark.parametrize("loops", _NESTS)
def test_loops_around_carry_the_total(loops: str) -> None:
    """In no pieces of their own, if that is all they do with it."""
    gradient = _gradient(f"float v = w[0] * 1.0f; {loops}", primal=False, keep="y")
    y, d_y, w, d_w = np.zeros(1, "f4"), np.ones(1, "f4"), np.full(1, 0.5, "f4"), np.zeros(1, "f4")
    assert gradient.source_for(1, 1, y, w, 0.5, N, 512).count("  double ") == _NESTS[loops]
    gradient[1, 1](y, w, 0.5, N, 512, d_y, d_w)
    np.testing.assert_allclose(d_w, [float(np.float32(1.1)) * N], rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 256])
def test_the_sum_of_a_number(threads: int) -> None:
    gradient = _gradient("for (int j = 0; j < n; j++) s += a * 1.1f;", "y, a")
    d_a, n = np.zeros(1, "f4"), N // threads * 8
    gradient[1, threads](
        np.zeros(threads, "f4"), np.zeros(1, "f4"), 0.5, n, 1, np.ones(threads, "f4"), d_a
    )  # fmt: skip
    np.testing.assert_allclose(d_a, [float(np.float32(1.1)) * n * threads], rtol=1e-5)


def test_the_kernels_own_sums_stay_as_they_are() -> None:
    source = "__global__ void k(float *y, const float *w, int n) { float s = 0; for (int j = 0; j < n; j++)" + (
        " s += w[0] * 0.3f; y[0] = s; }"
    )
    kernel = kernel_of(source)
    alone, y, w = np.zeros(1, "f4"), np.zeros(1, "f4"), np.full(1, 0.7, "f4")
    kernel[1, 1](alone, w, 200_001)
    kg.gradient(kernel, "y, w")[1, 1](y, w, 200_001, np.ones(1, "f4"), np.zeros(1, "f4"))
    assert y == alone


SEEDS = np.random.default_rng(1).uniform(1, 2, 4).astype("f4")  # of some, more of each addition is rounded off
_FORMS = {
    "plain": "for (int j = 0; j < n; j++) s += w[0];",
    "terms": "for (int j = 0; j < n / 8; j++) { " + "s += w[0]; " * 8 + "}",
    "nest": "for (int j = 0; j < n / 200; j++) for (int k = 0; k < 200; k++) s += w[0];",
    "deep": "for (int j = 0; j < n / 100; j++) for (int k = 0; k < m; k++) for (int l = 0; l < 25; l++) s += w[0];",
    "moving": "for (int j = 0; j < n; j++) s += w[j % m];",
    "waiting": "for (int j = 0; j < n; j++) { s += w[0]; __syncthreads(); }",
    "many": "float q[20]; for (int j = 0; j < 20; j++) q[j] = w[j]; for (int j = 0; j < n; j++)"
    " for (int k = 0; k < 20; k++) s += q[k];",
}


@pytest.mark.parametrize("options", [{}, {"deterministic": True}, {"primal": False}, {"keep": "y"}], ids=str)
@pytest.mark.parametrize("name", _FORMS)
def test_sums_of_middling_length(name: str, options: dict[str, Any]) -> None:
    """By the bound: 1e-5 for any seed, and the number of digits that are lost does not grow."""
    gradient = _gradient(_FORMS[name], **options)
    for n in (200, 1_000, 12_000, 60_000):
        for seed in SEEDS:
            d_w = np.zeros(20, "f4")
            gradient[1, 1](np.zeros(1, "f4"), np.ones(20, "f4"), 0.5, n, 4, np.full(1, seed), d_w)
            expected = float(seed) * n * (20 if name == "many" else 1)
            np.testing.assert_allclose(d_w.sum(dtype="f8"), expected, rtol=1e-5)


@pytest.mark.parametrize("body", ["a * 1.0f", "a + w[i & 1]", "i % 3 ? a : w[2]"])
def test_numbers_of_launches_of_all_sizes(body: str) -> None:
    source = """__global__ void k(float *y, const float *w, float a) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = %s; }"""
    gradient = kg.gradient(kernel_of(source % body), "y, a")
    for blocks in (1, 16, 300, 2_000, 5_000):
        n, d_a = blocks * 256, np.zeros(1, "f4")
        for seed in SEEDS:
            d_a[:] = 0
            gradient[blocks, 256](np.zeros(n, "f4"), np.zeros(4, "f4"), 0.5, np.full(n, seed), d_a)
            times = n if "?" not in body else np.count_nonzero(np.arange(n) % 3)
            np.testing.assert_allclose(d_a.astype("f8"), [float(seed) * times], rtol=1e-5)


def test_contributions_that_differ() -> None:
    """At random, and one large one before many that are small beside it."""
    source = """__global__ void k(float *y, const float *w, const float *x, int n) {
        float s = 0; for (int j = 0; j < n; j++) s += w[0] * x[j]; y[0] = s; }"""
    n, gradient = 1 << 20, kg.gradient(kernel_of(source), "y, w")
    random = np.random.default_rng(3).random(n).astype("f4")
    for x in (random, np.append(random[1:], np.float32(2.0**18)), np.full(n, 2.0**-30, "f4")):
        d_w = np.zeros(1, "f4")
        gradient[1, 1](np.zeros(1, "f4"), np.ones(1, "f4"), x, n, np.ones(1, "f4"), d_w)
        np.testing.assert_allclose(d_w, [x.astype("f8").sum()], rtol=1e-5)


def test_cells_of_many_threads_in_a_split() -> None:
    kernel = kernel_of(cells_source("far_end"))
    forward, reverse = kg.split(kernel)
    y, w, d_w, launch, n = np.zeros(N, "f4"), np.zeros(1 << 18, "f4"), np.zeros(1 << 18, "f4"), (N // 256, 256), N
    reverse[launch](forward[launch](y, w, n), y, w, n, np.full(N, SEED, "f4"), d_w)
    np.testing.assert_allclose(d_w[-4:], SEED * N / 4, rtol=1e-5)
    assert not d_w[:-4].any()


def test_a_length_in_a_record() -> None:
    source = """struct Size { int n; float a; }; __global__ void k(float *y, const float *w, Size size) {
        float s = 0; for (int j = threadIdx.x; j < size.n; j += blockDim.x) s += w[0] * size.a; y[threadIdx.x] = s; }"""
    d_w, size = np.zeros(1, "f4"), {"n": N, "a": 1.1}
    kg.gradient(kernel_of(source), "y, w")[1, 1](np.zeros(1, "f4"), np.ones(1, "f4"), size, np.ones(1, "f4"), d_w)
    np.testing.assert_allclose(d_w, [float(np.float32(1.1)) * N], rtol=1e-5)


@pytest.mark.parametrize("n", [70_000, 70_001, 70_127, 70_128])
def test_pieces_end_where_the_loop_ends(n: int) -> None:
    """Each iteration adds another number: all of them, and no other."""
    source = """__global__ void k(double *y, const float *x, const float *w, int n) {
        double s = 0; for (int j = n - 1; j >= 3; j -= 3) s += w[0] * x[j]; y[0] = s; }"""
    x, d_w = np.random.default_rng(n).random(n).astype("f4"), np.zeros(1, "f4")
    for scale in (1, 20):  # long and short, by the launch's integers
        text = source.replace("int n) {", f"int m) {{ int n = m / {scale};")
        gradient, count = kg.gradient(kernel_of(text), "y, w"), n // scale
        gradient[1, 1](np.zeros(1), x, np.ones(1, "f4"), n, np.ones(1), d_w)
        np.testing.assert_allclose(d_w, [x[count - 1 : 2 : -3].astype("f8").sum()], rtol=1e-5)
        d_w[:] = 0


_REFUSED = ("chosen_array", True)  # no fixed order
_CASES = [pair for pair in in_turn((*PLACES, *LENGTHS), (False, True)) if pair.values != _REFUSED]


@pytest.mark.parametrize("name, deterministic", _CASES)
def test_wherever_the_sum_is_kept_and_however_long(name: str, deterministic: bool) -> None:
    gradient = kg.gradient(kernel_of(source(name)), "y, w, a", deterministic=deterministic)
    d_w, d_a, want = np.zeros(2, "f4"), np.zeros(1, "f4"), expected(name)
    gradient[1, 1](*arguments(), np.full(1, SEED, "f4"), d_w, d_a)
    np.testing.assert_allclose([*d_w, *d_a], want, rtol=2e-5, atol=1e-5 * abs(want).max())


@pytest.mark.parametrize("name", CELLS)
def test_cells_of_many_threads(name: str) -> None:
    _, _, buffers, _, want = CELLS[name]
    gradient = kg.gradient(kernel_of(cells_source(name)), ", ".join(("y", *buffers)))
    adjoints = {f"d_{at}": np.zeros_like(buffer) for at, buffer in buffers.items()}
    gradient[N // 256, 256](np.zeros(N, "f4"), *buffers.values(), N, d_y=np.full(N, SEED, "f4"), **adjoints)
    for at, cells in want.items():
        found = adjoints[f"d_{at}"].view("f4")
        np.testing.assert_allclose(found[list(cells)], SEED * N * np.array(list(cells.values())), rtol=1e-5)
        assert np.count_nonzero(found) == np.count_nonzero(list(cells.values()))


def test_shared_cells_of_one_thread_or_of_many() -> None:
    """Who touches a cell between two barriers is another question for each block."""
    text = """__global__ void k(float *y, const float *x, int m) {
        __shared__ float s[32];
        if (threadIdx.x < 32) s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        float v = 0;
        for (int j = 0; j < 12; ++j) { v += s[(threadIdx.x + j) % 32] * j; __syncthreads(); }
        y[threadIdx.x] = v;
    }"""
    gradient = kg.gradient(kernel_of(text), "y, x")
    for threads, kind in ((32, "float"), (1024, "double")):
        arrays = np.zeros(threads, "f4"), np.ones(32, "f4")
        assert f"__shared__ {kind} _d_s[32]" in gradient.source_for(1, threads, *arrays, 64)
