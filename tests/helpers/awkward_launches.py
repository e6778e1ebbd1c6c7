"""Launches of awkward shapes, and what gradients make of them, compared: odd blocks, grids that are too small and too
large, nothing to do, arrays that start at odd addresses.

    expected = reference(launch)                                     # on the CPU, by one kernel
    found = run(launch, gradient_of(launch.kernel, launch.real, "reverse"), "reverse", cupy)
    differences(launch, "reverse", found, expected)                  # [] where all is as it should be

Each array lies between NaNs, which must stay there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Any
from zlib import crc32

import numpy as np

import kernelgrad as kg
from awkward_kernels import FORMS, KERNELS, Awkward, Form, Shape, around
from derived import kernel_of, tangent_of
from every_plan import forced

GUARD = 16  # elements on either side of an array
TOLERANCE = {"double": 1e-9, "float": 2e-4}  # of the largest element
REAL: dict[str, Any] = {"double": np.float64, "float": np.float32}
MODES = ("all", "reverse")  # values and adjoints; only adjoints, those of inputs assigned
START = {"all": 0.5, "reverse": np.nan}  # what an input's adjoint holds before


@dataclass(frozen=True)
class Launch:
    name: str
    real: str
    grid: Shape
    block: Shape
    numbers: Shape
    aligned: bool

    @property
    def kernel(self) -> Awkward:
        return KERNELS[self.name]


@dataclass(frozen=True)
class Variant:
    name: str
    real: str
    block: Shape

    def __str__(self) -> str:
        return f"{self.name}, {'x'.join(map(str, self.block))}, {self.real}"

    @property
    def launches(self) -> list[Launch]:
        form, found = FORMS[KERNELS[self.name].form], []
        for numbers in _numbers(self):
            for grid in _grids(form, _exact(self, numbers), len(found)):
                found.append(
                    Launch(self.name, self.real, grid, self.block, numbers, (len(found) + len(found) // 2) % 2 == 0)
                )
        return found


def variants() -> Iterator[Variant]:
    """Each kernel with each block that it takes, in double and float by turns; in both where there is but one block."""
    for k, (name, kernel) in enumerate(KERNELS.items()):
        blocks = FORMS[kernel.form].blocks
        for j, block in enumerate(blocks):
            reals = list(REAL) if len(blocks) == 1 else [list(REAL)[(k + j) % 2]]
            yield from (Variant(name, real, block) for real in reals)


def _numbers(variant: Variant) -> Iterator[Shape]:
    """Of items and of what is inside them, each awkward number with another one."""
    kernel = KERNELS[variant.name]
    form = FORMS[kernel.form]
    items, inside = around(form.covers(variant.block)[0]), form.inside(variant.block)
    for k in range(max(len(items), len(inside))):
        yield kernel.numbers(items[k % len(items)], inside[(k + 2) % len(inside)])


def _exact(variant: Variant, numbers: Shape) -> Shape:
    kernel = KERNELS[variant.name]
    covered = FORMS[kernel.form].covers(variant.block)
    return tuple(max(1, -(-n // unit)) for n, unit in zip(kernel.work(*numbers), covered, strict=False))


def _grids(form: Form, exact: Shape, turn: int) -> list[Shape]:
    """As many blocks as needed; one too few, where there are several; too many, or in three directions, by turns."""
    longest = exact.index(max(exact))
    fewer = tuple(n - (k == longest) for k, n in enumerate(exact))
    others: list[Shape] = [tuple(n + 1 for n in exact), tuple(3 * n + 2 for n in exact)]
    if form.any_grid:
        others += [(-(-exact[0] // 6), 2, 3), (1, -(-exact[0] // 3), 2)]
    return [exact, *([fewer] if min(fewer) else []), others[turn % len(others)]]


def _random(launch: Launch, what: str, size: int) -> Any:
    """Between 0 and 1, and no two alike."""
    return np.random.default_rng(crc32(f"{launch} {what}".encode())).uniform(0.02, 1, size).astype(REAL[launch.real])


@lru_cache(64)
def contents(launch: Launch) -> dict[str, Any]:
    """What the arrays and the reals hold, and the outputs' adjoints, by name."""
    kernel = launch.kernel
    names, sizes = [*kernel.outputs, *kernel.inputs], kernel.sizes(*launch.numbers)
    held = {name: _random(launch, name, size) for name, size in zip(names, sizes, strict=True)}
    held |= {f"d_{name}": _random(launch, f"d_{name}", held[name].size) for name in kernel.outputs}
    held |= {name: values(*launch.numbers) for name, values in kernel.indices.items()}
    return held | {name: float(_random(launch, name, 1)[0]) for name in kernel.reals.split()}


@dataclass(frozen=True)
class Guarded:
    """An array inside a larger one, whose other elements are NaN, or -1."""

    whole: Any
    inside: slice

    @classmethod
    def around(cls, values: Any, offset: int, xp: Any) -> Guarded:
        first = GUARD + offset
        whole = np.full(first + values.size + GUARD, np.nan if values.dtype.kind == "f" else -1, values.dtype)
        whole[first : first + values.size] = values
        return cls(xp.asarray(whole), slice(first, first + values.size))

    @property
    def array(self) -> Any:
        return self.whole[self.inside]

    def read(self) -> tuple[Any, bool]:
        """What it holds, and whether all around it is as before."""
        whole = self.whole if isinstance(self.whole, np.ndarray) else self.whole.get()
        outside = np.delete(whole, self.inside)
        return whole[self.inside], bool((np.isnan(outside) if whole.dtype.kind == "f" else outside == -1).all())


@cache
def gradient_of(name: str, real: str, mode: str, plan: str = "as launched") -> Any:
    """One for all launches of a kernel under a plan, made and to be launched under it."""
    kernel = KERNELS[name]
    wanted = [*kernel.outputs, *kernel.inputs, *kernel.reals.split()]
    options: dict[str, Any] = {}
    if mode == "reverse":
        options = {"primal": False, "assign": [*kernel.inputs, *kernel.reals.split()]}
        options |= {} if kernel.updated else {"keep": kernel.outputs}
    return kg.gradient(kernel_of(kernel.text(real)), wanted, **options)


def run(launch: Launch, gradient: Any, mode: str, xp: Any = np, start: float | None = None) -> dict[str, Any]:
    """What arrays and adjoints hold afterwards, by name; "outside" says of which the surroundings were written to."""
    kernel, held = launch.kernel, contents(launch)
    start = START[mode] if start is None else start
    reals = kernel.reals.split()
    of_inputs = {f"d_{n}": np.full(np.size(held[n]), start, REAL[launch.real]) for n in (*kernel.inputs, *reals)}
    given = {n: v for n, v in (held | of_inputs).items() if n not in reals}
    places = {n: Guarded.around(v, _offset(launch, k), xp) for k, (n, v) in enumerate(given.items())}
    plain = {n: held[n] for n in reals} | dict(zip(kernel.names.split(), launch.numbers, strict=True))
    gradient[launch.grid, launch.block](**plain, **{n: place.array for n, place in places.items()})
    found = {n: place.read() for n, place in places.items()}
    return {n: v for n, (v, _) in found.items()} | {"outside": [n for n, (_, kept) in found.items() if not kept]}


def _offset(launch: Launch, position: int) -> int:
    return 0 if launch.aligned else launch.kernel.aligned * (2 * position + 1) % 8


def reference(launch: Launch) -> dict[str, Any]:
    """On the CPU, by one kernel, whose inputs' adjoints are added to zero."""
    with forced("one kernel"):
        return run(launch, gradient_of(launch.name, launch.real, "all", "one kernel"), "all", start=0)


def wanted(launch: Launch, mode: str, expected: dict[str, Any]) -> dict[str, Any]:
    """What a run should give, of the reference."""
    kernel, before = launch.kernel, contents(launch)
    differentiable = [f"d_{n}" for n in (*kernel.inputs, *kernel.reals.split())]
    if mode == "all":
        return expected | {n: expected[n] + REAL[launch.real](START[mode]) for n in differentiable}
    kept = [*kernel.outputs, *(() if kernel.updated else (f"d_{n}" for n in kernel.outputs))]
    return expected | {n: before[n] for n in kept}


def differences(launch: Launch, mode: str, found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """A line for each array that is not as the reference says."""
    wrong = [f"{launch} {mode}: written around {name}" for name in found["outside"]]
    for name, want in wanted(launch, mode, expected).items():
        if name != "outside" and (line := _difference(found[name], want, TOLERANCE[launch.real])):
            wrong.append(f"{launch} {mode}: {name} {line}")
    return wrong


def checked(launch: Launch) -> Any:
    """The kernel's own run, watched for races and for what it does out of bounds."""
    kernel, held = launch.kernel, contents(launch)
    names = [*kernel.outputs, *kernel.inputs, *kernel.indices, *kernel.reals.split()]
    given = [np.copy(held[n]) if isinstance(held[n], np.ndarray) else held[n] for n in names]
    return kernel_of(kernel.text(launch.real)).check(launch.grid, launch.block, *given, *launch.numbers)


def along_tangents(launch: Launch, expected: dict[str, Any]) -> tuple[float, float]:
    """The same product, by the reference's adjoints and by forward mode, in a random direction."""
    kernel, held = launch.kernel, contents(launch)
    names = [*kernel.outputs, *kernel.inputs, *kernel.reals.split()]
    ways = {f"t_{n}": _random(launch, f"t_{n}", np.size(held[n])) for n in names}
    reverse = sum(float(expected[f"d_{n}"] @ ways[f"t_{n}"]) for n in names)
    given = {n: np.copy(v) if isinstance(v, np.ndarray) else v for n, v in held.items() if n[:2] != "d_"}
    numbers = dict(zip(kernel.names.split(), launch.numbers, strict=True))
    tangent = tangent_of(kernel_of(kernel.text(launch.real)), ", ".join(names))
    tangent[launch.grid, launch.block](**given, **numbers, **ways)
    return reverse, sum(float(held[f"d_{n}"] @ ways[f"t_{n}"]) for n in kernel.outputs)


def _difference(got: Any, want: Any, tolerance: float) -> str | None:
    """Which element differs most, if by more than the tolerance, of the largest one."""
    if not want.size:
        return None
    off = np.abs(got.astype(float) - want)
    off = np.where(np.isnan(off), np.inf, off)
    worst = int(off.argmax())
    if off[worst] <= tolerance * max(1.0, float(np.abs(want).max())):
        return None
    return f"[{worst}] is {got[worst]!r}, not {want[worst]!r}; {int((off > tolerance).sum())} of {want.size} differ"


VARIANTS = list(variants())
LAUNCHES = list(chain.from_iterable(variant.launches for variant in VARIANTS))

if __name__ == "__main__":
    print(f"{len(KERNELS)} kernels, {len(VARIANTS)} with blocks, {len(LAUNCHES)} launches")
