"""The elementwise and stencil rows in Warp and in JAX, on the CPU, where those are installed. J and R are as in
gradients.py: value and gradient, or the gradient alone, assigned to memory that need not be clear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from contenders import Problem


@dataclass(frozen=True)
class Other:
    """Runs that leave their gradient in `result`; `prepare` comes before each and is not timed."""

    joint: Callable[[], Any]
    reverse: Callable[[], Any]
    prepare: Callable[[], Any]
    result: Callable[[], Any]


# ---- Warp

_WARP_KERNELS = {"sine": "elementwise", "polynomial": "polynomial", "scale": "scale", "stencil": "stencil"}


def _warp(problem: Problem) -> Other:
    import warp as wp

    wp.config.log_level = wp.LOG_ERROR
    import warp_kernels

    kernel = getattr(warp_kernels, _WARP_KERNELS[problem.row.kernel])
    values, seed, shape = problem.values, problem.seeds["y"], _shape(problem)

    def array(host: Any) -> Any:
        return wp.array(host, dtype=wp.float32, device="cpu")

    names = ["y", *(["x", "a"] if problem.row.kernel == "scale" else ["x"])]
    hosts = {"y": values["y"].reshape(shape), "x": values["x"].reshape(shape)}
    arrays = [array(hosts[n] if n in hosts else [values[n]]) for n in names]
    (wanted,) = problem.assigned
    adjoints = [wp.zeros_like(v) if n in ("y", wanted) else None for n, v in zip(names, arrays, strict=True)]
    result, given = adjoints[names.index(wanted)], array(seed.reshape(shape))

    def reverse() -> None:
        result.zero_()
        wp.launch(kernel, dim=shape, inputs=arrays, adj_inputs=adjoints, adjoint=True, device="cpu")

    def joint() -> None:
        wp.launch(kernel, dim=shape, inputs=arrays, device="cpu")
        reverse()

    return Other(joint, reverse, lambda: adjoints[0].assign(given), lambda: result.numpy().reshape(-1))


def _shape(problem: Problem) -> tuple[int, ...]:
    return (problem.row.rest[0],) * 3 if problem.row.kernel == "stencil" else problem.values["x"].shape


# ---- JAX


def _jax(problem: Problem) -> Other:
    import jax

    function = _JAX[problem.row.kernel]
    x, y_adj = (jax.numpy.asarray(v.reshape(_shape(problem))) for v in (problem.values["x"], problem.seeds["y"]))
    by, rest = (x, ()) if problem.assigned == ["x"] else (jax.numpy.float32(problem.values["a"]), (x,))

    @jax.jit
    def value_and_gradient(by: Any, rest: Any, y_adj: Any) -> Any:
        y, back = jax.vjp(lambda v: function(v, *rest), by)
        return y, back(y_adj)[0]

    @jax.jit
    def gradient(by: Any, rest: Any, y_adj: Any) -> Any:
        return value_and_gradient(by, rest, y_adj)[1]

    results: list[Any] = [None]

    def run(compute: Any) -> None:
        results[0] = jax.block_until_ready(compute(by, rest, y_adj))

    def result() -> Any:
        found = results[0]
        return np.asarray(found[1] if isinstance(found, tuple) else found).reshape(-1)

    return Other(lambda: run(value_and_gradient), lambda: run(gradient), lambda: None, result)


def _sine(x: Any) -> Any:
    import jax

    return jax.numpy.sin(x) * x


def _polynomial(x: Any) -> Any:
    p = 0.0 * x
    for k in range(16, -1, -1):
        p = p * x + 1.0 / (k + 1)
    return p


def _scale(a: Any, x: Any) -> Any:
    return x * a


def _stencil(x: Any) -> Any:
    """Zero where the kernel stores nothing."""
    import jax

    inner = 0.4 * x[1:-1, 1:-1, 1:-1] + 0.1 * (
        x[1:-1, 1:-1, :-2]
        + x[1:-1, 1:-1, 2:]
        + x[1:-1, :-2, 1:-1]
        + x[1:-1, 2:, 1:-1]
        + x[:-2, 1:-1, 1:-1]
        + x[2:, 1:-1, 1:-1]
    )
    return jax.numpy.pad(inner, 1)


_JAX = {"sine": _sine, "polynomial": _polynomial, "scale": _scale, "stencil": _stencil}

MAKERS: dict[str, Callable[[Problem], Other]] = {"warp": _warp, "jax": _jax}
LIBRARIES = {"warp": frozenset(_WARP_KERNELS), "jax": frozenset(_JAX)}  # and the rows that are written in them
