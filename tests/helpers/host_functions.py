"""Gradients of host functions against finite differences in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

Array = np.ndarray[Any, Any]


def check(
    source: str, name: str, listed: str, args: Sequence[Any], rtol: float = 1e-6, seed: float = 1.0, **options: Any
) -> Any:
    """Compares v . gradient with the change along v of the value and the listed arrays, weighted at random."""
    module, random = kg.compile(source), np.random.default_rng(7)
    function, names = module[name], [n.strip() for n in listed.split(",")]
    g = kg.gradient(function, listed, **options)
    order = [p.name for p in function.function.params]
    at = [order.index(n) for n in names]
    weights = [random.normal(size=np.shape(args[k]) or (1,)) for k in at]
    along = [random.normal(size=np.shape(args[k])) for k in at]
    adjoints = [w.copy() if np.ndim(args[k]) else np.zeros(1) for k, w in zip(at, weights, strict=True)]
    value = g.execute(*map(copied, args), *adjoints, seed=seed, device="cpu")
    found = sum(float(np.sum(v * d.reshape(np.shape(v)))) for v, d in zip(along, adjoints, strict=True))
    wanted = slope(along_line(function, args, at, weights, along, seed))
    assert found == pytest.approx(wanted, rel=rtol, abs=1e-9)
    assert value == pytest.approx(function(*map(copied, args), device="cpu"))
    return g


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def along_line(
    function: Any, args: Sequence[Any], at: list[int], weights: list[Array], along: list[Array], seed: float
) -> Callable[[float], float]:
    def at_step(h: float) -> float:
        moved = list(map(copied, args))
        for k, v in zip(at, along, strict=True):
            moved[k] = moved[k] + h * v
        value = function(*moved, device="cpu")
        arrays = [(w, moved[k]) for k, w in zip(at, weights, strict=True) if np.ndim(moved[k])]
        return sum(float(np.sum(w * a)) for w, a in arrays) + seed * (value or 0.0)

    return at_step


def slope(f: Callable[[float], float], h: float = 1e-5) -> float:
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)
