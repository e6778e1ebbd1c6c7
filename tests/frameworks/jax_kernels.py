"""Kernels for the tests of operators of JAX, and what they compute in JAX's own terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import kernelgrad as kg
from operator_kernels import HALVES, ON_CPU

SOURCE = (
    HALVES
    + ON_CPU
    + """
__global__ void grow(double *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = a * exp(x[i]) * x[i];
}
__global__ void logs(double *y, const double *x, const double *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + log(w[i]) + sqrt(w[i]);
}
template <typename T> __global__ void squares(T *y, const T *x, T a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (T)((float)x[i] * (float)x[i] * (float)a);
}
__global__ void single(float *y, const float *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (float)(a * x[i] * x[i]);
}
__global__ void chosen(float *y, const float *x, bool negative, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = negative ? -x[i] : x[i] * 0.5f;
}
__global__ void until(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i], t = 1;
    while (v < 10) { v = v * v + 0.5; t = sin(t) * v; }
    y[i] = t;
}
__global__ void positive(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (!(x[i] > 0)) __trap();
    y[i] = log(x[i]);
}
__global__ void turned(float *y, const float *x) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = 2 * tile[blockDim.x - 1 - threadIdx.x];
}
__global__ void stateful(double *y, const double *x) { y[0] = x[0] + STATE[0]; }
__global__ void waves(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < 3; k++) v = sinf(v) + x[i];
    y[i] = v;
}
"""
)
MODULE = kg.compile(SOURCE)


@contextmanager
def on_cpu() -> Iterator[None]:
    """With doubles, which JAX has where it is told to."""
    jax.config.update("jax_enable_x64", True)
    with jax.default_device(jax.devices("cpu")[0]):
        yield
    jax.config.update("jax_enable_x64", False)


def shard_map(f: Any, checked: bool = True, **settings: Any) -> Any:
    """Before JAX 0.6 it is elsewhere, and never checked: it has no rules for primitives that are not JAX's own."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(f, check_vma=checked, **settings)
    from jax.experimental.shard_map import shard_map as old

    return old(f, check_rep=False, **settings)


def op(name: str, outputs: Any = None, **settings: Any) -> kg.jax.Op:
    return kg.jax.op(MODULE[name], outputs, **settings)


def weighted(x: Any, w: Any, a: Any) -> Any:
    return a * x * x * jnp.sin(w)


def grow(x: Any, a: Any) -> Any:
    return a * jnp.exp(x) * x


def until(x: Any) -> Any:
    t = jnp.ones_like(x)
    for _ in range(20):
        v = x * x + 0.5
        x, t = jnp.where(x < 10, v, x), jnp.where(x < 10, jnp.sin(t) * v, t)
    return t


def close(found: Any, expected: Any, rtol: float = 1e-10) -> None:
    def compare(one: Any, other: Any) -> None:
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=rtol, atol=1e-12)

    jax.tree.map(compare, found, expected)


def random(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).uniform(0.3, 1.7, shape))
