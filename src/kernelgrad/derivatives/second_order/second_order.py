"""Second derivatives as Python objects, one kind of code with its parameters called in four ways (`kinds`).

Note [Second order]
A kernel maps what its buffers hold, s, to F(s). Its gradient maps s and adjoints q to F(s) and r = F'(s)ᵀq. The tangent
of that one, in directions v of s and p of q, is

    F'(s) v   and   ∂r = (∂F'(s)ᵀ v) q + F'(s)ᵀ p.

All second derivatives are this, since Hessians are symmetric:

- The gradient of the gradient, with adjoints a of F(s) and b of r: q's is F'(s) b, s's is ∂r for v = b and p = a.
- The gradient of the tangent (s, v) -> (F(s), F'(s) v), with adjoints a and b: v's is r for q = b, and s's is ∂r for
  q = b and p = a.
- The Hessian of the number ⟨q, F(s)⟩ times v is ∂r for p = 0.

Every adjoint and tangent becomes what it is to become in its own memory: what is read of it is what was given. So there
is one kind of code, forward mode of a gradient that is one kernel, and each launch has a plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ... import requests
from ...analysis.roots import holds_pointers
from ...autodiff.accumulate.parameters import adjoint_declared
from ...errors import ArgumentError, LaunchError
from ...ir.ops import Block, Param, Value
from ...ir.ops import Module as IRModule
from ...ir.types import Pointer, Struct
from ...kernel import Kernel, stream_of
from ...launches.memory.half_adjoints import in_float
from ...launches.plan import LaunchPlan, Preparation
from ...locks import COMPILING, cached_property, compiling
from ...runtime.arguments import Placement, in_order
from ...runtime.buffer_checks import Pair, check_overlap, check_sizes
from ...runtime.config import Launch, Launchers, make_launch
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ...runtime.recording import refuse_while_recording
from ...runtime.scratch import zero_bytes
from ...runtime.signature import c_signature, declare, user_params
from ..gradient import Gradient
from ..jvp import Prepared, supplied, tangent_declared
from ..struct_adjoints import completed
from .code import Role, SecondCode, Slot
from .refusals import refuse_second_order
from .stand_ins import StandIns

Values = dict[Slot, Any]


class Style(NamedTuple):
    """What is said of one kind: in `repr`, at the end of the function's name, and of what a slot of each role is."""

    what: str
    suffix: str
    words: Mapping[Role, str]


class Ready(NamedTuple):
    """A launch that is ready. `own`: what the launcher made for it."""

    kernel: Kernel
    launch: Launch
    bound: BoundArguments
    placement: Placement
    own: LaunchMemory


class SecondOrder:
    """`d[grid, block](*arguments, *slots)`. None for a slot: it is zero, and what becomes of it is not wanted."""

    def __init__(self, style: Style, gradient: Gradient, slots: Iterable[Slot]):
        self.style, self.gradient, self.slots = style, _within_half(gradient), tuple(slots)
        self._launchers: Launchers[None] = Launchers(self._launch, self.kernel.name)
        self._codes: dict[tuple[int, tuple[Slot, ...]], SecondCode] = {}
        self._binders: dict[tuple[Slot, ...], Kernel] = {}
        self._params = {p.name: p for p in self.kernel.function.params}
        refuse_second_order(self.gradient)
        # What cannot be differentiated is known now, not at the first launch.
        self.usual = self._code(self.gradient, self.gradient.variant().kernels[0], self.slots)

    @property
    def kernel(self) -> Kernel:
        return self.gradient.kernel

    def __repr__(self) -> str:
        return f"<{self.style.what} {self.signature}>"

    def _repr_html_(self) -> str:
        from ...runtime.notebook import gradient_html

        return gradient_html(repr(self), self.source)

    def __getitem__(self, key: Any) -> Callable[..., None]:
        return self._launchers[key]

    def execute_kernel(
        self, grid: Any, block: Any, *args: Any, shared: Any = 0, stream: Any = None, **slots: Any
    ) -> None:
        self._launch(make_launch(grid, block, shared, stream, of=self.kernel.name), args, slots)

    def execute(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError("this is a derivative of a kernel: use execute_kernel(grid, block, ...), or d[grid, block]")

    @cached_property
    def signature(self) -> str:
        declared = [declare(self._declared(slot), slot.name) for slot in self.slots]
        head, _, tail = c_signature(self.kernel.function).rpartition(")")
        separator = ", " if user_params(self.kernel.function) else ""
        return f"{head}{separator}{', '.join(declared)}){tail}"

    def _declared(self, slot: Slot) -> str:
        param = self._params[slot.of]
        declared = tangent_declared(param) if slot.role == "tangent" else adjoint_declared(param)
        reads_only = slot.spared and declared.endswith("*") and not declared.startswith("const ")
        return f"const {declared}" if reads_only else declared

    @cached_property
    @compiling
    def source(self) -> str:
        """The derivative as CUDA C++ that plain nvcc compiles."""
        from ...launches.choice.binding import parameter_notes
        from .words import notes

        kernel, derivative = self.usual.kernel, self.gradient.variant().derivative
        head, _, rest = kernel.source.partition("\n")
        extra = parameter_notes(derivative, (), kernel.cuda_module.functions[kernel.name], self.kernel.module.globals)
        return "\n".join((head, *(f"// {line}" for line in notes(self)), *extra, rest))

    @compiling
    def explain(self) -> str:
        """Which argument is what, and what the gradient does that this is the tangent of."""
        from ...explain.report import explain_any
        from .words import notes

        return "\n".join((repr(self), *notes(self), "", "the gradient:", explain_any(self.gradient)))

    def check(self, grid: Any, block: Any, *args: Any, shared: Any = 0, seed: int | None = None, **slots: Any) -> Any:
        """Runs it on the CPU, watched, as `kernel.check` does for a kernel."""
        ready = self._prepare(make_launch(grid, block, shared, of=self.kernel.name), args, slots, watched=True)
        own, seed = ready.own, requests.seed(seed)
        report = ready.kernel.check_bound(ready.launch, ready.bound, ready.placement, own.supplied, seed)
        own.finish()
        return report

    # ---- launching

    def _launch(self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        refuse_while_recording("a second derivative")
        ready = self._prepare(launch, args, keywords)
        ready.kernel.run(ready.launch, ready.bound, ready.placement, ready.own.supplied)
        ready.own.finish()

    def _prepare(
        self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any], watched: bool = False
    ) -> Ready:
        own_args, values = self.separate(args, keywords)
        _, placement = self.kernel.bind(own_args)
        own, stream = LaunchMemory(), stream_of(launch, placement)
        values = self._in_float(values, launch, own)
        self._check(own_args, values, own)
        stand_ins = StandIns(placement, stream, own)
        values = self._spared(values, stand_ins)
        adjoints = self._adjoints(own_args, values, stand_ins)
        gradient, segment = self.gradient.within_budget(launch, own_args)
        passed = (*own_args, *(adjoints.get(name) for name in gradient.settings.shown))
        planned = gradient.bind_plan(launch, passed, {}, segment, single=True, watched=watched)
        plan = planned.plan
        (step,) = plan.prepare(Preparation(launch.on(stream), planned.bound, placement, stream, own))
        code = self._code(gradient, step.kernel, tuple(values))
        given = self._unconsumed(plan, {**_by_slot(code, adjoints), **values}, stand_ins)
        primal = Prepared(step.kernel, step.launch, step.bound, placement, own)
        arguments = (*own_args, *(given[slot] for slot in code.order))
        bound, _ = code.kernel.bind(arguments)
        sized, _ = supplied(code.tangent, primal)
        _clear_tangents(plan, code, bound, placement, stream)
        return Ready(code.kernel, sized, bound, placement, own)

    def separate(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], Values]:
        """The kernel's own arguments, and what is given for each slot: by position, or by name, the last ones perhaps.
        Where one is named, those that are not are None."""
        own, names = tuple(p.called for p in user_params(self.kernel.function)), [slot.name for slot in self.slots]
        rest = names[max(0, len(args) - len(own)) :]
        named = {name: value for name, value in keywords.items() if name in rest}
        of_kernel = {name: value for name, value in keywords.items() if name not in named}
        if (rest and not named) or of_kernel.keys() - set(own) or len(args) > len(own) + len(names):
            got = ", ".join((f"got {len(args)}", *(f"{name}=" for name in keywords)))
            problem = f"takes {len(own)} arguments and after them {', '.join(names)}, {got}"
            raise ArgumentError(f"{self.kernel.name}: {problem}\n  {self.signature}")
        placed = in_order(own, args[: len(own)], of_kernel, f"\n  {self.signature}", self.kernel.name)
        values = dict(zip(self.slots, (*args[len(own) :], *map(named.get, rest)), strict=True))
        return placed, {slot: self._completed(slot, v) for slot, v in values.items() if v is not None}

    def _completed(self, slot: Slot, value: Any) -> Any:
        """What has no derivative need not be given."""
        type, what = self._params[slot.of].type, "tangent" if slot.role == "tangent" else "adjoint"
        return completed(slot.name, type, value, what) if isinstance(type, Struct) and holds_pointers(type) else value

    def _in_float(self, values: Values, launch: Launch, own: LaunchMemory) -> Values:
        """Adjoints of halves are floats, and so are their tangents."""
        function, changed = self.kernel.function, dict(values)
        for role in ("adjoint", "second"):
            slots = {slot.of: slot for slot in values if slot.role == role}
            stay = (*self.gradient.settings.kept, *(slot.of for slot in slots.values() if slot.spared))
            made = in_float(function, {name: values[slot] for name, slot in slots.items()}, launch, own, stay)
            changed |= {slots[name]: value for name, value in made.items()}
        return changed

    def _spared(self, values: Values, stand_ins: StandIns) -> Values:
        """What the code changes and is to stay is given as a copy; what is only a result starts at zero."""
        written = {name.partition(".")[0] for name in self.usual.kernel.written}
        for slot, value in values.items():
            if slot.cleared:
                stand_ins.clear(value)
        spared = {slot for slot in values if slot.spared and self.usual.names[slot] in written}
        return {slot: stand_ins.copy(v) if slot in spared else v for slot, v in values.items()}

    def _adjoints(self, args: tuple[Any, ...], values: Values, stand_ins: StandIns) -> dict[str, Any]:
        """What the gradient is given: an adjoint whose tangent is wanted is zero where it is not given."""
        found = {slot.of: value for slot, value in values.items() if slot.role == "adjoint"}
        given = {p.name: a for p, a in zip(user_params(self.kernel.function), args, strict=True)}
        for slot in values:
            if slot.role == "second" and slot.of not in found:
                param = self._params[slot.of]
                declared = None if param.variable is None else self.kernel.variable(slot.of).type.size
                found[slot.of] = stand_ins.zeros(param.type, given.get(slot.of), declared)
        return found

    def _unconsumed(self, plan: LaunchPlan, values: Values, stand_ins: StandIns) -> Values:
        """Adjoints to be kept that this launch may consume more than once: copies, of their tangents too."""
        unkept = plan.variant.options.facts.unkept
        copied = {slot for slot in values if slot.of in unkept and slot.role != "tangent"}
        return {slot: stand_ins.copy(v) if slot in copied else v for slot, v in values.items()}

    # ---- arguments, under the names that the user knows

    def _check(self, args: tuple[Any, ...], values: Values, own: LaunchMemory) -> None:
        slots = tuple(values)
        if all(slot.role == "tangent" for slot in slots):
            raise ArgumentError(f"{self.kernel.name}: no adjoint is wanted, so there is nothing to do")
        binder = self._binder(slots)
        bound, _ = binder.bind((*args, *values.values()))
        params = {p.name: p for p in binder.function.params}
        for role, word in self.style.words.items():
            of_role = (slot for slot in slots if slot.role == role)
            pairs = (
                Pair(replace(self._params[s.of], shown=s.owner), params[s.name], s.name, self._may_be_shorter(s))
                for s in of_role
            )
            check_sizes(self.kernel.function.called, word, pairs, bound)
        if own.originals:
            bound = bound._replace(buffers=(*bound.buffers, *own.originals))
        written = binder.written | {b.name for b, is_written in own.originals.items() if is_written}
        check_overlap(binder.function, bound, written, self.kernel.of_variables)

    def _may_be_shorter(self, slot: Slot) -> bool:
        return slot.role != "tangent" and slot.of in self.gradient.settings.shorter

    def _binder(self, slots: tuple[Slot, ...]) -> Kernel:
        """Takes the arguments; it has no code."""
        if slots not in self._binders:
            function = self.kernel.function
            variables = tuple(p for p in function.params if p.variable is not None)
            params = (*user_params(function), *map(self._param, slots), *variables)
            made = replace(function, params=params, body=Block((), (), ()))
            module = IRModule({function.name: made}, self.kernel.module.globals, self.kernel.module.structs)
            names = {self.usual.names[slot]: slot.name for slot in slots}
            spared = {self.usual.names[slot] for slot in slots if slot.spared}
            paths = (p for p in self.usual.kernel.written if p.partition(".")[0] not in spared)
            written = frozenset(_renamed(path, names) for path in paths)
            self._binders[slots] = Kernel(function.name, module, self.kernel.variable, written)
        return self._binders[slots]

    def _param(self, slot: Slot) -> Param:
        param = self._params[slot.of]
        if slot.role != "tangent":
            adjoint = self.gradient.variant().derivative.adjoints[slot.of]
            return Param(Value(adjoint.type, slot.name), adjoint.c_type)
        type = param.type if holds_pointers(param.type) else Pointer(param.type, "global")
        return Param(Value(type, slot.name), tangent_declared(param), const=True)

    # ---- the code

    def _code(self, gradient: Gradient, kernel: Kernel, slots: tuple[Slot, ...]) -> SecondCode:
        """`kernel`: the gradient's. `slots`: those that are given."""
        given = tuple(slot for slot in self.slots if slot in slots)
        key = (id(kernel), given)
        with COMPILING:
            if key not in self._codes:
                adjoints = gradient.variant().derivative.adjoints
                self._codes[key] = SecondCode(kernel, adjoints, given, self.style.suffix)
            return self._codes[key]


# ---- small things -------------------------------------------------------------------------------------------------


def _within_half(gradient: Gradient) -> Gradient:
    """The tape has a tangent as large as it is: both together keep to the budget."""
    settings, budget = gradient.settings, gradient.settings.tape_budget
    return gradient if budget is None else Gradient(gradient.kernel, replace(settings, tape_budget=budget // 2))


def _by_slot(code: SecondCode, adjoints: Mapping[str, Any]) -> Values:
    return {slot: adjoints[slot.of] for slot in code.order if slot.role == "adjoint"}


def _clear_tangents(
    plan: LaunchPlan, code: SecondCode, bound: BoundArguments, placement: Placement, stream: int | None
) -> None:
    """An adjoint that is assigned starts at zero, and so does its tangent."""
    buffers = {b.name: b for b in bound.buffers}
    for number, start, nbytes in plan.cleared:
        tangent = buffers.get(code.tangent_of.get(plan.launch.sizes[number][0], ""))
        if tangent is not None:
            zero_bytes(tangent.address + start, nbytes, placement.cuda, stream)


def _renamed(path: str, names: Mapping[str, str]) -> str:
    head = path.partition(".")[0]
    return f"{names.get(head, head)}{path[len(head) :]}"
