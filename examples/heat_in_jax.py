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

    import kernelgrad as kg

    heat = kg.jax.op(
        kg.compile(SOURCE)["heat"],
        outputs={"next": lambda now, **_: (now.shape[0] - 2, now.shape[1])},
        grid=lambda now, **_: ((now.shape[1] + 127) // 128, now.shape[0] - 2),
        block=128,
        sizes={"width": lambda now, **_: now.shape[1], "rows": lambda now, **_: now.shape[0] - 2},
    )
    print(heat)

    devices = jax.devices()
    mesh, rows, everywhere = Mesh(np.array(devices), ("rows",)), PartitionSpec("rows"), PartitionSpec()
    count = len(devices)

    def with_neighbours(plate: Any) -> Any:
        """Rows of the devices above and below; beyond the first and the last, the plate's own."""
        above = jax.lax.ppermute(plate[-1:], "rows", [(k, k + 1) for k in range(count - 1)])
        below = jax.lax.ppermute(plate[:1], "rows", [(k + 1, k) for k in range(count - 1)])
        device = jax.lax.axis_index("rows")
        above = jnp.where(device == 0, plate[:1], above)
        below = jnp.where(device == count - 1, plate[-1:], below)
        return jnp.concatenate([above, plate, below])

    def spread(plate: Any, alpha: Any) -> Any:
        step = jax.checkpoint(lambda plate, _: (heat(with_neighbours(plate), alpha), None))
        return jax.lax.scan(step, plate, None, length=options.steps)[0]

    simulate = jax.shard_map(spread, mesh=mesh, in_specs=(rows, everywhere), out_specs=rows)

    def loss(plate: Any, alpha: Any, seen: Any) -> Any:
        return ((simulate(plate, alpha) - seen) ** 2).sum()

    @jax.jit
    def descend(plate: Any, speed: Any, alpha: Any, seen: Any) -> Any:
        error, gradient = jax.value_and_grad(loss)(plate, alpha, seen)
        speed = 0.9 * speed - 0.2 * gradient
        return plate + speed, speed, error

    size = options.size // count * count
    place = np.arange(size)
    truth = np.zeros((size, size), np.float32)
    truth[size // 4 : size // 2, size // 3 : size // 2] = 1
    truth += 0.5 * ((place[:, None] - 0.7 * size) ** 2 + (place - 0.6 * size) ** 2 < (size / 6) ** 2)
    sharded, alpha = NamedSharding(mesh, rows), jnp.array([0.2], jnp.float32)
    seen = jax.jit(simulate)(jax.device_put(truth, sharded), alpha)

    plate = speed = jax.device_put(np.zeros_like(truth), sharded)
    first = None
    for k in range(options.rounds):
        plate, speed, error = descend(plate, speed, alpha, seen)
        first = float(error) if first is None else first
        if k % 20 == 0 or k == options.rounds - 1:
            print(f"round {k:4}: error {float(error):.6f}")
    print(f"{count} devices, {devices[0].platform}; the error went down {first / float(error):,.0f} times")

    # Along a direction, against differences: by alpha, which all devices share.
    slope = float(jax.grad(loss, 1)(plate * 0.9, alpha, seen)[0])
    ends = [float(loss(plate * 0.9, alpha + h, seen)) for h in (-1e-3, 1e-3)]
    assert abs(slope - (ends[1] - ends[0]) / 2e-3) < 0.02 * abs(slope) + 1e-3
    assert float(error) < 0.01 * first
    print("checked   the gradient by alpha against differences")


if __name__ == "__main__":
    main()
