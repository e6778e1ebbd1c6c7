"""Gradients on the CPU against their kernels, Warp and JAX: `python benchmarks/cpu.py --help`.

J: value and gradient in one call. R: `primal=False`, outputs' adjoints kept, inputs' adjoints assigned. The rows are
those of gradients.py that wait for memory; J and R are to take at most three times as long as the kernel, and no longer
than Warp's and JAX's where these are installed. Medians of launches that take turns, each library in a process of its
own. All gradients are compared, and the run fails where they differ. Warp runs on one core, whatever is said.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from apart import Apart, Crashed
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


Runs = dict[str, Callable[[], float]]
Errors = dict[str, float]


def problem_of(kernel: str, scale: float) -> Any:
    import kernelgrad as kg
    from contenders import OnCpu, Problem
    from gradient_rows import SOURCE

    row = chosen_rows(scale)[kernel]
    return Problem(row, kg.load(SOURCE)[row.kernel], OnCpu())


def own(kernel: str, scale: float, expected: Path) -> tuple[Runs, Errors]:
    """The kernel and its gradients; leaves one for the others to compare with."""
    problem = problem_of(kernel, scale)
    contenders = problem.contenders()
    del contenders["atomics"]
    errors = problem.errors(contenders)
    del contenders["by hand"]  # a kernel for GPUs
    np.save(expected, problem.adj[problem.assigned[0]])
    return {name: timed(lambda name=name: problem.prepare(name), work) for name, work in contenders.items()}, errors


def others(library: str, kernel: str, scale: float, expected: Path) -> tuple[Runs, Errors]:
    from other_gradients import MAKERS

    problem = problem_of(kernel, scale)
    other = MAKERS[library](problem)
    runs, errors = {}, {}
    for contract, work in (("J", other.joint), ("R", other.reverse)):
        runs[f"{library} {contract}"] = timed(other.prepare, work)
        other.prepare()
        work()
        errors[f"{library} {contract}"] = problem.distance(other.result(), np.load(expected))
    return runs, errors


def chosen_rows(scale: float) -> dict[str, Any]:
    from gradient_rows import rows

    return {row.kernel: row for row in rows(scale * SCALE) if row.kernel in KERNELS}


def measure(row: Any, scale: float, seconds: float) -> bool:
    """Prints the row; whether its values agree."""
    from other_gradients import LIBRARIES

    wanted = [name for name in LIBRARIES if row.kernel in LIBRARIES[name] and importlib.util.find_spec(name)]
    crashed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        expected = Path(folder) / "expected.npy"
        makers: dict[str, Any] = {"kernelgrad": lambda: Apart("kernelgrad", own, row.kernel, scale, expected)}
        for name in wanted:
            makers[name] = lambda name=name: Apart(name, others, name, row.kernel, scale, expected)
        while True:
            try:
                times, errors = in_turns(makers, seconds)
                break
            except Crashed as crash:
                if crash.name == "kernelgrad":
                    raise
                crashed.append(crash.name)
                del makers[crash.name]
    print_row(cells(row, times, errors, crashed))
    return max(errors.values()) <= TOLERANCE


def in_turns(makers: Mapping[str, Callable[[], Apart]], seconds: float) -> tuple[dict[str, float], Errors]:
    """Milliseconds and errors of all of them."""
    processes: list[Apart] = []
    try:
        for make in makers.values():
            processes.append(make())
        runs = {name: run for process in processes for name, run in process.runs().items()}
        times = {name: 1e3 * seconds for name, seconds in compare(runs, seconds).items()}
        return times, {name: error for process in processes for name, error in process.told.items()}
    finally:
        for process in processes:
            process.close()


def cells(row: Any, times: Mapping[str, float], errors: Mapping[str, float], crashed: list[str]) -> Iterator[str]:
    yield row.name
    yield f"{times['primal']:.2f}"
    for contract in ("J", "R"):
        yield f"{times[contract]:.2f}"
        yield f"{times[contract] / times['primal']:.2f}x"
    yield "met" if max(times["J"], times["R"]) <= TARGET * times["primal"] else "MISSED"
    for name in ("warp", "jax"):
        found = [contract for contract in ("J", "R") if f"{name} {contract}" in times]
        texts = [f"{times[f'{name} {c}']:.2f}{'' if times[c] <= times[f'{name} {c}'] else ' FASTER'}" for c in found]
        yield "crashed" if name in crashed else ", ".join(texts)
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

    chosen = [row for row in chosen_rows(options.scale).values() if options.only in row.name]
    print_row(HEADS)
    print_row("---" for _ in HEADS)
    right = [measure(row, options.scale, options.seconds) for row in chosen]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
