"""Maxima of lanes whose numbers are equal: what is one number in all of them has one origin."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

MAXIMA = {
    "fmax": "m = fmax(m, __shfl_xor_sync(~0u, m, o));",
    "fmax, the other first": "m = fmax(__shfl_xor_sync(~0u, m, o), m);",
    "a choice": "double other = __shfl_xor_sync(~0u, m, o); m = other > m ? other : m;",
    "a branch": "double other = __shfl_xor_sync(~0u, m, o); if (other >= m) m = other;",
    "by lane": "double other = __shfl_sync(~0u, m, lane ^ o); m = max(other, m);",
    "of the negative": "m = -fmin(-m, __shfl_xor_sync(~0u, -m, o));",
    "down": "m = fmax(m, __shfl_down_sync(~0u, m, o)); if (o == 1) m = __shfl_sync(~0u, m, 0);",
}
N = 64


def softmax(maximum: str) -> kg.Kernel:
    return kg.compile(
        f"""__global__ void k(double *y, const double *x, int n) {{
            int lane = threadIdx.x;
            double m = -1e300, s = 0;
            for (int c = lane; c < n; c += 32) m = fmax(m, x[c]);
            for (int o = 16; o > 0; o >>= 1) {{ {maximum} }}
            for (int c = lane; c < n; c += 32) s += exp(x[c] - m);
            for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
            for (int c = lane; c < n; c += 32) y[c] = exp(x[c] - m) / s;
        }}"""
    )["k"]


def test_lanes_that_are_counted_on() -> None:
    """`shfl_sync` takes the number of a thread of a later warp, or of a part of a warp, for that of a lane."""
    text = """__global__ void k(double *y, const double *x) {
        int t = threadIdx.x;
        double m = x[t], s;
        for (int o = 8; o > 0; o >>= 1) m = fmax(m, __shfl_sync(~0u, m, t ^ o, 16));
        s = exp(x[t] - m);
        for (int o = 8; o > 0; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
        y[t] = exp(x[t] - m) / s;
    }"""
    seed, d_x = np.random.default_rng(5).standard_normal((4, 16)), np.zeros((4, 16))
    kg.gradient(kg.compile(text)["k"], "y, x")[1, 64](np.zeros((4, 16)), np.zeros((4, 16)), seed.copy(), d_x)
    np.testing.assert_allclose(d_x, (seed - seed.mean(1, keepdims=True)) / 16, atol=1e-14)


def inputs(ties: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    x = np.random.default_rng(3).standard_normal(N)
    return {"all": np.zeros(N), "two": np.where(np.isin(np.arange(N), (5, 38)), 3.0, x), "none": x}[ties]


@pytest.mark.parametrize("ties", ["all", "two", "none"])
@pytest.mark.parametrize("name", MAXIMA)
def test_softmax(name: str, ties: str) -> None:
    kernel, x, rng = softmax(MAXIMA[name]), inputs(ties), np.random.default_rng(4)
    seed, way = rng.standard_normal((2, N))
    p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    for options in ({}, {"primal": False}):
        d_x = np.zeros(N)
        kg.gradient(kernel, "y, x", **options)[1, 32](np.zeros(N), x, N, seed.copy(), d_x)
        np.testing.assert_allclose(d_x, p * (seed - seed @ p), atol=1e-14)
    tangent = np.zeros(N)
    kg.jvp(kernel, "y, x")[1, 32](np.zeros(N), x, N, tangent, way)
    np.testing.assert_allclose(tangent, p * (way - way @ p), atol=1e-14)
