"""What a launch costs on the host, in microseconds, on a computer without a GPU: `python benchmarks/host.py --help`.

The kernels of gradients.py on tiny arrays: the kernel, J and R as there. The CPU runs the kernels too, so what stands
here is a little more than the host's part; `--bare` leaves their code out and keeps all that comes before it. With a
GPU, `gradients.py --host` measures the whole. `--jax`: jitted calls of operators of JAX, beside `x + 1`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import kernelgrad as kg
import recorded
from contenders import OnCpu, Problem
from gradient_rows import SOURCE, rows

SCALE = 0.0001
KERNELS = ("sine", "scale", "stencil", "softmax", "matmul")
CONTENDERS = ("primal", "J", "R")
LAUNCHES = 10


def microseconds(runs: list[Callable[[], None]], batches: int) -> list[float]:
    """Of each the best of many short batches that take turns: what else the computer does only adds to it."""

    def batch(run: Callable[[], None]) -> float:
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            run()
        return (time.perf_counter() - start) / LAUNCHES * 1e6

    return [min(times) for times in zip(*([batch(run) for run in runs] for _ in range(batches)), strict=True)]


def leave_out_kernels() -> None:
    from kernelgrad.runtime.cpu import CpuExecutable

    def nothing(*_: Any) -> None: ...

    CpuExecutable.launch = nothing  # type: ignore[method-assign]


JAX_SOURCE = """
__global__ void add(float *y, const float *x, const float *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + a[0];
}
__global__ void raise(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += a;
}
"""


def in_jax(batches: int) -> None:
    import jax
    import jax.numpy as jnp

    module = kg.compile(JAX_SOURCE)
    add, increase = kg.jax.op(module["add"], {"y": "x"}, fill={"y": None}), kg.jax.op(module["raise"])
    x, a, ones = jnp.ones(256, jnp.float32), jnp.ones(1, jnp.float32), jnp.ones(256, jnp.float32)
    functions: dict[str, Callable[[Any], Any]] = {
        "x + 1": lambda x: x + 1,
        "an operator": lambda x: add(x, a),
        "in place, with a number": lambda x: increase(x, a[0]),
        "its gradient": lambda x: jax.vjp(lambda x: add(x, a), x)[1](ones)[0],
        "x + 1, four in a vmap": lambda x: jax.vmap(lambda x: x + 1)(x.reshape(4, -1)),
        "an operator, four in a vmap": lambda x: jax.vmap(lambda x: add(x, a))(x.reshape(4, -1)),
    }
    jitted = [jax.jit(function) for function in functions.values()]
    runs = [lambda function=function: function(x).block_until_ready() for function in jitted]
    for run in runs:
        run()
    print("| jitted | us |\n|---|---|")
    for name, took in zip(functions, microseconds(runs, batches), strict=True):
        print(f"| {name} | {took:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--recorded", action="store_true", help="loops of launches: plain, recorded, reversed")
    parser.add_argument("--bare", action="store_true", help="do not run the kernels' code")
    parser.add_argument("--jax", action="store_true", help="jitted calls of operators of JAX")
    options = parser.parse_args()
    if options.jax:
        in_jax(options.batches)
        return
    if options.recorded:
        recorded.main()
        return
    if options.bare:
        leave_out_kernels()
    module, launcher = kg.load(SOURCE), OnCpu()
    print("| kernel | primal us | J us | R us | J / primal | R / primal |\n|---|---|---|---|---|---|")
    for row in rows(SCALE):
        if row.kernel in KERNELS and options.only in row.name:
            contenders = Problem(row, module[row.kernel], launcher).contenders()
            primal, *others = microseconds([contenders[n] for n in CONTENDERS], options.batches)
            times = " | ".join(f"{t:.1f}" for t in (primal, *others))
            print(f"| {row.name} | {times} | {' | '.join(f'{t / primal:.1f}x' for t in others)} |", flush=True)


if __name__ == "__main__":
    main()
