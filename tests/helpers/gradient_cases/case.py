"""A kernel to differentiate, written for any floating-point type: `real` is float or double."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import kernelgrad as kg


class Draw:
    """Arguments from a fixed stream of numbers: the same for every type, exactly."""

    def __init__(self, dtype: Any, seed: int = 7):
        self.dtype, self.random = np.dtype(dtype), np.random.default_rng(seed)

    def array(self, *shape: int, low: float = 0.2, high: float = 1.2) -> np.ndarray[Any, Any]:
        return self.random.uniform(low, high, shape).astype(np.float32).astype(self.dtype)

    def signed(self, *shape: int) -> np.ndarray[Any, Any]:
        return self.array(*shape, low=-1.0, high=1.0)

    def ints(self, *shape: int, below: int) -> np.ndarray[Any, Any]:
        return self.random.integers(0, below, shape).astype(np.int32)

    def number(self, value: float) -> Any:
        return self.dtype.type(np.float32(value))

    def records(self, count: int, *fields: tuple[str, str]) -> np.ndarray[Any, Any]:
        """An array of structs; `real` is a field's type too. Laid out as C does."""
        types = [(name, self.dtype if kind == "real" else np.dtype(kind)) for name, kind in fields]
        out = np.zeros(count, np.dtype(types, align=True))
        for name, kind in fields:
            out[name] = self.array(count) if kind == "real" else self.ints(count, below=5)
        return out


Arguments = Callable[[Draw], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    listed: str
    args: Arguments
    grid: Any = 1
    block: Any = 6
    kernel: str = "k"
    tolerance: float = 2e-5  # of the float result, relative to the largest number in it
    smooth: bool = True  # whether finite differences must agree too
    skip: frozenset[str] = field(default_factory=frozenset)

    def compiled(self, real: str = "double") -> Any:
        return _module(self.source, real)[self.kernel]

    def arguments(self, dtype: Any) -> tuple[Any, ...]:
        return self.args(Draw(dtype))

    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.listed.split(","))


@cache
def _module(source: str, real: str) -> kg.Module:
    return kg.compile(f"typedef {real} real;\n{source}", name="case.cu")


def adjoints(case: Case, args: tuple[Any, ...], seed: int = 3) -> list[np.ndarray[Any, Any]]:
    """A random adjoint for every listed parameter, in its own form."""
    random = np.random.default_rng(seed)
    params = [p.name for p in case.compiled().function.params]
    return [_like(args[params.index(name)], random) for name in case.names()]


def _like(argument: Any, random: np.random.Generator) -> np.ndarray[Any, Any]:
    shape = np.atleast_1d(argument)
    out = np.zeros_like(shape)
    if shape.dtype.names is None:
        out[...] = random.uniform(-1, 1, shape.shape).astype(np.float32)
        return out
    for name in shape.dtype.names:
        if shape.dtype[name].kind == "f":
            out[name] = random.uniform(-1, 1, shape.shape).astype(np.float32)
    return out


def run_gradient(case: Case, real: str, dtype: Any) -> list[np.ndarray[Any, Any]]:
    """The arguments and adjoints after a call of the gradient."""
    args = case.arguments(dtype)
    given = adjoints(case, args)
    kg.gradient(case.compiled(real), case.listed)[case.grid, case.block](*args, *given)
    return [np.asarray(a) for a in (*args, *given) if isinstance(a, np.ndarray)]
