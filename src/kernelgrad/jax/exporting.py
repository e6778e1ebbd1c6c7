"""`jax.export` of functions with operators in them. JAX serializes calls of code that is not its own only where it is
told to: an operator's names come from the kernel and the settings, so what is exported finds them again wherever the
same operator was compiled before."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import UnsupportedError

_NAMES = re.compile(r"@(kernelgrad_\w+)")


def export(function: Any, *, disabled_checks: Sequence[Any] = (), **settings: Any) -> Callable[..., Any]:
    """`jax.export.export` of a jitted function with operators in it: `kg.jax.export(f)(x)` gives an `Exported`, whose
    `call` has a gradient if the function has one. `settings`: those of `jax.export.export`.

    Another process that calls what was serialized must have lowered the same function before, `jax.jit(f).lower(x)`:
    that makes the code of its operators, which is no part of what is exported."""
    import jax.export  # in JAX 0.5.0 it needs absl-py, which JAX does not bring

    def exported(*args: Any, **keywords: Any) -> Any:
        texts = [function.lower(*args, **keywords).as_text(), _backward_text(function, args, keywords)]
        names = dict.fromkeys(name for text in texts for name in _NAMES.findall(text))
        checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in names]
        make: Any = jax.export.export
        return make(function, disabled_checks=(*disabled_checks, *checks), **settings)(*args, **keywords)

    return exported


def _backward_text(function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """What its vjp calls, if it has one."""

    def backward(*args: Any) -> Any:
        results, pull = jax.vjp(lambda *args: function(*args, **keywords), *args)
        return pull(jax.tree.map(jnp.ones_like, results))

    try:
        return str(jax.jit(backward).lower(*args).as_text())
    except (UnsupportedError, TypeError):
        return ""
