"""Jumps to what follows, functions by pointers, loops over temporaries: in host functions and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import KernelGradError

CLEANED_UP = r"""
#include <stdio.h>
__global__ void product(double *c, const double *a, const double *b) {
    c[threadIdx.x] = a[threadIdx.x] * b[threadIdx.x];
}
cudaError_t multiply(double *c, const double *a, const double *b, unsigned int size) {
    double *dev_a = 0, *dev_b = 0, *dev_c = 0;
    cudaError_t status;
    status = cudaMalloc((void **)&dev_c, size * sizeof(double));
    if (status != cudaSuccess) { fprintf(stderr, "no memory"); goto Error; }
    status = cudaMalloc((void **)&dev_a, size * sizeof(double));
    if (status != cudaSuccess) { fprintf(stderr, "no memory"); goto Error; }
    status = cudaMalloc((void **)&dev_b, size * sizeof(double));
    if (status != cudaSuccess) { fprintf(stderr, "no memory"); goto Error; }
    if (cudaMemcpy(dev_a, a, size * sizeof(double), cudaMemcpyHostToDevice) != cudaSuccess) goto Error;
    if (cudaMemcpy(dev_b, b, size * sizeof(double), cudaMemcpyHostToDevice) != cudaSuccess) goto Error;
    product<<<1, size>>>(dev_c, dev_a, dev_b);
    status = cudaGetLastError();
    if (status != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(status)); goto Error; }
    status = cudaMemcpy(c, dev_c, size * sizeof(double), cudaMemcpyDeviceToHost);
Error:
    cudaFree(dev_c);
    cudaFree(dev_a);
    cudaFree(dev_b);
    return status;
}
int run(double *out, double *x, int n) {
    double b[6];
    for (int i = 0; i < 6; i++) b[i] = x[5 - i] * 2;
    return multiply(out, x, b, n) != cudaSuccess;
}
"""
# Out of loops and switches, past declarations, several labels, into what follows the block around.
JUMPS = r"""
__device__ double root(double v) {
    double r = v;
    for (int i = 0; i < 20; i++) {
        double s = 0.5 * (r + v / r);
        if (s == r) goto found;
        for (int j = 0; j < 2; j++)
            if (s > 100) goto big;
        r = s;
    }
found:
    return r;
big:
    return 1.0;
}
__global__ void roots(double *y, const double *x, int n) {
    int i = threadIdx.x;
    if (i >= n) goto end;
    {
        double t = x[i];
        if (t < 0.8) goto small;
        y[i] = root(t) * t;
        goto end;
    small:
        y[i] = t * t * t;
    }
end:;
}
void run(double *out, double *x, int n) {
    double *a, *b, s = 0;
    int rc = 0;
    cudaMalloc(&a, n * 8);
    cudaMalloc(&b, n * 8);
    cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    roots<<<1, n + 2>>>(b, a, n);
    cudaMemcpy(out, b, n * 8, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) {
        if (out[i] < 0.1) continue;
        if (i == 4) goto two;
        s += out[i] * x[i];
        switch (i) {
        case 1: s *= 2; break;
        case 2: if (s > 0) goto one;
        default: s += 1;
        }
    one:
        s *= 1.1;
    }
    rc = 1;
two:
    out[0] = s;
    if (rc) goto three;
    out[1] = s * s;
three:
    cudaFree(a);
    cudaFree(b);
}
"""
POINTERS = r"""
typedef double (*Operation)(double, double);
static double mul(double a, double b) { return a * b; }
static double add(double a, double b) { return a + b; }
__host__ __device__ double square(double a) { return a * a; }
__device__ double twice(double (*f)(double), double v) { return f(f(v)); }
__global__ void k(double *a, double s, int n) {
    if (threadIdx.x < n) a[threadIdx.x] = twice(square, a[threadIdx.x]) * s;
}
static double fold(const double *v, int n, Operation f, double s) {
    for (int i = 0; i < n; i++) s = (*f)(s, v[i]);
    return s;
}
static double both(const double *v, int n, Operation g, const Operation other) {
    Operation h = g;
    return fold(v, n, h, 1.0) + fold(v, n, other, 0.0);
}
void run(double *out, double *x, int n) {
    double *d;
    cudaMalloc((void **)&d, n * 8);
    cudaMemcpy(d, x, n * 8, cudaMemcpyHostToDevice);
    k<<<1, n>>>(d, both(x, n, &mul, add) + both(x, 2, add, mul), n);
    cudaMemcpy(out, d, n * 8, cudaMemcpyDeviceToHost);
    cudaFree(d);
}
"""
TEMPORARIES = r"""
#include <memory>
#include <vector>
struct Field {
    double *memory;
    int n;
    explicit Field(const double *x, int n) : n(n) {
        cudaMalloc(&memory, n * 8);
        cudaMemcpy(memory, x, n * 8, cudaMemcpyHostToDevice);
    }
    ~Field() { cudaFree(memory); }
    std::vector<double> get() const {
        std::vector<double> found(n);
        cudaMemcpy(found.data(), memory, n * 8, cudaMemcpyDeviceToHost);
        return found;
    }
};
void run(double *out, double *x, int n) {
    std::shared_ptr<Field> other = nullptr;
    std::unique_ptr<Field> own(new Field(x, n));
    if (own == nullptr || nullptr != other) return;
    other = std::make_shared<Field>(x, n);
    if (other == nullptr || own != nullptr && other->n != own->n) return;
    Field &field = *own;
    double energy = 0, sum = 0;
    for (double v : field.get()) energy += v * v;
    for (const double &v : field.get()) {
        if (sum > 3) break;
        for (auto w : std::vector<double>(x, x + 2)) sum += v * w;
    }
    int k = 0;
    for (auto &&v : field.get()) out[k++] = v * energy * sum;
}
"""


@pytest.mark.parametrize("text", [CLEANED_UP, JUMPS, POINTERS, TEMPORARIES])
def test_gradients(text: str) -> None:
    module, random, n = kg.compile(text), np.random.default_rng(3), 6
    x, seed = random.uniform(0.5, 1.5, n), random.uniform(-1, 1, n)

    def value(at: Any) -> float:
        out = np.zeros(n)
        module["run"](out, at.copy(), n, device="cpu")
        assert np.abs(out).max() > 0
        return float(out @ seed)

    d_out, d_x = seed.copy(), np.zeros(n)
    kg.gradient(module["run"], "out, x").execute(np.zeros(n), x.copy(), n, d_out, d_x, device="cpu")
    differences = [(value(x + step) - value(x - step)) / 2e-6 for step in np.eye(n) * 1e-6]
    np.testing.assert_allclose(d_x, differences, rtol=1e-7, atol=1e-7)
    assert not d_out.any()


HEAD = """typedef double (*F)(double);
static double f(double x) { return x; } static double g(double x) { return 2 * x; }
static double call(F h, double x) { return h(x); }
static double changed(F h, F other, double x) { if (x > 1) h = other; return h(x); }
static double tested(F h, double x) { return h ? h(x) : x; }
"""
REFUSED = {
    "goto backwards": "again: x[0] -= 1; if (x[0] > 1) goto again;  // here",
    "goto backwards, or into a block": "if (x[0] > 1) goto inside;  // here\nif (x[1] > 1) { inside: x[0] = 1; }",
    "a pointer to a function is not supported": "F h = x[0] > 1 ? f : g;  // here\nx[0] = h(x[0]);",
    "more than called and passed on": "F h = f; x[0] = h == nullptr;  // here",
    "through a function pointer": "F table[2] = {}; x[0] = table[0](1);  // here",
}


@pytest.mark.parametrize("told", REFUSED)
def test_refused_at_the_line(told: str) -> None:
    text = HEAD + "void run(double *x) { cudaDeviceSynchronize();\n" + REFUSED[told] + "\n}"
    with pytest.raises(KernelGradError, match=told) as caught:
        kg.compile(text)["run"](np.ones(2), device="cpu")
    line = next(k for k, line in enumerate(text.splitlines(), 1) if "// here" in line)
    assert f":{line}:" in str(caught.value)


@pytest.mark.parametrize("call", ["changed(f, g, x[0])", "tested(f, x[0])"])
def test_functions_that_do_more_with_a_pointer(call: str) -> None:
    text = HEAD + f"void run(double *x) {{ cudaDeviceSynchronize(); x[0] = {call}; }}"
    with pytest.raises(KernelGradError, match="function"):
        kg.compile(text)["run"](np.ones(2), device="cpu")
