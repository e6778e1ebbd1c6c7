"""A row's arrays, and everything that computes its gradient: each a function that does it once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np

import kernelgrad as kg
from by_hand import BY_HAND, FILES, Arguments, Step, with_atomics
from gradient_rows import KERNELS, Row

Run = Callable[[], None]

# How far a gradient may be from the one by hand, as the norm of the difference over the norm. An atomic for every read
# adds millions of numbers to one, in float and one after the other.
TOLERANCE = {"J": 1e-4, "R": 1e-4, "atomics": 2e-2}


HEAD = re.compile(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(")


class Launcher(Protocol):
    """Launches kernels of kernels/by_hand*.cu and kernels/atomics.cu. `xp` makes arrays for it: NumPy or CuPy."""

    xp: Any

    def __call__(self, step: Step) -> None: ...


class OnGpu:
    """The source as NVRTC compiles it, without kernelgrad."""

    def __init__(self) -> None:
        import cupy

        self.xp = cupy
        modules = [cupy.RawModule(code=(KERNELS / name).read_text(), options=("--std=c++17",)) for name in FILES]
        self.kernels = _by_name(modules, lambda module, name: module.get_function(name))

    def __call__(self, step: Step) -> None:
        if not step.kernel:
            step.args[0].fill(0)
            return
        self.kernels[step.kernel](_extents(step.grid), _extents(step.block), step.args)


class OnCpu:
    """For tests: the same source, run by kernelgrad."""

    def __init__(self) -> None:
        self.xp = np
        self.kernels = _by_name([kg.load(KERNELS / name) for name in FILES], lambda module, name: module[name])

    def __call__(self, step: Step) -> None:
        if not step.kernel:
            step.args[0].fill(0)
            return
        self.kernels[step.kernel][step.grid, step.block](*step.args)


def _by_name(modules: list[Any], find: Callable[[Any, str], Any]) -> dict[str, Any]:
    found = {}
    for file, module in zip(FILES, modules, strict=True):
        found |= {name: find(module, name) for name in HEAD.findall((KERNELS / file).read_text())}
    return found


def _extents(given: Any) -> tuple[int, ...]:
    return given if isinstance(given, tuple) else (given,)


class Problem:
    """A row with its arrays. Outputs' adjoints are the same random numbers for every contender."""

    def __init__(self, row: Row, kernel: Any, launcher: Launcher):
        self.row, self.kernel, self.launcher = row, kernel, launcher
        self.xp = launcher.xp
        random = self.xp.random.default_rng(0)
        self.names = [p.name for p in kernel.function.params if p.variable is None]
        self.out_names = self.names[: len(row.outputs)]
        self.in_names = self.names[len(row.outputs) : len(row.outputs) + len(row.inputs)]
        outputs = [self.xp.zeros(size, np.float32) for size in row.outputs]
        inputs = [random.random(size, dtype=np.float32) for size in row.inputs]
        rest = [self.xp.asarray(v) if isinstance(v, np.ndarray) else v for v in row.rest]
        self.values = dict(zip(self.names, (*outputs, *inputs, *rest), strict=True))
        self.listed = list(row.listed or (*self.out_names, *self.in_names))
        self.assigned = [name for name in self.listed if name not in self.out_names]
        self.adj = {name: self.xp.zeros(getattr(self.values[name], "size", 1), np.float32) for name in self.listed}
        self.seeds = {name: 2 * random.random(self.adj[name].size, dtype=np.float32) - 1 for name in self.out_names}

    @property
    def launch(self) -> tuple[Any, Any]:
        return self.row.grid, self.row.block

    @cached_property
    def joint(self) -> Any:
        return kg.gradient(self.kernel, self.listed)

    @cached_property
    def reverse(self) -> Any:
        return kg.gradient(self.kernel, self.listed, primal=False, keep=self.out_names, assign=self.assigned)

    def contenders(self) -> dict[str, Run]:
        at = Arguments(self.values, self.adj, lambda size: self.xp.empty(size, np.float32))
        by_hand = BY_HAND[self.row.by_hand or self.row.kernel](at)
        cleared = self.assigned if self.row.contract == "R" else []
        plain = with_atomics(self.row.kernel, *self.launch, at, cleared)
        own, adjoints = tuple(self.values.values()), tuple(self.adj.values())
        return {
            "primal": lambda: self.kernel[self.launch](*own),
            "J": lambda: self.joint[self.launch](*own, *adjoints),
            "R": lambda: self.reverse[self.launch](*own, *adjoints),
            "by hand": lambda: self.do(by_hand),
            "atomics": lambda: self.do(plain),
        }

    def do(self, steps: list[Step]) -> None:
        for step in steps:
            self.launcher(step)

    def prepare(self, contender: str) -> None:
        """Adjoints as its contract wants them: those added to start at zero, those assigned may be anything."""
        contract = contender if contender in ("J", "R") else self.row.contract
        for name, seed in self.seeds.items():
            self.adj[name][...] = seed
        for name in self.assigned:
            self.adj[name].fill(0.0 if contract == "J" else 7.0)

    def errors(self, contenders: Mapping[str, Run]) -> dict[str, float]:
        """Of the gradients against the one by hand; of J's values too, against the kernel's. R must keep the outputs'
        adjoints."""
        contenders["primal"]()
        expected = {f"value of {name}": self.values[name].copy() for name in self.out_names}
        expected |= self._gradient("by hand", contenders["by hand"])
        found = {}
        for contender in TOLERANCE:
            if contender in contenders:
                got = self._gradient(contender, contenders[contender])
                found[contender] = max(self.distance(value, expected[name]) for name, value in got.items())
        return found

    def _gradient(self, contender: str, run: Run) -> dict[str, Any]:
        self.prepare(contender)
        for name in self.out_names:
            self.values[name].fill(0.0)
        run()
        if contender == "R" and not all(bool((self.adj[n] == seed).all()) for n, seed in self.seeds.items()):
            raise AssertionError(f"{self.row.name}: R changed an output's adjoint")
        values = self.out_names if contender == "J" else []
        own = {f"value of {name}": self.values[name].copy() for name in values}
        return {name: self.adj[name].copy() for name in self.assigned} | own

    def distance(self, got: Any, expected: Any) -> float:
        norm, error = (float(self.xp.linalg.norm(v)) for v in (expected, got - expected))
        if not norm > 0.0:
            raise AssertionError(f"{self.row.name}: a gradient of zero proves nothing")
        return error / norm
