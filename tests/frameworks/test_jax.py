"""`kg.jax.op`: what operators compute, under every transformation that JAX has."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax_kernels import MODULE, close, grow, on_cpu, op, random, until, weighted  # noqa: E402


@pytest.fixture(autouse=True)
def cpu() -> Iterator[None]:
    with on_cpu():
        yield


WEIGHTED, GROW = op("weighted", {"y": "x"}), op("grow")


def inputs(n: int = 5) -> tuple[Any, Any, Any]:
    return random(n), random(n, seed=1), jnp.float64(1.3)


# ---- transformations -------------------------------------------------------------------------------------------------

ALL = (0, 1, 2)


def along(f: Any) -> Any:
    return lambda *z: jax.jvp(f, z, tuple(jnp.cos(v) for v in z))[1]


def two(v: Any, axis: int = 0) -> Any:
    return jnp.stack([v, 0.7 * v], axis)


TRANSFORMATIONS: dict[str, Any] = {
    "value": lambda f: f,
    "jit": lambda f: jax.jit(f),
    "grad": lambda f: jax.grad(f, ALL),
    "jit of grad": lambda f: jax.jit(jax.grad(f, ALL)),
    "value and grad": lambda f: jax.value_and_grad(f, ALL),
    "grad by one": lambda f: jax.grad(f, 1),
    "jvp": along,
    "jit of jvp": lambda f: jax.jit(along(f)),
    "linearize": lambda f: lambda x, w, a: jax.linearize(lambda x: f(x, w, a), x)[1](w),
    "linear transpose": lambda f: (
        lambda x, w, a: jax.linear_transpose(jax.linearize(lambda x: f(x, w, a), x)[1], x)(jnp.float64(2))
    ),
    "hessian": lambda f: jax.hessian(f, ALL),
    "jacrev of jacrev": lambda f: jax.jacrev(jax.jacrev(f, ALL), ALL),
    "jacrev of jacfwd": lambda f: jax.jacrev(jax.jacfwd(f, ALL), ALL),
    "hessian times vector": lambda f: jax.jit(along(jax.grad(f, ALL))),
    "grad of jvp": lambda f: jax.grad(along(f), ALL),
    "vmap": lambda f: lambda x, w, a: jax.vmap(f, (1, None, None))(two(x, 1), w, a),
    "vmap of a number": lambda f: lambda x, w, a: jax.vmap(f, (None, None, 0))(x, w, two(a)),
    "vmap of grad": lambda f: lambda x, w, a: jax.vmap(jax.grad(f, ALL), (0, None, 0))(two(x), w, two(a)),
    "grad of vmap": lambda f: jax.grad(lambda x, w, a: jnp.cos(jax.vmap(f, (0, None, None))(two(x), w, a)).sum(), ALL),
    "vmap of vmap": lambda f: (
        lambda x, w, a: jax.vmap(jax.vmap(f, (0, None, None)), (None, 0, 0))(
            jnp.stack([x, 2 * x, 3 * x]), two(w), two(a)
        )
    ),
    "vmap of hessian": lambda f: lambda x, w, a: jax.vmap(jax.hessian(f, ALL), (0, None, None))(two(x), w, a),
    "hessian of vmap": lambda f: jax.hessian(lambda x, w, a: jax.vmap(f, (0, None, None))(two(x), w, a).sum(), ALL),
    "grad of remat": lambda f: jax.jit(jax.grad(jax.checkpoint(lambda x, w, a: jnp.exp(f(x, w, a))), ALL)),
    "remat, nothing saved": lambda f: jax.grad(
        jax.checkpoint(lambda x, w, a: jnp.exp(f(x, w, a)), policy=jax.checkpoint_policies.nothing_saveable), ALL
    ),
    "vmap of nothing": lambda f: lambda x, w, a: jax.vmap(f, (0, None, None))(jnp.zeros((0, 5)), w, a),
    "grad of vmap of nothing": lambda f: (
        lambda x, w, a: jax.grad(lambda w: jax.vmap(f, (0, None, None))(jnp.zeros((0, 5)), w, a).sum())(w)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_transformations(name: str) -> None:
    transformed, c = TRANSFORMATIONS[name], jnp.cos(jnp.arange(5.0))
    found = transformed(lambda x, w, a: (WEIGHTED(x, w, a) * c).sum())(*inputs())
    close(found, transformed(lambda x, w, a: (weighted(x, w, a) * c).sum())(*inputs()))


LOOPS: dict[str, Any] = {
    "in place": lambda f: lambda x, a: f(x, a),
    "twice from the same": lambda f: lambda x, a: f(x, a) + x * f(x, 0.5 * a),
    "scan": lambda f: lambda x, a: jax.lax.scan(lambda c, _: (f(c, a), c), x, None, length=4),
    "scan over numbers": lambda f: (
        lambda x, a: jax.lax.scan(lambda c, b: (f(c, b), c.sum()), x, a * jnp.arange(1.0, 4))
    ),
    "scan of remat": lambda f: (
        lambda x, a: jax.lax.scan(jax.checkpoint(lambda c, _: (f(c, a), None)), x, None, length=4)[0]
    ),
    "cond": lambda f: lambda x, a: jax.lax.cond(x[0] > 0, lambda: f(x, a), lambda: x),
    "vmap of scan": lambda f: (
        lambda x, a: jax.vmap(lambda c: jax.lax.scan(lambda c, _: (f(c, a), None), c, None, length=3)[0])(two(x))
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_updated_arrays_under_control_flow(name: str) -> None:
    """The carried array is updated in its place."""

    def total(f: Any) -> Any:
        looped = LOOPS[name](f)
        return lambda x, a: sum(jnp.sin(v).sum() for v in jax.tree.leaves(looped(x, a)))

    x, a = random(4), jnp.float64(0.4)
    for transformed in (lambda f: jax.jit(jax.value_and_grad(f, (0, 1))), along, lambda f: along(jax.grad(f, (0, 1)))):
        close(transformed(total(GROW))(x, a), transformed(total(grow))(x, a))


def test_a_loop_without_derivatives() -> None:
    x, a = random(4), 0.4
    f = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda _, c: GROW(c, a), x))
    close(f(x, 3), grow(grow(grow(x, a), a), a))


def test_what_the_kernel_overwrites_on_the_way_is_made_again() -> None:
    iterate = op("iterate")

    def reference(x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = jnp.sin(x) * x
        return x

    x = random(4)
    for transformed in (jax.grad, jax.hessian, lambda f: jax.vmap(jax.grad(f))):
        given = two(x) if transformed not in (jax.grad, jax.hessian) else x
        found, expected = (transformed(lambda x, f=f: f(x, steps=3).sum()) for f in (iterate, reference))
        close(found(given), expected(given))


def test_gradients_against_finite_differences() -> None:
    from jax.test_util import check_grads

    check_grads(WEIGHTED, inputs(3), order=2, modes=["rev"], rtol=1e-6, atol=1e-6)
    check_grads(GROW, (random(3), jnp.float64(0.4)), order=1, modes=["fwd", "rev"], rtol=1e-6, atol=1e-6)


def test_what_no_derivative_is_there_for() -> None:
    x, w, a = inputs()
    f = lambda x: WEIGHTED(x, w, a).sum()  # noqa: E731
    with pytest.raises(kg.UnsupportedError, match="forward mode over forward mode"):
        along(along(f))(x)
    with pytest.raises(kg.UnsupportedError, match="first and second derivatives"):
        jax.grad(lambda x: jax.grad(lambda x: jax.grad(f)(x).sum())(x).sum())(x)
    with pytest.raises(kg.UnsupportedError, match="slots has no backward"):
        jax.grad(lambda x: op("slots", {"y": "x", "count": (1,)}, grid=1, block=5)(x, 5)[0].sum())(x)
    with pytest.raises(kg.UnsupportedError, match="slots has no forward mode"):
        jax.jvp(lambda x: op("slots", {"y": "x", "count": (1,)}, grid=1, block=5)(x, 5)[0], (x,), (x,))


def test_third_derivatives_by_the_text_of_the_gradient() -> None:
    kernel = kg.compile(
        "__global__ void fourth(double *y, const double *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;"
        " if (i < n) y[i] = x[i] * x[i] * x[i] * x[i]; }"
    )["fourth"]
    text = kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x").source
    slope = kg.jax.op(kg.compile(text)["fourth_grad"], {"_d_x": "x"}, grid=1, block=8)
    x, ones = random(5), jnp.ones(5)

    def first(x: Any) -> Any:
        found = slope(y=x, x=x, n=5, _d_y=ones)
        return (found[0] if isinstance(found, tuple) else found).sum()

    close(jax.grad(first)(x), 12 * x**2)
    close(jax.grad(lambda x: jax.grad(first)(x).sum())(x), 24 * x)


def test_export() -> None:
    """JAX refuses calls that it does not know; ours are told, those of the backward too."""
    pytest.importorskip("jax.export", exc_type=ImportError)  # JAX 0.5.0 lacks a package
    x, w, a = inputs()
    f = jax.jit(lambda x: WEIGHTED(x, w, a).sum())
    with pytest.raises(ValueError, match="custom calls"):
        jax.export.export(f)(x)
    exported = kg.jax.export(f)(jax.ShapeDtypeStruct(x.shape, x.dtype))
    close(exported.call(x), f(x))
    close(exported.vjp().call(x, jnp.ones(()))[0], jax.grad(f)(x))
    first = kg.jax.export(jax.jit(lambda x: op("slots", {"y": "x", "count": (1,)}, grid=1, block=5)(x, 5)[1]))(x)
    assert first.call(x)[0] == 5


@pytest.mark.slow
def test_only_what_the_backward_reads_is_kept() -> None:
    """And what is not kept is no reason for a NaN: the logarithm of a zero that stands for w."""
    logs, (x, w, _) = op("logs", {"y": "x"}), inputs()
    reference = lambda x, w: x * x + jnp.log(w) + jnp.sqrt(w)  # noqa: E731
    backward = jax.make_jaxpr(jax.grad(lambda x: logs(x, w).sum()))(x).eqns[-1]
    assert backward.primitive.name == "kernelgrad_backward" and len(backward.invars) == 2  # y's cotangent and x
    for transformed in (jax.grad, jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))):
        for k, z in enumerate((x, w)):
            found, expected = (
                transformed(lambda v, f=f, k=k: f(*[(v, w), (x, v)][k]).prod())(z) for f in (logs, reference)
            )
            close(found, expected)


# ---- what goes in and comes out --------------------------------------------------------------------------------------


def test_several_outputs_of_which_some_have_no_gradient() -> None:
    both, (x, w, _) = op("both", {"product": "x", "sum": (), "sign": "x"}), inputs()
    product, total, sign = both(x - 1, w)
    close((product, total), ((x - 1) * w, ((x - 1) ** 2).sum()))
    assert sign.tolist() == jnp.sign(x - 1).tolist() and sign.dtype == jnp.int32
    found = jax.grad(lambda x, w: both(x, w)[0].prod() + 3 * both(x, w)[1], (0, 1))(x, w)
    close(found, jax.grad(lambda x, w: (x * w).prod() + 3 * (x * x).sum(), (0, 1))(x, w))
    close(jax.hessian(lambda x: both(x, w)[1])(x), 2 * jnp.eye(5))
    close(jax.jvp(lambda x: both(x, w)[0], (x,), (w,))[1], w * w)
    started = op("both", {"product": "x", "sum": (), "sign": "x"}, fill={"sum": 10, "product": -np.inf})
    close(started(x, w, n=2)[:2], (jnp.where(jnp.arange(5) < 2, x * w, -jnp.inf), 10 + (x * x)[:2].sum()))


def test_integers_and_shapes_by_functions() -> None:
    gather = op("gather", {"y": "index"}, grid=lambda n, **_: n, block=1)
    x, index = random(4), jnp.array([3, 0, 3], jnp.int32)
    close(jax.jit(jax.grad(lambda x: gather(x, index, 3).sum()))(x), jnp.array([2.0, 0, 0, 4]) * x)
    close(jax.jit(jax.grad(lambda x, index: gather(x, index, 3).sum()))(x, index), jnp.array([2.0, 0, 0, 4]) * x)
    close(jax.jvp(lambda x: gather(x, index, 3), (x,), (x,))[1], 2 * (x * x)[index])
    product = op(
        "product",
        {"z": lambda x, y, **_: (x.shape[0], y.shape[1])},
        grid=lambda x, y, **_: ((y.shape[1] + 3) // 4, (x.shape[0] + 3) // 4),
        block=(4, 4),
        sizes={
            "rows": lambda x, **_: x.shape[0],
            "inner": lambda x, **_: x.shape[1],
            "columns": lambda y, **_: y.shape[1],
        },
    )
    x, y = random(3, 5), random(5, 2, seed=1)
    close(product(x.T.T, y), x @ y)
    close(
        jax.hessian(lambda x, y: jnp.sin(product(x, y)).sum(), (0, 1))(x, y),
        jax.hessian(lambda x, y: jnp.sin(x @ y).sum(), (0, 1))(x, y),
    )
    close(jax.jit(lambda x: product(x.T, y))(x.T.copy()), x @ y)  # transposed in memory before the kernel


def test_numbers_may_be_part_of_the_code() -> None:
    x, w, a = inputs()
    close(WEIGHTED(x, w, 2), weighted(x, w, 2))
    close(jax.jit(WEIGHTED)(x, w, 2), weighted(x, w, 2))
    close(WEIGHTED(a=2.5, w=w, x=x), weighted(x, w, 2.5))
    close(WEIGHTED(np.asarray(x), np.asarray(w), np.float64(a)), weighted(x, w, a))
    close(jax.grad(lambda a: WEIGHTED(x, w, a).sum())(jnp.ones((1,))), weighted(x, w, 1.0).sum()[None])
    assert np.signbit(WEIGHTED(x, w, -0.0)).all() and not np.signbit(WEIGHTED(x, w, 0.0)).any()
    chosen, z = op("chosen", {"y": "x"}), jnp.ones(3, jnp.float32)
    for yes, no in ((True, False), (np.bool_(True), np.bool_(False)), (1, 0), (jnp.array(True), jnp.array(False))):
        assert chosen(z, yes).tolist() == [-1, -1, -1] and chosen(z, no).tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_precisions(dtype: str) -> None:
    c_type = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float"}[dtype]
    squares, x, a = op(f"squares<{c_type}>", {"y": "x"}), jnp.array([1.5, -2.0], dtype), jnp.array(0.5, dtype)
    close(squares(x, a), x * x * a)
    close(jax.grad(lambda x, a: squares(x, a).sum(), (0, 1))(x, a), (2 * x * a, (x * x).sum()))
    close(jax.hessian(lambda x: squares(x, a).sum())(x), jnp.eye(2, dtype=dtype))
    close(jax.jvp(squares, (x, a), (x, a)), (x * x * a, 3 * x * x * a))


def test_doubles_where_jax_has_none() -> None:
    """A number is converted on its way; arrays cannot be."""
    single = op("single", {"y": "x"})
    jax.config.update("jax_enable_x64", False)
    x, a = jnp.array([1.5, -2.0]), jnp.float32(0.5)
    close(jax.jit(single)(x, a), x * x * a)
    close(jax.jit(jax.grad(lambda x, a: single(x, a).sum(), (0, 1)))(x, a), (2 * x * a, (x * x).sum()))
    close(jax.hessian(lambda a: (single(x, a) ** 2).sum())(a), 2 * (x**4).sum())
    close(jax.jvp(single, (x, a), (x, a))[1], 3 * x * x * a)
    with pytest.raises(kg.ArgumentError, match=r"'x' \(const double \*\) holds float64.*jax_enable_x64"):
        WEIGHTED(x, x, a)


def test_arrays_without_elements() -> None:
    e, a = jnp.zeros(0), jnp.float64(2)
    assert WEIGHTED(e, e, a).shape == (0,)
    close(jax.grad(lambda *z: WEIGHTED(*z).sum(), ALL)(e, e, a), (e, e, jnp.float64(0)))
    assert jax.jvp(lambda x: WEIGHTED(x, e, a), (e,), (e,))[1].shape == (0,)
    assert jax.jit(jax.hessian(lambda x: GROW(x, a).sum()))(e).shape == (0, 0)


def test_arrays_are_not_changed() -> None:
    x, a = random(4), jnp.float64(0.4)
    before = np.array(x)
    kept, grown = jax.jit(lambda x: (x, GROW(x, a)))(x)
    close(grown, grow(jnp.asarray(before), a))
    assert (np.asarray(kept) == before).all() and (np.asarray(x) == before).all()


def test_without_jit() -> None:
    x, w, a = inputs()
    with jax.disable_jit():
        close(WEIGHTED(x, w, a), weighted(x, w, a))
        close(jax.jit(jax.grad(lambda x: WEIGHTED(x, w, a).sum()))(x), jax.grad(lambda x: weighted(x, w, a).sum())(x))


def test_donated_arrays() -> None:
    x, a = random(4), jnp.float64(0.4)
    expected, given = grow(x, a), x.copy()
    close(jax.jit(GROW, donate_argnums=0)(given, a), expected)
    assert given.is_deleted()


def test_constants_are_those_of_the_time_the_operator_was_made() -> None:
    MODULE.constant("SCALE")[...] = [3.0]
    x = random(4)
    three = op("scaled", {"y": "x"})
    MODULE.constant("SCALE")[...] = [5.0]
    close((three(x), op("scaled", {"y": "x"})(x)), (3 * x, 5 * x))
    close(jax.grad(lambda x: three(x).sum())(x), jnp.full(4, 3.0))
    assert three.name != op("scaled", {"y": "x"}).name


# ---- how it runs -----------------------------------------------------------------------------------------------------


def test_tapes_that_must_be_counted() -> None:
    """What the host looks at is done in Python."""
    x, counted = random(5), op("until", {"y": "x"})
    close(counted(x), until(x))
    for transformed in (lambda f: jax.jit(jax.grad(f)), lambda f: jax.vmap(jax.grad(f)), jax.hessian):
        given = two(x) if "vmap" in transformed.__code__.co_names else x
        close(transformed(lambda x: counted(x).sum())(given), transformed(lambda x: until(x).sum())(given))


def test_deterministic_gradients() -> None:
    deterministic = op("weighted", {"y": "x"}, deterministic=True)
    x, w, a = inputs(3000)
    first, second = (jax.jit(jax.grad(lambda *z: deterministic(*z).sum(), ALL))(x, w, a) for _ in range(2))
    close(first, jax.grad(lambda *z: weighted(*z).sum(), ALL)(x, w, a))
    assert all((one == other).all() for one, other in zip(first, second, strict=True))


def test_errors_are_returned() -> None:
    positive, x = op("positive", {"y": "x"}), random(600)
    for f in (positive, jax.jit(positive), jax.vmap(positive), jax.jit(jax.grad(lambda x: positive(x).sum()))):
        given = two(x) if f is not positive and not hasattr(f, "lower") else x
        with pytest.raises(Exception, match=r"trap \(block \(1, 0, 0\), thread \(3, 0, 0\)\)"):
            jax.block_until_ready(f(given.at[..., 259].set(-1)))
    close(positive(x), jnp.log(x))


def test_errors_of_what_python_does_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgrad.derivatives.gradient import Gradient

    x, f = random(5), jax.jit(jax.grad(lambda x: op("until", {"y": "x"})(x).sum()))
    expected = f(x)

    def fail(*_: Any) -> None:
        raise kg.LaunchError("as asked")

    with monkeypatch.context() as patched:
        patched.setattr(Gradient, "_launch", fail)
        with pytest.raises(Exception, match="as asked"):
            jax.block_until_ready(f(x))
    close(f(x), expected)


def test_dynamic_shared_memory() -> None:
    x = jnp.arange(512, dtype=jnp.float32)
    turned = op("turned", {"y": "x"}, grid=2, block=256, shared=1024)
    expected = 2 * x.reshape(2, 256)[:, ::-1].reshape(-1)
    close(turned(x), expected)
    close(jax.jit(jax.grad(lambda x: (turned(x) * x).sum()))(x), 2 * expected)
    with pytest.raises(Exception, match="turned needs at least 1024 bytes of dynamic shared memory, got 512"):
        jax.block_until_ready(op("turned", {"y": "x"}, grid=2, block=256, shared=512)(x))


def test_denormal_numbers_are_not_flushed() -> None:
    small = np.float32(2e-39)
    found = np.asarray(jax.jit(op("chosen", {"y": "x"}), static_argnums=1)(jnp.full(4, small, jnp.float32), False))
    assert (found == small / 2).all() and small > 0


def test_large_launches_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """With XLA's threads; several calls at once."""
    monkeypatch.setenv("KERNELGRAD_CPU_THREADS", "3")
    waves = op("waves", {"y": "x"}, block=64)
    x = jnp.linspace(0, 1, 1 << 16, dtype=jnp.float32)
    f, g = jax.jit(waves), jax.jit(jax.grad(lambda x: waves(x).sum()))
    reference = lambda x: jnp.sin(jnp.sin(jnp.sin(x) + x) + x) + x  # noqa: E731
    close(f(x), reference(x), 1e-5)
    close(g(x), jax.grad(lambda x: reference(x).sum())(x), 1e-4)
    values, wrong = (f(x), g(x)), []

    def again() -> None:
        wrong.extend(1 for _ in range(10) if not all((a == b).all() for a, b in zip(values, (f(x), g(x)), strict=True)))

    threads = [threading.Thread(target=again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_copies_and_no_memory_where_none_is_needed() -> None:
    x, w, a = inputs(64)
    text = jax.jit(WEIGHTED).lower(x, w, a).compile().as_text()
    assert text.count("custom-call(") == 1 and " copy(" not in text
    updated = jax.jit(GROW, donate_argnums=0).lower(x, a).compile().as_text()
    assert " copy(" not in updated and "output_to_operand_aliasing" in updated


def test_code_that_is_kept_on_disk(tmp_path: Any) -> None:
    """XLA's executables find their handlers in another process."""
    code = """
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
from jax_kernels import op, random
f = jax.jit(jax.grad(lambda x: op("until", {"y": "x"})(x).sum() + op("grow")(x, 0.5).sum()))
print(f(random(4)).sum().item(), op("grow").name)
"""
    environment = {**_environment(), "JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = [subprocess.run(command, capture_output=True, text=True, check=True, env=environment) for _ in range(2)]
    assert done[0].stdout == done[1].stdout and GROW.name in done[0].stdout and any(tmp_path.iterdir())


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}


# ---- names and errors ------------------------------------------------------------------------------------------------


def test_making_an_operator_again_gives_the_same_one() -> None:
    again = kg.jax.op(kg.compile(MODULE._unit.text)["weighted"], {"y": "x"})
    assert again._family is WEIGHTED._family
    assert op("weighted", {"y": "x"}, deterministic=True).name != WEIGHTED.name


def test_repr() -> None:
    assert repr(WEIGHTED).startswith("<op (x, w, a) -> y\n  of __global__ void weighted(double *y,")
    assert repr(WEIGHTED).endswith("n = x.size, inferred\n  grid ((n + block - 1) // block), inferred, block 256>")
    assert "x: updated" in repr(GROW)


def test_import_without_jax() -> None:
    code = "import sys; sys.modules['jax'] = None; import kernelgrad.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=_environment())
    assert "ImportError: kernelgrad.jax needs JAX: pip install jax" in done.stderr


def make(name: str, *args: Any, **settings: Any) -> kg.jax.Op:
    return kg.jax.op(MODULE[name], *args, **{"grid": 1, "block": 1, **settings})


F32 = np.ones(3, np.float32)
F64 = np.ones(3)
BY_CONTENTS = op("weighted", {"y": "x"}, grid=lambda x, **_: x[0].astype(int))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: WEIGHTED(F32, F64, 1.0), "ArgumentError", r"'x' \(const double \*\) wants an array of float64, got"),
        (lambda: WEIGHTED(2.0, F64, 1.0), "ArgumentError", r"'x' \(const double \*\) wants an array, got float"),
        (lambda: WEIGHTED(F64, F64, F64), "ArgumentError", r"'a' \(double\) wants a number or a floating-point array"),
        (lambda: WEIGHTED(F64, F64, "1"), "ArgumentError", r"'a' \(double\) wants a number or a floating-point array"),
        (lambda: WEIGHTED(F64, F64), "ArgumentError", "wants x, w, a, got 2 by position"),
        (lambda: WEIGHTED(F64, F64, 1.0, b=2), "ArgumentError", "wants x, w, a, got 3 by position and b by name"),
        (lambda: WEIGHTED(F64, np.ones(4), 1.0), "ArgumentError", "'x' has 3 elements, 'w' has 4"),
        (lambda: WEIGHTED(F64, F64, 1.0, n=2.5), "ArgumentError", r"'n' \(int\) wants an integer, got float"),
        (
            lambda: make("chosen", {"y": "x"})(F32, 0.5),
            "ArgumentError",
            r"'negative' \(bool\) wants an integer, got float",
        ),
        (
            lambda: make("chosen", {"y": "x"})(F32, F32 > 0),
            "ArgumentError",
            r"'negative' \(bool\) wants an integer, got an",
        ),
        (lambda: jax.jit(WEIGHTED)(F64, F64, 1.0, 3), "ArgumentError", "'n' .int. has to be known when .* is traced"),
        (lambda: make("weighted", {"y": "x"})(F64, F64, 1.0, 2**40), "ArgumentError", r"'n' \(int\)"),
        (lambda: make("weighted", {"y": "x"}, block=2048)(F64, F64, 1.0), "LaunchError", "at most 1024"),
        (lambda: make("weighted", {"x": "w"}), "ArgumentError", "'x' is no array that the kernel writes"),
        (lambda: make("weighted", {"y": "a"}), "ArgumentError", "'y' cannot be like 'a'"),
        (lambda: make("stateful", {"y": "x"}), "UnsupportedError", "reads the variable 'STATE'"),
        (lambda: op("product", {"z": "x"}), "ArgumentError", "how many blocks there are does not follow"),
        (lambda: kg.jax.op("weighted"), "ArgumentError", "kg.jax.op"),
        (lambda: WEIGHTED(F64, F64, 10**400), "ArgumentError", r"'a' \(double\) wants a number"),
        (
            lambda: jax.jit(BY_CONTENTS)(F64, F64, 1.0),
            "ArgumentError",
            "weighted: grid= has to be known when .* traced",
        ),
    ],
)
def test_refusals(call: Any, error: str, words: str) -> None:
    with pytest.raises(getattr(kg, error), match=words):
        call()
