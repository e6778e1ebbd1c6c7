"""Idioms in every form of a gradient: `python benchmarks/idiom_ways.py --help`.

Each kernel of idioms.py as R (`primal=False`, outputs' adjoints kept, inputs' assigned), J (value and gradient), R with
`deterministic=True`, J with `may_alias=True`, as two launches of a split, and J of arrays of `__half`. Registers and
bytes of local memory: of a thread, the most of all kernels that ran. NVRTC: the seconds that all of them took to
compile, with an empty cache. The error is against the gradient of the same text in double precision. Several processes
may share the work (`--part 2/8`): they take turns on the GPU. With `--cpu` small problems run there, timed by the
clock.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
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
from idioms import CPU_SCALE, Problem, by_clock, by_events, distance, in_double
from kernelgrad.runtime import nvrtc

HEADS = ("kernel", "form", "ms", "/ primal", "registers", "local bytes", "NVRTC s", "error")
FLOAT_TOLERANCE, HALF_TOLERANCE = 2e-4, 5e-3


class Joint(Problem):
    """Value and gradient."""

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

    def __init__(self, idiom: Idiom, module: Any, xp: Any):
        super().__init__(idiom, module, xp, xp.float16)


FORMS: dict[str, type[Joint]] = {
    "R": Reverse,
    "J": Joint,
    "deterministic": Deterministic,
    "may_alias": Aliasing,
    "split": Split,
    "half": Half,
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
def turn(path: Path) -> Iterator[None]:
    """Nobody else uses the GPU meanwhile."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Measured:
    """One idiom in all its forms."""

    def __init__(self, idiom: Idiom, text: str, xp: Any, compiler: Compiler, lock: Path):
        self.idiom, self.text, self.xp, self.compiler, self.lock = idiom, text, xp, compiler, lock
        self.time_of = by_clock if xp.__name__ == "numpy" else by_events
        self.module = kg.compile(text)
        self._exact: dict[Any, dict[str, Any]] = {}

    def exact(self, like: Problem) -> dict[str, Any]:
        """In double precision, of the numbers that this one has."""
        if like.real not in self._exact:
            doubles = Problem(self.idiom, kg.compile(in_double(self.text)), self.xp, self.xp.float64)
            doubles.fill()
            for name, values in doubles.reals.items():
                values[...] = like.reals[name]
            for name, seed in like.seeds.items():
                doubles.adj[name][...] = seed
            doubles.reversed()
            self._exact[like.real] = {name: doubles.adj[name] for name in doubles.in_names}
        return self._exact[like.real]

    @cached_property
    def primal_ms(self) -> float:
        problem = Problem(self.idiom, self.module, self.xp)
        problem.fill()
        with turn(self.lock):
            return self.time_of(problem.primal, 5)

    def row(self, form: str) -> tuple[str, ...]:
        kind, before = FORMS[form], self.compiler.seconds
        problem: Any = kind(self.idiom, kg.compile(in_half(self.text)) if kind is Half else self.module, self.xp)
        got = {name: array.astype(self.xp.float64) for name, array in problem.gradient().items()}
        seconds = self.compiler.seconds - before
        problem.fill()
        error = distance(self.xp, got, self.exact(problem))
        with turn(self.lock):
            took = self.time_of(problem.reversed, 5)
        figures = [[getattr(e, what, 0) for e in problem.compiled] for what in ("registers", "local_bytes")]
        wrong = "" if error <= (HALF_TOLERANCE if kind is Half else FLOAT_TOLERANCE) else " WRONG"
        times = f"{took:.3f}", f"{took / self.primal_ms:.2f}x"
        return (
            self.idiom.kernel,
            form,
            *times,
            *(str(max(found)) for found in figures),
            f"{seconds:.1f}",
            f"{error:.0e}{wrong}",
        )


def told(measured: Measured, form: str) -> tuple[str, ...]:
    try:
        return measured.row(form)
    except kg.KernelGradError as error:
        return measured.idiom.kernel, form, f"{type(error).__name__}: {str(error).splitlines()[0]}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose family or kernel has one of these in it, by commas")
    parser.add_argument("--forms", default=",".join(FORMS), help="by commas")
    parser.add_argument("--scale", type=float, default=None, help="shrink the problems")
    parser.add_argument("--cpu", action="store_true", help="small problems, on the CPU")
    parser.add_argument("--part", default="0/1", metavar="K/N", help="every N-th row, from the K-th on")
    parser.add_argument("--lock", type=Path, default=Path(tempfile.gettempdir()) / "idiom_ways.lock")
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
    compiler, right = Compiler(), True
    with tempfile.TemporaryDirectory() as cache:
        os.environ["KERNELGRAD_CACHE_DIR"] = cache
        for idiom in rows[first::step]:
            measured = Measured(idiom, (FOLDER / idiom.file).read_text(), xp, compiler, options.lock)
            for form in options.forms.split(","):
                row = told(measured, form)
                right = right and "WRONG" not in row[-1]
                print_row(row)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
