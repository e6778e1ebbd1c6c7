"""What the derivatives of a kernel share: their forms, and how arguments and adjoints are bound and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..autodiff.accumulate.choice import Facts
from ..autodiff.accumulate.parameters import adjoint_declared, adjoint_name
from ..autodiff.calculus.shadows import holds_halves
from ..ir.ops import Function, Param, Value
from ..ir.types import Struct
from ..kernel import Kernel
from ..launches.choice.forms import Forms
from ..launches.choice.variant import Variant
from ..locks import cached_property
from ..runtime.arguments import Expected
from ..runtime.buffer_checks import (
    Pair,
    check_alignment,
    check_overlap,
    check_own_overlap,
    check_shared_adjoints,
    check_sizes,
)
from ..runtime.config import Launch
from ..runtime.integers import ANY, Ways, integers_of, known_launch
from ..runtime.launch import BoundArguments, Executable
from ..runtime.launch_memory import LaunchMemory
from ..runtime.signature import c_signature, declare, user_params
from .asked.settings import Settings

if TYPE_CHECKING:
    from ..autodiff.calculus.struct_members import Member
    from ..launches.memory.half_adjoints import Half


class Differentiated:
    """What gradients, splits and their parts share: forms, and binding of arguments and adjoints."""

    def __init__(self, kernel: Kernel, settings: Settings, forms: Forms | None = None):
        self.kernel, self.settings = kernel, settings
        self.forms = forms or Forms(kernel, settings)
        self.variant()  # what cannot be differentiated is known now, not at the first launch

    @property
    def usual(self) -> Facts:
        return self.forms.usual

    def variant(self, wanted: tuple[str, ...] | None = None, facts: Facts | None = None) -> Variant:
        """`wanted`: the listed parameters whose adjoint was given; `facts`: what holds for the launch."""
        return self.forms.variant(wanted, facts)

    def variant_for(self, wanted: tuple[str, ...], launch: Launch, primal: BoundArguments, ways: Ways = ANY) -> Variant:
        """The one whose proofs hold for the launch (rules 8 and 11), and what is fastest there."""
        return self.forms.for_launch(known_launch(self.kernel.function, wanted, launch, primal, ways))

    @property
    def compiled(self) -> tuple[Executable, ...]:
        """The machine code of all kernels that have run so far."""
        return compiled(self.forms)

    # ---- arguments

    @cached_property
    def adjoint_names(self) -> tuple[str, ...]:
        """`d_x` for each listed parameter x, or a fresh name where the kernel has a d_x of its own."""
        params = {p.name: p for p in self.kernel.function.params}
        return tuple(adjoint_name(params[name], params.values()) for name in self.settings.shown)

    def separate(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The kernel's own arguments, and the adjoint of each listed parameter."""
        own_args, given = self._expected.separate(args, keywords)
        adjoints = dict(zip(self.settings.shown, given, strict=True))
        return own_args, self._with_members(adjoints) if self._structs else adjoints

    def _with_members(self, adjoints: dict[str, Any]) -> dict[str, Any]:
        """With an adjoint for each number in a struct of pointers."""
        from .struct_adjoints import completed, named, with_members

        with named(self.kernel.name):
            for _, name, type in self._structs:
                adjoints |= {name: completed(name, type, adjoints[name])} if name in adjoints else {}
            return with_members(adjoints, self._members) if self._members else adjoints

    @cached_property
    def _expected(self) -> Expected:
        own = tuple(p.called for p in user_params(self.kernel.function))
        return Expected(own, self.adjoint_names, "adjoints", self.signature)

    def check_members(self, args: tuple[Any, ...], adjoints: Mapping[str, Any]) -> None:
        """A struct of pointers has a struct of adjoints. None may be missing: shadow pointers are not tested."""
        if not self._structs:
            return
        from .struct_adjoints import check_members, named

        with named(self.kernel.name):
            for number, name, type in self._structs:
                if adjoints.get(name) is not None:
                    check_members(name, type, args[number], adjoints[name])

    def _in_float(
        self, adjoints: dict[str, Any], launch: Launch, own: LaunchMemory, kept: tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """The adjoints as the gradient takes them: in half precision, copies in float."""
        if not self._has_halves:
            return adjoints
        from ..launches.memory.half_adjoints import in_float

        return in_float(self.kernel.function, adjoints, launch, own, self.settings.kept if kept is None else kept)

    def _bound_as_floats(
        self, adjoints: dict[str, Any], launch: Launch, own: LaunchMemory
    ) -> tuple[dict[str, Any], tuple[Half, ...]]:
        """The same, but those that the launch may take as halves are bound as floats until it is planned."""
        if not self._has_halves:
            return adjoints, ()
        from ..launches.memory.half_adjoints import bound_as_floats

        adjoints, halves = bound_as_floats(self.kernel.function, adjoints, self.settings.kept)
        return self._in_float(adjoints, launch, own), halves

    @cached_property
    def _has_halves(self) -> bool:
        return any(holds_halves(p.type) for p in self.kernel.function.params)

    @cached_property
    def _members(self) -> tuple[Member, ...]:
        """The numbers in structs of pointers that have adjoints."""
        if not self._structs:
            return ()
        from ..autodiff.calculus.struct_members import members_of

        return tuple(m for m in members_of(self.kernel.function) if m.struct in self.settings.shown)

    @cached_property
    def _structs(self) -> tuple[tuple[int, str, Struct], ...]:
        params = enumerate(user_params(self.kernel.function))
        return tuple((k, p.name, p.type) for k, p in params if isinstance(p.type, Struct))

    def check_sizes(self, variant: Variant, bound: BoundArguments) -> None:
        """`bound`: the kernel's own arguments and the adjoints."""
        check_sizes(self.kernel.name, "adjoint", self._pairs(variant), bound)

    def check_alignment(self, variant: Variant, bound: BoundArguments) -> None:
        """Of adjoints on a GPU, which has no vectors at other addresses."""
        casts = self.kernel.cast_alignments
        if casts:
            check_alignment(self.kernel.name, "adjoint", self._pairs(variant), bound, casts)

    def _pairs(self, variant: Variant) -> list[Pair]:
        params, adjoints = {p.name: p for p in self.kernel.function.params}, variant.derivative.adjoints
        shown = dict(zip(self.settings.shown, self.adjoint_names, strict=True))
        shorter = self.settings.shorter
        pairs = [
            Pair(params[name], param, shown[name], name in shorter) for name, param in adjoints.items() if name in shown
        ]
        for member in self._members:
            if member.name in adjoints:
                param = Param(Value(member.type, f"{member.struct}{member.shown}"), "")
                pairs.append(Pair(param, adjoints[member.name], f"{shown[member.struct]}{member.shown}"))
        return pairs

    def check_overlap(
        self, variant: Variant, bound: BoundArguments, own: LaunchMemory, written: frozenset[str]
    ) -> None:
        """Also of adjoints that float copies stand for. `written`: the parameters through which the launch writes."""
        if self.settings.may_alias:
            if not self.settings.open_ended:
                self._check_shared(variant, bound)
            return
        if own.originals:
            bound = bound._replace(buffers=(*bound.buffers, *own.originals))
            written |= {b.name for b, is_written in own.originals.items() if is_written}
        check_overlap(variant.reverse.function, bound, written, self.kernel.of_variables)
        if self.settings.mode == "reverse":
            check_own_overlap(self.kernel.function, bound, self.kernel.written)

    def _check_shared(self, variant: Variant, bound: BoundArguments) -> None:
        prepared = variant.derivative.prepared
        active = {p.name for p in prepared.function.params if p.value in prepared.activity.roots}
        adjoints = {name: p.name for name, p in variant.derivative.adjoints.items()}
        variables = self.kernel.of_variables
        bound = bound._replace(buffers=(*bound.buffers, *variables))
        written = self.kernel.written | {b.name for b in variables}
        check_shared_adjoints(variant.reverse.function, bound, written, adjoints, active)

    @property
    def is_zero(self) -> bool:
        """Whether no derivative gets from a listed parameter to what one holds in the end."""
        return self.variant().derivative.prepared.planned.is_zero

    @cached_property
    def tapes(self) -> bool:
        """Whether there is a tape at all."""
        return any(self.variant().derivative.prepared.plan.taped.values())

    @property
    def shown(self) -> Function:
        """The function as the user wrote it."""
        return self.kernel.function

    @property
    def signature(self) -> str:
        function = self.shown
        by_name = {p.name: p for p in function.params}
        adjoints = [
            declare(adjoint_declared(by_name[n]), a)
            for n, a in zip(self.settings.shown, self.adjoint_names, strict=True)
        ]
        head, _, tail = c_signature(function).rpartition(")")
        separator = ", " if user_params(function) else ""
        return f"{head}{separator}{', '.join(adjoints)}){tail}"

    def scalars(self, bound: BoundArguments, segment: int | None = None) -> dict[str, Any]:
        """The integers among the arguments."""
        known = integers_of(self.kernel.function).known(bound.packed, segment)
        found = {p.name: known(p.value) for p in self.kernel.function.params}
        return {name: number for name, number in found.items() if number is not None}


def compiled(forms: Forms) -> tuple[Executable, ...]:
    """The machine code of all kernels of these forms that have run so far."""
    return tuple(executable for kernel in forms.kernels for executable in kernel.compiled)
