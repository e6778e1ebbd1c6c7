"""Gradients of kernels as people write them: `python benchmarks/idioms.py --help`.

Several ways of writing each computation of kernels/idioms. R: `primal=False`, outputs' adjoints kept, inputs' adjoints
assigned; where the reverse alone cannot be, since the kernel reads what it wrote, J: value and gradient (told by a J
after the kernel's name). Floor: the time in which the bytes that R must move pass at 4.2 TB/s. The error is against the
gradient of the same text in double precision, whose directional derivative is compared with differences of values.
Atomics, shuffles and barriers, the bytes of the tape, and what is moved are counted from the code that runs: atomics
and shuffles for each element of the largest array, barriers for a thread; with ~ where the length of a loop is not
known before it runs, which counts as 64.

On a GPU all is timed, by events; with `--plans` nothing is, and the plans are those of a GPU, with no need for one.
With `--cpu` small problems run there, timed by the clock.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

import kernelgrad as kg
from gradient_rows import BYTES_PER_MS
from idiom_rows import BY_HAND, FOLDER, Idiom, idioms
from kernelgrad.explain.counted import Counts, counts
from kernelgrad.runtime.config import make_launch
from timing import device_milliseconds

CPU_SCALE = 0.0005
JOINT: tuple[str, ...] = ()
TOLERANCE, DIFFERENCES = 2e-4, 5e-3  # of differences: some cross a kink
HEADS = (
    "family",
    "kernel",
    "primal ms",
    "R ms",
    "R / primal",
    "aim",
    "floor ms",
    "by hand ms",
    "error",
    "atomics",
    "shuffles",
    "barriers",
    "moved / floor",
    "tape MB",
)
Run = Callable[[], None]


def in_double(text: str) -> str:
    """The same text in double precision."""
    text = re.sub(r"\bfloat\b", "double", text)
    text = re.sub(r"\b(exp|log|tanh|fmax|fmin|rsqrt|sqrt|fabs)f\b", r"\1", text)
    return re.sub(r"(?<=[0-9.])f\b", "", text)


class Problem:
    """An idiom with its arrays. Outputs' adjoints are random numbers."""

    def __init__(self, idiom: Idiom, module: Any, xp: Any, real: Any = np.float32):
        self.idiom, self.kernel, self.xp, self.real = idiom, module[idiom.kernel], xp, real
        names = [p.name for p in self.kernel.function.params if p.variable is None]
        self.out_names = names[: len(idiom.outputs)]
        self.in_names = names[len(idiom.outputs) : len(idiom.outputs) + len(idiom.inputs)]
        rest = [self.xp.asarray(v) if isinstance(v, np.ndarray) else v for v in idiom.rest]
        self.values = dict(zip(names, (*self._made(idiom.outputs), *self._made(idiom.inputs), *rest), strict=True))
        self.reals = {name: self.values[name] for name in (*self.out_names, *self.in_names)}

    def _made(self, sizes: tuple[int, ...]) -> list[Any]:
        return [self.xp.empty(size, self.real) for size in sizes]

    @property
    def launch(self) -> tuple[Any, ...]:
        return (self.idiom.grid, self.idiom.block, self.idiom.shared * (2 if self.real is np.float64 else 1))

    @cached_property
    def reverse(self) -> Any:
        listed = [*self.out_names, *self.in_names]
        options: dict[str, Any] = {"primal": False, "keep": self.out_names, "assign": self.in_names}
        return kg.gradient(self.kernel, listed, **({} if self.is_joint else options))

    @property
    def is_joint(self) -> bool:
        return self.idiom.kernel in JOINT

    @cached_property
    def adj(self) -> dict[str, Any]:
        return {name: self.xp.zeros(array.size, self.real) for name, array in self.reals.items()}

    def fill(self) -> None:
        """The same numbers in either precision."""
        random = self.xp.random.default_rng(0)
        for name in self.in_names:
            self.values[name][...] = random.random(self.values[name].size, dtype=np.float32)
        for name in self.out_names:
            self.values[name].fill(0.0)
            self.adj[name][...] = 2 * random.random(self.adj[name].size, dtype=np.float32) - 1
        self.seeds = {name: self.adj[name].copy() for name in self.out_names}
        for name in self.in_names:
            self.adj[name].fill(0.0 if self.is_joint else 7.0)

    def primal(self) -> None:
        self.kernel[self.launch](*self.values.values())

    def reversed(self) -> None:
        self.reverse[self.launch](*self.values.values(), *self.adj.values())

    def by_hand(self, module: Any) -> Run | None:
        """None where there is none."""
        if self.idiom.family not in BY_HAND or self.idiom.kernel == "bias_gelu":
            return None
        kernel, names, shape = BY_HAND[self.idiom.family]
        known = {**self.values, **{f"d_{name}": array for name, array in self.adj.items()}}
        alias = dict(zip(("y", "x"), (self.out_names[0], self.in_names[0]), strict=True))
        rest = list(self.idiom.rest)
        known |= {"n": rest[-1], "rows": self.values[self.out_names[0]].size // rest[-1] if rest[-1] else 0}
        known |= {key: known[name] for key, name in alias.items()}
        known |= {f"d_{key}": known[f"d_{name}"] for key, name in alias.items()}
        args = [known[name] for name in names.split()]
        return lambda: module[kernel][shape(self.idiom)](*args)

    def gradient(self, run: Run | None = None) -> dict[str, Any]:
        self.fill()
        (run or self.reversed)()
        return {name: self.adj[name].copy() for name in self.in_names}

    def counts(self) -> Counts:
        launch = make_launch(*self.launch)
        return counts(self.reverse.planned(launch, tuple(self.values.values()), {}, on_gpu=True))

    def by_differences(self, step: float = 1e-7) -> tuple[float, float]:
        """The directional derivative by the gradient and by differences, of the problem in double precision."""
        gradient, random = self.gradient(), self.xp.random.default_rng(5)
        way = {name: 2 * random.random(array.size) - 1 for name, array in gradient.items()}
        expected = sum(float((gradient[name] * way[name]).sum()) for name in gradient)
        base, sums = {name: self.values[name].copy() for name in gradient}, []
        for sign in (1, -1):
            for name in gradient:
                self.values[name][...] = base[name] + sign * step * way[name]
            for name in self.out_names:
                self.values[name].fill(0.0)
            self.primal()
            sums.append(sum(float((self.values[name] * self.seeds[name]).sum()) for name in self.out_names))
        return expected, (sums[0] - sums[1]) / (2 * step)


def distance(xp: Any, got: dict[str, Any], expected: dict[str, Any]) -> float:
    return max(float(xp.linalg.norm(got[n] - expected[n]) / xp.linalg.norm(expected[n])) for n in expected)


def floor_bytes(problem: Problem) -> int:
    """R reads the outputs' adjoints and the inputs it needs, and integers, and writes the inputs' adjoints."""
    idiom, values = problem.idiom, problem.values
    moved = sum(values[problem.in_names[k]].nbytes for k in idiom.needs)
    moved += sum(v.nbytes for v in idiom.rest if isinstance(v, np.ndarray))
    return moved + sum(array.nbytes for array in problem.reals.values())


def by_events(run: Run, repeats: int) -> float:
    return statistics.median([device_milliseconds(run) for _ in range(repeats + 1)][1:])


def by_clock(run: Run, repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[1:])


def cells(idiom: Idiom, modules: dict[str, Any], xp: Any, options: argparse.Namespace) -> Iterator[str]:
    problem = Problem(idiom, modules[idiom.file], xp)
    found, floor = problem.counts(), floor_bytes(problem)
    times, hand, error = ("", "", ""), "", ""
    if not options.plans:
        problem.fill()
        by_hand = problem.by_hand(modules["by hand"])
        *times, hand = timed(problem, by_hand, options)
        error = "" if options.no_errors else checked(problem, by_hand, modules["double " + idiom.file], xp)
    largest = max(array.size for array in problem.reals.values())
    name = idiom.kernel + (" J" if problem.is_joint else "")
    yield from (idiom.family, name, *times, f"{idiom.aim:.2f}x", f"{floor / BYTES_PER_MS:.3f}", hand, error)
    guessed = "~" if found.is_rough else ""
    yield from (guessed + f"{found.atomics / largest:.3g}", f"{found.shuffles / largest:.3g}", f"{found.barriers:.3g}")
    yield from (guessed + f"{found.moved / floor:.2f}x", f"{found.tape / 1e6:.3g}")


def timed(problem: Problem, by_hand: Run | None, options: argparse.Namespace) -> tuple[str, ...]:
    time_of = by_clock if options.cpu else by_events
    primal, reverse = (time_of(run, options.repeats) for run in (problem.primal, problem.reversed))
    hand = "" if by_hand is None else f"{time_of(by_hand, options.repeats):.3f}"
    return f"{primal:.3f}", f"{reverse:.3f}", f"{reverse / primal:.2f}x", hand


def checked(problem: Problem, by_hand: Run | None, module: Any, xp: Any) -> str:
    got = problem.gradient()
    hand = None if by_hand is None else problem.gradient(by_hand)
    exact = Problem(problem.idiom, module, xp, np.float64)
    expected, by_differences = exact.by_differences()
    doubles = exact.gradient()
    error = distance(xp, got, doubles)
    apart = abs(expected - by_differences) / max(abs(expected), abs(by_differences), 1e-30)
    wrong = "" if error <= TOLERANCE else " WRONG"
    wrong += "" if hand is None or distance(xp, hand, doubles) <= TOLERANCE else " BY HAND WRONG"
    return f"{error:.0e}{wrong}" + (f" DIFFERENCES {apart:.0e}" if apart > DIFFERENCES else "")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose family or kernel has one of these in it, by commas")
    parser.add_argument("--scale", type=float, default=None, help="shrink the problems")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="small problems, on the CPU")
    parser.add_argument("--plans", action="store_true", help="only what is counted, of a GPU's plans")
    parser.add_argument("--no-errors", action="store_true", help="no gradients in double precision")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.cpu or options.plans:
        xp = np
    else:
        import cupy as xp
    scale = options.scale or (CPU_SCALE if options.cpu else 1.0)
    texts = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.cu"))}
    modules = {name: kg.compile(text) for name, text in texts.items()}
    modules["by hand"] = kg.load(FOLDER.parent / "idioms_by_hand.cu")
    modules |= {f"double {name}": kg.compile(in_double(text)) for name, text in texts.items()}
    print(f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}", flush=True)
    right = True
    for idiom in idioms(scale):
        if any(name in idiom.family or name in idiom.kernel for name in options.only.split(",")):
            row = told(idiom, modules, xp, options)
            right = right and not re.search("WRONG|DIFFERENCES|Error", " ".join(row))
            print(f"| {' | '.join(row)} |", flush=True)
    return 0 if right else 1


def told(idiom: Idiom, modules: dict[str, Any], xp: Any, options: argparse.Namespace) -> list[str]:
    try:
        return list(cells(idiom, modules, xp, options))
    except kg.KernelGradError as error:
        return [idiom.family, idiom.kernel, f"{type(error).__name__}: {str(error).splitlines()[0]}"]


if __name__ == "__main__":
    sys.exit(main())
