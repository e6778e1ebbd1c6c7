"""Gradients and tangents that are launched while a program is recorded: their reverse is their second derivative.

Note [Derivatives as steps]
A gradient maps what the kernel's buffers and the adjoints hold to new contents; so does a tangent. `kg.gradient` of
either (`derivatives/second_order`) multiplies with the transposed Jacobian of that map, from what memory held before
the step. Of a gradient with options it is the plain gradient's, and the rest is done here:

- `primal=False`, `keep`: some memory stays as it is, which the plain gradient would write. What this one's transpose
  takes for the adjoint of that is zero (`fresh`), and what it gives is added to the adjoint that is there.
- `assign`: what the adjoint held before has no adjoint.

The second derivative writes what the plain gradient writes. It gets copies of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..analysis.roots import holds_pointers
from ..autodiff.calculus.activity import holds_floats
from ..derivatives.asked.settings import make_settings
from ..derivatives.gradient import Gradient
from ..derivatives.jvp import Tangent
from ..derivatives.second_order.code import Slot
from ..derivatives.second_order.kinds import gradient_of_gradient, gradient_of_tangent, tangent_of_gradient
from ..derivatives.second_order.second_order import SecondOrder
from ..errors import TapeError, UnsupportedError
from ..ir.types import Pointer, Type
from ..kernel import Kernel
from ..locks import COMPILING
from ..runtime.arrays import ArrayView, DType
from ..runtime.config import Launch
from ..runtime.reach import reaches
from ..runtime.recording import unrecorded
from ..runtime.scratch import Scratch
from ..runtime.signature import user_params
from . import transfers
from .arguments import Number, adjoint_of, freeze_all
from .arrays import zero_like
from .memory_map import Span
from .moved_memory import Memory, Place
from .shadow_memory import ShadowMemory
from .steps import ArgumentStep, root_of

Given = Mapping[str, Any]


class DerivativeStep(ArgumentStep):
    """`given`: the adjoints or tangents, by the kernel's parameters; those that are not given are None."""

    remedy = "; run it before or after kg.record()"

    def __init__(self, target: Gradient | Tangent, launch: Launch, args: tuple[Any, ...], given: Given):
        kernel, what, names = _subject(target)
        self.second = _second(target, f"the {what} of {kernel.name}")
        target.check_arguments(launch, (*args, *given.values()))
        first = (*args, *given.values())
        args = _with_outputs(target, args, given)
        super().__init__(kernel, launch, args, {})
        self.target, self.name = target, f"{what} of {kernel.name}"
        self._refuse_more()
        self._names = dict(zip(given, names, strict=True))
        self.types = {p.name: p.type for p in user_params(kernel.function)}
        own = [(p, self.types[p], value) for p, value in zip(self.types, args, strict=True)]
        more = [(self._names[p], _given_type(self.types[p]), value) for p, value in given.items()]
        self.frozen = freeze_all((*own, *more), {})
        self.numbers = self.frozen.numbers
        self.spans = {
            path: Span(path, a.address, a.nbytes, self.device) for path, a in self.frozen.views.items() if a.nbytes
        }
        self._first: tuple[Any, ...] | None = first  # tensors among it are told that they are written
        self._find_accesses()
        self._shared = self._find_shared()
        self._refuse_wider()

    @property
    def own_args(self) -> tuple[Any, ...]:
        """Those of the kernel."""
        return self.frozen.args[: len(self.types)]

    @property
    def given(self) -> dict[str, Any]:
        """The adjoints or tangents, by the kernel's parameters."""
        return dict(zip(self._names, self.frozen.args[len(self.types) :], strict=True))

    def adjoint(self, param: str) -> tuple[str, Type]:
        """The path and the type of a parameter's adjoint or tangent."""
        return self._names[param], _given_type(self.types[param])

    @classmethod
    def again(cls, step: DerivativeStep, moved: Callable[[Any], Any], numbers: tuple[Number, ...]) -> DerivativeStep:
        """The same launch with other arrays."""
        args = tuple([moved(value) for value in step.frozen.args])
        count = len(step.types)
        made = cls(step.target, step.launch, args[:count], dict(zip(step._names, args[count:], strict=True)))
        made.tell(step.numbers, numbers)
        return made

    def _refuse_more(self) -> None:
        """What has a second derivative, but cannot be followed from step to step."""
        function, module = self.kernel.function, self.kernel.module
        problem = None
        if self.facts.varies:
            problem = f"the kernel may do something else when it runs again, {self.facts.varies}"
        elif self.is_opaque:
            problem = "the kernel reads through a pointer that lies in memory"
        elif any(holds_floats(module.globals[n].type) or n in self.facts.writes for n in self.facts.variables):
            problem = "the kernel uses module variables, which the second derivative leaves out"
        elif any(r.both != (0, 0) for r in reaches(function, self.launch, self.bound).values()):
            problem = "the launch may touch more of an array than was passed"
        if problem is not None:
            raise TapeError(f"the {self.name} cannot be recorded: {problem}{self.remedy}")
        self.versions = {name: self.kernel.variable(name).version for name in self.facts.variables}

    def _refuse_wider(self) -> None:
        """Adjoints in float, of arrays in half precision."""
        views = self.frozen.views
        for param, name in self._names.items():
            for path, own in views.items():
                given = views.get(name + path[len(param) :]) if root_of(path) == param else None
                if given is not None and transfers.float_kinds(given.dtype) != transfers.float_kinds(own.dtype):
                    problem = f"'{name}' is {given.dtype}, '{param}' {own.dtype}: they must be alike"
                    raise TapeError(f"the {self.name} cannot be recorded: {problem}")

    # ---- which memory it uses

    def _find_accesses(self) -> None:
        read, written = self.facts.reads, {root_of(name) for name in self.facts.writes}
        of = {name: param for param, name in self._names.items()}  # a derivative's name -> the parameter's
        settings = self.target.settings if isinstance(self.target, Gradient) else None
        reads, writes, reread = set(read), set(written), set(read)
        for name, param in of.items():
            if settings is None:
                is_read = param in read or param not in written  # numbers are read
                reads |= {name} if is_read else set()
                writes |= {name} if param in written else set()
                reread |= {name} if is_read else set()
            else:
                reads |= {name} if param not in settings.assigned else set()
                writes |= {name} if param not in settings.kept else set()
                reread |= {name} if param in written else set()
        if settings is not None and settings.mode != "joint":
            writes -= written
        self._replaced = {*written, *of}  # what the second derivative may write
        self._cleared = {name for name, param in of.items() if settings is not None and param in settings.assigned}
        numbers = [Span(n.path, n.array.address, n.array.nbytes, None) for n in self.numbers]
        self.reads = (*self._spans_of(reads), *numbers)
        self.writes, self.reread = self._spans_of(writes), self._spans_of(reread)
        self.idle = self.find_idle()

    def _spans_of(self, names: set[str]) -> tuple[Span, ...]:
        return tuple([span for span in self.spans.values() if root_of(span.name) in names])

    def _find_shared(self) -> set[str]:
        """The paths of arrays that share memory with others, which none of these may be written."""
        found: set[str] = set()
        spans = sorted(self.spans.values(), key=lambda span: span.address)
        for k, one in enumerate(spans):
            for other in spans[k + 1 :]:
                if other.address >= one.address + one.nbytes:
                    break
                found |= {one.name, other.name}
        written = sorted(found & {span.name for span in self.writes})
        if written:
            raise TapeError(f"the {self.name} cannot be recorded: '{written[0]}' shares memory with another argument")
        return found

    # ---- running it

    def run(self) -> None:
        with unrecorded(), self.telling():
            self.target._launch(self.launch, self.frozen.args if self._first is None else self._first, {})
        self._first = None

    def run_again(self, stream: int | None) -> None:
        """Nobody is told that tensors were written: they will hold again what they hold."""
        self.check_variables()
        with self.telling():
            self.target._launch(self.launch.on(stream), self.frozen.args, {})

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        if not shadows.is_active(self.writes):
            return
        self.check_variables()
        stream = shadows.stream_on(self.device)
        copies = Memory([Place(*run, stream) for run in shadows.cells(self._spans_of(self._replaced))])
        args = [copies.moved_all(value) for value in self.frozen.args]
        own, given = args[: len(self.types)], dict(zip(self._names, args[len(self.types) :], strict=True))
        adjoints = Adjoints(self, shadows, stream)
        slots = [self._argument(slot, given, adjoints) for slot in self.second.slots]
        launch = self.launch
        with self.telling():
            self.second.execute_kernel(
                launch.grid, launch.block, *own, *slots, shared=launch.shared_bytes, stream=stream
            )
        adjoints.add_fresh()
        shadows.activate([span for span in self.spans.values() if span.name in adjoints.used])
        for span in self._spans_of(self._cleared):
            shadows.clear(span)
        shadows.settle(self)

    def _argument(self, slot: Slot, given: Given, adjoints: Adjoints) -> Any:
        """What the second derivative gets for a slot: an adjoint or a tangent that was given, or the adjoint of an
        argument."""
        if slot.role == "second":
            return adjoints.of(slot.of, self.types[slot.of])
        if slot.role == ("adjoint" if isinstance(self.target, Gradient) else "tangent"):
            return given.get(slot.of)
        name = self._names.get(slot.of)
        return None if name is None or given[slot.of] is None else adjoints.of(name, _given_type(self.types[slot.of]))

    def is_fresh(self, path: str) -> bool:
        """Whether the adjoint is one of zeros that is added: of what shares memory, and of what stays as it is though
        the plain derivative writes it."""
        stays = root_of(path) in self._replaced and path not in {span.name for span in self.writes}
        return path in self._shared or stays


class Adjoints:
    """The adjoints that a second derivative gets: shadows, numbers' own, and zeros to be added to shadows."""

    def __init__(self, step: DerivativeStep, shadows: ShadowMemory, stream: int | None):
        self._step, self._shadows, self._stream = step, shadows, stream
        self._fresh: list[tuple[ArrayView, ArrayView]] = []
        self.used: set[str] = set()

    def of(self, path: str, type: Type) -> Any:
        step = self._step
        number: Any = lambda at, kind: self._shadows.number(step, at, kind)  # noqa: E731
        return adjoint_of(type, path, step.frozen, step.spans, self._shadow, number)

    def _shadow(self, span: Span, dtype: DType) -> ArrayView:
        self.used.add(span.name)
        shadow = self._shadows.view(span, dtype)
        if not self._step.is_fresh(span.name):
            return shadow
        memory = Scratch(span.nbytes, span.device, self._stream).zero()
        made = transfers.raw(memory.address, span.nbytes, dtype, span.device, memory)
        self._fresh.append((shadow, made))
        return made

    def add_fresh(self) -> None:
        for shadow, made in self._fresh:
            self._shadows.add(shadow, made)


# ---- small things -------------------------------------------------------------------------------------------------


def _subject(target: Gradient | Tangent) -> tuple[Kernel, str, tuple[str, ...]]:
    """The kernel, what this is of it, and what its adjoints or tangents are called."""
    if isinstance(target, Gradient):
        return target.kernel, "gradient", target.adjoint_names
    return target.target, "jvp", target.tangent_names


def _with_outputs(target: Gradient | Tangent, args: tuple[Any, ...], given: Given) -> tuple[Any, ...]:
    """Some memory for outputs that a gradient without primal results may do without: its second derivative does not."""
    if not isinstance(target, Gradient) or target.settings.mode == "joint":
        return args
    names = [p.name for p in user_params(target.kernel.function)]
    return tuple(
        zero_like(given[name]) if value is None and given.get(name) is not None else value
        for name, value in zip(names, args, strict=True)
    )


def _given_type(type: Type) -> Type:
    """Of the derivative of a parameter: a number's is behind a pointer."""
    return type if holds_pointers(type) else Pointer(type, "global")


def _second(target: Gradient | Tangent, name: str) -> SecondOrder:
    """Found once for a derivative, which keeps it."""
    found: SecondOrder | None = vars(target).get("host_second")
    if found is None:
        with COMPILING:
            try:
                made = _gradient_of(target)
            except UnsupportedError as error:
                reason = f"{name} cannot be recorded, since it has no second order here: {error.message}"
                raise UnsupportedError(reason, error.span, error.hint) from error
            found = vars(target).setdefault("host_second", made)
    return found


def jvp_of(target: Gradient, name: str) -> SecondOrder:
    """The tangent of a gradient with its options; found once for a gradient, which keeps it."""
    found: SecondOrder | None = vars(target).get("host_jvp")
    if found is None:
        with COMPILING:
            try:
                made = tangent_of_gradient(target, None)
            except UnsupportedError as error:
                raise UnsupportedError(
                    f"jvp: the {name} has no tangent: {error.message}", error.span, error.hint
                ) from error
            found = vars(target).setdefault("host_jvp", made)
    return found


def _gradient_of(target: Gradient | Tangent) -> SecondOrder:
    if isinstance(target, Tangent):
        return gradient_of_tangent(target, None)
    asked, function = target.settings, target.kernel.function
    plain = make_settings(
        function, asked.shown, "joint", None, None, asked.may_alias, asked.tape_budget, asked.deterministic,
        asked.promises.of_inputs, shorter=asked.shorter,
    )  # fmt: skip
    return gradient_of_gradient(target if plain == asked else Gradient(target.kernel, plain), None)
