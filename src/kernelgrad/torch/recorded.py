"""A recorded program as a function of tensors: `kg.torch.op(tape.program(...))`.

Two operators belong to it, the value and the backward; second derivatives and forward mode are refused. As all
operators they stay as long as the process, and so does the program's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import ArgumentError
from ..frameworks.recorded import Recorded, recorded_of
from ..host.program import Program
from ..locks import COMPILING
from ..runtime.streams import current_stream
from .calls import Maybe, Tensor
from .formulas import autograd_of
from .mapping import in_sequence
from .registration import library

_NAMESPACE = "kernelgrad"
_made: dict[str, ProgramOp] = {}


class ProgramOp:
    """A recorded program as a function of tensors, `y = op(x, w)`; see `op`."""

    def __init__(self, recorded: Recorded):
        self._recorded = recorded
        inputs = [f"Tensor x{k}" for k in range(len(recorded.inputs))]
        self._seeded = [k for k, slot in enumerate(recorded.outputs) if slot.floating]
        seeds = [f"Tensor? d_y{k}" for k in self._seeded]
        self._backward = self._define("_backward", [*seeds, *inputs], len(recorded.active))
        self._operator = self._define("", inputs, len(recorded.outputs))
        self._register("_backward", self._backward, self._real_backward, self._fake_backward, self._no_more())
        self._register("", self._operator, self._real, self._fake, self._formula())
        for device in ("CPU", "CUDA"):
            library().impl(recorded.name, self._autocast(device), f"Autocast{device}")

    def __repr__(self) -> str:
        return repr(self._recorded)

    @property
    def name(self) -> str:
        """Under which it is registered in this process."""
        return str(self._operator.name())

    def __call__(self, *tensors: Any) -> Any:
        self._recorded.check_count(tensors)  # the rest below autocast, which may change it
        for k, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                raise ArgumentError(f"program: input {k} wants a tensor, got {type(tensor).__name__}")
        return self._operator(*tensors)

    def __deepcopy__(self, memo: Any) -> ProgramOp:
        return self

    # ---- registration

    def _define(self, suffix: str, arguments: list[str], count: int) -> Any:
        results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        name = f"{self._recorded.name}{suffix}"
        library().define(f"{name}({', '.join(arguments)}) -> {results}")
        return getattr(getattr(torch.ops, _NAMESPACE), name).default

    def _register(self, suffix: str, operator: Any, real: Any, fake: Any, formula: dict[str, Any]) -> None:
        name, lib = f"{self._recorded.name}{suffix}", library()
        for key in ("CPU", "CUDA"):
            lib.impl(name, real, key)
        torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=lib)
        lib.impl(name, autograd_of(name, operator, formula), "Autograd")
        torch.library.register_vmap(f"{_NAMESPACE}::{name}", in_sequence(operator, fake), lib=lib)

    def _autocast(self, device: str) -> Callable[..., Any]:
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device}"))

        def autocast(*tensors: Any) -> Any:
            slots = zip(tensors, self._recorded.inputs, strict=True)
            cast = [t.to(getattr(torch, s.dtype)) if t.is_floating_point() else t for t, s in slots]
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return self._operator(*cast)

        return autocast

    # ---- what they do

    def _real(self, *tensors: Tensor) -> Any:
        made = self._fake(*tensors)
        listed = [t.detach().contiguous() for t in tensors]
        self._recorded.value(listed, made if isinstance(made, tuple) else (made,), _stream(listed))
        return made

    def _fake(self, *tensors: Tensor) -> Any:
        self._recorded.check([_described(t) for t in tensors])
        return _one_or_all([self._empty(slot, tensors[0]) for slot in self._recorded.outputs])

    def _empty(self, slot: Any, like: Tensor) -> Tensor:
        device = "cpu" if slot.device is None else f"cuda:{slot.device}"
        return like.new_empty(slot.shape, dtype=getattr(torch, slot.dtype), device=device)

    def _real_backward(self, *tensors: Maybe) -> Any:
        outputs = [self._recorded.outputs[k] for k in self._seeded]
        pairs = zip(tensors[: len(outputs)], outputs, strict=True)
        inputs = [t.detach().contiguous() for t in tensors[len(outputs) :] if t is not None]
        seeds = [
            self._empty(slot, inputs[0]).zero_() if t is None else t.detach().resolve_neg().contiguous()
            for t, slot in pairs
        ]
        made = self._fake_backward(*tensors)
        adjoints = made if isinstance(made, tuple) else (made,)
        self._recorded.backward(inputs, seeds, adjoints, _stream(inputs))
        return made

    def _fake_backward(self, *tensors: Maybe) -> Any:
        like = tensors[len(self._seeded)]
        assert like is not None
        return _one_or_all([self._empty(self._recorded.inputs[k], like) for k in self._recorded.active])

    # ---- derivatives

    def _formula(self) -> dict[str, Callable[..., Any]]:
        recorded = self._recorded

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            results = output if isinstance(output, tuple) else (output,)
            pairs = zip(results, recorded.outputs, strict=True)
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            ctx.mark_non_differentiable(*[r for r, slot in pairs if not slot.floating])
            ctx.set_materialize_grads(False)

        def backward(ctx: Any, *grads: Maybe) -> Any:
            grads = tuple(grads[k] for k in self._seeded)
            if all(g is None for g in grads):
                return (None,) * len(recorded.inputs)
            recorded.prepare_gradient()
            made = self._backward(*grads, *ctx.saved_tensors)
            found = dict(zip(recorded.active, made if isinstance(made, tuple) else (made,), strict=True))
            return tuple(found.get(k) for k in range(len(recorded.inputs)))

        def jvp(ctx: Any, *tangents: Maybe) -> Any:
            recorded.refuse("forward mode")

        return {"setup_context": setup_context, "backward": backward, "jvp": jvp}

    def _no_more(self) -> dict[str, Callable[..., Any]]:
        def refuse(ctx: Any, *_: Maybe) -> Any:
            self._recorded.refuse("second derivatives")

        return {"setup_context": lambda ctx, inputs, output: None, "backward": refuse, "jvp": refuse}


def _described(tensor: Tensor) -> tuple[tuple[Any, ...], str]:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _stream(tensors: Sequence[Tensor]) -> int | None:
    """On which the inputs on a GPU are, None on the CPU."""
    return next((current_stream(t) for t in tensors if t.is_cuda), None)


def _one_or_all(made: list[Tensor]) -> Any:
    return made[0] if len(made) == 1 else tuple(made)


def program_op(program: Program) -> ProgramOp:
    """Making it again gives the same one."""
    recorded = recorded_of(program)
    with COMPILING:
        if recorded.name not in _made:
            _made[recorded.name] = ProgramOp(recorded)
        return _made[recorded.name]
