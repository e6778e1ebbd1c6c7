"""What the primitives do, as operations on placeholders: launches of the kernel and of its derivatives, and what must
be cleared or copied before. Everything comes from XLA's allocator."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..errors import InternalError, TapeError
from ..frameworks.settings import Fill
from ..ir.layout import param_layout
from ..ir.types import BF16, F16, F32, F64
from ..kernel import Kernel
from ..launches.memory.half_adjoints import converter
from ..runtime.arguments import Placement
from ..runtime.arrays import ArrayView, Device
from ..runtime.config import Launch, make_launch
from ..runtime.launch import BoundArguments
from ..runtime.placing import ALIGNED, Place, Relocatable, Traced, dtype_of, placeholder, size_of, view_at
from ..runtime.recording import unrecorded
from ..runtime.scratch import Scratch
from ..runtime.tracing import Filled, LiveNumber, Moved
from .calls import Call, Kind, Role, Slot

_FLOATS = {"float16": F16, "bfloat16": BF16, "float32": F32, "float64": F64}


class Called(NamedTuple):
    """A launch that Python has to make, since it looks at memory. `numbers`: which arguments are read from where."""

    target: Any
    launch: Launch
    args: tuple[Any, ...]
    numbers: Mapping[int, ArrayView]


Step = Traced | Called | Moved | Filled


class Steps(NamedTuple):
    """What a call does, in order; `nbytes` of memory of its own, which is the last buffer."""

    steps: tuple[Step, ...]
    nbytes: int
    trace: Relocatable


def steps_of(kind: Kind, call: Call, dtypes: tuple[str, ...], device: int | None) -> Steps:
    """`dtypes`: of the arrays that go in."""
    work = _Work(kind, call, dtypes, device)
    with unrecorded(), work.trace.open():
        getattr(work, kind)()
    return Steps(tuple(work.trace.made), work.trace.nbytes, work.trace)


def number_dtype(call: Call, name: str, dtypes: tuple[str, ...]) -> str:
    """A number's adjoint has the type that the number came in."""
    return dtypes[call.slots.index(Slot("primal", name))]


def result_dtypes(kind: Kind, call: Call, dtypes: tuple[str, ...]) -> list[str]:
    family = call.family
    if kind not in ("backward", "second"):
        return [family.dtype(name) for name in call.results(kind)]
    numbers = family.roles.numbers
    return [number_dtype(call, name, dtypes) if name in numbers else family.wide(name) for name in call.wanted]


class _Work:
    def __init__(self, kind: Kind, call: Call, dtypes: tuple[str, ...], device: int | None):
        self.call, self.roles, self.family, self.device = call, call.family.roles, call.family, device
        self.where: Device = "cpu" if device is None else ("cuda", device)
        self.given: dict[Slot, ArrayView] = {}
        self.results: dict[str, ArrayView] = {}
        self._kept: list[Scratch] = []
        self.launch = None if call.is_idle else make_launch(call.launch[:3], call.launch[3:6], call.launch[6])
        for k, (slot, dtype) in enumerate(zip(call.slots, dtypes, strict=True)):
            self.given[slot] = self._buffer(k, call.shape[slot.name], dtype, call.is_batched(k))
        made = zip(call.results(kind), result_dtypes(kind, call, dtypes), strict=True)
        for k, (name, dtype) in enumerate(made, len(dtypes)):
            self.results[name] = self._buffer(k, call.shape[name], dtype, call.batch is not None)
        starts = [array.address for array in (*self.given.values(), *self.results.values())]
        self.trace = Relocatable(device, starts)
        self.aliased = {call.slots[k] for k in call.aliases(kind)}

    def _buffer(self, number: int, shape: tuple[int, ...], dtype: str, batched: bool) -> ArrayView:
        is_aligned = not batched or int(np.prod(shape)) * size_of(dtype) % ALIGNED == 0
        return placeholder(number, shape, dtype, self.where, is_aligned)

    # ---- the kinds

    def value(self) -> None:
        for name in self.roles.outputs:
            self._fill(self.results[name], self.family.fills[name], self.family.dtype(name))
        arrays = {name: self._get("primal", name) for name in self.roles.arrays} | self.results
        self._run(self.family.kernel, arrays, ())

    def tangent(self) -> None:
        for name, result in self.results.items():
            if Slot("tangent", name) not in self.aliased:
                self._zero(result)
        if self.launch is not None:
            pure = {name: self._number("tangent", name) for name in self.roles.pure_inputs}
            everything = {**pure, **self.results}
            tangents = [everything.get(name) for name in self.family.derived.listed]
            self._run(self.family.derived.tangent, self._all_arrays(), tangents)

    def backward(self) -> None:
        if self.launch is None:
            for name, result in self.results.items():
                if Slot("cotangent", name) not in self.aliased:
                    self._zero(result)
            return
        adjoints = {name: self._seed(name) for name in self.roles.active_results}
        adjoints |= {name: self._adjoint(name) for name in self.roles.pure_inputs if name in self.results}
        reverse = self.family.derived.reverse(bool(self.family.derived.options.deterministic))
        arrays = self._all_arrays() if reverse.joint else self._read_arrays()
        self._run(reverse.gradient, arrays, [adjoints.get(name) for name in self.family.derived.listed])
        self._return_numbers(adjoints)

    def second(self) -> None:
        listed, found = self.family.derived.listed, {}
        for name in listed:
            found[name] = self._adjoint(name) if name in self.results else self._temporary(name, self.family.wide(name))
            self._zero(found[name])
        if self.launch is not None:
            seeds = [self._start("cotangent", name, self.family.wide(name)) for name in listed]
            moved = [self._start("tangent", name, self.family.dtype(name)) for name in listed]
            self._run(self.family.derived.second, self._all_arrays(), [*seeds, *moved, *found.values()])
        self._return_numbers(found)

    def bend(self) -> None:
        raise InternalError("forward over forward has no code")

    # ---- arrays

    def _get(self, role: Role, name: str) -> ArrayView | None:
        return self.given.get(Slot(role, name))

    def _number(self, role: Role, name: str) -> ArrayView | None:
        """What belongs to a number has its type."""
        given = self._get(role, name)
        if given is None or name not in self.roles.numbers or given.dtype == dtype_of(self.family.dtype(name)):
            return given
        made = self._temporary(name, self.family.dtype(name))
        self._convert(given, made)
        return made

    def _temporary(self, name: str, dtype: str) -> ArrayView:
        shape = self.call.shape[name]
        memory = Scratch(max(1, int(np.prod(shape))) * size_of(dtype), self.device, None)
        self._kept.append(memory)
        return view_at(memory.address, shape, dtype, self.where)

    def _copy(self, array: ArrayView, name: str, dtype: str) -> ArrayView:
        made = self._temporary(name, dtype)
        if array.nbytes:
            self.trace.move(made.address, array.address, array.nbytes, self.device)
        return made

    def _fill(self, array: ArrayView, fill: Fill, dtype: str) -> None:
        if fill is None or not array.nbytes:
            return
        self.trace.fill(array.address, array.nbytes, _pattern(fill, dtype), self.device)

    def _zero(self, array: ArrayView) -> None:
        if array.nbytes:
            self.trace.fill(array.address, array.nbytes, b"\0", self.device)

    def _start(self, role: Role, name: str, dtype: str) -> ArrayView:
        """A copy that a kernel may write to, zeros where nothing is given."""
        given = self._number(role, name)
        if given is not None:
            return self._copy(given, name, dtype)
        made = self._temporary(name, dtype)
        self._zero(made)
        return made

    def _seed(self, name: str) -> ArrayView | None:
        """What a result's adjoint begins with, None where nothing is given or wanted."""
        given = self._get("cotangent", name)
        if name in self.results:
            if given is None:
                self._zero(self.results[name])
            return self.results[name]
        if given is None or name in self.roles.pure_outputs:
            return given
        return self._copy(given, name, self.family.wide(name))

    def _adjoint(self, name: str) -> ArrayView:
        """Where a wanted adjoint goes."""
        result = self.results[name]
        is_same = result.dtype == dtype_of(self.family.wide(name))
        return result if is_same else self._temporary(name, self.family.wide(name))

    def _return_numbers(self, found: Mapping[str, ArrayView | None]) -> None:
        for name in self.roles.numbers:
            adjoint = found.get(name)
            if name in self.results and adjoint is not None and adjoint.address != self.results[name].address:
                self._convert(adjoint, self.results[name])

    def _convert(self, source: ArrayView, target: ArrayView) -> None:
        kinds = [_FLOATS[str(array.dtype)] for array in (source, target)]
        bound = BoundArguments(struct.pack("<QQq", target.address, source.address, 1))
        converter(*kinds).run(make_launch(1, 1), bound, Placement(self.device), {})

    def _outputs(self) -> dict[str, ArrayView]:
        made = {name: self._temporary(name, self.family.dtype(name)) for name in self.roles.outputs}
        for name, array in made.items():
            self._fill(array, self.family.fills[name], self.family.dtype(name))
        return made

    def _all_arrays(self) -> dict[str, ArrayView | None]:
        """For what runs the kernel again: zeros for arrays that no derivative reads, copies of what is written."""
        arrays: dict[str, ArrayView | None] = {}
        for name in self.roles.arrays:
            given = self._get("primal", name)
            if given is None or name in self.roles.updated:
                arrays[name] = self._start("primal", name, self.family.dtype(name))
            else:
                arrays[name] = given
        return {**arrays, **self._outputs()}

    def _read_arrays(self) -> dict[str, ArrayView | None]:
        """For the reverse alone, which writes none: what it does not read is null."""
        arrays = {name: self._get("primal", name) for name in self.roles.arrays}
        outputs: dict[str, ArrayView | None] = dict.fromkeys(self.roles.outputs)
        if any(self.roles[name].read for name in outputs):
            outputs |= {name: array for name, array in self._outputs().items() if self.roles[name].read}
        return arrays | outputs

    # ---- launches

    def _run(self, target: Any, arrays: Mapping[str, ArrayView | None], others: Any) -> None:
        """Of the kernel or one of its derivatives, which take its arguments and then those `others`."""
        if self.launch is None:
            return
        numbers, live = self._numbers()
        everything = {**arrays, **numbers, **dict(self.call.integers)}
        names = [p.name for p in self.roles.parameters]
        args = (*[everything[name] for name in names], *others)
        before = len(self.trace.made)
        try:
            with self.trace.telling(self.family.kernel.function, self._live(live)) if live else nullcontext():
                target._launch(self.launch, args, {})
        except TapeError:
            del self.trace.made[before:]
            by_place = {names.index(name): array for name, array in live.items()}
            self.trace.made.append(Called(target, self.launch, args, by_place))  # type: ignore[arg-type]

    def _numbers(self) -> tuple[dict[str, float], dict[str, ArrayView]]:
        """Those that are known, with something in the place of the others, and these."""
        live = {name: array for name in self.roles.numbers if (array := self._number("primal", name)) is not None}
        return dict.fromkeys(live, 0.0) | {name: float.fromhex(value) for name, value in self.call.numbers}, live

    def _live(self, numbers: Mapping[str, ArrayView]) -> tuple[LiveNumber, ...]:
        kernel: Kernel = self.family.kernel
        offsets = zip(kernel.function.params, param_layout(kernel.function)[0], strict=True)
        by_name = {p.called: (offset, p.type.size) for p, offset in offsets}
        return tuple(LiveNumber(*by_name[name], array) for name, array in numbers.items())


def _pattern(fill: float | int, dtype: str) -> bytes:
    """The bytes of an element, shorter where they repeat."""
    data = np.array(fill).astype(jnp.dtype(dtype)).tobytes()
    return data[:1] if len(set(data)) == 1 else data


__all__ = ["Called", "Place", "Steps", "result_dtypes", "steps_of"]
