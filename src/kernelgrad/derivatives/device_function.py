"""`__device__` and host functions as Python objects: run once, by one thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..autodiff.accumulate.choice import Facts
from ..errors import ArgumentError, LaunchError, UnsupportedError
from ..ir.builder import Builder
from ..ir.ops import Block, Function, Param, Value
from ..ir.types import Pointer, Scalar, Type
from ..kernel import Kernel, stream_of
from ..launches.choice.binding import RESULT
from ..launches.choice.forms import Forms
from ..launches.choice.variant import Variant
from ..launches.memory.half_adjoints import in_float
from ..launches.plan import LaunchPlan, Preparation
from ..runtime.arguments import Placement
from ..runtime.config import make_launch
from ..runtime.integers import known_launch
from ..runtime.launch_memory import LaunchMemory
from ..runtime.layouts import scalar_dtype
from ..runtime.recording import refuse_while_recording
from ..runtime.scratch import Scratch
from ..runtime.signature import c_signature
from .asked.settings import Settings
from .differentiated import Differentiated

_ONE_THREAD = make_launch(1, 1)


def as_kernel(function: Function) -> Function:
    """A kernel that calls the function once and leaves its value in memory that the launcher supplies."""
    if not function.body.results:
        return replace(function, kind="kernel")
    (value,) = function.body.results
    result = Value(Pointer(value.type, "global"), RESULT)
    b = Builder(function.span)
    b.store(result, value)
    params = (*function.params, Param(result, "void *", variable=RESULT))
    return replace(function, kind="kernel", params=params, body=Block((), (*function.body.ops, *b.ops), ()))


class DeviceFunction:
    """A function that is not a kernel: `f.execute(*arguments)` runs it once."""

    def __init__(self, function: Function, kernel: Kernel):
        self.function, self.kernel = function, kernel

    @property
    def name(self) -> str:
        return self.function.name

    def __repr__(self) -> str:
        return c_signature(self.function)

    def _repr_html_(self) -> str:
        from ..runtime.notebook import gradient_html

        return gradient_html(repr(self), self.source)

    @property
    def source(self) -> str:
        return self.kernel.source

    def execute(self, *args: Any, device: str | None = None) -> Any:
        if self.kernel.written:
            refuse_while_recording(f"{self.name}, which is not a kernel and writes arrays,")
        bound, placement = self.kernel.bind(args)
        check_device(self.function, device, placement)
        own = LaunchMemory()
        result = result_memory(self.function.result_type, placement, own)
        self.kernel.run(_ONE_THREAD, bound, placement, own.supplied)
        return read_result(result, self.function.result_type)

    __call__ = execute

    def __getitem__(self, key: Any) -> Any:
        raise LaunchError(f"{self.name} is not a kernel: call it with .execute(...)")


def check_device(function: Function, device: str | None, placement: Placement) -> None:
    """Arrays say where a function runs. One of the host has nothing to run elsewhere, as others of its kind have."""
    if device not in (None, "cpu", "cuda"):
        raise ArgumentError(f"{function.name}: device wants 'cpu' or 'cuda', got {device!r}")
    found = "cpu" if placement.cuda is None else "cuda"
    if device not in (None, found) and not (function.kind == "host" and device == "cuda"):
        raise ArgumentError(f"{function.name}: device='{device}', but the arrays are on the other one: {found}")


class FunctionGradient(Differentiated):
    """The gradient of a function: `f.execute(*arguments, *adjoints)` returns its value."""

    def __init__(self, target: DeviceFunction, settings: Settings):
        self.target = target
        always = (RESULT,) if target.function.result_type is not None else ()
        super().__init__(target.kernel, settings, Forms(target.kernel, settings, Facts(alone=True), always))
        if self.variant().derivative.won_buffers:
            reason = "an atomic maximum, minimum or exchange has a gradient in kernels only"
            raise UnsupportedError(reason, self.shown.span, "differentiate the kernel that calls the function")

    @property
    def shown(self) -> Function:
        return self.target.function

    def __repr__(self) -> str:
        return f"<gradient {self.signature}>"

    def _repr_html_(self) -> str:
        from ..runtime.notebook import gradient_html

        return gradient_html(repr(self), self.source)

    @property
    def source(self) -> str:
        return "\n".join(k.source for k in self.variant().kernels)

    def explain(self) -> str:
        from ..explain.report import explain_any

        return explain_any(self)

    def execute(self, *args: Any, seed: float = 1.0, device: str | None = None, **adjoints: Any) -> Any:
        """Its value; the adjoints are added to. The value's own adjoint is `seed`. `device`: where the arrays are."""
        refuse_while_recording("a gradient, which has no second order here,")
        own_args, given = self.separate(args, adjoints)
        wanted = tuple(name for name, adjoint in given.items() if adjoint is not None)
        primal, _ = self.kernel.bind(own_args)
        known = known_launch(self.kernel.function, wanted, _ONE_THREAD, primal)
        variant = self.forms.for_launch(known)
        (kernel,) = variant.kernels
        own = LaunchMemory()
        given = in_float(self.kernel.function, given, _ONE_THREAD, own)
        bound, placement = kernel.bind((*own_args, *(given[n] for n in wanted)))
        check_device(self.target.function, device, placement)
        self.check_sizes(variant, bound)
        plan = LaunchPlan(variant, known)
        self.check_overlap(variant, bound, own, plan.written)
        result = result_memory(self.target.function.result_type, placement, own)
        self._seed(variant, seed, placement, own)
        plan.prepare(Preparation(_ONE_THREAD, bound, placement, stream_of(_ONE_THREAD, placement), own))
        kernel.run(own.sized(_ONE_THREAD), bound, placement, own.supplied)
        own.finish()
        return read_result(result, self.target.function.result_type)

    def _seed(self, variant: Variant, seed: float, placement: Placement, own: LaunchMemory) -> None:
        type = self.target.function.result_type
        if type is None:
            return
        if not isinstance(type, Scalar):
            raise LaunchError(f"{self.target.name} does not return a number, and so cannot be seeded")
        param = variant.derivative.adjoints[RESULT]
        assert isinstance(param.type, Pointer) and isinstance(param.type.pointee, Scalar)
        data = np.array([seed], scalar_dtype(param.type.pointee))  # a half's adjoint is a float
        memory = own.add(param.name, Scratch(data.nbytes, placement.cuda, 0))
        memory.write(data.tobytes())

    def execute_kernel(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError(f"{self.target.name} is not a kernel: use execute(...)")

    def __getitem__(self, key: Any) -> Any:
        raise LaunchError(f"{self.target.name} is not a kernel: use execute(...)")


def result_memory(type: Type | None, placement: Placement, own: LaunchMemory) -> Scratch | None:
    return None if type is None else own.add(RESULT, Scratch(type.size, placement.cuda, 0))


def read_result(memory: Scratch | None, type: Type | None) -> Any:
    if memory is None or type is None:
        return None
    data = memory.read()
    if isinstance(type, Scalar):
        dtype = scalar_dtype(type)
        return np.frombuffer(data, dtype if not isinstance(dtype, str) else np.uint16)[0].item()
    return data
