"""Idioms in every form of a gradient: `python benchmarks/idiom_ways.py --help`.

Each kernel of idioms.py as R (`primal=False`, outputs' adjoints kept, inputs' assigned), J (value and gradient), R with
`deterministic=True`, J with `may_alias=True`, as two launches of a split, and J and R of arrays of `__half`. Registers
and bytes of local memory: of a thread, the most of all kernels that ran. NVRTC: the seconds that all of them took to
compile, with an empty cache. The error is against the gradient of the same text in double precision. Several processes
may share the work (`--part 2/8 --meet folder`): they compile at the same time, and take turns on the GPU. With `--cpu`
small problems run there, timed by the clock.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import kernelgrad as kg
from idiom_rows import FOLDER, Idiom, idioms
from idioms import CPU_SCALE, Problem, by_clock, distance, in_double
from kernelgrad.runtime import nvrtc
from timing import device_milliseconds

HEADS = ("kernel", "form", "ms", "/ primal", "registers", "local bytes", "NVRTC s", "error")
FLOAT_TOLERANCE, HALF_TOLERANCE = 2e-4, 5e-3
REPEATS = 5
PATIENCE = 60  # seconds


class Joint(Problem):
    """Value and gradient. `text`: which its module is."""

    text = ""
    is_joint = True
    options: ClassVar[dict[str, Any]] = {}

    @cached_property
    def reverse(self) -> Any:
        return kg.gradient(self.kernel, [*self.out_names, *self.in_names], **self.options)

    @property
    def compiled(self) -> Any:
        return self.reverse.compiled


class Aliasing(Joint):
    options: ClassVar[dict[str, Any]] = {"may_alias": True}


class Reverse(Joint):
    """The reverse alone."""

    is_joint = False

    @cached_property
    def reverse(self) -> Any:
        options: dict[str, Any] = {"primal": False, "keep": self.out_names, "assign": self.in_names, **self.options}
        return kg.gradient(self.kernel, [*self.out_names, *self.in_names], **options)


class Deterministic(Reverse):
    options: ClassVar[dict[str, Any]] = {"deterministic": True}


class Split(Joint):
    """In two launches."""

    @cached_property
    def halves(self) -> Any:
        return kg.split(self.kernel, [*self.out_names, *self.in_names])

    def reversed(self) -> None:
        forward, reverse = self.halves
        tape = forward[self.launch](*self.values.values())
        reverse[self.launch](tape, *self.values.values(), *self.adj.values())

    @property
    def compiled(self) -> Any:
        return self.halves[0].compiled


class Half(Joint):
    """Of arrays of halves, with sums and tiles in float."""

    text = "half "

    def __init__(self, idiom: Idiom, module: Any, xp: Any):
        super().__init__(idiom, module, xp, xp.float16)


class HalfReverse(Half, Reverse):
    """The reverse alone."""


FORMS: dict[str, type[Joint]] = {
    "R": Reverse,
    "J": Joint,
    "deterministic": Deterministic,
    "may_alias": Aliasing,
    "split": Split,
    "half": Half,
    "half R": HalfReverse,
}


def in_half(text: str) -> str:
    """Arrays in global memory are of halves."""
    return "#include <cuda_fp16.h>\n" + re.sub(r"\bfloat \*(?!partial|shared|tile)", "__half *", text)


class Compiler:
    """Adds up the time that NVRTC takes."""

    def __init__(self) -> None:
        self.seconds, self._compile = 0.0, nvrtc._compile
        nvrtc._compile = self._timed

    def _timed(self, *args: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._compile(*args)
        finally:
            self.seconds += time.perf_counter() - start


@contextmanager
def turn(folder: Path | None) -> Iterator[None]:
    """Nobody else uses the GPU meanwhile."""
    with open(os.devnull if folder is None else folder.with_suffix(".lock"), "w") as file:
        if folder is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Modules(dict[str, Any]):
    """By the name of a file, with "double" or "half" before it."""

    def __missing__(self, name: str) -> Any:
        *real, file = name.split()
        change = {"double": in_double, "half": in_half}.get("".join(real), str)
        found = self[name] = kg.compile(change((FOLDER / file).read_text()))
        return found


class Measured:
    """One idiom in one form: first compiled and compared, then timed."""

    def __init__(self, idiom: Idiom, form: str, modules: dict[str, Any], xp: Any):
        self.idiom, self.kind, self.modules, self.xp = idiom, FORMS[form], modules, xp
        self.names, self.derivative = (idiom.kernel, form), dict[str, Any]()
        self.seconds, self.error, self.refused = 0.0, "", ""

    def _problem(self) -> Any:
        """With arrays of its own, and what was derived already."""
        module = self.modules[self.kind.text + self.idiom.file]
        problem = self.kind(self.idiom, module, self.xp)
        problem.__dict__ |= self.derivative
        return problem

    def compare(self, compiler: Compiler) -> None:
        problem, before = self._problem(), compiler.seconds
        try:
            got = {name: array.astype(self.xp.float64) for name, array in problem.gradient().items()}
        except kg.KernelGradError as error:
            self.refused = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return
        self.seconds = compiler.seconds - before
        self.derivative = {key: problem.__dict__[key] for key in ("reverse", "halves") if key in problem.__dict__}
        problem.fill()
        error = distance(self.xp, got, self._exact(problem))
        wrong = "" if error <= (HALF_TOLERANCE if self.kind.text else FLOAT_TOLERANCE) else " WRONG"
        self.error = f"{error:.0e}{wrong}"

    def _exact(self, like: Problem) -> dict[str, Any]:
        """In double precision, of the numbers that this one has."""
        doubles = Problem(self.idiom, self.modules["double " + self.idiom.file], self.xp, self.xp.float64)
        doubles.fill()
        for name, values in doubles.reals.items():
            values[...] = like.reals[name]
        for name, seed in like.seeds.items():
            doubles.adj[name][...] = seed
        doubles.reversed()
        return {name: doubles.adj[name] for name in doubles.in_names}

    def row(self) -> tuple[str, ...]:
        if self.refused:
            return *self.names, self.refused
        problem = self._problem()
        problem.fill()
        primal = statistics.median(self._times(problem, problem.primal))
        took = statistics.median(self._times(problem, problem.reversed))
        figures = [[getattr(e, what, 0) for e in problem.compiled] for what in ("registers", "local_bytes")]
        most = (str(max(found, default=0)) for found in figures)
        return *self.names, f"{took:.3f}", f"{took / primal:.2f}x", *most, f"{self.seconds:.1f}", self.error

    def _times(self, problem: Problem, run: Callable[[], None]) -> list[float]:
        """In milliseconds. What a run consumed, the next one has again."""
        times = []
        for _ in range(REPEATS + 1):
            for name, seed in problem.seeds.items():
                problem.adj[name][...] = seed
            times.append(by_clock(run, 1) if self.xp.__name__ == "numpy" else device_milliseconds(run))
        return times[1:]


def wait_for(folder: Path, part: int, parts: int) -> None:
    """Until all processes have come this far, or one takes too long: what they compute then is timed."""
    (folder / str(part)).touch()
    last = time.monotonic() + PATIENCE
    while len(list(folder.iterdir())) < parts and time.monotonic() < last:
        time.sleep(0.2)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose family or kernel has one of these in it, by commas")
    parser.add_argument("--forms", default=",".join(FORMS), help="by commas")
    parser.add_argument("--scale", type=float, default=None, help="shrink the problems")
    parser.add_argument("--cpu", action="store_true", help="small problems, on the CPU")
    parser.add_argument("--part", default="0/1", metavar="K/N", help="every N-th row, from the K-th on")
    parser.add_argument("--meet", type=Path, help="an empty folder, where several processes share the work")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.cpu:
        import numpy as xp
    else:
        import cupy as xp
    scale = options.scale or (CPU_SCALE if options.cpu else 1.0)
    first, step = map(int, options.part.split("/"))
    rows = [i for i in idioms(scale) if any(name in i.family or name in i.kernel for name in options.only.split(","))]
    print_row: Callable[[Any], None] = lambda texts: print(f"| {' | '.join(texts)} |", flush=True)  # noqa: E731
    if first == 0:
        print_row(HEADS)
        print_row(["---"] * len(HEADS))
    compiler, modules = Compiler(), Modules()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["KERNELGRAD_CACHE_DIR"] = cache
        found = [Measured(i, form, modules, xp) for i in rows[first::step] for form in options.forms.split(",")]
        for measured in found:
            measured.compare(compiler)
        if options.meet is not None:
            wait_for(options.meet, first, step)
        for measured in found:
            with turn(options.meet):
                print_row(measured.row())
    return 0 if not any("WRONG" in measured.error for measured in found) else 1


if __name__ == "__main__":
    sys.exit(main())
