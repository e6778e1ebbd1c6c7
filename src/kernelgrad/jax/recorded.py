"""A recorded program as a function of arrays: `kg.jax.op(tape.program(...))`.

Three primitives, as of kernels: the value; the tangent, which is there to be transposed and has no code; the backward.
XLA has Python run the program, on XLA's stream and from and to XLA's buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir

from ..frameworks.recorded import Recorded, Slot, recorded_of
from ..host.program import Program as Listed
from ..locks import COMPILING
from ..runtime.arrays import Device
from ..runtime.config import Launch, make_launch
from ..runtime.placing import Relocatable, placeholder
from .launching import Called, Steps
from .primitives import PLATFORMS, _aval, alike, aval_of
from .programs import Program

Kind = Literal["value", "tangent", "backward"]
_JAX_NAMES = {"cpu": "cpu", "cuda": "CUDA"}
_targets: dict[tuple[str, Kind, str], tuple[str, Program]] = {}


class ProgramOp:
    """A recorded program as a function of arrays, `y = op(x, w)`; see `op`."""

    def __init__(self, recorded: Recorded):
        self._recorded = recorded

    def __repr__(self) -> str:
        return repr(self._recorded)

    @property
    def name(self) -> str:
        """What the names under which it is registered with XLA in this process begin with."""
        return self._recorded.name

    def __call__(self, *arrays: Any) -> Any:
        self._recorded.check([_described(array) for array in arrays])
        found = _PRIMITIVES["value"].bind(*alike([jnp.asarray(array) for array in arrays]), recorded=self._recorded)
        return found[0] if len(found) == 1 else tuple(found)


def _described(array: Any) -> tuple[tuple[int, ...], str]:
    if not isinstance(array, jax.Array | np.ndarray):
        return (), type(array).__name__
    return tuple(array.shape), str(array.dtype)


def program_op(program: Listed) -> ProgramOp:
    return ProgramOp(recorded_of(program))


# ---- what goes in and comes out -------------------------------------------------------------------------------------


def _floating(slots: Sequence[Slot]) -> list[Slot]:
    return [slot for slot in slots if slot.floating]


def _given(kind: Kind, recorded: Recorded) -> list[Slot]:
    inputs = list(recorded.inputs)
    own = {"value": [], "tangent": _floating(inputs), "backward": _floating(recorded.outputs)}[kind]
    return [*own, *inputs]


def _made(kind: Kind, recorded: Recorded) -> list[Slot]:
    outputs = list(recorded.outputs)
    return {"value": outputs, "tangent": _floating(outputs), "backward": _floating(recorded.inputs)}[kind]


def _abstract(kind: Kind, *avals: Any, recorded: Recorded) -> list[Any]:
    return [_aval(slot.shape, slot.dtype, avals) for slot in _made(kind, recorded)]


# ---- code -----------------------------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """What Python does: called as a kernel is."""

    kind: Kind
    recorded: Recorded

    def _launch(self, launch: Launch, args: tuple[Any, ...], keywords: Any) -> None:
        recorded, count = self.recorded, len(_given(self.kind, self.recorded))
        given, results = args[:count], args[count:]
        if self.kind == "value":
            recorded.value(given, results, launch.stream)
            return
        seeds, inputs = list(given[: -len(recorded.inputs)]), given[-len(recorded.inputs) :]
        recorded.backward(inputs, seeds, results, launch.stream)


def _target(kind: Kind, recorded: Recorded, platform: str) -> str:
    """The name under which XLA calls it."""
    if kind == "backward":
        recorded.prepare_gradient()
    key = recorded.name, kind, platform
    with COMPILING:
        if key not in _targets:
            device = recorded.program.device
            where: Device = "cpu" if platform == "cpu" else ("cuda", device or 0)
            slots = [*_given(kind, recorded), *_made(kind, recorded)]
            views = [placeholder(k, slot.shape, slot.dtype, where, True) for k, slot in enumerate(slots)]
            trace = Relocatable(None if platform == "cpu" else device, [view.address for view in views])
            step = Called(_Run(kind, recorded), make_launch(1, 1), tuple(views), {})
            program = Program([Steps((step,), 0, trace)], [0] * len(slots), None, platform != "cpu")
            name = f"kernelgrad_{recorded.name}_{kind}"
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(program.address), platform=_JAX_NAMES[platform])
            _targets[key] = name, program
        return _targets[key][0]


@lru_cache(512)
def _jitted(kind: Kind, recorded: Recorded) -> Callable[..., Any]:
    made: Callable[..., Any] = jax.jit(lambda *arrays: _PRIMITIVES[kind].bind(*arrays, recorded=recorded))
    return made


def _lower(kind: Kind, platform: str, ctx: Any, *operands: Any, recorded: Recorded) -> Any:
    if kind == "tangent":
        recorded.refuse("forward mode")
    return jax.ffi.ffi_lowering(_target(kind, recorded, platform))(ctx, *operands)


def _batch(kind: Kind, arrays: Sequence[Any], dims: Sequence[Any], *, recorded: Recorded) -> Any:
    """One entry after another."""
    size = next(array.shape[dim] for array, dim in zip(arrays, dims, strict=True) if dim is not None)
    spread = [
        jnp.broadcast_to(array, (size, *array.shape)) if dim is None else jnp.moveaxis(array, dim, 0)
        for array, dim in zip(arrays, dims, strict=True)
    ]
    found = jax.lax.map(lambda entry: _PRIMITIVES[kind].bind(*entry, recorded=recorded), spread)
    return found, [0] * len(found)


# ---- derivatives ----------------------------------------------------------------------------------------------------


def _zeros(aval: Any) -> Any:
    return jnp.zeros(aval.shape, aval.dtype)


def _dense(value: Any) -> Any:
    return _zeros(value.aval) if type(value) is ad.Zero else value


def _value_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, recorded: Recorded) -> Any:
    results = _PRIMITIVES["value"].bind(*primals, recorded=recorded)
    zeros = [ad.Zero(aval_of(result).to_tangent_aval()) for result in results]
    if all(type(tangents[k]) is ad.Zero for k in recorded.active):
        return results, zeros
    along = [_dense(tangents[k]) for k in recorded.active]
    moved = iter(_PRIMITIVES["tangent"].bind(*alike([*along, *primals]), recorded=recorded))
    return results, [next(moved) if slot.floating else zero for slot, zero in zip(recorded.outputs, zeros, strict=True)]


def _tangent_transpose(cotangents: Sequence[Any], *arrays: Any, recorded: Recorded) -> list[Any]:
    count = len(recorded.active)
    if all(type(c) is ad.Zero for c in cotangents):
        return [None] * len(arrays)
    inputs = arrays[count:]
    found = _PRIMITIVES["backward"].bind(*alike([*map(_dense, cotangents), *inputs]), recorded=recorded)
    return [*found, *[None] * len(inputs)]


def _refuse_second(primals: Any, tangents: Any, *, recorded: Recorded) -> Any:
    recorded.refuse("second derivatives")


# ---- registration ---------------------------------------------------------------------------------------------------


def _make(kind: Kind, jvp: Callable[..., Any]) -> Any:
    primitive = jax.extend.core.Primitive(f"kernelgrad_program_{kind}")
    primitive.multiple_results = True
    primitive.def_impl(lambda *arrays, recorded: _jitted(kind, recorded)(*arrays))
    primitive.def_abstract_eval(partial(_abstract, kind))
    batching.primitive_batchers[primitive] = partial(_batch, kind)
    ad.primitive_jvps[primitive] = jvp
    for platform in PLATFORMS:
        mlir.register_lowering(primitive, partial(_lower, kind, platform), platform=platform)
    return primitive


_PRIMITIVES: dict[Kind, Any] = {
    "value": _make("value", _value_jvp),
    "tangent": _make("tangent", _refuse_second),
    "backward": _make("backward", _refuse_second),
}
ad.primitive_transposes[_PRIMITIVES["tangent"]] = _tangent_transpose
