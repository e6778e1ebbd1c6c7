"""Gradients on the CPU against their kernels, Warp and JAX: `python benchmarks/cpu.py --help`.

J: value and gradient in one call. R: `primal=False`, outputs' adjoints kept, inputs' adjoints assigned. The rows are
those of gradients.py that wait for memory; J and R are to take at most three times as long as the kernel, and no longer
than Warp's and JAX's where these are installed. Medians of launches that take turns. All gradients are compared, and
the run fails where they differ. Warp runs on one core, whatever is said.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from timing import compare

SCALE = 1 / 8  # of what a GPU gets
TARGET = 3.0
KERNELS = ("sine", "polynomial", "scale", "stencil", "block_sum", "softmax", "layer_norm", "convolution")
HEADS = (
    "kernel",
    "primal ms",
    "J ms",
    "J / primal",
    "R ms",
    "R / primal",
    "3x",
    "Warp J, R ms",
    "JAX J, R ms",
    "error",
)
TOLERANCE = 1e-4


def timed(prepare: Callable[[], Any], work: Callable[[], Any]) -> Callable[[], float]:
    def run() -> float:
        prepare()
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return run


def measure(row: Any, module: Any, launcher: Any, seconds: float) -> bool:
    """Prints the row; whether its values agree."""
    from contenders import Problem
    from other_gradients import others

    problem = Problem(row, module[row.kernel], launcher)
    contenders = problem.contenders()
    del contenders["atomics"]
    errors = problem.errors(contenders)
    del contenders["by hand"]  # a kernel for GPUs
    runs = {name: timed(lambda name=name: problem.prepare(name), work) for name, work in contenders.items()}
    expected = problem.adj[problem.assigned[0]].copy()
    for name, other in others(problem).items():
        for contract, work in (("J", other.joint), ("R", other.reverse)):
            runs[f"{name} {contract}"] = timed(other.prepare, work)
            other.prepare()
            work()
            errors[f"{name} {contract}"] = problem.distance(other.result(), expected)
    times = {name: 1e3 * seconds for name, seconds in compare(runs, seconds).items()}
    print_row(cells(row, times, errors))
    return max(errors.values()) <= TOLERANCE


def cells(row: Any, times: Mapping[str, float], errors: Mapping[str, float]) -> Iterator[str]:
    yield row.name
    yield f"{times['primal']:.2f}"
    for contract in ("J", "R"):
        yield f"{times[contract]:.2f}"
        yield f"{times[contract] / times['primal']:.2f}x"
    yield "met" if max(times["J"], times["R"]) <= TARGET * times["primal"] else "MISSED"
    for name in ("warp", "jax"):
        found = [contract for contract in ("J", "R") if f"{name} {contract}" in times]
        texts = [f"{times[f'{name} {c}']:.2f}{'' if times[c] <= times[f'{name} {c}'] else ' FASTER'}" for c in found]
        yield ", ".join(texts)
    worst = max(errors, key=lambda name: errors[name])
    yield f"{errors[worst]:.0e}" + ("" if errors[worst] <= TOLERANCE else f" WRONG: {worst}")


def print_row(texts: Any) -> None:
    print(f"| {' | '.join(texts)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the problems")
    parser.add_argument("--seconds", type=float, default=4.0, help="time to spend on each row")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="so many for everyone")
    options = parser.parse_args()
    # Read when the libraries start.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    os.environ["KERNELGRAD_CPU_THREADS"] = str(options.cores)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    import kernelgrad as kg
    from contenders import OnCpu
    from gradient_rows import SOURCE, rows

    module, launcher = kg.load(SOURCE), OnCpu()
    chosen = [row for row in rows(options.scale * SCALE) if row.kernel in KERNELS and options.only in row.name]
    print_row(HEADS)
    print_row("---" for _ in HEADS)
    right = [measure(row, module, launcher, options.seconds) for row in chosen]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
