"""Gradients by integers, asked for from Python: of the real function that a kernel or a function computes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import pipeline
from ..autodiff.integers import are_integers, as_reals
from ..derivatives.device_function import DeviceFunction, FunctionGradient, as_kernel
from ..derivatives.gradient import Gradient
from ..errors import ArgumentError, Span, UnsupportedError
from ..host import transfers
from ..ir.ops import Function, Module
from ..ir.types import Pointer, Scalar
from ..kernel import Kernel
from ..requests import Names, names_in
from ..runtime.arguments import Expected
from ..runtime.arrays import ArrayView, view
from ..runtime.config import Launch, make_launch, parse_launch
from ..runtime.recording import refuse_while_recording
from ..runtime.signature import c_signature, user_params
from .real_buffers import RealBuffers

Target = Kernel | DeviceFunction


def listed_integers(function: Function, parameters: Names) -> frozenset[str]:
    """The parameters that a user names and that lead to integers."""
    listed = names_in(parameters, function.params) if parameters is not None else ()
    return frozenset(p.name for p in function.params if p.name in listed and are_integers(p.type))


def kinds_of(function: Function, integers: frozenset[str]) -> dict[str, Scalar]:
    """Of what these parameters lead to."""
    kinds = {p.name: p.type.pointee for p in function.params if p.name in integers and isinstance(p.type, Pointer)}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, Scalar)}


def real_module(module: Module, name: str, integers: frozenset[str], span: Span) -> Module:
    """With doubles for integers. Everything that gets numbers computed from them must be among them."""
    made = as_reals(module, name, integers)
    more = ", ".join(sorted(made.names - integers))
    if more:
        problem = f"'{more}' gets numbers that are computed from integers that are differentiated by"
        raise UnsupportedError(problem, span, f"differentiate by {more}, too")
    return made.module


def real_kernel(kernel: Kernel, integers: frozenset[str]) -> Kernel:
    module = real_module(kernel.module, kernel.name, integers, kernel.function.span)
    return Kernel(kernel.name, pipeline.compile_kernel(module, kernel.name), kernel.variable)


def real_target(target: Target, integers: frozenset[str]) -> Target:
    if isinstance(target, Kernel):
        return real_kernel(target, integers)
    own, name = target.kernel, target.name
    alone = replace(own.module, functions={name: target.function})
    module = real_module(alone, name, integers, target.function.span)
    function = module.functions[name]
    whole = pipeline.compile_kernel(replace(module, functions={name: as_kernel(function)}), name)
    return DeviceFunction(function, Kernel(name, whole, own.variable))


class IntegerGradient:
    """`g[grid, block](*arguments, *adjoints)`, or `g.execute(...)` of a function. Arrays of integers are doubles for
    the length of a call, which is done when it returns; their adjoints are integers like them, or doubles."""

    def __init__(self, target: Target, of: Gradient | FunctionGradient, integers: frozenset[str]):
        """`of`: the gradient with doubles for them."""
        self.target, self.of = target, of
        self.integers = kinds_of(target.function, integers)
        self._dtypes = {name: _dtype(kind) for name, kind in self.integers.items()}
        kernel = target.kernel if isinstance(target, DeviceFunction) else target
        self._written = kernel.written
        self._own = tuple(p.called for p in user_params(target.function))
        self._expected = Expected(self._own, of.adjoint_names, "adjoints", self.signature)

    @property
    def signature(self) -> str:
        return f"{c_signature(self.target.function)}, then {', '.join(self.of.adjoint_names)}"

    @property
    def kernel_gradient(self) -> Gradient:
        """By doubles."""
        assert isinstance(self.of, Gradient)
        return self.of

    @property
    def adjoint_names(self) -> tuple[str, ...]:
        return self.of.adjoint_names

    @property
    def source(self) -> str:
        """The gradient as CUDA C++, in which the integers are doubles."""
        return self.of.source

    def explain(self) -> str:
        return self.of.explain()

    def __repr__(self) -> str:
        return f"<gradient {self.signature}>"

    def __getitem__(self, key: Any) -> Callable[..., None]:
        if isinstance(self.of, FunctionGradient):
            self.of[key]  # which is an error
        launch = parse_launch(key, self.target.name)
        return lambda *args, **adjoints: self._launch(launch, args, adjoints)

    def launch(
        self, *, grid: Any, block: Any, shared: Any = 0, stream: Any = None, args: Sequence[Any] = (), **adjoints: Any
    ) -> None:
        self._launch(make_launch(grid, block, shared, stream, of=self.target.name), tuple(args), adjoints)

    def execute_kernel(
        self, grid: Any, block: Any, *args: Any, shared: Any = None, stream: Any = None, **adjoints: Any
    ) -> None:
        """Runs the kernel and its gradient. After block, both or neither: shared_bytes, stream."""
        if isinstance(self.of, FunctionGradient):
            self.of.execute_kernel()
        if len(args) == len(self._own) + (0 if adjoints else len(self.adjoint_names)) + 2:
            shared, stream, *rest = args
            args = tuple(rest)
        self._launch(make_launch(grid, block, shared or 0, stream, of=self.target.name), args, adjoints)

    def execute(self, *args: Any, seed: float = 1.0, **adjoints: Any) -> Any:
        of = self.of
        if isinstance(of, Gradient):
            return of.execute()  # which is an error
        found = self._run(args, adjoints, lambda *given: of.execute(*given, seed=seed))
        (result,) = self.target.function.body.results or (None,)
        is_number = result is not None and isinstance(result.type, Scalar) and not result.type.is_float
        return int(found) if is_number else found

    def _launch(self, launch: Launch, args: tuple[Any, ...], adjoints: Mapping[str, Any]) -> None:
        assert isinstance(self.of, Gradient)
        self._run(args, adjoints, self.of[launch.grid, launch.block, launch.shared_bytes])

    def _run(self, args: tuple[Any, ...], adjoints: Mapping[str, Any], call: Callable[..., Any]) -> Any:
        refuse_while_recording("a gradient by integers")
        own, given = self._expected.separate(args, adjoints)
        names = (*self._names, *self.of.settings.shown)
        pairs = zip(names, (*own, *given), strict=True)
        values = [self._array(name, value, k >= len(own)) for k, (name, value) in enumerate(pairs)]
        integers = [v for v in values if _is_real(v)]
        device = next((v.device[1] for v in integers if isinstance(v.device, tuple)), None)
        _wait(device)  # whatever stream the arrays are filled in
        buffers = RealBuffers(device, integers, (view(v) for v in values if not _is_real(v)))
        found = call(*(buffers.of(v) if _is_real(v) else v for v in values))
        _wait(device)
        buffers.put_back()
        _wait(device)
        return found

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(p.name for p in user_params(self.target.function))

    def _array(self, name: str, value: Any, is_adjoint: bool) -> Any:
        """As an array of integers, where it is to be one."""
        if name not in self._dtypes or value is None:
            return value
        found, wanted = view(value), self._dtypes[name]
        shown = f"{self.target.name}: {'d_' if is_adjoint else ''}{name}"
        if found is None:
            raise ArgumentError(f"{shown}: wants an array of {wanted}, got {value.__class__.__name__}")
        if found.dtype != wanted and not (is_adjoint and found.dtype == np.dtype("f8")):
            more = " or float64" if is_adjoint else ""
            raise ArgumentError(f"{shown}: wants an array of {wanted}{more}, got {found.dtype}")
        if not found.contiguous or (not found.writable and (is_adjoint or name in self._written)):
            raise ArgumentError(f"{shown}: wants a contiguous array that can be written")
        return found


def _dtype(type: Scalar) -> np.dtype[Any]:
    return np.dtype(f"{'i' if type.kind == 'int' else 'u'}{type.size}")


def _is_real(value: Any) -> bool:
    """Whether it gets doubles in its place."""
    return isinstance(value, ArrayView) and value.dtype != np.dtype("f8")


def _wait(device: int | None) -> None:
    if device is not None:
        transfers.synchronize(device)
