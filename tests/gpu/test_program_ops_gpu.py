"""Recorded programs as operators, on a GPU: on the stream of the framework, from and to its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
N, STEPS = 5000, 6
KERNEL = kg.compile(r"""
__global__ void heat(float *v, const float *u, const float *kappa, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i] + dt * kappa[i] * u[i] * (u[max(i - 1, 0)] - 2 * u[i] + u[min(i + 1, n - 1)]);
}
""")["heat"]


def program(zeros: Any) -> Any:
    u, v, kappa = (zeros(N) for _ in range(3))
    u0 = u
    with kg.record() as tape:
        for _ in range(STEPS):
            KERNEL[-(-N // 256), 256](v, u, kappa, N, 0.1)
            u, v = v, u
    return tape.program(inputs=(u0, kappa), outputs=(u,))


def expected(u: Any, kappa: Any) -> Any:
    left, right = np.maximum(np.arange(N) - 1, 0), np.minimum(np.arange(N) + 1, N - 1)
    for _ in range(STEPS):
        u = u + 0.1 * kappa * u * (u[left] - 2 * u + u[right])
    return u


def given() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.uniform(0.5, 1.5, N).astype("f4"), rng.uniform(0.5, 1.5, N).astype("f4")


@pytest.mark.parametrize("recorded_with", ["torch", "cupy"])
def test_torch(recorded_with: str) -> None:
    torch = pytest.importorskip("torch")
    cupy = pytest.importorskip("cupy")
    zeros = {"torch": lambda n: torch.zeros(n, device="cuda"), "cupy": lambda n: cupy.zeros(n, "f4")}[recorded_with]
    op = kg.torch.op(program(zeros))
    wanted = None
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            x = [torch.tensor(a, device="cuda", requires_grad=True) for a in given()]
            found = torch.autograd.grad((op(*x) ** 2).sum(), x)
            wanted = torch.autograd.grad((expected(*x) ** 2).sum(), x)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
            along = [torch.tensor(a, device="cuda") for a in given()]
            at = [t.detach() for t in x]
            found, moved = (torch.func.jvp(f, tuple(at), tuple(along)) for f in (op, expected))
            torch.testing.assert_close(found, moved, rtol=1e-4, atol=1e-5)
            bent, want = (
                torch.func.jvp(torch.func.grad(lambda u, k, f=f: (f(u, k) ** 2).sum(), (0, 1)), tuple(at), tuple(along))
                for f in (op, expected)
            )
            torch.testing.assert_close(bent, want, rtol=1e-3, atol=1e-4)
        torch.cuda.synchronize()
    compiled = torch.compile(lambda *a: (op(*a) ** 2).sum(), fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(*x), x), wanted, rtol=1e-4, atol=1e-5)


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    cupy = pytest.importorskip("cupy")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    op = kg.jax.op(program(lambda n: cupy.zeros(n, "f4")))
    x = tuple(map(jax.numpy.asarray, given()))
    found, want = (jax.jit(jax.grad(lambda *x, f=f: (f(*x) ** 2).sum(), (0, 1)))(*x) for f in (op, expected))
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    along = tuple(a * 0.5 for a in x)
    for transform in (
        lambda f: jax.jvp(f, x, along),
        lambda f: jax.jvp(jax.grad(lambda *x: (f(*x) ** 2).sum()), x, along),
    ):
        found, want = (jax.jit(lambda f=f, transform=transform: transform(f))() for f in (op, expected))
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
