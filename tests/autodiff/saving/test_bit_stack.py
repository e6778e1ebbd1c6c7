"""Decisions in loops of a few iterations, in bits; numbers of iterations that the reverse finds again; how much loops
inside of loops keep, where the inner ones differ in length."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from bit_cases import BODIES, SORT, SPELLINGS, nested, sorting
from derived import kernel_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch

OPTIONS = [{}, {"primal": False, "keep": "y", "assign": "x"}, {"deterministic": True}, {"tape_budget": 256}]


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
    gradient = kg.gradient(kernel_of(text, "sort"), "y, x")
    assert "_tape_u8" in gradient.source and "_tape_i64" not in gradient.source
    x, d_y, d_x = np.random.default_rng(0).permutation(128) * 1.0, np.arange(128.0), np.zeros(128)
    gradient[1, 64](np.zeros(128), x, d_y.copy(), d_x)
    expected = np.empty_like(d_y)
    expected[np.argsort(x)] = d_y
    np.testing.assert_array_equal(d_x, expected)


@pytest.mark.parametrize("options", [{}, {"primal": False}, {"tape_budget": 150_000}, {"deterministic": True}], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_loops_inside_of_loops(name: str, options: dict) -> None:
    kernel, threads, n = nested(name), 32, 11
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
    gradient, x = kg.gradient(kernel_of(text), "y, x"), np.full(4, 0.7)
    steps = gradient.planned(make_launch(1, 4), (np.zeros(4), x, 9), {}, on_gpu=True).plan
    assert "count" not in str(steps).lower()


def test_decisions_of_a_loop_that_never_runs() -> None:
    """Its code is there, for a launch in two, though its bools are never kept."""
    text = """__global__ void k(double *s, double *q, const double *w, const double *x, int n) {
        int i = threadIdx.x, turn = 0;
        do {
            if ((int)w[i] % 2) q[i] = sin(w[0]);
            else for (int j = 0; j <= turn; j += 2) atomicAdd(&s[0], x[j % 3 == (int)(3.0 * tanh(q[i]))]);
        } while (++turn < 1 && (q[i] >= 0.5 ? q[i] : 0.5) > 0.3);
    }"""
    d_x, ones = np.zeros(2), np.ones(16)
    with forced("in two"):
        gradient = kg.gradient(kg.compile(text)["k"], "s, x")
        gradient[1, 16](np.zeros(1), ones, np.zeros(16), np.ones(2), 16, np.ones(1), d_x)
    np.testing.assert_array_equal(d_x, [16, 0])
