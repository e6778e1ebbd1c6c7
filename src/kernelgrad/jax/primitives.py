"""The primitives of JAX that calls become: their shapes, their code, and what they are under `vmap`.

Each kind is one primitive for all kernels; `call` tells the rest. They are JAX's own kind of operations, so every
transformation takes them; what they are under differentiation is in `formulas`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, get_args

import jax
import jax.extend.core
import jax.numpy as jnp
from jax.interpreters import batching, mlir

from ..errors import UnsupportedError
from .calls import Call, Kind
from .launching import result_dtypes
from .targets import target_of

KINDS: tuple[Kind, ...] = get_args(Kind)
PLATFORMS = ("cpu", "cuda")
PRIMITIVES: dict[Kind, Any] = {}


def bind(kind: Kind, call: Call, arrays: Sequence[Any]) -> list[Any]:
    """The results, in the order of `call.results(kind)`."""
    return list(PRIMITIVES[kind].bind(*arrays, call=call))


# ---- shapes ---------------------------------------------------------------------------------------------------------


def _abstract(kind: Kind, *avals: Any, call: Call) -> list[Any]:
    dtypes = result_dtypes(kind, call, _dtypes(avals))
    shapes = [call.entry_shape(call.shape[name]) for name in call.results(kind)]
    return [_aval(shape, dtype, avals) for shape, dtype in zip(shapes, dtypes, strict=True)]


def _dtypes(avals: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(aval.dtype) for aval in avals)


def _aval(shape: tuple[int, ...], dtype: str, avals: Sequence[Any]) -> Any:
    """Under `shard_map`, what comes out varies along the axes along which something that goes in does."""
    like: Any = max(avals, key=lambda aval: len(varying(aval)))
    if not varying(like):
        return jax.core.ShapedArray(shape, jnp.dtype(dtype))
    spec = jax.sharding.PartitionSpec(*[None] * len(shape))
    return like.update(shape=shape, dtype=jnp.dtype(dtype), weak_type=False, sharding=like.sharding.update(spec=spec))


def varying(aval: Any) -> frozenset[Any]:
    """The axes of a `shard_map` along which a value may differ, as newer releases keep them."""
    found = getattr(aval, "vma", None)
    return frozenset(getattr(getattr(aval, "mat", None), "varying", ()) if found is None else found)


def aval_of(value: Any) -> Any:
    return jax.typeof(value) if hasattr(jax, "typeof") else jax.core.get_aval(value)


def alike(arrays: Sequence[Any]) -> list[Any]:
    """All varying along the same axes: then each of them has an adjoint of its own kind."""
    axes = [varying(aval_of(array)) for array in arrays]
    together = frozenset[Any]().union(*axes)
    if not together:
        return list(arrays)
    return [_vary(array, tuple(sorted(together - own))) for array, own in zip(arrays, axes, strict=True)]


def _vary(array: Any, axes: tuple[Any, ...]) -> Any:
    if not axes:
        return array
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, axes, to="varying")
    return jax.lax.pvary(array, axes)


# ---- code -----------------------------------------------------------------------------------------------------------


@lru_cache(512)
def _jitted(kind: Kind, call: Call) -> Callable[..., Any]:
    compiled = jax.jit(lambda *arrays: bind(kind, call, arrays))

    def run(*arrays: Any) -> Any:
        with jax.disable_jit(False):  # there is no other way to run it
            return compiled(*arrays)

    return run


def _lower(kind: Kind, platform: str, ctx: Any, *operands: Any, call: Call) -> Any:
    if kind == "bend":
        raise _no_forward_over_forward(call)
    found = target_of(kind, call, _dtypes(ctx.avals_in), platform)
    own = [jax.core.ShapedArray((found.nbytes,), jnp.uint8)] if found.nbytes else []
    rule = jax.ffi.ffi_lowering(found.name, operand_output_aliases=call.aliases(kind))
    results = rule(ctx.replace(avals_out=[*ctx.avals_out, *own]), *operands)
    return list(results)[: len(ctx.avals_out)]


def _no_forward_over_forward(call: Call) -> UnsupportedError:
    kernel = call.family.kernel
    reason = f"{kernel.name}: forward mode over forward mode is not there for operators"
    return UnsupportedError(reason, kernel.function.span, IN_REVERSE)


IN_REVERSE = "put one of them in reverse: jax.jacfwd(jax.jacrev(f)), jax.hessian(f)"


# ---- batches --------------------------------------------------------------------------------------------------------


def _batch(kind: Kind, arrays: Sequence[Any], dims: Sequence[int | None], *, call: Call) -> tuple[list[Any], list[int]]:
    """One call that goes through the entries. Batches in batches are one: what is in either is spread over both."""
    size = next(array.shape[dim] for array, dim in zip(arrays, dims, strict=True) if dim is not None)
    updated, inner = call.aliases(kind), call.batch
    spread, batched = [], []
    for k, (array, dim) in enumerate(zip(arrays, dims, strict=True)):
        in_inner = call.is_batched(k)
        is_in = dim is not None or in_inner or k in updated
        spread.append(_spread(array, dim, size, inner, in_inner) if is_in else array)
        batched.append(is_in)
    found = bind(kind, call.in_batch(size * (1 if inner is None else inner), tuple(batched)), spread)
    if inner is not None:
        found = [array.reshape(size, inner, *array.shape[1:]) for array in found]
    return found, [0] * len(found)


def _spread(array: Any, dim: int | None, size: int, inner: int | None, in_inner: bool) -> Any:
    array = jnp.broadcast_to(array[None], (size, *array.shape)) if dim is None else jnp.moveaxis(array, dim, 0)
    if inner is None:
        return array
    if not in_inner:
        array = jnp.broadcast_to(array[:, None], (size, inner, *array.shape[1:]))
    return array.reshape(size * inner, *array.shape[2:])


# ---- registration ---------------------------------------------------------------------------------------------------


def _make(kind: Kind) -> Any:
    primitive = jax.extend.core.Primitive(f"kernelgrad_{kind}")
    primitive.multiple_results = True
    primitive.def_impl(lambda *arrays, call: _jitted(kind, call)(*arrays))
    primitive.def_abstract_eval(partial(_abstract, kind))
    batching.primitive_batchers[primitive] = partial(_batch, kind)
    for platform in PLATFORMS:
        mlir.register_lowering(primitive, partial(_lower, kind, platform), platform=platform)
    return primitive


for _kind in KINDS:
    PRIMITIVES[_kind] = _make(_kind)
