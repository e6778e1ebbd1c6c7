"""A kernel of your own in JAX: what was on a plate before the heat spread is found by gradient descent. The steps of a
CUDA kernel run inside a jitted, sharded loop; JAX differentiates through them. On several GPUs, or on a CPU that is
taken for several devices: `python examples/heat_in_jax.py --devices 2`."""

from __future__ import annotations

import argparse
import os
from typing import Any

# One step of the heat equation on rows of a plate. `now` has one row more at either end: those of the neighbours.
SOURCE = r"""
__global__ void heat(float *next, const float *now, const float *alpha, int width, int rows) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= width) return;
    const float *at = now + (row + 1) * width + column;
    float left = column > 0 ? at[-1] : at[0], right = column + 1 < width ? at[1] : at[0];
    next[row * width + column] = at[0] + alpha[0] * (left + right + at[-width] + at[width] - 4 * at[0]);
}
"""


def heat_operator() -> Any:
    import kernelgrad as kg

    return kg.jax.op(
        kg.compile(SOURCE)["heat"],
        outputs={"next": lambda now, **_: (now.shape[0] - 2, now.shape[1])},
        grid=lambda now, **_: ((now.shape[1] + 127) // 128, now.shape[0] - 2),
        block=128,
        sizes={"width": lambda now, **_: now.shape[1], "rows": lambda now, **_: now.shape[0] - 2},
    )


def with_neighbours(plate: Any, count: int) -> Any:
    """Rows of the devices above and below; beyond the first and the last, the plate's own."""
    import jax
    import jax.numpy as jnp

    above = jax.lax.ppermute(plate[-1:], "rows", [(k, k + 1) for k in range(count - 1)])
    below = jax.lax.ppermute(plate[:1], "rows", [(k + 1, k) for k in range(count - 1)])
    device = jax.lax.axis_index("rows")
    above = jnp.where(device == 0, plate[:1], above)
    below = jnp.where(device == count - 1, plate[-1:], below)
    return jnp.concatenate([above, plate, below])


def simulation(heat: Any, mesh: Any, steps: int) -> Any:
    """A function of a plate, whose rows are spread over the devices, and of alpha."""
    import jax
    from jax.sharding import PartitionSpec

    def spread(plate: Any, alpha: Any) -> Any:
        step = jax.checkpoint(lambda plate, _: (heat(with_neighbours(plate, mesh.size), alpha), None))
        return jax.lax.scan(step, plate, None, length=steps)[0]

    rows, everywhere = PartitionSpec("rows"), PartitionSpec()
    return jax.shard_map(spread, mesh=mesh, in_specs=(rows, everywhere), out_specs=rows)


def plate_to_find(size: int) -> Any:
    import numpy as np

    place = np.arange(size)
    plate = np.zeros((size, size), np.float32)
    plate[size // 4 : size // 2, size // 3 : size // 2] = 1
    plate += 0.5 * ((place[:, None] - 0.7 * size) ** 2 + (place - 0.6 * size) ** 2 < (size / 6) ** 2)
    return plate


def descend(loss: Any, plate: Any, alpha: Any, seen: Any, rounds: int) -> tuple[Any, float, float]:
    """The plate that was found, and the first and the last error."""
    import jax

    @jax.jit
    def step(plate: Any, speed: Any) -> Any:
        error, gradient = jax.value_and_grad(loss)(plate, alpha, seen)
        speed = 0.9 * speed - 0.2 * gradient
        return plate + speed, speed, error

    speed, errors = plate, []
    for k in range(rounds):
        plate, speed, error = step(plate, speed)
        errors.append(float(error))
        if k % 20 == 0 or k == rounds - 1:
            print(f"round {k:4}: error {errors[-1]:.6f}")
    return plate, errors[0], errors[-1]


def check_slope(loss: Any, plate: Any, alpha: Any, seen: Any) -> None:
    """Against differences: by alpha, which all devices share."""
    import jax

    slope = float(jax.grad(loss, 1)(plate * 0.9, alpha, seen)[0])
    ends = [float(loss(plate * 0.9, alpha + h, seen)) for h in (-1e-3, 1e-3)]
    assert abs(slope - (ends[1] - ends[0]) / 2e-3) < 0.02 * abs(slope) + 1e-3
    print("checked   the gradient by alpha against differences")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=2, help="how many the CPU is taken for, where there is no GPU")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20, help="of the heat equation")
    parser.add_argument("--rounds", type=int, default=60, help="of the descent")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={options.devices}")
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    heat, devices = heat_operator(), jax.devices()
    print(heat)
    mesh = Mesh(np.array(devices), ("rows",))
    simulate = simulation(heat, mesh, options.steps)

    def loss(plate: Any, alpha: Any, seen: Any) -> Any:
        return ((simulate(plate, alpha) - seen) ** 2).sum()

    truth = plate_to_find(options.size // len(devices) * len(devices))
    sharded, alpha = NamedSharding(mesh, PartitionSpec("rows")), jnp.array([0.2], jnp.float32)
    seen = jax.jit(simulate)(jax.device_put(truth, sharded), alpha)
    blank = jax.device_put(np.zeros_like(truth), sharded)
    plate, first, last = descend(loss, blank, alpha, seen, options.rounds)
    print(f"{len(devices)} devices, {devices[0].platform}; the error went down {first / last:,.0f} times")
    assert last < 0.01 * first
    check_slope(loss, plate, alpha, seen)


if __name__ == "__main__":
    main()
