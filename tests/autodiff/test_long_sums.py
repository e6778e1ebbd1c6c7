"""Sums of adjoints over very many equal floats: nothing of what is added gets lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

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
    return kg.gradient(kg.compile(f"{head} {{ float s = 0; {loop} y[threadIdx.x] = s; }}")["k"], listed, **options)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", _LOOPS)
def test_one_threads_sum(name: str, deterministic: bool) -> None:
    gradient = _gradient(_LOOPS[name], deterministic=deterministic)
    threads = 4 if name == "threads" else 1
    y, d_y, w, d_w = np.zeros(threads, "f4"), np.ones(threads, "f4"), np.full(1, 0.5, "f4"), np.zeros(1, "f4")
    gradient[1, threads](y, w, 0.5, N, 512, d_y, d_w)
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
    kernel = kg.compile(source)["k"]
    alone, y, w = np.zeros(1, "f4"), np.zeros(1, "f4"), np.full(1, 0.7, "f4")
    kernel[1, 1](alone, w, 200_001)
    kg.gradient(kernel, "y, w")[1, 1](y, w, 200_001, np.ones(1, "f4"), np.zeros(1, "f4"))
    assert y == alone


@pytest.mark.parametrize("n", [5_000, 30_000, 65_000])
def test_sums_of_middling_length(n: int) -> None:
    source = """__global__ void k(double *y, const float *w, int n) {
        double s = 0; for (int j = 0; j < n; j++) s += w[0] * 0.3f; y[0] = s; }"""
    d_w = np.zeros(1, "f4")
    kg.gradient(kg.compile(source)["k"], "y, w")[1, 1](np.zeros(1), np.ones(1, "f4"), n, np.ones(1), d_w)
    np.testing.assert_allclose(d_w, [n * np.float64(np.float32(0.3))], rtol=1e-5)


@pytest.mark.parametrize("n", [70_000, 70_001, 70_127, 70_128])
def test_pieces_end_where_the_loop_ends(n: int) -> None:
    """Each iteration adds another number: all of them, and no other."""
    source = """__global__ void k(double *y, const float *x, const float *w, int n) {
        double s = 0; for (int j = n - 1; j >= 3; j -= 3) s += w[0] * x[j]; y[0] = s; }"""
    x, d_w = np.random.default_rng(n).random(n).astype("f4"), np.zeros(1, "f4")
    for scale in (1, 20):  # long and short, by the launch's integers
        text = source.replace("int n) {", f"int m) {{ int n = m / {scale};")
        gradient, count = kg.gradient(kg.compile(text)["k"], "y, w"), n // scale
        gradient[1, 1](np.zeros(1), x, np.ones(1, "f4"), n, np.ones(1), d_w)
        np.testing.assert_allclose(d_w, [x[count - 1 : 2 : -3].astype("f8").sum()], rtol=1e-5)
        d_w[:] = 0


# The body, and what each of w[0], w[1] and the number a gets in units of n. Where several elements of one buffer are
# added to, where a test for NaN stands behind an inner loop, where pointers were chosen, threads meet, loops are short
# one by one.
_PLACES: dict[str, tuple[str, tuple[float, float, float]]] = {
    "two_elements": ("for (int j = 0; j < n; j++) s += w[0] * w[1];", (0.5, 0.5, 0)),
    "two_branches": ("for (int j = 0; j < n; j++) if (j & 1) s += w[0] * a; else s += w[1] * a;", (0.25, 0.25, 0.5)),
    "same_or_not": ("int p = c[0], q = c[1]; for (int j = 0; j < n; j++) s += w[p] * w[q];", (0.5, 0.5, 0)),
    "cases": ("for (int j = 0; j < n; j++) switch (j & 1) { case 0: s += w[0] * a; default: s -= w[1] * a; }",
              (0.25, -0.5, -0.25)),
    "nested_number": ("for (int j = 0; j < n / 1024; j++) { float q = w[j & 1]; for (int k = 0; k < 1024; k++)"
                      " s += q * a; }", (0.25, 0.25, 0.5)),
    "nested_while": ("for (int j = 0; j < n / 512; j++) { int k = 0; while (k < 512) { s += w[0] * a; k++; } }",
                     (0.5, 0, 0.5)),
    "short_loops": ("for (int i = 0; i < 64; i++) for (int j = 0; j < 256; j++) for (int k = 0; k < 256; k++)"
                    " s += w[0] * a;", (0.5, 0, 0.5)),
    "many_terms": ("for (int j = 0; j < n / 16; j++) { " + "s += w[0] * a; " * 16 + "}", (0.5, 0, 0.5)),
    "local_array": ("float q[3] = {w[0], w[1], a}; int p = c[1]; for (int j = 0; j < n; j++) s += q[p] * a;",
                    (0, 0.5, 0.5)),
    "local_arrays": ("float q[3] = {w[0], w[1], a}; int p = c[0], r = c[1]; for (int j = 0; j < n; j++)"
                     " s += q[p] * q[r];", (0.5, 0.5, 0)),
    "chosen_before": ("const float *q = c[1] ? w + 1 : w; for (int j = 0; j < n; j++) s += *q * a;", (0, 0.5, 0.5)),
    "chosen_array": ("float v[2] = {w[0], a}; const float *q = c[1] ? w + 1 : v; for (int j = 0; j < n; j++)"
                     " s += *q * a;", (0, 0.5, 0.5)),
    "record": ("struct { const float *p; float b; } r; r.p = w + c[1]; r.b = a; for (int j = 0; j < n; j++)"
               " s += r.p[0] * r.b;", (0, 0.5, 0.5)),
    "shared_after_return": ("if (m < 0) return; __shared__ float q[2]; q[0] = w[0]; q[1] = w[1]; int p = c[1];"
                            " __syncthreads(); for (int j = 0; j < n; j++) s += q[p] * a;", (0, 0.5, 0.5)),
    "barriers_after_return": ("if (threadIdx.x >= m) return; for (int j = 0; j < n / 4; j++) {"
                              " s += w[0] * a; __syncthreads(); s += w[1] * a; }", (0.125, 0.125, 0.25)),
}  # fmt: skip


_REFUSED = ("chosen_array", True)  # no fixed order


@pytest.mark.parametrize(
    "name, deterministic", [(name, d) for name in _PLACES for d in (False, True) if (name, d) != _REFUSED]
)
def test_wherever_the_sum_is_kept(name: str, deterministic: bool) -> None:
    body, units = _PLACES[name]
    head = "__global__ void k(float *y, const float *w, const int *c, float a, int n, int m)"
    kernel = kg.compile(f"{head} {{ float s = 0; {body} y[threadIdx.x] = s; }}")["k"]
    w, c = np.full(2, 0.5, "f4"), np.array([0, 1], "i4")
    d_w, d_a = np.zeros(2, "f4"), np.zeros(1, "f4")
    gradient = kg.gradient(kernel, "y, w, a", deterministic=deterministic)
    gradient[1, 1](np.zeros(1, "f4"), w, c, 0.5, N, 512, np.full(1, 1.1, "f4"), d_w, d_a)
    expected = float(np.float32(1.1)) * N * np.array(units)
    np.testing.assert_allclose([*d_w, *d_a], expected, rtol=2e-5, atol=1e-5 * abs(expected).max())


# Loops, and how many times they add w[0] * 1.1f in one thread of one. Nothing but these tells how long they are.
_LENGTHS: dict[str, tuple[str, int]] = {
    "a_literal": ("for (int j = threadIdx.x; j < 4000000; j += blockDim.x)", 4_000_000),
    "a_literal_by_ones": ("for (int j = threadIdx.x; j < 4000000; j++)", 4_000_000),
    "a_literal_in_a_while": ("for (unsigned j = 1; j < 8000000u; j += 1 + (j & 1))", 4_000_000),
    "a_product": ("for (int j = threadIdx.x; j < m * m * 16; j++)", 1 << 22),
    "a_product_with_the_block": ("for (int j = threadIdx.x; j < n * (int)blockDim.x; j++)", 1 << 22),
    "a_power": ("for (int j = threadIdx.x; j < (1 << (m / 32 + 6)); j++)", 1 << 22),
    "beside_a_hash": ("unsigned h = 7; for (int j = 0; j < n; j += 1 + (h & 1), h *= 4u)", (1 << 22) - 1),
    "doubled": ("for (int k = 1; k < n; k *= 2) for (int j = threadIdx.x; j < k; j++)", (1 << 22) - 1),
}


@pytest.mark.parametrize("name", _LENGTHS)
def test_however_the_length_is_given(name: str) -> None:
    loop, count = _LENGTHS[name]
    d_w, d_a = np.zeros(2, "f4"), np.zeros(1, "f4")
    gradient = _gradient(f"{loop} s += w[0] * w[1] * a;", "y, w, a")
    gradient[1, 1](np.zeros(1, "f4"), np.full(2, 0.5, "f4"), 0.5, N, 512, np.full(1, 1.1, "f4"), d_w, d_a)
    np.testing.assert_allclose([*d_w, *d_a], float(np.float32(1.1)) * count * 0.25, rtol=2e-5)
