"""The steps of a program in forward mode: what computes beside every step's results their tangents.

Note [Tangents of programs]
Tangents lie in memory beside the program's (`tangent_memory`). A launch becomes that of the kernel's jvp, which does
what the kernel does; a copy two copies; a fill one more, with zeros. Steps run in their order and once: nothing is
kept, and kernels that may do something else a second time have tangents too. Where no tangent other than zero can be,
the step stays as it is.

All of them are steps like others, and can be reversed: a launch of a jvp by its second derivative (`derivative_steps`).
That makes the second derivatives of programs. `recorded` gives the steps for that, or tells why there are none.

A recorded gradient becomes a launch of its jvp, which does what the gradient does with the options that it has: the
tangents of adjoints lie beside these, as those of other memory do. That is not reversed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..analysis.roots import holds_pointers
from ..derivatives.gradient import Gradient
from ..derivatives.jvp import Tangent
from ..derivatives.second_order.code import Slot
from ..derivatives.second_order.second_order import SecondOrder
from ..derivatives.struct_adjoints import zero_of
from ..errors import TapeError, UnsupportedError
from ..ir.types import Pointer, Scalar, Type
from ..runtime.arrays import ArrayView, DType
from ..runtime.config import flat_launch
from ..runtime.signature import user_params
from ..runtime.tracing import Trace
from . import transfers
from .arguments import Number, number_dtype, number_leaves, tangent_of
from .derivative_steps import DerivativeStep, jvp_of
from .memory_map import Span
from .steps import ArgumentStep, CopyStep, FillStep, LaunchStep, Step, root_of
from .tangent_memory import TangentMemory


class TangentStep(Step):
    """A launch with tangents. `given`: by the kernel's parameters, None for those that are zero."""

    def __init__(self, step: LaunchStep, tangent: Tangent, given: dict[str, Any]):
        super().__init__()
        self.step, self.tangent, self.given = step, tangent, given
        self.name, self.device, self.stream = f"jvp of {step.name}", step.device, step.stream

    def run_again(self, stream: int | None) -> None:
        self.step.check_variables()
        with self.step.telling():
            self.tangent._launch(self.step.launch.on(stream), (*self.step.frozen.args, *self.given.values()), {})

    def recorded(self) -> Step:
        made = _Reversible(self.tangent, self.step.launch, self.step.frozen.args, self.given)
        made.tell_alike(self.step.numbers, self.step.live)
        return made


class GradientTangentStep(Step):
    """A launch of a gradient with tangents. `given`: what its jvp takes after the kernel's arguments."""

    def __init__(self, step: DerivativeStep, tangent: SecondOrder, given: tuple[Any, ...]):
        super().__init__()
        self.step, self.tangent, self.given = step, tangent, given
        self.name, self.device, self.stream = f"jvp of the {step.name}", step.device, step.stream

    def run_again(self, stream: int | None) -> None:
        self.step.check_variables()
        with self.step.telling():
            self.tangent._launch(self.step.launch.on(stream), (*self.step.own_args, *self.given), {})

    def recorded(self) -> Step:
        raise UnsupportedError(f"the {self.name} cannot be reversed: that would be a third derivative of the kernel")


class _Reversible(DerivativeStep):
    remedy = ""  # the program is recorded already


def recorded(steps: Iterable[Step]) -> list[Step]:
    """As they are reversed."""
    return [step.recorded() if isinstance(step, TangentStep | GradientTangentStep) else step for step in steps]


class Tangents:
    """`steps`: those of the program so far, with tangents."""

    def __init__(self, memory: TangentMemory, trace: Trace):
        self.memory, self._trace = memory, trace
        self._slots: dict[tuple[Any, str], int] = {}  # for tangents of numbers, by kernel and path
        self.steps: list[Step] = []

    def add(self, step: Step) -> None:
        for kind, add in _KINDS.items():
            if isinstance(step, kind):
                add(self, step)
                return
        raise UnsupportedError(f"jvp: a step '{step.name}' of the program has no tangent: {_NO_FORWARD}")

    def _copy(self, step: CopyStep) -> None:
        (target,), (source,) = step.writes, step.reads
        self.steps.append(step)
        self._note_bits(target, self._holds_bits(source))
        if self.memory.is_active((source,)):
            self.memory.deactivate(target)  # whatever it held
            of = [self.memory.view(span, step.target.dtype) for span in (target, source)]
            self.steps.append(CopyStep(of[0], of[1], step.stream))
            self._activate_copy(step, target, source)
        else:
            self._zero(step, target)

    def _activate_copy(self, step: CopyStep, target: Span, source: Span) -> None:
        if transfers.float_kinds(step.target.dtype) != transfers.float_kinds(step.source.dtype):
            problem = f"{step.source.dtype} is copied to {step.target.dtype}"
            raise TapeError(f"jvp: {problem}: tangents of one are no tangents of the other")
        self.memory.activate(target)

    def _note_bits(self, span: Span, holds: bool) -> None:
        (self.memory.bits.update if holds else self.memory.bits.difference_update)(self.memory.cells(span))

    def _holds_bits(self, span: Span) -> bool:
        return any(cell in self.memory.bits for cell in self.memory.cells(span))

    def _fill(self, step: FillStep) -> None:
        self.steps.append(step)
        self._note_bits(step.writes[0], False)
        self._zero(step, step.writes[0])

    def _zero(self, step: CopyStep | FillStep, target: Span) -> None:
        if self.memory.is_active((target,)):
            self.memory.deactivate(target)  # whatever it held
            self.steps.append(_zeros(self.memory.view(target, step.target.dtype), step.stream))

    # ---- launches

    def _launch(self, step: LaunchStep) -> None:
        read = step.bits_read(self._holds_bits)
        if read is not None:
            raise step.refuse_bits(read)
        reached = self._is_reached(step)
        if reached or any(map(self._holds_bits, step.reads)):
            for span in step.bits_written(self._holds_bits):
                self._note_bits(span, True)
        if not reached:
            self.steps.append(step)
            return
        self._refuse_others(step)
        if not step.facts.writes_adjoints:
            self.steps.append(step)
            return
        tangent = step.facts.tangent
        given = self._given(step, tangent)
        self.steps.append(TangentStep(step, tangent, given))
        for span in step.wide("stores"):
            if span.name in step.facts.floats and root_of(span.name) in _roots(step.facts.writes):
                self.memory.activate(span)

    def _is_reached(self, step: LaunchStep) -> bool:
        """Whether a tangent is among what it reads, numbers too, or where it writes: there may be zeros then."""
        numbers = (Span(n.path, n.array.address, n.array.nbytes, None) for n in step.numbers)
        return self.memory.is_active((*step.reads, *step.writes, *numbers))

    def _refuse_others(self, step: LaunchStep) -> None:
        for span in (*step.reads, *step.writes):
            known = span.name in step.facts.floats or any(n.path == span.name for n in step.numbers)
            if not known and self.memory.is_active((span,)):
                problem = f"'{span.name}' is no buffer of floating-point numbers, but holds some that have a tangent"
                raise TapeError(f"jvp: {step.name}: {problem} by then: what integers read and write has no derivative")

    def _given(self, step: LaunchStep, tangent: Tangent) -> dict[str, Any]:
        types = {p.name: p.type for p in user_params(step.kernel.function)}
        return {
            name: self._tangent_of(step, name, types[name]) if self._is_given(step, name, types[name]) else None
            for name in tangent.listed
        }

    def _is_given(self, step: LaunchStep, name: str, type: Type) -> bool:
        if not holds_pointers(type):
            return bool(self._numbers_in(step, name, type))
        if step.may_alias or not isinstance(type, Pointer) or name in _roots(step.facts.writes):
            return True
        return self.memory.is_active(span for span in step.wide("loads") if root_of(span.name) == name)

    def _tangent_of(self, step: ArgumentStep, name: str, type: Type) -> Any:
        def shadow(span: Span, dtype: DType) -> ArrayView:
            return self.memory.view(span, dtype, step.around(span.name) if isinstance(step, LaunchStep) else (0, 0))

        number = self._by_value if holds_pointers(type) else self._number
        return tangent_of(type, name, step.frozen, step.spans, shadow, lambda path, of: number(step, path, of))

    def _by_value(self, step: ArgumentStep, path: str, type: Type) -> Any:
        """Of a number in a struct with pointers, whose tangent is such a struct: it would be fixed in the list."""
        moving = self._numbers_in(step, path, type)
        if moving:
            reason = f"jvp: {step.name}: '{moving[0][0].path}' has a tangent that may be another one in each call"
            raise UnsupportedError(reason, hint="pass it as a parameter of its own, not in a struct with pointers")
        return zero_of(type)

    # ---- launches of gradients

    def _derivative(self, step: DerivativeStep) -> None:
        read = step.bits_read(self._holds_bits)
        if read is not None:
            raise step.refuse_bits(read)
        if not self.memory.is_active((*step.reads, *step.writes)):
            self.steps.append(step)
            return
        if not isinstance(step.target, Gradient):
            raise UnsupportedError(f"jvp: a step '{step.name}' of the program has no tangent: {_NO_FORWARD}")
        tangent = jvp_of(step.target, step.name)
        given = tuple([self._of_slot(step, slot) for slot in tangent.slots])
        self.steps.append(GradientTangentStep(step, tangent, given))
        for span in step.writes:
            if transfers.holds_floats(step.frozen.views[span.name].dtype):
                self.memory.activate(span)

    def _of_slot(self, step: DerivativeStep, slot: Slot) -> Any:
        """What the jvp of a gradient gets for a slot: an adjoint, or a tangent; None for one that is zero and stays."""
        if slot.role == "adjoint":
            return step.given.get(slot.of)
        path, type = (slot.of, step.types[slot.of]) if slot.role == "tangent" else step.adjoint(slot.of)
        if slot.role == "second" and step.given.get(slot.of) is None:
            return None
        if not holds_pointers(type):
            return self._tangent_of(step, path, type) if self._numbers_in(step, path, type) else None
        spans = [span for span in step.spans.values() if root_of(span.name) == path]
        is_written = any(span in step.writes for span in spans)
        return self._tangent_of(step, path, type) if is_written or self.memory.is_active(spans) else None

    # ---- numbers: their tangents are behind pointers

    def _numbers_in(self, step: ArgumentStep, path: str, type: Type) -> list[tuple[Number, ArrayView]]:
        """The 0-d arrays with tangents that were passed for the numbers in a value, and where in a slot for it these
        are."""
        leaves = {leaf: (offset, scalar) for leaf, offset, scalar in number_leaves(type, path)}
        found = [n for n in step.numbers if n.path in leaves and self.memory.is_active((_span_of(n),))]
        start = self._slot(step, path, type) if found else 0
        return [(n, self._raw(start + leaves[n.path][0], leaves[n.path][1].size, leaves[n.path][1])) for n in found]

    def _slot(self, step: ArgumentStep, path: str, type: Type) -> int:
        key = step.kernel, path
        if key not in self._slots:
            self._slots[key] = self._trace.own(type.size)
        return self._slots[key]

    def _raw(self, address: int, nbytes: int, type: Type) -> ArrayView:
        return transfers.raw(address, nbytes, number_dtype(type), self._trace.device, self._trace)

    def _number(self, step: ArgumentStep, path: str, type: Type) -> ArrayView:
        """Where the tangent of a number, or of a struct of numbers, is: in the memory of the 0-d array that was passed
        for it, or in a slot of the number's own type."""
        found = self._numbers_in(step, path, type)
        if isinstance(type, Scalar) and found and found[0][0].array.dtype == number_dtype(type):
            return self.memory.view(_span_of(found[0][0]), number_dtype(type))
        slot = self._raw(self._slot(step, path, type), type.size, type)
        if not isinstance(type, Scalar) or not found:
            self.steps.append(_zeros(slot, step.stream))
        for number, part in found:
            self._cast(step, part, self.memory.view(_span_of(number), number.array.dtype))
        return slot

    def _cast(self, step: ArgumentStep, target: ArrayView, source: ArrayView) -> None:
        if target.dtype == source.dtype:
            self.steps.append(CopyStep(target, source, step.stream))
            return
        kinds = ", ".join(transfers.c_type(array.dtype) for array in (target, source))
        self.steps.append(
            LaunchStep(transfers.kernel(f"cast<{kinds}>"), flat_launch(1, 1, None), (target, source, 1), {})
        )


_NO_FORWARD = "forward mode over forward mode is not there; kg.jvp(kg.gradient(kernel)) and kg.hvp(kernel) are"
_KINDS: dict[type[Step], Callable[[Tangents, Any], None]] = {
    LaunchStep: Tangents._launch,
    DerivativeStep: Tangents._derivative,
    CopyStep: Tangents._copy,
    FillStep: Tangents._fill,
}


def _roots(paths: Iterable[str]) -> set[str]:
    return {root_of(path) for path in paths}


def _span_of(number: Number) -> Span:
    return Span(number.path, number.array.address, number.array.nbytes, None)


def _zeros(array: ArrayView, stream: int | None) -> FillStep:
    size = array.dtype.itemsize if isinstance(array.dtype, np.dtype) else 2
    return FillStep(array, bytes(size if size in (2, 4, 8) else 1), stream)
