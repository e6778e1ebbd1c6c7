"""Gradients on a GPU against their kernels: `python benchmarks/gradients.py --help`.

J: value and gradient in one call. R: `primal=False`, outputs' adjoints kept, inputs' adjoints assigned: what a
framework's backward pass needs. By hand: an adjoint written for this kernel, with R's contract (J's for the logistic
maps). Atomics: the plainest adjoint, an atomicAdd for every read. Floor: the time in which the bytes that it must move
pass at 4.2 TB/s, or its operations at 67 Tflop/s. Medians of launches timed by events; the contenders take turns. The
gradients are compared with the one by hand, and the run fails where one of them is not the same.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import kernelgrad as kg
from contenders import TOLERANCE, OnGpu, Problem, Run
from gradient_rows import BYTES_PER_MS, OPERATIONS_PER_MS, SOURCE, Row, rows
from timing import device_milliseconds

SLOW_MS = 100.0  # one launch of what takes longer must do
HOST_SCALE, HOST_LAUNCHES = 0.0001, 300

HEADS = ("kernel", "primal ms", "J ms", "J / primal", "R ms", "R / primal", "by hand ms", "/ by hand", "atomics ms")
LAST_HEADS = ("floor ms", "targets", "error J, R, atomics")


class Timer:
    """Runs contenders in turns; medians in milliseconds."""

    def __init__(self, problem: Problem, repeats: int):
        self.problem, self.repeats = problem, repeats

    def __call__(self, contenders: Mapping[str, Run]) -> dict[str, float]:
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(self.repeats + 1):
            for name, run in contenders.items():
                if len(times[name]) < 2 or times[name][1] < SLOW_MS:  # the first waits for what is loaded once
                    times[name].append(self.once(name, run))
        return {name: statistics.median(t[1:] or t) for name, t in times.items()}

    def once(self, name: str, run: Run) -> float:
        self.problem.prepare(name)
        return device_milliseconds(run)


def floor_ms(row: Row, problem: Problem) -> float:
    """Of the row's contract: R reads the outputs' adjoints and the inputs it needs, and writes the inputs' adjoints; J
    writes the outputs as well, and reads and writes all adjoints."""
    moved = sum(problem.values[problem.in_names[k]].nbytes for k in row.needs)
    moved += sum(v.nbytes for v in problem.values.values() if getattr(v, "dtype", None) == np.int32)
    moved += sum(adjoint.nbytes for adjoint in problem.adj.values()) * (2 if row.contract == "J" else 1)
    moved += sum(problem.values[n].nbytes for n in problem.out_names) if row.contract == "J" else 0
    return max(moved / BYTES_PER_MS, row.operations / OPERATIONS_PER_MS)


def cells(row: Row, t: Mapping[str, float], errors: Mapping[str, float], floor: float) -> Iterator[str]:
    yield row.name
    yield f"{t['primal']:.3f}"
    for contract in ("J", "R"):
        yield f"{t[contract]:.3f}"
        yield f"{t[contract] / t['primal']:.2f}x"
    yield f"{t['by hand']:.3f}"
    yield f"{row.contract} {t[row.contract] / t['by hand']:.2f}x"
    yield f"{t['atomics']:.3f}" if "atomics" in t else ""
    yield f"{floor:.3f}"
    judged = [target for target in row.targets if target.unit == "ms" or target.unit in t]
    yield ", ".join(f"{target} {'met' if target.is_met(t) else 'MISSED'}" for target in judged)
    yield ", ".join(f"{errors[name]:.0e}" + ("" if is_close(name, errors) else " WRONG") for name in errors)


def is_close(contender: str, errors: Mapping[str, float]) -> bool:
    return errors[contender] <= TOLERANCE[contender]


def registers(problem: Problem) -> str:
    """What the compiler says of the kernels that ran: registers and bytes of local memory, for a thread."""

    own = {"primal": problem.kernel, "J": problem.joint, "R": problem.reverse}
    compiled = {name: contender.compiled for name, contender in own.items()}
    return "; ".join(
        f"{name}: " + ", ".join(f"{e.registers} registers {e.local_bytes} bytes" for e in found)
        for name, found in compiled.items()
    )


def measure(row: Row, module: Any, launcher: OnGpu, options: argparse.Namespace) -> bool:
    """Prints the row; whether its values agree."""
    problem = Problem(row, module[row.kernel], launcher)
    contenders = problem.contenders()
    if options.no_atomics:
        del contenders["atomics"]
    try:
        errors = problem.errors(contenders)
    except kg.KernelGradError as error:
        print_row((row.name, f"{type(error).__name__}: {str(error).splitlines()[0]}"))
        return False
    times = Timer(problem, options.repeats)(contenders)
    print_row(cells(row, times, errors, floor_ms(row, problem)))
    if options.registers:
        print(f"    {registers(problem)}", flush=True)
    return all(is_close(name, errors) for name in errors)


def print_row(texts: Any) -> None:
    print(f"| {' | '.join(texts)} |", flush=True)


def host_times(row: Row, module: Any, launcher: OnGpu) -> None:
    """Prints what a launch costs on the host, in microseconds: the median of some batches of small launches."""
    problem = Problem(row, module[row.kernel], launcher)
    contenders = problem.contenders()

    def microseconds(run: Run) -> float:
        launcher.xp.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(HOST_LAUNCHES):
            run()
        return (time.perf_counter() - start) / HOST_LAUNCHES * 1e6

    found = {name: [microseconds(contenders[name]) for _ in range(6)][1:] for name in ("primal", "J", "R", "by hand")}
    print_row((row.name, *(f"{statistics.median(t):.1f}" for t in found.values())))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the problems")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-atomics", action="store_true", help="leave out the slow column")
    parser.add_argument("--registers", action="store_true", help="registers and local memory of each kernel as well")
    parser.add_argument("--host", action="store_true", help="instead, what a launch costs on the host, in microseconds")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if importlib.util.find_spec("cupy") is None or not _has_gpu():
        print("benchmarks/gradients.py needs an NVIDIA GPU and CuPy; benchmarks/cpu.py measures on the CPU.")
        return 2
    module, launcher = kg.load(SOURCE), OnGpu()
    chosen = [row for row in rows(HOST_SCALE if options.host else options.scale) if options.only in row.name]
    heads = ("kernel", "primal us", "J us", "R us", "by hand us") if options.host else (*HEADS, *LAST_HEADS)
    print_row(heads)
    print_row("---" for _ in heads)
    if options.host:
        for row in chosen:
            host_times(row, module, launcher)
        return 0
    right = [measure(row, module, launcher, options) for row in chosen]
    return 0 if all(right) else 1


def _has_gpu() -> bool:
    import cupy

    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


if __name__ == "__main__":
    sys.exit(main())
