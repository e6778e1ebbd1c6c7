"""One launch of a kernel, recorded, and all that it was given overwritten afterwards: the reverse must still have what
it reads."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import kernelgrad as kg
from kernelgrad.host.kernel_facts import facts_of
from kernelgrad.runtime.signature import user_params


def compare(kernel: Any, launch: tuple[Any, ...], args: tuple[Any, ...], rtol: float = 1e-9) -> None:
    names = [p.name for p in user_params(kernel.function)]
    listed = [name for name in facts_of(kernel).listed if name in names]
    given = dict(zip(names, args, strict=True))
    rng = np.random.default_rng(5)
    seeds = {name: _seed(given[name], rng) for name in listed}
    expected = {name: seed.copy() for name, seed in seeds.items()}
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kg.gradient(kernel, listed)[launch](*copies, *expected.values())
        found = recorded(kernel, launch, given, seeds)
    for name in listed:
        for one, other in zip(_parts(found[name]), _parts(expected[name]), strict=True):
            scale = max(1.0, float(np.abs(other).max())) if other.size else 1.0
            np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-12 * scale, err_msg=name)


def recorded(kernel: Any, launch: tuple[Any, ...], given: dict[str, Any], seeds: dict[str, Any]) -> dict[str, Any]:
    args = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in given.items()}
    arrays = {name: a for name, a in args.items() if isinstance(a, np.ndarray) and a.ndim and a.size}
    outputs = {name: np.zeros_like(a) for name, a in arrays.items() if name in seeds}
    with kg.record() as tape:
        kernel[launch](*args.values())
        for name, output in outputs.items():
            kg.copy(output, arrays[name])
        for array in arrays.values():
            kg.fill(array.reshape(-1).view(np.uint8), 255)
    tape.backward([(output, seeds[name]) for name, output in outputs.items()])
    numbers = {name: np.array([tape.grad(f"{kernel.name}.{name}")]) for name in seeds if np.ndim(given[name]) == 0}
    return {name: tape.grad(a) for name, a in arrays.items() if name in seeds} | numbers


def _seed(value: Any, rng: Any) -> Any:
    """Of a number zero: it has no adjoint afterwards."""
    if np.ndim(value) == 0:
        return np.zeros(1, np.float64 if isinstance(value, float) else np.asarray(value).dtype)
    seed = np.zeros_like(value)
    for part in _parts(seed):
        part[...] = rng.uniform(-1, 1, part.shape)
    return seed


def _parts(array: Any) -> list[Any]:
    """The floating-point parts of a structured array."""
    if array.dtype.names is None:
        return [array] if array.dtype.kind in "fc" else []
    return [part for name in array.dtype.names for part in _parts(array[name])]
