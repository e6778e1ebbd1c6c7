"""A recorded program as a function of arrays: `kg.jax.op(tape.program(...))`.

Its primitives are those of kernels (formulas.py), of which `bend` is there to be transposed and has no code. XLA has
Python run the program, on XLA's stream and from and to XLA's buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, get_args

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
from .primitives import IN_REVERSE, PLATFORMS, _aval, alike, aval_of
from .programs import Program

Kind = Literal["value", "tangent", "backward", "second", "bend"]
# What each takes before the program's inputs: tangents of those, or cotangents of the outputs.
_OWN: dict[Kind, tuple[Literal["tangents", "cotangents"], ...]] = {
    "value": (),
    "tangent": ("tangents",),
    "backward": ("cotangents",),
    "second": ("cotangents", "tangents"),
    "bend": ("tangents", "tangents"),
}
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


def _groups(kind: Kind, recorded: Recorded) -> list[list[Slot]]:
    """What goes in, in groups: an operation is linear in each but the last, which are the inputs."""
    of = {"tangents": _floating(recorded.inputs), "cotangents": _floating(recorded.outputs)}
    return [*(of[own] for own in _OWN[kind]), list(recorded.inputs)]


def _grouped(kind: Kind, recorded: Recorded, values: Sequence[Any]) -> list[list[Any]]:
    rest = iter(values)
    return [[next(rest) for _ in group] for group in _groups(kind, recorded)]


def _made(kind: Kind, recorded: Recorded) -> list[Slot]:
    if kind == "value":
        return list(recorded.outputs)
    return _floating(recorded.outputs if kind in ("tangent", "bend") else recorded.inputs)


def _abstract(kind: Kind, *avals: Any, recorded: Recorded) -> list[Any]:
    return [_aval(slot.shape, slot.dtype, avals) for slot in _made(kind, recorded)]


# ---- code -----------------------------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """What Python does: called as a kernel is."""

    kind: Kind
    recorded: Recorded

    def _launch(self, launch: Launch, args: tuple[Any, ...], keywords: Any) -> None:
        recorded, count = self.recorded, sum(map(len, _groups(self.kind, self.recorded)))
        *own, inputs = _grouped(self.kind, recorded, args[:count])
        getattr(recorded, self.kind)(inputs, *own, args[count:], launch.stream)


def _target(kind: Kind, recorded: Recorded, platform: str) -> str:
    """The name under which XLA calls it."""
    if kind != "value":
        recorded.prepare(kind)
    key = recorded.name, kind, platform
    with COMPILING:
        if key not in _targets:
            device = recorded.program.device
            where: Device = "cpu" if platform == "cpu" else ("cuda", device or 0)
            slots = [*(slot for group in _groups(kind, recorded) for slot in group), *_made(kind, recorded)]
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
    if kind == "bend":
        raise recorded.no_forward_over_forward(IN_REVERSE)
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


# ---- derivatives: as in formulas.py ---------------------------------------------------------------------------------


def _is_zero(values: Sequence[Any]) -> bool:
    return all(type(value) is ad.Zero for value in values)


def _dense(value: Any) -> Any:
    return jnp.zeros(value.aval.shape, value.aval.dtype) if type(value) is ad.Zero else value


def _bind(kind: Kind, recorded: Recorded, *groups: Sequence[Any]) -> list[Any] | None:
    """None where one of those that it is linear in is zero."""
    *linear, inputs = groups
    if any(map(_is_zero, linear)):
        return None
    arrays = [_dense(array) for group in linear for array in group]
    return list(_PRIMITIVES[kind].bind(*alike([*arrays, *inputs]), recorded=recorded))


def _added(*found: list[Any] | None) -> list[Any] | None:
    there = [one for one in found if one is not None]
    return [sum(parts[1:], parts[0]) for parts in zip(*there, strict=True)] if there else None


def _jvp(kind: Kind, primals: Sequence[Any], tangents: Sequence[Any], *, recorded: Recorded) -> Any:
    results = list(_PRIMITIVES[kind].bind(*primals, recorded=recorded))
    *own, inputs = _grouped(kind, recorded, primals)
    *own_tangents, moved = _grouped(kind, recorded, tangents)
    along = [moved[k] for k in recorded.active]
    curved: dict[Kind, Kind] = {"value": "tangent", "tangent": "bend", "backward": "second"}
    if kind in curved:
        found = _bind(curved[kind], recorded, *own, along, inputs)
    elif not _is_zero(along):
        raise recorded.no_third_order()
    else:
        found = None
    for k, tangent in enumerate(own_tangents):
        found = _added(found, _bind(kind, recorded, *own[:k], tangent, *own[k + 1 :], inputs))
    return results, _spread(kind, recorded, results, found)


def _spread(kind: Kind, recorded: Recorded, results: list[Any], found: list[Any] | None) -> list[Any]:
    """The tangents of results: those of integers, and where nothing was found, are zero."""
    zeros = [ad.Zero(aval_of(result).to_tangent_aval()) for result in results]
    if found is None:
        return zeros
    slots = recorded.outputs if kind == "value" else _made(kind, recorded)
    rest = iter(found)
    return [next(rest) if slot.floating else zero for slot, zero in zip(slots, zeros, strict=True)]


# By kind and by the group that is asked for: the primitive, and what it is given before the inputs; -1 stands for the
# cotangents, a number for a group.
_TRANSPOSED: dict[tuple[Kind, int], tuple[Kind, tuple[int, ...]]] = {
    ("tangent", 0): ("backward", (-1,)),
    ("backward", 0): ("tangent", (-1,)),
    ("second", 0): ("bend", (1, -1)),
    ("second", 1): ("second", (0, -1)),  # Hessians are symmetric
    ("bend", 0): ("second", (-1, 1)),
    ("bend", 1): ("second", (-1, 0)),
}


def _transpose(kind: Kind, cotangents: Sequence[Any], *arrays: Any, recorded: Recorded) -> list[Any]:
    groups = _grouped(kind, recorded, arrays)
    asked = next(k for k, group in enumerate(groups) if any(map(ad.is_undefined_primal, group)))
    by, places = _TRANSPOSED[kind, asked]
    given = [list(cotangents) if k < 0 else groups[k] for k in places]
    found = _bind(by, recorded, *given, groups[-1])
    answers = [[None] * len(group) for group in groups]
    if found is not None:
        answers[asked] = found
    return [answer for group in answers for answer in group]


# ---- registration ---------------------------------------------------------------------------------------------------


def _make(kind: Kind) -> Any:
    primitive = jax.extend.core.Primitive(f"kernelgrad_program_{kind}")
    primitive.multiple_results = True
    primitive.def_impl(lambda *arrays, recorded: _jitted(kind, recorded)(*arrays))
    primitive.def_abstract_eval(partial(_abstract, kind))
    batching.primitive_batchers[primitive] = partial(_batch, kind)
    ad.primitive_jvps[primitive] = partial(_jvp, kind)
    if kind != "value":
        ad.primitive_transposes[primitive] = partial(_transpose, kind)
    for platform in PLATFORMS:
        mlir.register_lowering(primitive, partial(_lower, kind, platform), platform=platform)
    return primitive


_PRIMITIVES: dict[Kind, Any] = {kind: _make(kind) for kind in get_args(Kind)}
