"""`check_gradient` of a Python function whose reverse is the user's (`custom_steps`), by finite differences, on copies.

The function maps the numbers x in its arrays to new ones F(x). For random s, its reverse gives Jᵀs, whose product with
a random v must be the slope of ⟨s, F⟩ along v. Where it is not, halving v finds the element. The function computes in
the precision of its arrays, which sets steps and tolerances.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checking.check_gradient import Difference, GradientReport, worst
from ..checking.perturb import Vector
from ..errors import ArgumentError, GradientError
from ..requests import Names
from ..runtime.arrays import view
from ..runtime.recording import refuse_while_recording
from .arrays import seen, zero_like
from .copying import copy
from .custom_steps import CustomFunction
from .record import Tape

_DIRECTIONS = 3
# By the bytes of a number: the steps that are tried, what slopes may differ by, and how exact a number is.
_PRECISION = {8: ((6e-6, 6e-7, 6e-5), 1e-5, 1e-15), 4: ((5e-3, 1e-3, 2e-2), 2e-2, 1e-6)}


def check_step(function: CustomFunction, parameters: Names, args: tuple[Any, ...], seed: int) -> GradientReport:
    refuse_while_recording("check_gradient")
    return _Check(function, parameters, args, np.random.default_rng(seed)).run()


class _Check:
    def __init__(self, function: CustomFunction, parameters: Names, args: tuple[Any, ...], random: np.random.Generator):
        self.function, self.random = function, random
        self.arguments = dict(zip(function.signature.parameters, function.in_order(args, {}), strict=True))
        self.arrays = {name: _host_copy(a) for name, a in self.arguments.items() if _is_perturbed(a)}
        self.listed = self._listed(parameters)
        self.x = np.concatenate([np.zeros(0), *(self.arrays[name].astype(float).ravel() for name in self.listed)])
        smallest = min((self.arrays[name].dtype.itemsize for name in self.listed), default=8)
        self.steps, self.rtol, self.noise = _PRECISION[smallest]
        self.written = [name for name in self.listed if name in (*function.writes, *function.updates)]
        if not self.written:
            raise ArgumentError(f"check_gradient: no array that {function.name} writes is among {self.listed}")
        seeded = np.concatenate([np.full(self.arrays[name].size, name in self.written) for name in self.listed])
        self.seeds = np.where(seeded, random.standard_normal(self.x.size), 0.0)

    def _listed(self, parameters: Names) -> tuple[str, ...]:
        if parameters is None:
            return tuple(self.arrays)
        names = [n.strip() for n in parameters.split(",")] if isinstance(parameters, str) else list(parameters)
        for name in names:
            if name not in self.arrays:
                among = f"an array of floats or doubles; there are {', '.join(self.arrays) or 'none'}"
                raise ArgumentError(f"check_gradient: '{name}' of {self.function.name} is not {among}")
        return tuple(names)

    def run(self) -> GradientReport:
        self.adjoint = self._reverse()
        report = GradientReport(self.function.name, self.listed, self.x.size, by_differences=True)
        for _ in range(_DIRECTIONS):
            direction = self.random.standard_normal(self.x.size)
            found = self._compare(direction)
            if not found.agrees:
                self._raise(worst(direction, self._compare))
            scale = max(abs(found.first), abs(found.second))
            report.error = max(report.error, found.size / scale if scale else 0.0)
        return report

    def _raise(self, direction: Vector) -> None:
        k = int(np.flatnonzero(direction)[0])
        found = self._compare(direction)
        if found.agrees:
            problem = "differs from finite differences, but of no single number: is it not differentiable there?"
            raise GradientError(f"{self.function.name}: its reverse {problem}")
        both = f"{found.first / direction[k]:.6g}, finite differences {found.second / direction[k]:.6g}"
        raise GradientError(f"{self.function.name}: {self._label(k)}: its reverse gives {both}")

    def _compare(self, direction: Vector) -> Difference:
        exact, scale = self.adjoint * direction, max(1.0, float(np.median(np.abs(self.x))) if self.x.size else 1.0)
        found = Difference(0.0, np.nan, 0.0)
        for step in self.steps:
            h = step * scale
            ahead, behind = (self._primal(self.x + sign * h * direction) for sign in (1, -1))
            slope = float((self.seeds * (ahead - behind)).sum() / (2 * h))
            allowed = self.rtol * np.abs(exact).sum() + self.noise * np.abs(self.seeds * ahead).sum() / h
            found = Difference(float(exact.sum()), slope, float(allowed))
            if found.agrees:
                break
        return found

    def _primal(self, x: Vector) -> Vector:
        arguments = self._copies(x)
        self.function.function(*arguments.values())
        return self._read(arguments)

    def _reverse(self) -> Vector:
        """Jᵀs."""
        arguments, function = self._copies(self.x), self.function
        with Tape(None, None) as tape:
            function(*arguments.values())
        seeds = dict(self._parts(self.seeds))
        tape.backward([(arguments[name], self._like(name, seeds[name])) for name in self.written])
        # What is written whole is not read: the adjoint of what it held is zero.
        read = {n: tape.grad(arguments[n]) for n in self.listed if n not in function.writes}
        return self._read({n: read[n] if n in read else np.zeros_like(self.arrays[n]) for n in self.listed})

    def _copies(self, x: Vector) -> dict[str, Any]:
        numbers, found = {**self.arrays, **dict(self._parts(x))}, dict[str, Any]()
        for name, given in self.arguments.items():
            found[name] = given
            if name in numbers:
                found[name] = self._like(name, numbers[name])
            elif view(given) is not None:
                found[name] = zero_like(given)
                copy(found[name], given)
        return found

    def _like(self, name: str, numbers: Any) -> Any:
        array = self.arrays[name]
        made = zero_like(self.arguments[name])
        copy(made, np.ascontiguousarray(np.asarray(numbers).reshape(array.shape), array.dtype))
        return made

    def _read(self, arrays: dict[str, Any]) -> Vector:
        parts = [_host_copy(arrays[name]).astype(float).ravel() for name in self.listed]
        return np.concatenate([np.zeros(0), *parts])

    def _parts(self, numbers: Vector) -> list[tuple[str, Vector]]:
        ends = np.cumsum([self.arrays[name].size for name in self.listed])[:-1]
        return list(zip(self.listed, np.split(numbers, ends), strict=True))

    def _label(self, k: int) -> str:
        for name in self.listed:
            if k < self.arrays[name].size:
                at = ", ".join(str(int(i)) for i in np.unravel_index(k, self.arrays[name].shape))
                return f"{name}[{at}]"
            k -= self.arrays[name].size
        raise IndexError(k)


def _is_perturbed(array: Any) -> bool:
    found = view(array)
    if found is None or not isinstance(found.dtype, np.dtype):
        return False
    return found.dtype.kind == "f" and found.dtype.itemsize in _PRECISION


def _host_copy(array: Any) -> Any:
    found = seen("check_gradient", array)
    made = np.empty(found.shape, found.dtype)
    copy(made, array)
    return made
