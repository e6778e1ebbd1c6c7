"""A kernel's launch as a map of vectors, for tests of second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derived import gradient_of, tangent_of

Vectors = list[np.ndarray[Any, Any]]


class Map:
    """`names`: the listed parameters. `values`: what they hold, a number as an array of one."""

    def __init__(self, kernel: Any, names: Sequence[str], launch: Any, args: tuple[Any, ...]):
        self.kernel, self.names, self.launch, self.args = kernel, tuple(names), launch, args
        order = [p.name for p in kernel.function.params]
        self.at = [order.index(name) for name in names]
        self.values: Vectors = [np.atleast_1d(np.array(args[k], "f8")) for k in self.at]

    @property
    def gradient(self) -> Any:
        return gradient_of(self.kernel, self.names)

    @property
    def tangent(self) -> Any:
        return tangent_of(self.kernel, ", ".join(self.names))

    def like(self, seed: int) -> Vectors:
        """Random numbers for each listed parameter."""
        rng = np.random.default_rng(seed)
        return [rng.uniform(-1, 1, v.shape) for v in self.values]

    def call(self, target: Any, values: Vectors, more: Sequence[Any]) -> Vectors:
        """What the listed parameters and what comes after the arguments hold after a launch."""
        values, more = [v.copy() for v in values], [m.copy() for m in more]
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in self.args]
        for value, k in zip(values, self.at, strict=True):
            own[k] = float(value[0]) if np.ndim(self.args[k]) == 0 else value
        target[self.launch](*own, *more)
        return [*values, *more]


def moved(values: Vectors, direction: Vectors, step: float) -> Vectors:
    return [v + step * d for v, d in zip(values, direction, strict=True)]


def difference(at: Callable[[float], Vectors], step: float) -> Vectors:
    return [(one - other) / (2 * step) for one, other in zip(at(step), at(-step), strict=True)]


def given(product: Any, role: str, names: Sequence[str]) -> list[float]:
    """1 for the parameters that a slot of this role is for."""
    found = {slot.of for slot in product.slots if slot.role == role}
    return [float(name in found) for name in names]
