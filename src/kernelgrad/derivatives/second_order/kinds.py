"""The kinds of second derivatives: which arguments they take, in which order, and what these are called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...analysis import roots as memory_analysis
from ...errors import ArgumentError, UnsupportedError
from ...ir.ops import Function, Param
from ...kernel import Kernel
from ...requests import Names, names_in
from ...runtime.signature import user_params
from ..asked.settings import Settings, check_outputs, has_derivative, make_settings, no_numbers
from ..gradient import Gradient
from ..jvp import Tangent
from ..module_variables import with_variables
from .code import Role, Slot, fresh
from .second_order import SecondOrder, Style

_TANGENTS: dict[Role, str] = {"adjoint": "adjoint", "tangent": "tangent", "second": "tangent"}
_ADJOINTS: dict[Role, str] = {"adjoint": "adjoint", "tangent": "adjoint", "second": "adjoint"}
_PRODUCT: dict[Role, str] = {"adjoint": "adjoint", "tangent": "direction", "second": "product"}
JVP = Style("jvp", "_grad_jvp", _TANGENTS)
GRADIENT = Style("gradient of the gradient", "_grad_grad", _ADJOINTS)
OF_TANGENT = Style("gradient of the jvp", "_jvp_grad", {**_ADJOINTS, "tangent": "tangent"})
HVP = Style("hvp", "_hvp", _PRODUCT)


def tangent_of_gradient(gradient: Gradient, parameters: Names) -> SecondOrder:
    """`t[grid, block](*arguments, *adjoints, *tangents)`, with a tangent for each listed parameter and adjoint."""
    if gradient.settings.promises.results:  # what is read there would have tangents, too
        asked = gradient.settings
        gradient = Gradient(gradient.kernel, replace(asked, promises=asked.promises.of_inputs))
    adjoints = dict(zip(gradient.settings.shown, gradient.adjoint_names, strict=True))
    names = _Fresh(gradient.kernel, adjoints.values())
    listed = _listed(parameters, gradient.kernel.function, adjoints, gradient.signature)
    _check_outputs(gradient, parameters, listed, adjoints)
    of = {name: param for param, name in adjoints.items()}
    given = (Slot("adjoint", param, name, param) for param, name in adjoints.items())
    moving = (
        Slot("second" if name in of else "tangent", of.get(name, name), names(f"t_{name}"), name) for name in listed
    )
    return SecondOrder(JVP, gradient, (*given, *moving))


def gradient_of_gradient(gradient: Gradient, parameters: Names) -> SecondOrder:
    """`g2[grid, block](*arguments, *adjoints, *second adjoints)`: `d2_x` of a parameter x, `d2_d_x` of its adjoint."""
    _require_plain(gradient)
    adjoints = dict(zip(gradient.settings.shown, gradient.adjoint_names, strict=True))
    names = _Fresh(gradient.kernel, adjoints.values())
    listed = _listed(parameters, gradient.kernel.function, adjoints, gradient.signature)
    _check_outputs(gradient, parameters, listed, adjoints)
    of = {name: param for param, name in adjoints.items()}
    given = (Slot("adjoint", param, name, param) for param, name in adjoints.items())
    seconds = (
        Slot("tangent" if name in of else "second", of.get(name, name), names(f"d2_{name}"), name) for name in listed
    )
    slots = (*given, *seconds)
    return SecondOrder(GRADIENT, _covering(gradient.kernel, gradient.settings, slots, gradient), slots)


def gradient_of_tangent(tangent: Tangent, parameters: Names) -> SecondOrder:
    """`g[grid, block](*arguments, *tangents, *adjoints)`: `d_x` of a parameter x, `d_t_x` of its tangent."""
    tangents = dict(zip(tangent.listed, tangent.tangent_names, strict=True))
    names = _Fresh(tangent.target, tangents.values())
    listed = _listed(parameters, tangent.target.function, tangents, tangent.signature)
    of = {name: param for param, name in tangents.items()}
    given = (Slot("tangent", param, name, param) for param, name in tangents.items())
    adjoints = (
        Slot("adjoint" if name in of else "second", of.get(name, name), names(f"d_{name}"), name) for name in listed
    )
    slots = (*given, *adjoints)
    kernel = with_variables(tangent.target, [slot.of for slot in slots])
    settings = make_settings(kernel.function, [slot.of for slot in slots][:1], "joint", None, None, False, None)
    return SecondOrder(OF_TANGENT, _covering(kernel, settings, slots), slots)


def hessian_vector(kernel: Kernel, parameters: Names) -> SecondOrder:
    """`h[grid, block](*arguments, *adjoints of outputs, *directions of inputs, *products)`."""
    kernel = with_variables(kernel, parameters)
    settings = make_settings(kernel.function, parameters, "joint", None, None, False, None)
    check_outputs(kernel.function, parameters, settings.shown)
    read, written = _accessed(kernel.function)
    outputs = [name for name in settings.shown if name in written]
    inputs = [name for name in settings.shown if name in read]
    if not outputs or not inputs:
        missing = "an output" if not outputs else "an input"
        raise ArgumentError(f"hvp: none of '{', '.join(settings.shown)}' is {missing} of {kernel.name}")
    names = _Fresh(kernel)
    slots = (
        *(Slot("adjoint", name, names(f"d_{name}"), name, spared=True) for name in outputs),
        *(Slot("tangent", name, names(f"v_{name}"), name, spared=True) for name in inputs),
        *(Slot("second", name, names(f"hv_{name}"), name, cleared=True) for name in inputs),
    )
    kept = [name for name in outputs if name not in read]
    asked = make_settings(kernel.function, settings.shown, "joint", kept, None, False, None)
    return SecondOrder(HVP, Gradient(kernel, asked), slots)


# ---- small things -------------------------------------------------------------------------------------------------


class _Fresh:
    """Names that a kernel has no parameters of."""

    def __init__(self, kernel: Kernel, others: Iterable[str] = ()):
        self.taken = {*(p.name for p in kernel.function.params), *others}

    def __call__(self, name: str) -> str:
        found = fresh(name, self.taken)
        self.taken.add(found)
        return found


def _listed(parameters: Names, function: Function, shadows: Mapping[str, str], signature: str) -> tuple[str, ...]:
    """The kernel's parameters and their adjoints or tangents that are differentiated: all, if none are named.
    `shadows`: by parameter."""
    params = {p.name: p for p in function.params}
    known = {**params, **{name: params[of] for of, name in shadows.items()}}
    if parameters is None:
        own = (p.name for p in user_params(function) if has_derivative(p.type))
        return (*own, *(n for n in shadows if params[n].variable is not None), *shadows.values())
    listed = names_in(parameters, params.values())
    for name in listed:
        _check_listed(name, known, signature)
    if not listed:
        raise ArgumentError(f"nothing to differentiate\n  {signature}")
    if len(set(listed)) != len(listed):
        raise ArgumentError(f"a parameter is listed twice in '{', '.join(listed)}'")
    return listed


def _check_listed(name: str, known: Mapping[str, Param], signature: str) -> None:
    if name not in known:
        raise ArgumentError(f"no parameter '{name}'\n  {signature}")
    if not has_derivative(known[name].type):
        raise no_numbers(known[name], signature)


def _check_outputs(gradient: Gradient, parameters: Names, listed: tuple[str, ...], shown: Mapping[str, str]) -> None:
    """A list without an output of the gradient has no derivative but zero."""
    inside = gradient.variant().derivative.adjoints
    code = {name: inside[of].name for of, name in shown.items()}
    check_outputs(gradient.variant().kernels[0].function, parameters, tuple(code.get(n, n) for n in listed))


def _require_plain(gradient: Gradient) -> None:
    """What the gradient maps to what must be known in full: that of an option is another one."""
    settings = gradient.settings
    asked = {"primal=False": settings.mode != "joint", "keep": settings.kept, "assign": settings.assigned}
    found = next((name for name, given in asked.items() if given), None)
    if found is not None:
        reason = f"{gradient.kernel.name}: a gradient with {found} has no gradient here"
        help = "differentiate kg.gradient(kernel, ...) without it, or kg.hvp(kernel, ...), which keeps adjoints"
        raise UnsupportedError(reason, gradient.kernel.function.span, help)


def _covering(kernel: Kernel, settings: Settings, slots: Iterable[Slot], given: Gradient | None = None) -> Gradient:
    """A gradient with all adjoints that the slots need; `given`, if it has them."""
    wanted = tuple(dict.fromkeys((*(given.settings.shown if given else ()), *_with_adjoints(slots))))
    if given is not None and wanted == given.settings.shown:
        return given
    options: dict[str, Any] = {"promises": settings.promises, "shorter": settings.shorter}
    made = make_settings(
        kernel.function, wanted, "joint", None, None, settings.may_alias, settings.tape_budget, **options
    )
    return Gradient(kernel, made)


def _with_adjoints(slots: Iterable[Slot]) -> Iterator[str]:
    yield from (slot.of for slot in slots if slot.role != "tangent")


def _accessed(function: Function) -> tuple[set[str], set[str]]:
    """The parameters that are read, and those that are written; numbers are read."""
    memory = memory_analysis.analyse(function)
    written, unknown = memory.written(), memory_analysis.UNKNOWN
    loaded = {root for op in memory.loads for root in memory.of(op.ptr)}
    pointers = {p.name for p in function.params if memory_analysis.holds_pointers(p.type)}
    read = {p.name for p in function.params if p.name not in pointers or {p.value, unknown} & loaded}
    return read, {p.name for p in function.params if p.name in pointers and {p.value, unknown} & written}
