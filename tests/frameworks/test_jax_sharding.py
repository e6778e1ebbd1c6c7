"""Operators of JAX on several devices: two that are one CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from jax_kernels import close, grow, on_cpu, op, random, shard_map, weighted  # noqa: E402

SPLIT, SAME = PartitionSpec("d"), PartitionSpec()
WEIGHTED, GROW = op("weighted", {"y": "x"}), op("grow")
ALL = (0, 1, 2)


@pytest.fixture(autouse=True)
def cpu() -> Iterator[None]:
    with on_cpu():
        yield


def mesh() -> Any:
    devices = jax.devices("cpu")
    assert len(devices) == 2  # tests/conftest.py asks for that
    return Mesh(np.array(devices), ("d",))


def sharded(f: Any, checked: bool, w: Any = SPLIT) -> Any:
    return shard_map(f, checked, mesh=mesh(), in_specs=(SPLIT, w, SAME), out_specs=SPLIT)


def along(f: Any) -> Any:
    return lambda *z: jax.jvp(f, z, tuple(jnp.cos(v) for v in z))[1]


TRANSFORMATIONS: dict[str, Any] = {
    "value": lambda shard: shard,
    "grad": lambda shard: lambda f: jax.grad(lambda *z: jnp.sin(shard(f)(*z)).sum(), ALL),
    "jvp": lambda shard: lambda f: along(shard(f)),
    "grad inside": lambda shard: lambda f: shard(jax.grad(lambda *z: jnp.sin(f(*z)).sum())),
    "hessian times vector": lambda shard: lambda f: along(jax.grad(lambda *z: jnp.sin(shard(f)(*z)).sum(), ALL)),
    "vmap": lambda shard: lambda f: lambda x, w, a: jax.vmap(shard(f), (0, None, None))(jnp.stack([x, 2 * x]), w, a),
}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_shard_map(name: str, checked: bool) -> None:
    x, w, a = random(8), random(8, seed=1), jnp.float64(1.3)
    transformed = TRANSFORMATIONS[name](lambda f: sharded(f, checked))
    close(jax.jit(transformed(WEIGHTED))(x, w, a), jax.jit(transformed(weighted))(x, w, a))


@pytest.mark.parametrize("checked", [True, False])
def test_what_is_the_same_on_all_devices_has_the_sum_of_the_adjoints(checked: bool) -> None:
    x, w, a = random(8), random(4, seed=1), jnp.float64(1.3)

    def gradient(f: Any) -> Any:
        return jax.jit(jax.grad(lambda *z: jnp.sin(sharded(f, checked, SAME)(*z)).sum(), ALL))

    close(gradient(WEIGHTED)(x, w, a), gradient(weighted)(x, w, a))
    close(
        gradient(WEIGHTED)(x, w, a),
        jax.grad(lambda x, w, a: jnp.sin(weighted(x, jnp.tile(w, 2), a)).sum(), ALL)(x, w, a),
    )


def test_sums_over_devices() -> None:
    x, w, a = random(8), random(8, seed=1), jnp.float64(1.3)

    def gradient(f: Any) -> Any:
        total = lambda *z: jax.lax.psum(f(*z).sum(), "d")  # noqa: E731
        return jax.jit(jax.grad(shard_map(total, mesh=mesh(), in_specs=(SPLIT, SPLIT, SAME), out_specs=SAME), ALL))

    close(gradient(WEIGHTED)(x, w, a), jax.grad(lambda *z: weighted(*z).sum(), ALL)(x, w, a))


def test_a_loop_of_updates_in_shards() -> None:
    x, a = random(8), jnp.float64(0.4)

    def loss(f: Any) -> Any:
        looped = lambda x, a: jax.lax.scan(lambda c, _: (f(c, a), None), x, None, length=3)[0]  # noqa: E731
        shards = shard_map(looped, mesh=mesh(), in_specs=(SPLIT, SAME), out_specs=SPLIT)
        return jax.jit(jax.value_and_grad(lambda x, a: shards(x, a).sum(), (0, 1)))

    close(loss(GROW)(x, a), loss(grow)(x, a))


def test_arrays_that_are_sharded_go_in() -> None:
    """Outside of `shard_map`, XLA brings them together."""
    x, w, a = random(8), random(8, seed=1), jnp.float64(1.3)
    spread = jax.device_put(x, NamedSharding(mesh(), SPLIT))
    for f in (WEIGHTED, jax.jit(WEIGHTED)):
        close(f(spread, w, a), weighted(x, w, a))
    close(jax.jit(jax.grad(lambda x: WEIGHTED(x, w, a).sum()))(spread), jax.grad(lambda x: weighted(x, w, a).sum())(x))
