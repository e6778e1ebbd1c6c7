"""`kg.jax.op` on a GPU: values and derivatives, command buffers, tapes, numbers, and the CPU's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from operator_kernels import HALVES, ON_GPU

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

try:
    GPU = jax.devices("cuda")[0]
except RuntimeError:
    pytest.skip("JAX has no CUDA device", allow_module_level=True)

OWN = """
__global__ void until(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], t = 1;
    while (v < 10) { v = v * v + 0.5f; t = sinf(t) * v; }
    y[i] = t;
}
__global__ void chain(float *y, const float *x, int n, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < steps; k++) v = sinf(v) * v + x[(i + k) % n];
    y[i] = v;
}
__global__ void stencil(float *y, const float *x, const float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float left = i > 0 ? x[i - 1] : 0, right = i + 1 < n ? x[i + 1] : 0;
    y[i] = x[i] + c[0] * (left - 2 * x[i] + right);
}
__global__ void turned(float *y, const float *x) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = 2 * tile[blockDim.x - 1 - threadIdx.x];
}
"""
MODULE = kg.compile(HALVES + ON_GPU + OWN)


def make(name: str, outputs: Any = None, **settings: Any) -> Any:
    return kg.jax.op(MODULE[name], outputs, **settings)


GELU = make(
    "gelu",
    {"y": "x"},
    grid=lambda x, **_: (x.size + 255) // 256,
    sizes={"n": lambda x, **_: x.size, "columns": lambda bias, **_: bias.size},
)
GROW = make("grow")


def reference(x: Any, bias: Any) -> Any:
    return jax.nn.gelu(x + bias, approximate=False)


def on_gpu(array: Any) -> Any:
    return jax.device_put(jnp.asarray(array), GPU)


def random(*shape: int, seed: int = 0) -> Any:
    return on_gpu(np.random.default_rng(seed).uniform(0.3, 1.7, shape).astype(np.float32))


def same(found: Any, expected: Any, rtol: float = 1e-4) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol, 1e-4), found, expected
    )


def inputs(rows: int = 300, columns: int = 77) -> tuple[Any, Any]:
    return random(rows, columns), random(columns, seed=1)


def test_values_and_gradients() -> None:
    x, bias = inputs()
    assert GELU(x, bias).devices() == {GPU}
    same(jax.jit(GELU)(x, bias), reference(x, bias))
    found, expected = (
        jax.jit(jax.value_and_grad(lambda *z, f=f: f(*z).sum(), (0, 1)))(x, bias) for f in (GELU, reference)
    )
    same(found, expected)


@pytest.mark.parametrize("name", ["jvp", "hvp", "jacrev", "jacfwd", "hessian", "vmap", "vmap of grad", "grad of vmap"])
def test_transformations(name: str) -> None:
    v = {
        "jvp": lambda f: lambda x, b: jax.jvp(f, (x, b), (x, b))[1],
        "hvp": lambda f: lambda x, b: jax.jvp(jax.grad(lambda x: jnp.sin(f(x, b)).sum()), (x,), (x,))[1],
        "jacrev": lambda f: jax.jacrev(f, 1),
        "jacfwd": lambda f: jax.jacfwd(f, 1),
        "hessian": lambda f: jax.hessian(lambda x, b: f(x, b).sum(), 1),
        "vmap": lambda f: lambda x, b: jax.vmap(f, (None, 0))(x, jnp.stack([b, 2 * b])),
        "vmap of grad": lambda f: (
            lambda x, b: jax.vmap(jax.grad(lambda x, b: f(x, b).sum(), (0, 1)), (1, None))(jnp.stack([x, 2 * x], 1), b)
        ),
        "grad of vmap": lambda f: jax.grad(
            lambda x, b: jnp.sin(jax.vmap(f, (0, None))(jnp.stack([x, 2 * x]), b)).sum(), (0, 1)
        ),
    }[name]
    x, bias = inputs(5, 7)
    same(jax.jit(v(GELU))(x, bias), v(reference)(x, bias))
    same(v(GELU)(x, bias), v(reference)(x, bias))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    c_type = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}[dtype]
    op, x = make(f"scaled<{c_type}>", {"y": "x"}), on_gpu(jnp.array([1.5, -2.0, 3.0], dtype))
    found = jax.jit(jax.grad(lambda x: op(x, jnp.full_like(x, 2)).sum()))(x)
    assert found.dtype == x.dtype and found.tolist() == [6, -8, 12]


def test_updates_in_a_loop() -> None:
    """In one buffer, which is donated; and reversed. Loops become command buffers where XLA makes them."""
    x, a = random(1000), on_gpu(np.float32(0.1))
    grow = lambda x, a: a * jnp.exp(x) * x  # noqa: E731

    def looped(f: Any, a: Any) -> Any:
        return lambda x: jax.lax.scan(lambda c, _: (f(c, a), None), x, None, length=8)[0]

    for number in (0.1, a):
        same(jax.jit(looped(GROW, number))(x), looped(grow, a)(x))
        same(
            jax.jit(jax.grad(lambda x, n=number: looped(GROW, n)(x).sum()))(x),
            jax.grad(lambda x: looped(grow, a)(x).sum())(x),
            1e-3,
        )
    same(jax.jit(looped(GROW, 0.1), donate_argnums=0)(x.copy()), looped(grow, a)(x))


def test_a_number_on_the_gpu_has_a_gradient() -> None:
    x, a = random(1000), on_gpu(np.float32(0.4))
    found = jax.jit(jax.grad(lambda a: GROW(x, a).sum()))(a)
    assert found.devices() == {GPU}
    same(found, (jnp.exp(x) * x).sum())


def test_tapes() -> None:
    """From XLA's allocator where their size is known, else counted, which Python does."""
    x = random(5000)

    def chain(x: Any) -> Any:
        v = x
        for k in range(6):
            v = jnp.sin(v) * v + jnp.roll(x, -k)
        return v

    op = make("chain", {"y": "x"}, grid=20, sizes={"n": lambda x, **_: x.size, "steps": 6})
    same(op(x), chain(x))
    same(jax.jit(jax.grad(lambda x: op(x).sum()))(x), jax.grad(lambda x: chain(x).sum())(x), 1e-3)
    counted = make("until", {"y": "x"})

    def until(x: Any) -> Any:
        t = jnp.ones_like(x)
        for _ in range(20):
            v = x * x + 0.5
            x, t = jnp.where(x < 10, v, x), jnp.where(x < 10, jnp.sin(t) * v, t)
        return t

    found, expected = (jax.jit(jax.grad(lambda x, f=f: f(x).sum()))(x) for f in (counted, until))
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_deterministic() -> None:
    op, (x, bias) = (
        make("gelu", {"y": "x"}, grid=91, sizes={"n": 300 * 77, "columns": 77}, deterministic=True),
        inputs(),
    )
    gradient = jax.jit(jax.grad(lambda b: op(x, b).sum()))
    first, second = gradient(bias), gradient(bias)
    assert (first == second).all()
    same(first, jax.grad(lambda b: reference(x, b).sum())(bias))


def test_dynamic_shared_memory() -> None:
    x = random(1 << 16)
    op = make("turned", {"y": "x"}, grid=64, block=1024, shared=4096)
    expected = 2 * x.reshape(64, 1024)[:, ::-1].reshape(-1)
    same(jax.jit(op)(x), expected)
    same(jax.jit(jax.grad(lambda x: (op(x) * x).sum()))(x), 2 * expected)


def test_large_arrays_and_gathers() -> None:
    op, x, c = make("stencil", {"y": "x"}, sizes={"n": lambda x, **_: x.size}), random(1 << 20), random(1)

    def stencil(x: Any, c: Any) -> Any:
        padded = jnp.pad(x, 1)
        return x + c[0] * (padded[:-2] - 2 * x + padded[2:])

    found, expected = (jax.jit(jax.grad(lambda *z, f=f: jnp.sin(f(*z)).sum(), (0, 1)))(x, c) for f in (op, stencil))
    same(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-2, atol=2)


def test_nothing_is_copied() -> None:
    x, bias = inputs()
    text = jax.jit(GELU).lower(x, bias).compile().as_text()
    assert text.count("custom-call(") == 1 and " copy(" not in text and "callback" not in text


def test_remat_and_many_calls() -> None:
    x, bias = inputs()
    f = jax.jit(jax.grad(jax.checkpoint(lambda x, b: GELU(GELU(x, b), b).sum()), (0, 1)))
    expected = jax.grad(lambda x, b: reference(reference(x, b), b).sum(), (0, 1))(x, bias)
    for _ in range(50):
        found = f(x, bias)
    same(found, expected, 1e-3)


def test_cpu_and_gpu_agree() -> None:
    x, bias = inputs()
    host = [jax.device_put(v, jax.devices("cpu")[0]) for v in (x, bias)]
    gradient = jax.jit(jax.grad(lambda *z: GELU(*z).sum(), (0, 1)))
    same(gradient(*host), gradient(x, bias))


def test_arrays_without_elements() -> None:
    e = on_gpu(np.zeros(0, np.float32))
    assert jax.jit(jax.grad(lambda x: GROW(x, 0.5).sum()))(e).shape == (0,)
