"""The derivatives of a kernel as an operator asks for them, each made when it is first needed.

Note [Second derivatives of operators]
Let y = f(x), B(g, x) = Jᵀg the backward, T(t, x) = Jt the tangent. Cotangents v of B's results go to g as Jv, which is
T(v, x), and to x as d/dx ⟨v, Jᵀg⟩ = Hv with H the Hessian of ⟨g, f⟩. That is symmetric: Hv is also the directional
derivative of B along v, forward over reverse, S(g, v, x). The tangent of B is B(t_g, x) + S(g, t_x, x), and the
cotangents c of T's results go to t as B(c, x), to x as S(c, t, x). So four kernels are closed under all that first and
second order ask for, but for forward over forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..derivatives.asked.promises import Promises
from ..derivatives.asked.settings import make_settings
from ..derivatives.gradient import Gradient
from ..derivatives.jvp import Tangent
from ..derivatives.second_order.kinds import tangent_of_gradient
from ..derivatives.second_order.second_order import SecondOrder
from ..errors import ArgumentError, SourceError, UnsupportedError
from ..host.kernel_facts import PRINTS, why_it_varies
from ..kernel import Kernel
from ..launches.memory.saved_buffers import read_by
from ..locks import COMPILING
from .roles import Roles


@dataclass(frozen=True)
class Options:
    """Of gradients, see `kg.gradient`. `tape_bytes`: room for a tape that would be counted."""

    deterministic: bool | None = None
    tape_budget: int | None = None
    promises: Promises | None = None
    report_nan: bool = False
    tape_bytes: int | None = None


@dataclass
class Reverse:
    """`joint`: the kernel runs again with its reverse, which needs what the kernel made on the way."""

    gradient: Gradient
    joint: bool
    needed: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)


class Derived:
    """The derivatives of a kernel in these roles."""

    def __init__(self, kernel: Kernel, roles: Roles, options: Options):
        if options.promises is not None and options.promises.results:
            problem = "an operator's backward is not given its outputs"
            raise ArgumentError(
                f"assume: results is not for operators: {problem}; kg.gradient(..., primal=False) takes it"
            )
        self.kernel, self.roles, self.options = kernel, roles, options
        self.listed = (*(n for n in roles.outputs if roles[n].floating), *roles.active_inputs)
        self._reverses: dict[bool, Reverse] = {}
        self._first_order: Tangent | None = None
        self._second_order: SecondOrder | None = None

    def reverse(self, deterministic: bool) -> Reverse:
        found = self._reverses.get(deterministic)
        if found is None:
            with COMPILING:
                found = self._reverses.setdefault(deterministic, self._make_reverse(deterministic))
        return found

    def _make_reverse(self, deterministic: bool) -> Reverse:
        self._refuse_underivable()
        try:
            return Reverse(self._gradient("reverse", deterministic), False)
        except UnsupportedError:
            return Reverse(self._gradient("joint", deterministic), True)

    def _gradient(self, mode: str, deterministic: bool) -> Gradient:
        roles, options = self.roles, self.options
        settings = make_settings(
            self.kernel.function,
            self.listed,
            mode,  # type: ignore[arg-type]
            roles.pure_outputs,
            roles.pure_inputs,
            False,
            options.tape_budget,
            deterministic,
            options.promises,
            report_nan=options.report_nan,
        )
        return Gradient(self.kernel, settings)

    def _refuse_underivable(self, what: str = "backward", hint: str = "kg.split keeps what its reverse needs") -> None:
        """Derivatives run the kernel again, apart from the run that gave the value."""
        if self.kernel.refusal is not None:
            raise self.kernel.refusal
        varies = why_it_varies(self.kernel.function)
        if varies is not None and varies != PRINTS:
            reason = f"{self.kernel.name} has no {what} as an operator: {varies}, so that a second run may differ"
            raise UnsupportedError(reason, self.kernel.function.span, hint)

    def needed(self, wanted: tuple[str, ...]) -> frozenset[str]:
        """The arrays that the backward reads where these inputs' adjoints are wanted."""
        made = self.reverse(bool(self.options.deterministic))
        found = made.needed.get(wanted)
        if found is None:
            with COMPILING:
                found = made.needed.setdefault(wanted, self._needed(made, wanted))
        return found

    def _needed(self, made: Reverse, wanted: tuple[str, ...]) -> frozenset[str]:
        if made.joint:
            return frozenset(n for n in self.roles.arrays if self.roles[n].read)
        asked = frozenset((*self.roles.active_results, *wanted))
        variant = made.gradient.variant(tuple(n for n in made.gradient.settings.listed if n in asked))
        read = (name for kernel in variant.kernels for name in read_by(kernel.function, self.roles.arrays))
        return frozenset(read)

    @property
    def tangent(self) -> Tangent:
        """Forward mode."""
        if self._first_order is None:
            with COMPILING:
                self._first_order = self._first_order or self._first()
        return self._first_order

    @property
    def second(self) -> SecondOrder:
        """Forward over reverse: the tangents of the adjoints along tangents of the inputs."""
        if self._second_order is None:
            with COMPILING:
                self._second_order = self._second_order or self._second()
        return self._second_order

    def _first(self) -> Tangent:
        self._refuse_underivable("forward mode", "kg.jvp of the kernel gives values and tangents of one run")
        return Tangent(self.kernel, self.listed, report_nan=self.options.report_nan)

    def _second(self) -> SecondOrder:
        self._refuse_underivable()
        settings = make_settings(self.kernel.function, self.listed, "joint", None, None, False, None)
        gradient = Gradient(self.kernel, settings)
        adjoints = dict(zip(gradient.settings.shown, gradient.adjoint_names, strict=True))
        names = (*self.listed, *(adjoints[n] for n in self.listed))
        try:
            return tangent_of_gradient(gradient, names)
        except SourceError as error:
            reason = f"{self.kernel.name} has no second derivative here: {error.message}"
            raise UnsupportedError(reason, error.span, error.hint) from None
