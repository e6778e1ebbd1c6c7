"""Programs under the names by which XLA calls them. A name comes from what the program does, so that compiled code
that XLA keeps on disk finds it in another process, where it is registered before that code runs."""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import jax

from ..locks import COMPILING
from ..runtime.placing import size_of
from .calls import Call, Kind
from .launching import result_dtypes, steps_of
from .programs import Program


class Target(NamedTuple):
    """`nbytes`: of the buffer that XLA is to give besides the results."""

    name: str
    nbytes: int
    program: Program


_targets: dict[Any, Target] = {}
_JAX_NAMES = {"cpu": "cpu", "cuda": "CUDA"}


def target_of(kind: Kind, call: Call, dtypes: tuple[str, ...], platform: str) -> Target:
    """`dtypes`: of the arrays that go in."""
    key = kind, call, dtypes, platform
    with COMPILING:
        if key not in _targets:
            _targets[key] = _make(kind, call, dtypes, platform)
        return _targets[key]


def _make(kind: Kind, call: Call, dtypes: tuple[str, ...], platform: str) -> Target:
    devices = (None,) if platform == "cpu" else _gpus()
    shown = call if platform == "cpu" else numbers_in_memory(call, dtypes)
    steps = [steps_of(kind, shown, dtypes, device) for device in devices]
    program = Program(steps, strides_of(kind, call, dtypes), call.batch, platform != "cpu")
    name = f"{call.family.name}_{kind}_{hashlib.sha256(repr((call, dtypes)).encode()).hexdigest()[:16]}"
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(program.address), platform=_JAX_NAMES[platform])
    return Target(name, program.nbytes, program)


def _gpus() -> tuple[int, ...]:
    """All up to the last that JAX uses in this process: programs are made for any of them."""
    ordinals = [getattr(device, "local_hardware_id", None) for device in jax.local_devices(backend="cuda")]
    return tuple(range(1 + max((ordinal or 0 for ordinal in ordinals), default=0)))


def numbers_in_memory(call: Call, dtypes: tuple[str, ...]) -> Call:
    """On a GPU, kernels load what would have to be fetched; but where adjoints have another type than numbers."""
    family, found = call.family, set[str]()
    for slot, dtype in zip(call.slots, dtypes, strict=True):
        if slot.role == "primal" and slot.name in family.roles.numbers and dtype == family.wide(slot.name):
            found.add(slot.name)
    return call.with_pointers(frozenset(found)) if found else call


def strides_of(kind: Kind, call: Call, dtypes: tuple[str, ...]) -> list[int]:
    given = [
        (slot.name, dtype, call.is_batched(k)) for k, (slot, dtype) in enumerate(zip(call.slots, dtypes, strict=True))
    ]
    made = zip(call.results(kind), result_dtypes(kind, call, dtypes), strict=True)
    both = [*given, *((name, dtype, call.batch is not None) for name, dtype in made)]
    return [math.prod(call.shape[name]) * size_of(dtype) if batched else 0 for name, dtype, batched in both]
