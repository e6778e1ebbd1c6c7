"""Decisions in loops of a few iterations, in bits; numbers of iterations that the reverse finds again; how much loops
inside of loops keep, where the inner ones differ in length."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.config import make_launch

SORT = """
__global__ void sort(double *y, const double *x)
{
    __shared__ double keys[2 * THREADS];
    int t = threadIdx.x;
    keys[t] = x[t];
    keys[t + THREADS] = x[t + THREADS];
    for (int size = 2; size <= 2 * THREADS; size GROW)
        for (int stride = size / 2; stride STOP; stride SHRINK) {
            __syncthreads();
            int low = 2 * t - (t & (stride - 1)), high = low + stride;
            double a = keys[low], b = keys[high];
            if ((a > b) == ((low & size) == 0)) {
                keys[low] = b;
                keys[high] = a;
            }
        }
    __syncthreads();
    y[t] = keys[t];
    y[t + THREADS] = keys[t + THREADS];
}
"""
SPELLINGS = [("*= 2", "> 0", "/= 2"), ("<<= 1", "", ">>= 1"), ("+= size", ">= 1", "= stride / 2")]
OPTIONS = [{}, {"primal": False, "keep": "y", "assign": "x"}, {"deterministic": True}, {"tape_budget": 256}]


def sorting(threads: int, spelling: tuple[str, str, str]) -> kg.Kernel:
    grow, stop, shrink = spelling
    text = SORT.replace("THREADS", str(threads)).replace("GROW", grow).replace("STOP", stop).replace("SHRINK", shrink)
    return kg.compile(text)["sort"]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: s[0])
def test_sorting_networks_take_keys_back_to_where_they_were(spelling: tuple[str, str, str], options: dict) -> None:
    threads = 32
    x = np.random.default_rng(0).permutation(2.0 * np.arange(2 * threads))
    d_y = np.random.default_rng(1).random(2 * threads)
    d_x = np.full(2 * threads, 7.0) if "assign" in options else np.zeros(2 * threads)
    expected = np.empty_like(d_y)
    expected[np.argsort(x)] = d_y
    gradient = kg.gradient(sorting(threads, spelling), "y, x", **options)
    gradient[1, threads](np.zeros(2 * threads), x, d_y.copy(), d_x)
    np.testing.assert_array_equal(d_x, expected)


@pytest.mark.parametrize(
    ("threads", "register"), [(8, "unsigned int _bits"), (128, "unsigned long long _bits"), (1024, "_bits_1")]
)
def test_decisions_of_a_sorting_network_take_no_tape(threads: int, register: str) -> None:
    gradient = kg.gradient(sorting(threads, SPELLINGS[0]), "y, x")
    assert register in gradient.source and "_tape" not in gradient.source
    assert "which way it went is a bit of a register" in str(gradient.explain())


def test_a_network_with_too_many_decisions_has_a_tape() -> None:
    text = SORT.replace("THREADS", "64").replace("GROW", "*= 2").replace("STOP", "> 0").replace("SHRINK", "/= 2")
    text = text.replace("for (int size", "for (int again = 0; again < 5; ++again) for (int size")
    gradient = kg.gradient(kg.compile(text)["sort"], "y, x")
    assert "_tape_u8" in gradient.source and "_tape_i64" not in gradient.source
    x, d_y, d_x = np.random.default_rng(0).permutation(128) * 1.0, np.arange(128.0), np.zeros(128)
    gradient[1, 64](np.zeros(128), x, d_y.copy(), d_x)
    expected = np.empty_like(d_y)
    expected[np.argsort(x)] = d_y
    np.testing.assert_array_equal(d_x, expected)


BODIES = {
    "halved inside of doubled": "for (int m = 1; m < n; m *= 2) for (int d = m; d > 0; d /= 2) { STEP }",
    "a triangle": "for (int m = 0; m < n; ++m) for (int d = 0; d < m; ++d) { STEP }",
    "a triangle of halves": "for (int m = n; m > 0; m -= 3) for (int d = m; d > 1; d >>= 1) { STEP }",
    "three deep": "for (int a = 1; a <= 4; a <<= 1) for (int m = a; m; m >>= 1) for (int d = 0; d < m; ++d) { STEP }",
    "never": "for (int m = 1; m < n; m *= 2) for (int d = -m; d > 0; d /= 2) { STEP }",
    "as data says": "for (int m = 1; m < n; m *= 2) for (int d = lengths[i % 3] + m; d > 0; d /= 2) { STEP }",
    "numbers in turn": """unsigned s = 7u * i + 1;
        for (int m = 0; m < 3; ++m) { unsigned r = s; while (r % 5) { r = r * 3 + 1; STEP } s += r; }""",
    "a branch between": "for (int m = 1; m < n; m *= 2) if (m & 5) for (int d = m; d > 0; d /= 2) { STEP }",
    "out in the middle": """for (int m = 1; m < n; m *= 2)
        for (int d = m; d > 0; d /= 2) { if (p[0] > 1.4) break; STEP }""",
}
STEP = "p[0] = sin(p[0]) * cos(p[1]); if (p[0] > 0.3) p[1] = 0.7 * p[1] + p[0] * x[i]; else p[1] *= 0.9 - 0.5 * p[0];"


@pytest.mark.parametrize("options", [{}, {"primal": False}, {"tape_budget": 150_000}, {"deterministic": True}], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_loops_inside_of_loops(name: str, options: dict) -> None:
    """What they overwrite is memory: their values are saved."""
    loops = BODIES[name].replace("STEP", STEP)
    text = f"""__global__ void k(double *y, const double *x, const int *lengths, int n) {{
        __shared__ double all[64];
        int i = threadIdx.x;
        double *p = all + 2 * ((i * 7) % 32);
        p[0] = x[i];
        p[1] = x[i] * x[i];
        {loops}
        y[i] = p[0] * p[1];
    }}"""
    kernel, threads, n = kg.compile(text)["k"], 32, 11
    x, lengths = np.random.default_rng(0).random(threads), np.array([3, 0, 9], np.int32)

    expected, one = np.zeros(threads), np.ones(threads)
    kg.jvp(kernel, "y, x")[1, threads](np.zeros(threads), x, lengths, n, expected, one)
    d_x = np.zeros(threads)
    kg.gradient(kernel, "y, x", **options)[1, threads](np.zeros(threads), x, lengths, n, np.ones(threads), d_x)
    np.testing.assert_allclose(d_x, expected, rtol=1e-10, atol=1e-12)


def test_loops_of_known_lengths_need_no_launch_that_counts() -> None:
    text = """__global__ void k(double *y, const double *x, int n) {
        double p[2] = {x[threadIdx.x], 1.0};
        for (int m = 0; m < n; ++m) for (int d = 0; d <= m; ++d) { p[(m + d) % 2] *= sin(p[d % 2]); }
        y[threadIdx.x] = p[0] + p[1];
    }"""
    gradient, x = kg.gradient(kg.compile(text)["k"], "y, x"), np.full(4, 0.7)
    steps = gradient.planned(make_launch(1, 4), (np.zeros(4), x, 9), {}, on_gpu=True).plan
    assert "count" not in str(steps).lower()
