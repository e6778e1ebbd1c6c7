"""Whether a generated kernel's gradient is right: against forward mode, and against finite differences.

The test is the inner product: for adjoints u before and u' after the gradient, and tangents v before and v' after
forward mode, <u, v'> = <u', v>, with v nonzero in one parameter at a time. Parameters that are not listed start
constant and end unseeded, which for forward mode, where every buffer is listed, means v = 0 before and u = 0 after. At
ties, of which differences say nothing, that both modes choose alike is all that is asked.
"""

from __future__ import annotations

import math
import re
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgrad as kg
from every_plan import forced
from kernelgrad.errors import DeviceError, InternalError, KernelGradError, ParseError, UnsupportedError
from kernelgrad.kernel import Kernel

from . import device
from .generator import BUFFERS
from .processes import Child
from .program import Program

Arrays = dict[str, Any]

PARAMETERS = ("y", "t", "s", "q", "x", "w", "ps", "idx", "c", "a", "b", "p", "n", "m")
SCALARS = ("a", "b", "p")
EQUAL = (-1.0, -0.5, 0.0, -0.0, 0.5, 0.5, 1.0)  # so few that ties are common
STEP = 2e-6
TOLERANCE = {"double": 1e-8, "float": 2e-3}


FAILURES = ("wrong", "invalid")


@dataclass(frozen=True)
class Outcome:
    """kind: right, refused, wrong, invalid (the kernel itself has a race: the generator is at fault), or skipped (a
    value is not finite, so that nothing can be compared)."""

    kind: str
    detail: str = ""
    differences: bool = False  # whether finite differences had their say

    @property
    def summary(self) -> str:
        """What outcomes of the same cause share."""
        return self.detail.splitlines()[0] if self.detail else ""


class Wrong(Exception):
    pass


class Skipped(Exception):
    pass


class Invalid(Exception):
    pass


def check(
    program: Program, watched: bool = False, way: str = "joint", gpu: bool = False, plans: Sequence[str] = ()
) -> Outcome:
    """`watched`: also under the check mode, in a shuffled order of threads. `way`: another way to the same adjoints.
    `plans`: those of `every_plan`, each in turn. `gpu`: all of it on the GPU, too."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "k: nothing that is differentiable")
            return _Checker(program).run(watched, way, gpu, plans)
    except Wrong as error:
        return Outcome("wrong", str(error))
    except Skipped as error:
        return Outcome("skipped", str(error))
    except Invalid as error:
        return Outcome("invalid", str(error))
    except ParseError as error:
        return Outcome("invalid", f"the kernel itself: {error}")
    except InternalError as error:
        return Outcome("wrong", f"internal error: {error}")
    except DeviceError as error:
        return Outcome("wrong", f"the device: {error}")
    except KernelGradError as error:
        return Outcome("refused", _reason(error))
    except Exception as error:
        trace = traceback.extract_tb(error.__traceback__)
        place = next((f"{f.name}, line {f.lineno}" for f in reversed(trace) if "kernelgrad" in f.filename), "?")
        return Outcome("wrong", f"{type(error).__name__} in {place}\n{traceback.format_exc(limit=-4)}")


def _reason(error: KernelGradError) -> str:
    message: str = getattr(error, "message", str(error))
    return f"{type(error).__name__}: {message}\n{error}"


class _Checker:
    def __init__(self, program: Program):
        self.program = program
        self.kernel: Kernel = kg.compile(program.source)["k"]
        self.record = np.dtype(
            [("u", "f8"), ("k", "i4"), ("v", "f4" if program.narrow == "float" else "f8")], align=True
        )
        self.args = self._arguments()
        self.launch = (program.grid, program.block, program.shared)

    def run(self, watched: bool, way: str, gpu: bool, plans: Sequence[str]) -> Outcome:
        listed = self.program.listed
        if watched and self.program.cooperating:
            self._check_primal()
        gradient = kg.gradient(self.kernel, ", ".join(listed))
        rng = np.random.default_rng(self.program.seed + 1)
        seeds = {name: self._numbers(name, rng) for name in listed}
        after, adjoints = self._copies(self.args), self._copies(seeds)
        gradient[self.launch](*after.values(), *adjoints.values())
        self._compare_results(after)
        differences = self._compare_adjoints(seeds, adjoints, rng)
        if way in WAYS:
            self._compare_way(way, seeds, adjoints)
        if gpu:
            self._compare_on_device(gradient, seeds, adjoints)
            if way in WAYS:
                self._compare_way(way, seeds, adjoints, device.to_device)
        for plan in plans:
            self._compare_plan(plan, seeds, adjoints, gpu)
        if watched:
            self._watch(gradient, seeds)
        return Outcome("right", differences=differences)

    def _watch(self, gradient: Any, seeds: Arrays) -> None:
        grid, block, shared = self.launch
        report = gradient.check(
            grid, block, *self._copies(self.args).values(), *self._copies(seeds).values(), shared=shared,
            seed=self.program.seed,
        )  # fmt: skip
        if not report.ok:
            raise Wrong(f"check mode: {report.findings[0].kind}\n{report}")

    def _check_primal(self) -> None:
        report = self.primal_report()
        if not report.ok:
            raise Invalid(f"the kernel itself: {report.findings[0].kind}\n{report}")

    def primal_report(self) -> Any:
        grid, block, shared = self.launch
        return self.kernel.check(grid, block, *self._copies(self.args).values(), shared=shared, seed=self.program.seed)

    # ---- data

    @property
    def has_ties(self) -> bool:
        """Whether there are kinks where numbers are equal: of what they are there, differences say nothing."""
        return "equal" in self.program.features

    def _arguments(self) -> Arrays:
        rng, draw = np.random.default_rng(self.program.seed), self._draw
        n, slots = self.program.n, self.program.slots
        sizes = {"y": 2 * slots, "t": 2 * slots, "s": 3, "x": n, "w": n}
        args: Arrays = {name: draw(rng, size) for name, size in sizes.items()}
        for name, size in (("q", slots), ("ps", n), ("p", 1)):
            args[name] = np.zeros(size, self.record)
            args[name]["u"], args[name]["v"] = draw(rng, (2, size))
            args[name]["k"] = rng.integers(0, 7, size)
        args["idx"], args["c"] = rng.integers(0, 20, n).astype(np.int32), rng.integers(0, 9, slots).astype(np.int32)
        args["a"], args["b"] = float(draw(rng, ())), float(np.dtype(self.record["v"]).type(draw(rng, ())))
        args["n"], args["m"] = n, self.program.m
        args["p"] = args["p"][0]
        return {name: args[name] for name in PARAMETERS}

    def _draw(self, rng: np.random.Generator, size: Any) -> np.ndarray:
        """Numbers for the kernel's arguments."""
        if "equal" in self.program.features:
            return rng.choice(EQUAL, size)
        if "nodes" in self.program.features:  # as a kernel in float computes them
            number = int(np.prod(size))
            nodes = rng.permutation(max(200, number))[:number] * rng.choice((-1, 1), number)  # sorted, they do not tie
            return (np.float32(0.01) * nodes.astype(np.float32)).astype(float).reshape(size)
        return rng.normal(size=size)

    def _numbers(self, name: str, rng: np.random.Generator) -> np.ndarray:
        """Random adjoints or tangents of a parameter."""
        like = np.atleast_1d(np.array(self.args[name]))
        if name == "b":
            like = like.astype(self.record["v"])
        made = np.zeros_like(like)
        for view in _floats(made):
            view[...] = rng.normal(size=view.shape)
        return made

    def _copies(self, arrays: Arrays) -> Arrays:
        return {k: v.copy() if isinstance(v, np.ndarray | np.void) else v for k, v in arrays.items()}

    # ---- comparisons

    def _compare_results(self, after: Arrays) -> None:
        plain = self._copies(self.args)
        self.kernel[self.launch](*plain.values())
        self._compare_contents(plain, after)

    def _compare_contents(self, plain: Arrays, after: Arrays, where: str = "") -> None:
        for name in ("y", "t", "s", "q", "x", "w", "ps", "idx", "c"):
            for one, other in zip(_fields(plain[name]), _fields(after[name]), strict=True):
                if not np.all(np.isfinite(one)):
                    raise Skipped("a result is not finite")
                rtol = 1e-5 if self.program.narrow == "float" else 1e-12
                if not np.allclose(one, other, rtol=rtol, atol=rtol):
                    raise Wrong(
                        f"{where}the gradient leaves other contents in '{name}' than the kernel: {other} for {one}"
                    )

    def _compare_adjoints(self, seeds: Arrays, adjoints: Arrays, rng: np.random.Generator) -> bool:
        try:
            forward = kg.jvp(self.kernel, ", ".join(BUFFERS))
        except UnsupportedError:
            forward = None
        agreed = True
        for name in self.program.listed:
            direction = {n: self._numbers(n, rng) for n in BUFFERS}
            for other in BUFFERS:
                if other != name:
                    _scale(direction[other], 0)
            if forward is None:
                agreed &= self._compare_with_differences(name, direction[name], seeds, adjoints[name])
                continue
            tangents = self._copies(direction)
            forward[self.launch](*self._copies(self.args).values(), *tangents.values())
            left = np.concatenate([_products(seeds[n], tangents[n]) for n in self.program.listed])
            right = _products(adjoints[name], direction[name])
            self._compare_products(name, left, right)
            agreed &= self._compare_differences(name, direction[name], tangents)
        return agreed

    def _compare_products(self, name: str, left: np.ndarray, right: np.ndarray) -> None:
        left_sum, right_sum = float(left.sum()), float(right.sum())
        size = float(np.abs(left).sum() + np.abs(right).sum())
        if not math.isfinite(left_sum) and self.has_ties:
            raise Skipped("a tangent is not finite at a tie")
        if not math.isfinite(left_sum):
            raise Wrong("a tangent is not finite, though the results are")
        if not abs(left_sum - right_sum) <= TOLERANCE[self.program.narrow] * (size + 1e-6):
            raise Wrong(f"adjoint of '{name}' is wrong\nforward mode gives {left_sum}, the gradient {right_sum}")

    # ---- other ways to the adjoints

    def _compare_on_device(self, gradient: Any, seeds: Arrays, adjoints: Arrays) -> None:
        args, found = device.to_device(self.args), device.to_device(seeds)
        gradient[self.launch](*args.values(), *found.values())
        plain = device.to_device(self.args)
        self.kernel[self.launch](*plain.values())
        self._compare_contents(device.to_host(plain), device.to_host(args), "on the GPU, ")
        self._compare_found("on the GPU", adjoints, device.to_host(found))

    def _compare_plan(self, plan: str, seeds: Arrays, adjoints: Arrays, gpu: bool) -> None:
        places: list[Callable[[Arrays], Arrays]] = [self._copies, device.to_device] if gpu else [self._copies]
        with forced(plan):
            gradient = kg.gradient(self.kernel, ", ".join(self.program.listed))
            for place in places:
                args, found = place(self.args), place(seeds)
                gradient[self.launch](*args.values(), *found.values())
                self._compare_found(f"plan '{plan}'", adjoints, device.to_host(found))

    def _compare_way(
        self, way: str, seeds: Arrays, adjoints: Arrays, place: Callable[[Arrays], Arrays] = lambda arrays: arrays
    ) -> None:
        found, args = place(self._copies(seeds)), place(self._copies(self.args))
        try:
            WAYS[way](self, args, found)
        except (InternalError, DeviceError):
            raise
        except KernelGradError:
            return  # not every kernel has it
        self._compare_found(way, adjoints, device.to_host(found))

    def _compare_found(self, way: str, adjoints: Arrays, found: Arrays) -> None:
        tolerance = 1e-3 if self.program.narrow == "float" else 1e-9
        for name in found:
            for one, other in zip(_floats(adjoints[name]), _floats(found[name]), strict=True):
                if not np.allclose(one, other, rtol=tolerance, atol=tolerance * (1e-3 + np.abs(one).max())):
                    raise Wrong(f"{way}: the adjoint of '{name}' differs from the gradient's\n{other} for {one}")

    def _split(self, args: Arrays, adjoints: Arrays) -> None:
        forward, reverse = kg.split(self.kernel, ", ".join(self.program.listed))
        tape = forward[self.launch](*args.values())
        for array in args.values():
            _scramble(array)  # the tape has all that matters
        reverse[self.launch](tape, *args.values(), *adjoints.values())

    def _alone(self, args: Arrays, adjoints: Arrays) -> None:
        gradient = kg.gradient(self.kernel, ", ".join(self.program.listed), primal=False)
        gradient[self.launch](*args.values(), *adjoints.values())

    def _kept(self, args: Arrays, adjoints: Arrays) -> None:
        """The adjoint of the output is left as it is: what the gradient makes of it is put in its place."""
        gradient = kg.gradient(self.kernel, ", ".join(self.program.listed), keep="y")
        before = device.to_host(self._copies({"y": adjoints["y"]}))["y"]
        gradient[self.launch](*args.values(), *adjoints.values())
        if not np.array_equal(before, device.to_host(adjoints)["y"]):
            raise Wrong("keep: the adjoint of 'y' was changed")
        adjoints.pop("y")

    def _assigned(self, args: Arrays, adjoints: Arrays) -> None:
        """The adjoints of pure inputs are written instead of added to."""
        inputs = [name for name in ("x", "w") if name in self.program.listed]
        gradient = kg.gradient(self.kernel, ", ".join(self.program.listed), assign=", ".join(inputs))
        before = device.to_host(self._copies({name: adjoints[name] for name in inputs}))
        gradient[self.launch](*args.values(), *adjoints.values())
        after = device.to_host(adjoints)
        adjoints.update({name: after[name] + before[name] for name in inputs})

    def _deterministic(self, args: Arrays, adjoints: Arrays) -> None:
        gradient = kg.gradient(self.kernel, ", ".join(self.program.listed), deterministic=True)
        gradient[self.launch](*args.values(), *adjoints.values())

    def _budget(self, args: Arrays, adjoints: Arrays) -> None:
        listed = ", ".join(self.program.listed)
        grid, block, shared = self.launch
        nbytes = kg.gradient(self.kernel, listed).tape_bytes(grid, block, *args.values(), shared=shared)
        gradient = kg.gradient(self.kernel, listed, tape_budget=max(1, nbytes // 2))
        gradient[self.launch](*args.values(), *adjoints.values())

    # ---- finite differences

    def _compare_differences(self, name: str, direction: np.ndarray, tangents: Arrays) -> bool:
        """False where two step sizes disagree: a kink or a jump is near, or numbers are rounded."""
        if self.program.narrow == "float" or self.has_ties:
            return False
        buffers = [n for n in BUFFERS if n not in SCALARS]
        want = np.concatenate([np.concatenate(_floats(tangents[n])) for n in buffers])
        fine, coarse = (self._difference(name, direction, step, buffers) for step in (STEP, 8 * STEP))
        scale = 1 + np.abs(want).max()
        if not np.allclose(fine, coarse, rtol=1e-4, atol=1e-6 * scale):
            return False
        if not np.allclose(fine, want, rtol=1e-3, atol=1e-4 * scale):
            worst = int(np.argmax(np.abs(fine - want)))
            raise Wrong(
                f"forward mode differs from finite differences in direction '{name}'\n"
                f"element {worst}: {want[worst]} for {fine[worst]}"
            )
        return True

    def _compare_with_differences(self, name: str, direction: np.ndarray, seeds: Arrays, adjoint: np.ndarray) -> bool:
        """For kernels that forward mode does not take: the gradient itself. False as above."""
        if self.program.narrow == "float" or self.has_ties:
            return False
        buffers = [n for n in self.program.listed if n not in SCALARS]
        fine, coarse = (self._difference(name, direction, step, buffers) for step in (STEP, 8 * STEP))
        if not np.allclose(fine, coarse, rtol=1e-4, atol=1e-6 * (1 + np.abs(fine).max())):
            return False
        left = np.concatenate([part.astype(float) for n in buffers for part in _floats(seeds[n])]) * fine
        if name in SCALARS:  # what a number is given as, it still is afterwards
            left = np.concatenate([left, _products(seeds[name], direction)])
        right = _products(adjoint, direction)
        size = float(np.abs(left).sum() + np.abs(right).sum())
        if not abs(left.sum() - right.sum()) <= 1e-4 * (size + 1e-3):
            raise Wrong(
                f"adjoint of '{name}' is wrong\nfinite differences give {left.sum()}, the gradient {right.sum()}"
            )
        return True

    def _difference(self, name: str, direction: np.ndarray, step: float, buffers: list[str]) -> np.ndarray:
        above, below = self._moved(name, direction, step), self._moved(name, direction, -step)
        parts = [
            (a - b) / (2 * step) for n in buffers for a, b in zip(_floats(above[n]), _floats(below[n]), strict=True)
        ]
        return np.concatenate(parts)

    def _moved(self, name: str, direction: np.ndarray, step: float) -> Arrays:
        args = self._copies(self.args)
        value = np.atleast_1d(np.array(args[name]))
        for part, change in zip(_floats(value), _floats(direction), strict=True):
            part += step * change
        args[name] = value if name not in SCALARS else value[0] if name == "p" else float(value[0])
        self.kernel[self.launch](*args.values())
        return args


WAYS: dict[str, Callable[[_Checker, Arrays, Arrays], None]] = {
    "split": _Checker._split,
    "primal=False": _Checker._alone,
    "tape_budget": _Checker._budget,
    "keep": _Checker._kept,
    "assign": _Checker._assigned,
    "deterministic": _Checker._deterministic,
}


def _scramble(array: Any) -> None:
    if isinstance(array, device.OnDevice):
        host = array.numpy().copy()
        _scramble(host)
        array.bytes.set(np.frombuffer(host.tobytes(), np.uint8))
    for part in _fields(array) if isinstance(array, np.ndarray) else ():
        part[...] = np.nan if part.dtype.kind == "f" else 0


def _fields(array: np.ndarray) -> list[np.ndarray]:
    return [array[n] for n in array.dtype.names] if array.dtype.names else [array]


def _floats(array: np.ndarray) -> list[np.ndarray]:
    return [part for part in _fields(array) if part.dtype.kind == "f"]


def _scale(array: np.ndarray, factor: float) -> None:
    for part in _floats(array):
        part *= factor


def _products(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The terms of an inner product."""
    pairs = zip(_floats(one), _floats(other), strict=True)
    return np.concatenate([a.astype(float) * b.astype(float) for a, b in pairs])


# ---- taking a failure apart -----------------------------------------------------------------------------------------


def fails_alike(
    outcome: Outcome,
    program: Program,
    watched: bool,
    way: str = "joint",
    gpu: bool = False,
    plans: Sequence[str] = (),
) -> bool:
    """Whether a program, which may be invalid in any way, fails as another did. In a process of its own."""

    def run() -> bool:
        found = check(program, watched, way, gpu, plans)
        return found.kind == outcome.kind and _key(found) == _key(outcome) and _valid(program)

    child = Child(run)
    return child.wait() is True


def _valid(program: Program) -> bool:
    try:
        checker = _Checker(program)
        return bool(checker.primal_report().ok)
    except InternalError:
        return True  # to be looked at
    except KernelGradError:
        return False


def _key(outcome: Outcome) -> str:
    """What does not change when a program shrinks: no names of parameters, no numbers, no places."""
    return re.sub(r"'\w+'.*|\(from .*|\d+", "", outcome.summary)
