"""`check_gradient`: reverse mode against forward mode against finite differences, in double precision, on copies.

The kernel maps the listed arguments' numbers x to new ones F(x). Reverse mode gives r = Jᵀs for random s, forward mode
Jv for random v, and ⟨s, Jv⟩ must be ⟨r, v⟩. Where it is not, halving the direction finds the element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..autodiff.calculus.views import cut_pointers
from ..derivatives.asked.settings import Settings, check_outputs, make_settings
from ..derivatives.device_function import DeviceFunction
from ..derivatives.gradient import Gradient
from ..derivatives.jvp import Tangent
from ..derivatives.module_variables import with_variables
from ..derivatives.second_order.kinds import gradient_of_gradient, tangent_of_gradient
from ..errors import ArgumentError, GradientError
from ..ir.ops import Function
from ..ir.types import Scalar, Type
from ..kernel import Kernel
from ..launches.choice.binding import RESULT
from ..locks import cached_property
from ..requests import Names
from ..runtime.buffer_checks import check_overlap
from ..runtime.config import Launch, make_launch
from ..runtime.signature import c_signature, user_params
from ..runtime.variables import Variable
from ..transforms import bit_moves, widen
from ..transforms.erase_custom import custom_places
from .perturb import Piece, Vector, make_piece

_RETURNED = "the returned value"
_DIRECTIONS = 3
_MOST_NOTES = 5
_STEPS = (6e-6, 6e-7, 6e-5)  # tried in this order: the first that agrees will do
_FINITE_DIFFERENCE_RTOL = 1e-5


@dataclass
class GradientReport:
    """What was compared. `error`: the largest relative difference between reverse and forward mode; `notes`: places
    where finite differences disagree with both, or where the derivative is not finite."""

    function: str
    listed: tuple[str, ...]
    elements: int
    error: float = 0.0
    notes: list[str] = field(default_factory=list)
    by_differences: bool = False  # a reverse in Python, with nothing but these

    @property
    def ok(self) -> bool:
        """Whether everything agreed, finite differences too."""
        return not self.notes

    def __str__(self) -> str:
        what = f"{self.function}: gradient of {', '.join(self.listed)} ({self.elements} numbers)"
        if self.by_differences:
            return f"{what}\nits reverse and finite differences agree (relative difference {self.error:.1e})"
        agreed = f"reverse and forward mode agree (relative difference {self.error:.1e})"
        return "\n".join([what, agreed, *(self.notes or ["finite differences agree"])])

    __repr__ = __str__


def check(
    target: Kernel | DeviceFunction | Gradient,
    parameters: Names,
    grid: Any,
    block: Any,
    args: tuple[Any, ...],
    shared: int,
    rtol: float,
    seed: int,
) -> GradientReport:
    if isinstance(target, Gradient):
        grid, block = _launch_of(target.kernel, grid, block)
        launch = make_launch(grid, block, shared * widen.growth(target.kernel.function), of=target.kernel.name)
        return _Comparison(OfGradient(target, parameters, launch, args), np.random.default_rng(seed), rtol).run()
    grid, block = _launch_of(target, grid, block)
    target = with_variables(target, parameters)
    listed = make_settings(target.function, parameters, "joint", None, None, False, None).shown
    check_outputs(target.function, parameters, listed)
    kernel = _with_result(target) if isinstance(target, DeviceFunction) else target
    own = user_params(kernel.function)
    if isinstance(target, DeviceFunction):
        args, listed = _result_argument(target.function, args, listed)
    if len(args) != len(own):
        problem = f"takes {len(own)} arguments, got {len(args)}"
        raise ArgumentError(f"{kernel.name}: {problem}\n  {c_signature(kernel.function)}")
    kernel, args = _with_variables(kernel, args)
    launch = make_launch(grid, block, shared * widen.growth(kernel.function), of=kernel.name)
    subject = Subject(kernel, listed, launch, args)
    return _Comparison(subject, np.random.default_rng(seed), rtol).run()


def _launch_of(target: Kernel | DeviceFunction, grid: Any, block: Any) -> tuple[Any, Any]:
    """A function runs once; what a kernel does is told by the launch."""
    if isinstance(target, DeviceFunction):
        return 1 if grid is None else grid, 1 if block is None else block
    if grid is None or block is None:
        problem = f"{target.name}: say for which launch: check_gradient(kernel, parameters, grid, block, args)"
        raise ArgumentError(problem)
    return grid, block


# ---- what is compared ---------------------------------------------------------------------------------------------


class Subject:
    """A kernel in double precision and its derivatives, as functions of vectors."""

    def __init__(self, kernel: Kernel, listed: tuple[str, ...], launch: Launch, args: tuple[Any, ...]):
        self.listed, self.launch = listed, launch
        self.kernel, self.variables = _widened(kernel)
        old, new = user_params(kernel.function), user_params(self.kernel.function)
        bound, _ = kernel.bind(args)  # refuses what a launch would
        check_overlap(kernel.function, bound, kernel.written)
        self.pieces: dict[str, Piece] = {
            p.name: make_piece(p.name, value, p.type, q.type) for p, q, value in zip(old, new, args, strict=True)
        }
        self.start = np.concatenate([np.zeros(0), *(self.pieces[name].floats for name in listed)])

    def label(self, k: int) -> str:
        for name in self.listed:
            size = self.pieces[name].floats.size
            if k < size:
                return self.pieces[name].label(k).replace(f"{RESULT}[0]", _RETURNED)
            k -= size
        raise IndexError(k)

    def primal(self, x: Vector) -> Vector:
        arguments = self._arguments(x)
        self._map[self._key](*arguments.values())
        return self._read(arguments)

    def reverse(self, x: Vector, seeds: Vector) -> tuple[Vector, Vector]:
        """F(x) and Jᵀs."""
        return self._with_shadows(self._gradient, x, seeds, forward=False)

    def forward(self, x: Vector, direction: Vector) -> tuple[Vector, Vector]:
        """F(x) and Jv."""
        return self._with_shadows(self._tangent, x, direction, forward=True)

    @property
    def _map(self) -> Any:
        """What is differentiated."""
        return self.kernel

    @cached_property
    def _gradient(self) -> Any:
        return Gradient(self.kernel, make_settings(self.kernel.function, self.listed, "joint", None, None, False, None))

    @cached_property
    def _tangent(self) -> Any:
        return Tangent(self.kernel, self.listed)

    @property
    def _key(self) -> Any:
        return (self.launch.grid, self.launch.block, self.launch.shared_bytes)

    def _with_shadows(self, derivative: Any, x: Vector, shadows: Vector, forward: bool) -> tuple[Vector, Vector]:
        arguments = self._arguments(x)
        parts = dict(zip(self.listed, self._split(shadows), strict=True))
        pieces = {name: self.pieces[name] for name in parts}
        passed = {n: p.tangent(parts[n]) if forward else p.shadow(parts[n]) for n, p in pieces.items()}
        derivative[self._key](*arguments.values(), *passed.values())
        return self._read(arguments), self._read(passed)

    def _arguments(self, x: Vector) -> dict[str, Any]:
        for variable in self.variables.values():
            variable.reset()
        floats = {name: piece.floats for name, piece in self.pieces.items()}
        floats |= dict(zip(self.listed, self._split(x), strict=True))
        return {name: piece.primal(floats[name]) for name, piece in self.pieces.items()}

    def _split(self, numbers: Vector) -> list[Vector]:
        return np.split(numbers, np.cumsum([self.pieces[name].floats.size for name in self.listed])[:-1])

    def _read(self, arguments: Mapping[str, Any]) -> Vector:
        return np.concatenate([self.pieces[name].read(arguments[name]) for name in self.listed])


class OfGradient(Subject):
    """A gradient in double precision as a map of arguments and adjoints, and its derivatives."""

    def __init__(self, target: Gradient, parameters: Names, launch: Launch, args: tuple[Any, ...]):
        own = len(user_params(target.kernel.function))
        if len(args) != own + len(target.adjoint_names):
            problem = f"takes {own} arguments and {len(target.adjoint_names)} adjoints, got {len(args)}"
            raise ArgumentError(f"{target.kernel.name}: {problem}\n  {target.signature}")
        if any(p.variable is not None for p in target.kernel.function.params):
            raise ArgumentError("check_gradient: a gradient with respect to module variables cannot be checked here")
        super().__init__(target.kernel, (), launch, args[:own])
        self._target = Gradient(self.kernel, _in_double(target.settings, self.kernel.function))
        self._reverse = gradient_of_gradient(self._target, parameters)
        adjoints = zip(target.settings.shown, target.adjoint_names, args[own:], strict=True)
        old, new = (made.variant().derivative.adjoints for made in (target, self._target))
        self.pieces |= {shown: make_piece(shown, a, old[n].type, new[n].type) for n, shown, a in adjoints}
        self.listed = tuple(slot.owner for slot in self._reverse.slots[len(target.adjoint_names) :])
        self.start = np.concatenate([self.pieces[name].floats for name in self.listed])

    @property
    def _map(self) -> Any:
        return self._target

    @property
    def _gradient(self) -> Any:
        return self._reverse

    @cached_property
    def _tangent(self) -> Any:
        return tangent_of_gradient(self._target, self.listed)


def _in_double(settings: Settings, function: Function) -> Settings:
    options = {
        "deterministic": settings.deterministic,
        "promises": settings.promises.of_inputs,
        "shorter": settings.shorter,
    }
    asked = (settings.mode, settings.kept, settings.assigned, settings.may_alias, settings.tape_budget)
    return make_settings(function, settings.shown, *asked, **options)  # type: ignore[arg-type]


class _Copied(Variable):
    """A copy of a module variable that can be put back to what it was."""

    def __init__(self, variable: Variable, type: Type, widened: Any):
        data = widen.widen_bytes(variable.bytes(), variable.type, type)
        super().__init__(replace(widened, init=data))
        self._start = data

    def reset(self) -> None:
        self._host[:] = np.frombuffer(self._start, np.uint8)


def _widened(kernel: Kernel) -> tuple[Kernel, dict[str, _Copied]]:
    function = bit_moves.run(kernel.function, kernel.module)
    moved = replace(kernel.module, functions={**kernel.module.functions, kernel.name: function})
    module = widen.run(moved, kernel.name, cut_pointers(function))
    variables = {
        name: _Copied(kernel.variable(name), declared.type, declared)
        for name, declared in module.globals.items()
        if declared.space != "shared"
    }
    return Kernel(kernel.name, module, lambda name: variables[name]), variables


# ---- functions: the returned value is one more output ---------------------------------------------------------------


def _with_result(target: DeviceFunction) -> Kernel:
    kernel = target.kernel
    params = tuple(replace(p, variable=None) if p.variable == RESULT else p for p in kernel.function.params)
    function = replace(kernel.function, params=params)
    return Kernel(kernel.name, replace(kernel.module, functions={kernel.name: function}), kernel.variable)


def _result_argument(
    function: Function, args: tuple[Any, ...], listed: tuple[str, ...]
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    type = function.result_type
    if type is None:
        return args, listed
    is_float = isinstance(type, Scalar) and type.is_float
    return (*args, np.zeros(max(1, type.size), np.uint8)), (*listed, RESULT) if is_float else listed


def _with_variables(kernel: Kernel, args: tuple[Any, ...]) -> tuple[Kernel, tuple[Any, ...]]:
    """Module variables that are parameters become the user's: their contents are arguments like others."""
    names = [p.name for p in kernel.function.params if p.variable is not None]
    params = tuple(replace(p, variable=None) for p in kernel.function.params)
    ordered = (*(p for p in params if p.name not in names), *(p for p in params if p.name in names))
    function = replace(kernel.function, params=ordered)
    contents = tuple(np.array(kernel.variable(name)) for name in names)
    made = Kernel(kernel.name, replace(kernel.module, functions={kernel.name: function}), kernel.variable)
    return made, (*args, *contents)


# ---- comparing ----------------------------------------------------------------------------------------------------


@dataclass
class Difference:
    """Two values of the same directional derivative, and how large a difference may be."""

    first: float
    second: float
    allowed: float

    @property
    def agrees(self) -> bool:
        if not (np.isfinite(self.first) and np.isfinite(self.second)):
            return bool(self.first == self.second) or (np.isnan(self.first) and np.isnan(self.second))
        return abs(self.first - self.second) <= self.allowed

    @property
    def size(self) -> float:
        distance = abs(self.first - self.second)
        return float(distance) if np.isfinite(distance) else np.inf


Compare = Callable[[Vector], Difference]


class _Comparison:
    def __init__(self, subject: Subject, random: np.random.Generator, rtol: float):
        self.subject, self.random, self.rtol = subject, random, rtol
        self.x = subject.start
        self.seeds = random.standard_normal(self.x.size)
        listed = tuple(_RETURNED if name == RESULT else name for name in subject.listed)
        self.report = GradientReport(subject.kernel.name, listed, self.x.size)

    def run(self) -> GradientReport:
        with np.errstate(all="ignore"):
            return self._run()

    def _run(self) -> GradientReport:
        value = self.subject.primal(self.x)
        self.seeds[~(np.isfinite(value) & np.isfinite(self.x))] = 0  # nothing can be compared there
        for k in map(int, np.flatnonzero(~np.isfinite(value) & np.isfinite(self.x))[:_MOST_NOTES]):
            self.report.notes.append(f"{self.subject.label(k)} becomes {value[k]}: not compared")
        after, self.adjoint = self.subject.reverse(self.x, self.seeds)
        self._same_primal(value, after, "gradient")
        self._same_primal(value, self.subject.forward(self.x, np.zeros(self.x.size))[0], "tangent")
        usable = self._finite()
        for _ in range(_DIRECTIONS):
            direction = np.where(usable, self.random.standard_normal(self.x.size), 0.0)
            self._against_forward(direction)
        self._against_differences(direction)
        return self.report

    def _same_primal(self, value: Vector, after: Vector, what: str) -> None:
        wrong = np.flatnonzero(~np.isclose(value, after, rtol=1e-9, atol=1e-300, equal_nan=True))
        if wrong.size:
            k = int(wrong[0])
            raise GradientError(
                f"{self.subject.kernel.name}: the {what} leaves {after[k]:.17g} in {self.subject.label(k)}, the kernel"
                f" {value[k]:.17g}"
            )

    def _finite(self) -> Vector:
        """Which elements have a finite adjoint; the others are noted."""
        known = np.isfinite(self.x)
        for k in map(int, np.flatnonzero(~known)[:_MOST_NOTES]):
            self.report.notes.append(f"{self.subject.label(k)} is {self.x[k]}: not compared")
        finite = np.isfinite(self.adjoint) | ~known
        for k in map(int, np.flatnonzero(~finite)[:_MOST_NOTES]):
            self._against_forward(_unit(k, self.x.size))
            self.report.notes.append(f"{self.subject.label(k)}: the derivative is {self.adjoint[k]}")
        return np.asarray(finite & known)

    # ---- reverse and forward mode

    def _against_forward(self, direction: Vector) -> None:
        found = self._reverse_forward(direction)
        if not found.agrees:
            self._raise(worst(direction, self._reverse_forward))
        if found.allowed > 0 and np.isfinite(found.size):
            self.report.error = max(self.report.error, found.size / found.allowed * self.rtol)

    def _reverse_forward(self, direction: Vector) -> Difference:
        tangent = self.subject.forward(self.x, direction)[1]
        wanted = direction != 0
        reverse = self.adjoint[wanted] * direction[wanted]
        forward = np.where(self.seeds == 0, 0.0, self.seeds * tangent)
        scale = np.abs(reverse).sum() + np.abs(forward).sum()
        return Difference(float(reverse.sum()), float(forward.sum()), float(self.rtol * scale))

    def _raise(self, direction: Vector) -> None:
        k = int(np.flatnonzero(direction)[0])
        found, differences = self._reverse_forward(direction), self._forward_differences(direction)
        by = direction[k]
        difference = (
            f"{self.subject.kernel.name}: reverse and forward mode differ at {self.subject.label(k)}:"
            f" reverse {found.first / by:.12g}, forward {found.second / by:.12g},"
            f" finite differences {differences.second / by:.12g}"
        )
        raise GradientError("\n  ".join([difference, *custom_places(self.subject.kernel.function)]))

    # ---- finite differences

    def _against_differences(self, direction: Vector) -> None:
        remaining = direction.copy()
        for _ in range(_MOST_NOTES):
            if self._forward_differences(remaining).agrees:
                return
            single = worst(remaining, self._forward_differences)
            k = int(np.flatnonzero(single)[0])
            found = self._forward_differences(single)
            remaining[k] = 0.0
            if found.agrees:  # several elements together cross a kink that none of them crosses alone
                self.report.notes.append("near a point where the function is not differentiable")
                return
            both = f"{found.second / single[k]:.6g}, reverse and forward mode {found.first / single[k]:.6g}"
            self._note_difference(f"{self.subject.label(k)}: finite differences give {both}")

    def _note_difference(self, difference: str) -> None:
        """What the user gives as a derivative is wrong, unless it is meant to be another one."""
        given = custom_places(self.subject.kernel.function)
        if any("custom derivative" in reason for reason in given):
            raise GradientError("\n  ".join([f"{self.subject.kernel.name}: {difference}", *given]))
        self.report.notes.append(
            f"{difference}: " + (f"given ({'; '.join(given)})" if given else "not differentiable there?")
        )

    def _forward_differences(self, direction: Vector) -> Difference:
        tangent = self.subject.forward(self.x, direction)[1]
        exact = np.where(self.seeds == 0, 0.0, self.seeds * tangent)
        scale = max(1.0, float(np.median(np.abs(self.x)))) if self.x.size else 1.0
        found = Difference(0.0, np.nan, 0.0)
        for step in _STEPS:
            h = step * scale
            ahead, behind = (self.subject.primal(self.x + sign * h * direction) for sign in (1, -1))
            slope = np.where(self.seeds == 0, 0.0, self.seeds * (ahead - behind) / (2 * h))
            noise = 1e-15 * np.abs(np.where(self.seeds == 0, 0.0, self.seeds * ahead)).sum() / h
            allowed = _FINITE_DIFFERENCE_RTOL * np.abs(exact).sum() + noise
            found = Difference(float(exact.sum()), float(slope.sum()), float(allowed))
            if found.agrees:
                break
        return found


def _unit(k: int, size: int) -> Vector:
    return np.where(np.arange(size) == k, 1.0, 0.0)


def worst(direction: Vector, compare: Compare) -> Vector:
    """The direction reduced to one element, always keeping the half with the larger difference."""
    indices = np.flatnonzero(direction)
    while indices.size > 1:
        halves = [indices[: indices.size // 2], indices[indices.size // 2 :]]
        sizes = [compare(_only(direction, half)).size for half in halves]
        indices = halves[int(np.argmax(sizes))]
    return _only(direction, indices)


def _only(direction: Vector, indices: Any) -> Vector:
    kept = np.zeros_like(direction)
    kept[indices] = direction[indices]
    return kept
