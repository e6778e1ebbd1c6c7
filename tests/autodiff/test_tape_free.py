"""Kernels as people write them whose gradients need no tape, or next to none: attention in tiles, multipole lookups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

ATTENTION = """
#define D 8
#define BK 4
__global__ void attend(const double *q, const double *k, const double *v, double *o, int n, int rows) {
    __shared__ double ks[BK * D], vs[BK * D];
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    double qr[D], acc[D];
    for (int d = 0; d < D; ++d) { qr[d] = row < rows ? q[row * D + d] : 0; acc[d] = 0; }
    double m = -1e30, l = 0;
    for (int b = 0; b < n; b += BK) {
        __syncthreads();
        for (int i = threadIdx.x; i < BK * D; i += blockDim.x) {
            ks[i] = b * D + i < n * D ? k[b * D + i] : 0;
            vs[i] = b * D + i < n * D ? v[b * D + i] : 0;
        }
        __syncthreads();
        STEP
    }
    if (row < rows) for (int d = 0; d < D; ++d) o[row * D + d] = acc[d] / l;
}
"""
STEPS = {
    "key by key": """
        for (int t = 0; t < BK; ++t) {
            double s = 0;
            for (int d = 0; d < D; ++d) s += qr[d] * ks[t * D + d];
            if (b + t >= n) s = -1e30;
            double mn = fmax(m, s), c = exp(m - mn), p = b + t < n ? exp(s - mn) : 0;
            l = l * c + p;
            for (int d = 0; d < D; ++d) acc[d] = acc[d] * c + p * vs[t * D + d];
            m = mn;
        }""",
    "tile by tile": """
        double s[BK], mn = m;
        for (int t = 0; t < BK; ++t) {
            s[t] = 0;
            for (int d = 0; d < D; ++d) s[t] += qr[d] * ks[t * D + d];
            s[t] = b + t < n ? s[t] : -1e30;
            mn = fmax(mn, s[t]);
        }
        double c = exp(m - mn);
        l *= c;
        for (int d = 0; d < D; ++d) acc[d] *= c;
        for (int t = 0; t < BK; ++t) {
            double p = exp(s[t] - mn);
            l += p;
            for (int d = 0; d < D; ++d) acc[d] += p * vs[t * D + d];
        }
        m = mn;""",
}


def attended(q: Any, k: Any, v: Any, d_o: Any) -> list[Any]:
    """The adjoints of q, k and v."""
    e = np.exp(q @ k.T - (q @ k.T).max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    d_s = p * (d_o @ v.T - (d_o * (p @ v)).sum(1, keepdims=True))
    return [d_s @ k, d_s.T @ q, p.T @ d_o]


@pytest.mark.parametrize("name", STEPS)
def test_attention_in_tiles(name: str) -> None:
    kernel, n, rows = kg.compile(ATTENTION.replace("STEP", STEPS[name]))["attend"], 10, 40
    rng = np.random.default_rng(0)
    q, k, v, d_o = (rng.standard_normal((count, 8)) for count in (rows, n, n, rows))
    args = (q, k, v, np.zeros((rows, 8)), n, rows)
    for options in ({}, {"primal": False}, {"tape_budget": 4096}):
        adjoints = [np.zeros_like(a) for a in (q, k, v)]
        kg.gradient(kernel, **options)[2, 32](*args, *adjoints, d_o.copy())
        for found, expected in zip(adjoints, attended(q, k, v, d_o), strict=True):
            assert found == pytest.approx(expected, rel=1e-10, abs=1e-12)
    tiles, threads = 3, 64
    assert kg.gradient(kernel).tape_bytes(2, 32, *args) <= 8 * tiles * threads


# Doppler-broadened cross sections: a material's nuclides, the poles of a window in each, complex numbers as a struct.
LOOKUP = """
struct complex_ {
    double re, im;
    __device__ complex_(double r = 0, double i = 0) : re(r), im(i) {}
};
__device__ complex_ operator+(complex_ a, complex_ b) { return complex_(a.re + b.re, a.im + b.im); }
__device__ complex_ operator-(complex_ a, complex_ b) { return complex_(a.re - b.re, a.im - b.im); }
__device__ complex_ operator*(complex_ a, complex_ b) {
    return complex_(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
__device__ complex_ operator*(double a, complex_ b) { return complex_(a * b.re, a * b.im); }
__device__ complex_ operator/(complex_ a, complex_ b) {
    double d = b.re * b.re + b.im * b.im;
    return complex_((a.re * b.re + a.im * b.im) / d, (a.im * b.re - a.re * b.im) / d);
}
__device__ complex_ faddeeva(complex_ z) {
    complex_ i(0, 1);
    if (z.re * z.re + z.im * z.im > 36)
        return (i * z) * (complex_(0.5124242) / (z * z - complex_(0.2752551)) +
                          complex_(0.05176536) / (z * z - complex_(2.724745)));
    const double weights[4] = {0.2, 0.7, 1.1, 0.35}, nodes[4] = {0.25, 1.0, 2.25, 4.0};
    complex_ w(0, 0);
    for (int k = 0; k < 4; ++k) w = w + weights[k] * (i * z) / (z * z - complex_(nodes[k], 0.3));
    return w;
}
__global__ void lookup(const double *energy, const double *temperature, const int *nuclides, const int *materials,
                       const double *densities, const int *windows, const double *poles, const int *momenta,
                       const double *fits, const double *radii, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double e = energy[i], root = sqrt(e), total[3] = {0, 0, 0};
    for (int j = materials[i % 3]; j < materials[i % 3 + 1]; ++j) {
        int nuclide = nuclides[j], at = (int)(root / 0.45);
        int window = 4 * nuclide + (at > 3 ? 3 : at);
        double width = 2 * sqrt(temperature[i]), cross[3] = {0, 0, 0};
        complex_ phase[4];
        for (int l = 0; l < 4; ++l) {
            double shift = radii[4 * nuclide + l] * root;
            if (l == 1) shift -= atan(shift);
            else if (l == 2) shift -= atan(3 * shift / (3 - shift * shift));
            phase[l] = complex_(cos(2 * shift), -sin(2 * shift));
        }
        double power = 1 / e;
        for (int f = 0; f < 4; ++f, power *= root) cross[0] += fits[4 * window + f] * power;
        for (int p = windows[window]; p < windows[window + 1]; ++p) {
            const double *pole = poles + 6 * p;
            complex_ w = (width / e) * faddeeva(width * (complex_(root) - complex_(pole[0], pole[1])));
            cross[0] += (complex_(pole[2], pole[3]) * w * phase[momenta[p]]).re;
            cross[1] += (complex_(pole[4], pole[5]) * w).re;
        }
        cross[2] = cross[0] - cross[1];
        for (int c = 0; c < 3; ++c) total[c] += cross[c] * densities[j];
    }
    for (int c = 0; c < 3; ++c) out[3 * i + c] = total[c];
}
"""
POINTS, LISTED = 20, ("energy", "temperature", "densities", "poles", "fits", "radii")


def lookup_arguments() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    windows = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 20))]).astype(np.int32)
    poles = rng.standard_normal((int(windows[-1]), 6)) + np.array([0.5, 4, 0, 0, 0, 0])
    return {
        "energy": 0.5 + 2 * rng.random(POINTS),
        "temperature": 1 + rng.random(POINTS),
        "nuclides": rng.integers(0, 5, 9).astype(np.int32),
        "materials": np.array([0, 4, 4, 9], np.int32),
        "densities": rng.random(9),
        "windows": windows,
        "poles": poles.ravel(),
        "momenta": rng.integers(0, 4, len(poles)).astype(np.int32),
        "fits": rng.standard_normal(80),
        "radii": rng.random(20),
        "out": np.zeros(3 * POINTS),
        "n": POINTS,
    }


@pytest.mark.parametrize("options", ({}, {"primal": False}, {"deterministic": True}, {"split": True}), ids=str)
def test_multipole_lookup(options: dict[str, Any]) -> None:
    kernel, listed = kg.compile(LOOKUP)["lookup"], ", ".join(("out", *LISTED))
    given, rng = lookup_arguments(), np.random.default_rng(1)
    args, seed = tuple(given.values()), rng.standard_normal(3 * POINTS)
    moved, step = {name: rng.standard_normal(given[name].shape) for name in LISTED}, 1e-7
    adjoints = {f"d_{name}": np.zeros_like(given[name]) for name in LISTED}
    if "split" in options:
        forward, reverse = kg.split(kernel, listed)
        reverse[1, 32](forward[1, 32](*args), *args, **adjoints, d_out=seed.copy())
    else:
        gradient = kg.gradient(kernel, listed, **options)
        gradient[1, 32](*args, **adjoints, d_out=seed.copy())
        logged = "deterministic" in options
        assert logged or gradient.tape_bytes(1, 32, *args) == 0

    def at(by: float) -> Any:
        changed = {name: value + by * moved[name] if name in moved else value for name, value in given.items()}
        out = np.zeros(3 * POINTS)
        kernel[1, 32](*{**changed, "out": out}.values())
        return out

    found = sum(float(adjoints[f"d_{name}"] @ moved[name]) for name in LISTED)
    assert found == pytest.approx((at(step) - at(-step)) @ seed / (2 * step), rel=1e-6)
