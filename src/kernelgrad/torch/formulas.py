"""The derivatives of the four operators in terms of each other: Note [Second derivatives of operators].

Note [One function for every transformation]
PyTorch's public ways to give an operator a derivative each leave something out: `register_autograd` has no forward mode
(tangents come out as zero) and fails under `torch.func`; a `torch.autograd.Function` with a `jvp` breaks graphs under
`torch.compile`. What PyTorch itself makes of such a function below its transformations, a `_SingleLevelFunction`, is
registered here at the operator's own Autograd key; that passes all of them. PyTorch switches both modes off around a
function's `forward`, and forward mode around its `jvp`: outer transformations must still see what is called there, so
both are switched on again. The names are private: `tests/frameworks/test_torch.py` tells where a release changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction

from ..errors import UnsupportedError
from ..frameworks.derived import Derived
from .calls import Call, Layout, Maybe, Tensor

Operator = Callable[..., Any]


class Formulas:
    """`operators`: by kind, as they are called. A kind's own tensors come before those of the launch."""

    def __init__(self, derived: Derived, operators: dict[str, Operator]):
        self.derived, self.roles, self.operators = derived, derived.roles, operators
        self.full, self.partial = Layout(self.roles, False), Layout(self.roles, True)
        self.own = self.counts()

    def counts(self) -> dict[str, int]:
        """How many tensors of its own each kind has."""
        inputs, results = len(self.roles.active_inputs), len(self.roles.active_results)
        return {"value": 0, "tangent": inputs, "backward": results, "second": inputs + results}

    def needed(self, wanted: tuple[str, ...]) -> Iterable[str]:
        """The arrays to keep for a backward that is asked for these."""
        return self.derived.needed(wanted)

    def layout(self, kind: str) -> Layout:
        return self.full if kind == "value" else self.partial

    def place(self, kind: str, name: str) -> int:
        return self.own[kind] + self.layout(kind).place(name)

    def call(self, kind: str, args: Sequence[Any]) -> tuple[list[Maybe], Call]:
        own, layout = self.own[kind], self.layout(kind)
        return list(args[:own]), layout.unpack(args[own : own + layout.count])

    # ---- calls of the operators; a mask says which inputs' gradients are wanted

    def mask(self, names: Iterable[str]) -> int:
        wanted = set(names)
        return sum(1 << k for k, name in enumerate(self.roles.active_inputs) if name in wanted)

    def names(self, mask: int) -> tuple[str, ...]:
        return tuple(name for k, name in enumerate(self.roles.active_inputs) if mask >> k & 1)

    def tangent(self, tangents: Sequence[Maybe], call: Call) -> list[Maybe]:
        if not _any(tangents) or not self.roles.active_results:
            return [None] * len(self.roles.active_results)
        return _listed(self.operators["tangent"](*tangents, *self.partial.pack(call)))

    def backward(self, grads: Sequence[Maybe], call: Call, mask: int) -> list[Maybe]:
        if not _any(grads) or not mask:
            return [None] * len(self.roles.active_inputs)
        found = _listed(self.operators["backward"](*grads, *self.partial.pack(call), mask))
        return [g if mask >> k & 1 else None for k, g in enumerate(found)]

    def second(self, grads: Sequence[Maybe], along: Sequence[Maybe], call: Call, mask: int) -> list[Maybe]:
        if not (_any(grads) and _any(along)) or not mask:
            return [None] * len(self.roles.active_inputs)
        found = _listed(self.operators["second"](*grads, *along, *self.partial.pack(call), mask))
        return [g if mask >> k & 1 else None for k, g in enumerate(found)]

    # ---- what belongs to a kind

    def wanted_inputs(self, kind: str, needs: Sequence[bool]) -> int:
        """The mask of the inputs whose gradients autograd asks for."""
        return self.mask(name for name in self.roles.active_inputs if needs[self.place(kind, name)])

    def spread(self, kind: str, own: Sequence[Maybe], inputs: Sequence[Maybe]) -> tuple[Maybe, ...]:
        """Gradients at the places of the arguments that they belong to."""
        extra = kind in ("backward", "second")
        spread: list[Maybe] = [*own, *[None] * (self.layout(kind).count + extra)]
        for name, gradient in zip(self.roles.active_inputs, inputs, strict=True):
            spread[self.place(kind, name)] = gradient
        return tuple(spread)

    def input_tangents(self, kind: str, tangents: Sequence[Maybe]) -> list[Maybe]:
        return [tangents[self.place(kind, name)] for name in self.roles.active_inputs]

    def no_third_order(self) -> UnsupportedError:
        kernel = self.derived.kernel
        reason = f"{kernel.name}: operators have first and second derivatives, this would be another one"
        hint = "the text of its gradient, kg.gradient(kernel, ...).source, is a kernel with two derivatives more"
        return UnsupportedError(reason, kernel.function.span, hint)

    def no_forward_over_forward(self) -> UnsupportedError:
        kernel = self.derived.kernel
        reason = f"{kernel.name}: forward mode over forward mode is not there for operators"
        return UnsupportedError(reason, kernel.function.span, IN_REVERSE)


IN_REVERSE = "put one of them in reverse: torch.func.jacfwd(torch.func.jacrev(f))"


def _any(tensors: Sequence[Maybe]) -> bool:
    return any(t is not None for t in tensors)


def _listed(found: Any) -> list[Maybe]:
    return list(found) if isinstance(found, tuple | list) else [found]


def added(one: Sequence[Maybe], other: Sequence[Maybe]) -> list[Maybe]:
    return [b if a is None else a if b is None else a + b for a, b in zip(one, other, strict=True)]


# ---- one function for each kind -------------------------------------------------------------------------------------


def _remember(ctx: Any, own: Sequence[Maybe], call: Call, kept: Iterable[str] | None = None) -> None:
    ctx.save_for_backward(*own, *call.tensors_of(kept))
    ctx.save_for_forward(*own, *call.tensors_of())
    ctx.call, ctx.own = call.without_tensors(), len(own)
    ctx.set_materialize_grads(False)


def _recall(ctx: Any) -> tuple[list[Maybe], Call]:
    tensors = ctx.saved_tensors
    return list(tensors[: ctx.own]), ctx.call.with_tensors(tensors[ctx.own :])


def _recall_primals(ctx: Any) -> tuple[list[Maybe], Call]:
    """In a `jvp`: without their tangents of this level, which the formula has as arguments. PyTorch has one level of
    dual numbers, and under `torch.compile` its Python functions do not know of that."""
    own, call = _recall(ctx)
    primals = [None if t is None else torch._VF._unpack_dual(t, 0)[0] for t in (*own, *call.tensors_of())]
    return primals[: len(own)], call.with_tensors(primals[len(own) :])


def value_formula(f: Formulas) -> dict[str, Callable[..., Any]]:
    roles = f.roles

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, call = f.call("value", inputs)
        ctx.mask = f.wanted_inputs("value", ctx.needs_input_grad)
        _remember(ctx, (), call, f.needed(f.names(ctx.mask)) if ctx.mask and roles.active_results else ())
        results = zip(roles.results, _listed(output), strict=True)
        ctx.mark_non_differentiable(*[r for name, r in results if not roles[name].floating])

    def backward(ctx: Any, *grads: Maybe) -> tuple[Maybe, ...]:
        _, call = _recall(ctx)
        by_name = dict(zip(roles.results, grads, strict=True))
        found = f.backward([by_name[n] for n in roles.active_results], call, ctx.mask)
        return f.spread("value", (), found)

    def jvp(ctx: Any, *tangents: Maybe) -> Any:
        _, call = _recall_primals(ctx)
        found = dict(zip(roles.active_results, f.tangent(f.input_tangents("value", tangents), call), strict=True))
        return _as_returned([found.get(name) for name in roles.results])

    return {"setup_context": setup_context, "backward": backward, "jvp": jvp}


def backward_formula(f: Formulas) -> dict[str, Callable[..., Any]]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        grads, call = f.call("backward", inputs)
        ctx.mask, ctx.needs = inputs[-1], f.wanted_inputs("backward", ctx.needs_input_grad)
        _remember(ctx, grads, call)
        unwanted = [g for k, g in enumerate(_listed(output)) if not ctx.mask >> k & 1]
        ctx.mark_non_differentiable(*unwanted)

    def backward(ctx: Any, *cotangents: Maybe) -> tuple[Maybe, ...]:
        grads, call = _recall(ctx)
        along = [c if ctx.mask >> k & 1 else None for k, c in enumerate(cotangents)]
        needs = ctx.needs_input_grad[: len(grads)]  # not those of results that nobody used: their gradients are None
        moved = f.tangent(along, call) if any(needs) else [None] * len(grads)
        own = [t if needed else None for t, needed in zip(moved, needs, strict=True)]
        return f.spread("backward", own, f.second(grads, along, call, ctx.needs))

    def jvp(ctx: Any, *tangents: Maybe) -> Any:
        grads, call = _recall_primals(ctx)
        along = f.input_tangents("backward", tangents)
        moved = f.backward(tangents[: len(grads)], call, ctx.mask)
        return _as_returned(added(moved, f.second(grads, along, call, ctx.mask)))

    return {"setup_context": setup_context, "backward": backward, "jvp": jvp}


def tangent_formula(f: Formulas) -> dict[str, Callable[..., Any]]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tangents, call = f.call("tangent", inputs)
        ctx.needs = f.wanted_inputs("tangent", ctx.needs_input_grad)
        _remember(ctx, tangents, call)

    def backward(ctx: Any, *cotangents: Maybe) -> tuple[Maybe, ...]:
        tangents, call = _recall(ctx)
        inputs = f.roles.active_inputs
        linear = f.mask(name for k, name in enumerate(inputs) if ctx.needs_input_grad[k])
        own = f.backward(cotangents, call, linear)
        return f.spread("tangent", own, f.second(cotangents, tangents, call, ctx.needs))

    def jvp(ctx: Any, *tangents: Maybe) -> Any:
        own, call = _recall_primals(ctx)
        if _any(f.input_tangents("tangent", tangents)):
            raise f.no_forward_over_forward()
        return _as_returned(f.tangent(tangents[: len(own)], call))

    return {"setup_context": setup_context, "backward": backward, "jvp": jvp}


def second_formula(f: Formulas) -> dict[str, Callable[..., Any]]:
    """Linear in the gradients and in the tangents, and symmetric in its tangents and what they become: with that much
    of a derivative, a Hessian times a vector is also what `torch.autograd.functional.hvp` makes of two backwards."""
    results = len(f.roles.active_results)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        own, call = f.call("second", inputs)
        ctx.mask, ctx.tensors = inputs[-1], [k for k, given in enumerate(inputs) if isinstance(given, torch.Tensor)]
        _remember(ctx, own, call)
        ctx.mark_non_differentiable(*[g for k, g in enumerate(_listed(output)) if not ctx.mask >> k & 1])

    def backward(ctx: Any, *cotangents: Maybe) -> tuple[Maybe, ...]:
        own, call = _recall(ctx)
        asked = {k for k, (node, _) in zip(ctx.tensors, ctx.next_functions, strict=True) if _goes_on(node)}
        tangents = range(results, len(own))
        if not asked <= set(tangents):
            raise f.no_third_order()
        along = [c if ctx.mask >> k & 1 else None for k, c in enumerate(cotangents)]
        needed = f.mask(name for k, name in zip(tangents, f.roles.active_inputs, strict=True) if k in asked)
        found = f.second(own[:results], along, call, needed)
        return f.spread("second", [*[None] * results, *found], [None] * len(found))

    def jvp(ctx: Any, *tangents: Maybe) -> Any:
        own, call = _recall_primals(ctx)
        if _any(f.input_tangents("second", tangents)):
            raise f.no_third_order()
        one = f.second(tangents[:results], own[results:], call, ctx.mask)
        other = f.second(own[:results], tangents[results : len(own)], call, ctx.mask)
        return _as_returned(added(one, other))

    return {"setup_context": setup_context, "backward": backward, "jvp": jvp}


def _goes_on(node: Any) -> bool:
    """Whether this backward wants what flows to a node, as far as is known: `torch.autograd.grad` wants it of a few."""
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # of a leaf that a gradient is asked of
        return True


FORMULAS = {
    "value": value_formula,
    "backward": backward_formula,
    "tangent": tangent_formula,
    "second": second_formula,
}


def _as_returned(found: Sequence[Maybe]) -> Any:
    return found[0] if len(found) == 1 else tuple(found)


def autograd_of(name: str, operator: Operator, formula: dict[str, Callable[..., Any]]) -> Operator:
    """What stands at the operator's Autograd key."""

    def forward(*args: Any) -> Any:
        with torch.enable_grad(), _set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
            return operator(*args)

    def jvp(ctx: Any, *tangents: Maybe) -> Any:
        with _set_fwd_grad_enabled(True):
            return formula["jvp"](ctx, *tangents)

    methods = {**formula, "forward": forward, "jvp": jvp}
    made: Any = type(name, (_SingleLevelFunction,), {key: staticmethod(method) for key, method in methods.items()})

    def autograd(*args: Any) -> Any:
        with enable_single_level_autograd_function():
            return made.apply(*args)

    return autograd


__all__ = ["FORMULAS", "IN_REVERSE", "Formulas", "Tensor", "autograd_of"]
