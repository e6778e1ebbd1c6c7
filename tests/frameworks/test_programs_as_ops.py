"""Recorded programs as operators of PyTorch and JAX: values, gradients, transformations, and what is refused."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch._prims_common.check:FutureWarning"),
]
N, STEPS = 12, 4
MODULE = kg.compile(r"""
__global__ void heat(double *v, const double *u, const double *kappa, int n, double dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i] + dt * kappa[i] * u[i] * (u[max(i - 1, 0)] - 2 * u[i] + u[min(i + 1, n - 1)]);
}
__global__ void energy(double *e, int *count, const double *u, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { atomicAdd(e, u[i] * u[i]); atomicAdd(count, 1); }
}
template <typename T> __global__ void slots(T *y, int *count, const T *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) y[atomicAdd(count, 1)] = x[i];
}
__global__ void half(float *y, const float *x, int n) { if (threadIdx.x < n) y[threadIdx.x] = sinf(x[threadIdx.x]); }
""")


def program(both: bool = True, dtype: Any = np.float64) -> Any:
    """u after some steps and, if both, its energy: inputs u, kappa and the number dt."""
    u, v, kappa = (np.zeros(N, dtype) for _ in range(3))
    dt, e, count, u0 = np.array(0.1), np.zeros(1), np.zeros(1, np.int32), u
    with kg.record() as tape:
        for _ in range(STEPS):
            MODULE["heat"][1, 32](v, u, kappa, N, dt)
            u, v = v, u
        if both:
            kg.fill(e, 0)
            kg.fill(count, 0)
            MODULE["energy"][1, 32](e, count, u, N)
    return tape.program(inputs=(u0, kappa, dt), outputs=(u, e) if both else (u,))


def given(seed: int = 3) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 1.5, N), rng.uniform(0.5, 1.5, N), np.array(0.07)


def expected(xp: Any, u: Any, kappa: Any, dt: Any) -> tuple[Any, Any]:
    """In the framework's own terms."""
    left, right = np.maximum(np.arange(N) - 1, 0), np.minimum(np.arange(N) + 1, N - 1)
    for _ in range(STEPS):
        u = u + dt * kappa * u * (u[left] - 2 * u + u[right])
    return u, (u * u).sum().reshape(1)


# ---- PyTorch --------------------------------------------------------------------------------------------------------


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    op = kg.torch.op(program())
    x = [torch.tensor(a, requires_grad=True) for a in given()]
    for found, want in zip(op(*x), expected(torch, *x), strict=True):
        torch.testing.assert_close(found, want)
    assert torch.autograd.gradcheck(op, x)
    torch.library.opcheck(op._operator, x)
    grads = [torch.autograd.grad(sum(t.sum() for t in f(*x)), x) for f in (op, lambda *a: expected(torch, *a))]
    compiled = torch.compile(lambda *a: sum(t.sum() for t in op(*a)) * 2, fullgraph=True, backend="aot_eager")
    grads.append(tuple(g / 2 for g in torch.autograd.grad(compiled(*x), x)))
    only = torch.autograd.grad(op(*x)[1].sum(), x[:1])
    torch.testing.assert_close(only, torch.autograd.grad(expected(torch, *x)[1].sum(), x[:1]))
    torch.testing.assert_close(grads[0], grads[1])
    torch.testing.assert_close(grads[2], grads[1])


def test_torch_func() -> None:
    torch = pytest.importorskip("torch")
    op = kg.torch.op(program(both=False))
    u, kappa, dt = map(torch.tensor, given())
    plain = lambda u: expected(torch, u, kappa, dt)[0]  # noqa: E731
    ours = lambda u: op(u, kappa, dt)  # noqa: E731
    torch.testing.assert_close(torch.func.jacrev(ours)(u), torch.func.jacrev(plain)(u))
    many = torch.stack([u, u * 2, u + 1])[:, ::1]
    torch.testing.assert_close(torch.vmap(ours)(many), torch.vmap(plain)(many))
    grad = torch.vmap(torch.func.grad(lambda u: ours(u).square().sum()))(many)
    torch.testing.assert_close(grad, torch.vmap(torch.func.grad(lambda u: plain(u).square().sum()))(many))
    torch.testing.assert_close(ours(torch.stack([u, u], 1)[:, 0]), plain(u))


def test_torch_forward_and_second_order() -> None:
    torch = pytest.importorskip("torch")
    op, func = kg.torch.op(program()), torch.func
    x = tuple(torch.tensor(a, requires_grad=True) for a in given())
    assert torch.autograd.gradcheck(op, x, check_forward_ad=True, check_batched_forward_grad=True)
    assert torch.autograd.gradgradcheck(op, x, check_fwd_over_rev=True)
    at = tuple(t.detach() for t in x)
    along = tuple(torch.tensor(a) for a in given(5))

    def loss(f: Any) -> Any:
        return lambda *a: (f(*a)[0] ** 3).sum() + f(*a)[1].sum()

    ours, plain = loss(op), loss(lambda *a: expected(torch, *a))
    every = (0, 1, 2)
    for transform in (
        lambda f: func.jvp(f, at, along),
        lambda f: func.jacfwd(f, every)(*at),
        lambda f: func.hessian(f, every)(*at),
        lambda f: func.jacrev(func.jacrev(f, every), every)(*at),
        lambda f: func.jacrev(func.jacfwd(f), 2)(*at),
        lambda f: torch.autograd.functional.hvp(f, at, along),
        lambda f: torch.autograd.functional.vhp(f, at, along),
        lambda f: torch.vmap(func.jacfwd(f), (0, None, None))(torch.stack([at[0], at[0] + 1]), *at[1:]),
    ):
        torch.testing.assert_close(transform(ours), transform(plain))
    compiled = torch.compile(lambda *a: func.jvp(ours, a, along), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*at), func.jvp(plain, at, along))
    with pytest.raises(kg.UnsupportedError, match="no forward mode over forward mode"):
        func.jacfwd(func.jacfwd(ours))(*at)
    with pytest.raises(kg.UnsupportedError, match="has first and second derivatives"):
        func.jacrev(func.jacrev(func.jacrev(ours)))(*at)


def test_torch_details() -> None:
    torch = pytest.importorskip("torch")
    made = program()
    op = kg.torch.op(made)
    assert kg.torch.op(made) is op and op.name.startswith("kernelgrad::program_")
    assert repr(op).startswith("<op (float64[12], float64[12], float64[]) -> (float64[12], float64[1])")
    u, kappa, dt = map(torch.tensor, given())
    with pytest.raises(kg.ArgumentError, match=r"input 0 is float32\[12\], and was float64\[12\]"):
        op(u.float(), kappa, dt)
    with pytest.raises(kg.ArgumentError, match=r"input 1 is float64\[11\]"):
        op(u, kappa[1:], dt)
    with pytest.raises(kg.ArgumentError, match="takes 3 arrays, got 1"):
        op(u)
    with pytest.raises(kg.ArgumentError, match="options are for kernels"):
        kg.torch.op(made, {"y": "x"})
    assert copy.deepcopy(op) is op
    with pytest.raises(pickle.PicklingError, match="lives in its process"):
        pickle.dumps(op)


def test_torch_autocast_and_threads() -> None:
    torch = pytest.importorskip("torch")
    x, y = np.zeros(N, np.float32), np.zeros(N, np.float32)
    with kg.record() as tape:
        MODULE["half"][1, 32](y, x, N)
    op = kg.torch.op(tape.program(inputs=(x,), outputs=(y,)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        t = torch.linspace(0, 1, N, dtype=torch.bfloat16)
        torch.testing.assert_close(op(t), torch.sin(t.float()))
    values = [torch.full((N,), float(k)) for k in range(8)]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if not torch.equal(op(values[k]), op(values[k])) or abs(op(values[k])[0] - np.sin(k)) > 1e-6:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- JAX ------------------------------------------------------------------------------------------------------------


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    from jax_kernels import close, on_cpu

    with on_cpu():
        op = kg.jax.op(program())
        x = tuple(map(jax.numpy.asarray, given()))

        def loss(f: Any, *x: Any) -> Any:
            u, e = f(*x)
            return (u**3).sum() + e.sum()

        def plain(*x: Any) -> Any:
            return expected(jax.numpy, *x)

        close(op(*x), plain(*x))
        close(jax.jit(op)(*x), plain(*x))
        for transform in (jax.grad, lambda f, k: jax.jit(jax.grad(f, k)), lambda f, k: jax.grad(jax.checkpoint(f), k)):
            found, want = (transform(lambda *x, f=f: loss(f, *x), (0, 1, 2))(*x) for f in (op, plain))
            close(found, want)
        close(jax.jacrev(lambda u: op(u, *x[1:])[0])(x[0]), jax.jacrev(lambda u: plain(u, *x[1:])[0])(x[0]))
        many = jax.numpy.stack([x[0], x[0] + 1, x[0] * 2])
        for transform in (
            jax.vmap,
            lambda f: jax.vmap(jax.grad(f)),
            lambda f: jax.grad(lambda m: jax.vmap(f)(m).sum()),
        ):
            found, want = (transform(lambda u, f=f: loss(f, u, *x[1:]))(many) for f in (op, plain))
            close(found, want)
        found, want = (jax.lax.scan(lambda u, _, f=f: (f(u, *x[1:])[0], u.sum()), x[0], None, 3) for f in (op, plain))
        close(found, want)


@pytest.mark.slow
def test_jax_forward_and_second_order() -> None:
    jax = pytest.importorskip("jax")
    from jax_kernels import close, on_cpu

    with on_cpu():
        op, every = kg.jax.op(program()), (0, 1, 2)
        x, along = (tuple(map(jax.numpy.asarray, given(seed))) for seed in (3, 5))

        def loss(f: Any) -> Any:
            return lambda *a: (f(*a)[0] ** 3).sum() + f(*a)[1].sum()

        ours, plain = loss(op), loss(lambda *a: expected(jax.numpy, *a))
        many = jax.numpy.stack([x[0], x[0] + 1])
        for transform in (
            lambda f: jax.jvp(f, x, along),
            lambda f: jax.jit(lambda x, along: jax.jvp(f, x, along))(x, along),
            lambda f: jax.jacfwd(f, every)(*x),
            lambda f: jax.jit(jax.hessian(f, every))(*x),
            lambda f: jax.jacrev(jax.jacrev(f, every), every)(*x),
            lambda f: jax.jacrev(jax.jacfwd(f), every)(*x),
            lambda f: jax.jvp(jax.grad(f, every), x, along),
            lambda f: jax.linearize(f, *x)[1](*along),
            lambda f: jax.vmap(jax.hessian(f), (0, None, None))(many, *x[1:]),
        ):
            close(transform(ours), transform(plain))


def test_no_second_order_where_a_step_has_none() -> None:
    """In place by the same array: forward mode and reverse, but nothing beyond."""
    torch = pytest.importorskip("torch")
    x = np.ones(4)
    with kg.record() as tape:
        MODULE["heat"][1, 4](x, x, np.ones(4), 4, 0.0)
    op, t = kg.torch.op(tape.program((x,), (x,))), torch.rand(4, dtype=torch.float64)
    value, moved = torch.func.jvp(op, (t,), (t + 1,))
    torch.testing.assert_close((value, moved), (t, t + 1))
    with pytest.raises(kg.UnsupportedError, match="no second derivatives: .* shares memory"):
        torch.func.hessian(lambda t: op(t).sum())(t)


def with_slots(dtype: Any = np.float64) -> Any:
    x, y, count = np.ones(4, dtype), np.zeros(4, dtype), np.zeros(1, np.int32)
    with kg.record() as tape:
        kg.fill(count, 0)
        MODULE["slots<double>" if dtype == np.float64 else "slots<float>"][1, 4](y, count, x, 4)
    return tape.program((x,), (y,))


WITHOUT = "no derivatives as an operator: slots.*: it uses what an atomic returns, so that a second run may differ"


def test_no_derivatives_where_a_step_may_do_something_else() -> None:
    """A derivative is another run than that of the value."""
    torch = pytest.importorskip("torch")
    made = with_slots()
    op, x = kg.torch.op(made), torch.rand(4, dtype=torch.float64)
    assert op(x).sort().values.tolist() == x.sort().values.tolist()
    with pytest.raises(kg.UnsupportedError, match=WITHOUT):
        op(x.clone().requires_grad_()).sum().backward()
    with pytest.raises(kg.UnsupportedError, match=WITHOUT):
        torch.func.jvp(op, (x,), (x,))
    value, moved = kg.jvp(made)(x.numpy(), x.numpy())
    assert value.tolist() == moved.tolist()


def test_jax_no_derivatives_where_a_step_may_do_something_else() -> None:
    jax = pytest.importorskip("jax")
    op, x = kg.jax.op(with_slots(np.float32)), jax.numpy.arange(1, 5, dtype="float32")
    assert sorted(op(x).tolist()) == x.tolist()
    for f in (lambda x: jax.grad(lambda x: op(x).sum())(x), lambda x: jax.jvp(op, (x,), (x,))):
        with pytest.raises(kg.UnsupportedError, match=WITHOUT):
            f(x)


def test_jax_on_two_devices() -> None:
    """At once, on both: they take turns."""
    jax = pytest.importorskip("jax")
    if not hasattr(jax, "shard_map"):
        pytest.skip("before JAX 0.6, shard_map keeps no numbers for a backward, only arrays")
    from jax.sharding import Mesh, PartitionSpec
    from jax_kernels import close, on_cpu, shard_map

    with on_cpu():
        op, (u, kappa, dt) = kg.jax.op(program(both=False)), map(jax.numpy.asarray, given())
        mesh, split, same = Mesh(np.array(jax.devices("cpu")), ("d",)), PartitionSpec("d"), PartitionSpec()

        def loss(f: Any, both: Any) -> Any:
            one = shard_map(f, mesh=mesh, in_specs=(split, same, same), out_specs=split)
            return (one(both, kappa, dt) ** 2).sum()

        both = jax.numpy.concatenate([u, u * 1.1])
        found, want = (
            jax.jit(jax.grad(lambda x, f=f: loss(f, x)))(both) for f in (op, lambda *x: expected(jax.numpy, *x)[0])
        )
        close(found, want)


def test_jax_refusals() -> None:
    jax = pytest.importorskip("jax")
    from jax_kernels import on_cpu

    with on_cpu():
        op = kg.jax.op(program(both=False))
        u, kappa, dt = map(jax.numpy.asarray, given())
        f = lambda u: op(u, kappa, dt).sum()  # noqa: E731
        with pytest.raises(kg.UnsupportedError, match="no forward mode over forward mode"):
            jax.jacfwd(jax.jacfwd(f))(u)
        with pytest.raises(kg.UnsupportedError, match="has first and second derivatives"):
            jax.jacrev(jax.hessian(f))(u)
        with pytest.raises(kg.ArgumentError, match="takes 3 arrays, got 1"):
            op(u)
        with pytest.raises(kg.ArgumentError, match=r"input 0 is float32\[12\]"):
            op(u.astype("float32"), kappa, dt)
        assert repr(op).startswith("<op (float64[12]")


def test_integers_among_the_outputs() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    from jax_kernels import on_cpu

    u, e, count = np.zeros(N), np.zeros(1), np.zeros(1, np.int32)
    with kg.record() as tape:
        kg.fill(e, 0)
        kg.fill(count, 0)
        MODULE["energy"][1, 32](e, count, u, N)
    made = tape.program(inputs=(u,), outputs=(e, count))
    x = torch.ones(N, dtype=torch.float64, requires_grad=True)
    found = kg.torch.op(made)(x)
    assert found[0] == N and found[1] == N and not found[1].requires_grad
    found[0].sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    with on_cpu():
        y = jax.numpy.ones(N)
        assert kg.jax.op(made)(y)[1][0] == N
        np.testing.assert_array_equal(jax.grad(lambda y: kg.jax.op(made)(y)[0].sum())(y), 2 * y)


def test_operators_are_no_steps() -> None:
    """A recording would take what they give for something new."""
    kernel = kg.compile("""__global__ void square(double *y, const double *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * x[i];
    }""")["square"]
    torch = pytest.importorskip("torch")
    x = torch.ones(4, dtype=torch.float64)
    op = kg.torch.op(kernel, outputs={"y": "x"})
    for _ in range(2):
        assert (op(x) == 1).all()
        with kg.record(), pytest.raises(kg.TapeError, match="an operator of PyTorch.* cannot be recorded"):
            op(x)
    leaf = x.clone().requires_grad_()
    made, compiled = op(leaf).sum(), torch.compile(lambda x: 2 * op(x), backend="aot_eager", fullgraph=True)
    assert (compiled(x) == 2).all()
    others = {
        "compiled": lambda: compiled(x),
        "backward": lambda: torch.autograd.grad(made, leaf, retain_graph=True),
        "twice": lambda: torch.autograd.grad(made, leaf, retain_graph=True, create_graph=True),
        "func": lambda: torch.func.grad(lambda x: op(x).sum())(x),
        "jvp": lambda: torch.func.jvp(op, (x,), (x,)),
        "vmap": lambda: torch.func.vmap(op)(torch.ones(2, 4, dtype=torch.float64)),
    }
    for run in others.values():
        with kg.record(), pytest.raises(kg.TapeError, match="an operator of PyTorch.* cannot be recorded"):
            run()
    assert (torch.autograd.grad(made, leaf)[0] == 2).all()
