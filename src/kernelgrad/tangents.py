"""Forward mode as a Python object: `t = jvp(kernel, "out, in")`, then `t[grid, block](out, in_, n, t_out, t_in)`.

It also takes a gradient, which is a kernel like any other: second derivatives. What the launcher supplies to that one
(the tape, shadows of unlisted buffers) then gets tangents that the launcher supplies too, zeroed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import pipeline
from .autodiff import activity, roots, rotate
from .autodiff.forward import jvp
from .autodiff.forward_activity import has_tangent
from .errors import ArgumentError, LaunchError
from .functions import DeviceFunction, read_result, result_memory
from .gradients import Gradient, Names, Own, has_derivative, names_of
from .ir.ops import Function, Param, Value
from .ir.ops import Module as IRModule
from .ir.types import Pointer, Struct, Type
from .kernels import Kernel
from .runtime.arguments import Placement
from .runtime.config import Launch, make_launch, parse_launch
from .runtime.launch import BoundArguments
from .runtime.overlap import check_overlap
from .runtime.scratch import Scratch
from .runtime.signature import c_signature, declare, user_params

_RESULT = "_result"


@dataclass(frozen=True)
class Prepared:
    """A launch of the kernel to differentiate: the kernel itself and what its launcher supplies to it."""

    kernel: Kernel
    launch: Launch
    bound: BoundArguments
    placement: Placement
    own: Own


class Code:
    """The tangent's code for one kernel and one choice of wanted tangents.

    `internal`: parameters and module variables that are not wanted but through which derivatives flow.
    """

    def __init__(self, kernel: Kernel, listed: tuple[str, ...]):
        self.internal = _flowing(kernel.function, kernel.module, listed)
        made = jvp(kernel.function, kernel.module, (*listed, *self.internal))
        self.tangents = dict(zip(self.internal, made.tangents[len(listed) :], strict=True))
        hidden = set(self.tangents.values())
        params = [replace(p, variable=p.name) if p.name in hidden else p for p in made.function.params]
        ordered = tuple(sorted(params, key=lambda p: p.variable is not None))
        function = replace(made.function, params=ordered)
        self.kernel = Kernel(function.name, pipeline.finish_derivative(function, made.module), kernel.variable)


def _flowing(function: Function, module: IRModule, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Memory that is not listed, where values that depend on the listed parameters are kept (rule 13)."""
    function = rotate.run(function, module)
    memory = roots.analyse(function)
    by_name = {p.name: p.value for p in function.params} | memory.global_names
    inputs = frozenset(by_name[name] for name in listed if name in by_name)
    found = activity.analyse(function, memory, inputs, frozenset(by_name.values())).roots
    pointers = [
        p.name
        for p in function.params
        if isinstance(p.type, Pointer) and has_tangent(p.type.pointee) and p.value in found
    ]
    variables = [n for n, root in memory.global_names.items() if root in found and module.globals[n].space == "global"]
    return tuple(name for name in (*pointers, *variables) if name not in listed)


class Differential:
    """What the tangents of kernels and of functions share: their code, names, and the binding of arguments."""

    def __init__(self, listed: tuple[str, ...], params: tuple[Param, ...], signature: str):
        self.listed, self.params, self.primal_signature = listed, params, signature
        self._codes: dict[tuple[int, tuple[str, ...]], tuple[Kernel, Code]] = {}
        self._lock = threading.Lock()

    def code(self, kernel: Kernel, listed: tuple[str, ...]) -> Code:
        with self._lock:
            key = (id(kernel), listed)
            if key not in self._codes:
                self._codes[key] = (kernel, Code(kernel, listed))  # the kernel stays, so its id does
            return self._codes[key][1]

    @property
    def tangent_names(self) -> tuple[str, ...]:
        taken = {p.name for p in self.params}
        return tuple(_fresh(f"t_{name}", taken) for name in self.listed)

    @property
    def signature(self) -> str:
        types = {p.name: _tangent_type(p) for p in self.params}
        tangents = [declare(types[n], t) for n, t in zip(self.listed, self.tangent_names, strict=True)]
        head, _, tail = self.primal_signature.rpartition(")")
        return f"{head}, {', '.join(tangents)}){tail}"

    def separate(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The primal's own arguments, and the tangent of each listed parameter."""
        own, names = len(self.params), self.tangent_names
        if keywords:
            if set(keywords) != set(names) or len(args) != own:
                raise ArgumentError(
                    f"give {own} arguments and the tangents {', '.join(names)} by name\n  {self.signature}"
                )
            given = [keywords[n] for n in names]
        else:
            if len(args) != own + len(names):
                problem = f"takes {own} arguments and {len(names)} tangents, got {len(args)}"
                raise ArgumentError(f"{problem}\n  {self.signature}")
            given = list(args[own:])
        return args[:own], dict(zip(self.listed, given, strict=True))

    def run(self, code: Code, primal: Prepared, args: tuple[Any, ...]) -> dict[str, Scratch]:
        """Launches; what is internal gets zeros as its tangent, and is given back."""
        bound, placement = code.kernel.bind(args)
        check_overlap(code.kernel.function, bound, code.kernel.written)
        made: dict[str, Scratch] = {}
        for name, tangent in code.tangents.items():
            memory = Scratch(_size(name, primal), placement.cuda, placement.stream()).zero()
            made[name] = primal.own.add(tangent, memory)
        code.kernel.run(primal.launch, bound, placement, primal.own.supplied)
        return made


class Tangent(Differential):
    """The forward-mode derivative of a kernel or of a gradient: `t[grid, block](*arguments, *tangents)`."""

    def __init__(self, target: Kernel | Gradient, listed: tuple[str, ...]):
        self.target = target
        params, signature = _interface(target)
        super().__init__(listed, params, signature)
        kernel = target.variant().kernels[0] if isinstance(target, Gradient) else target
        # What cannot be differentiated is known now, not at the first launch.
        self._first = self.code(kernel, self._names(listed))

    def __repr__(self) -> str:
        return f"<jvp {self.signature}>"

    def __getitem__(self, key: Any) -> Callable[..., None]:
        launch = parse_launch(key)
        return lambda *args, **keywords: self._launch(launch, args, keywords)

    def execute_kernel(
        self, grid: Any, block: Any, *args: Any, shared: Any = 0, stream: Any = None, **tangents: Any
    ) -> None:
        self._launch(make_launch(grid, block, shared, stream), args, tangents)

    def execute(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError("this is the tangent of a kernel: use execute_kernel(grid, block, ...), or t[grid, block]")

    @property
    def source(self) -> str:
        """The tangent as CUDA C++ that plain nvcc compiles."""
        return self._first.kernel.source

    def _names(self, listed: tuple[str, ...]) -> tuple[str, ...]:
        """The parameters' names in the code: a gradient's adjoints have other names there than in its signature."""
        if not isinstance(self.target, Gradient):
            return listed
        inside = self.target.variant().derivative.adjoints
        shown = dict(zip(self.target.adjoint_names, (inside[n].name for n in self.target.settings.listed), strict=True))
        return tuple(shown.get(name, name) for name in listed)

    def _launch(self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        own_args, tangents = self.separate(args, keywords)
        wanted = tuple(name for name, tangent in tangents.items() if tangent is not None)
        primal = self._prepare(launch, own_args)
        code = self.code(primal.kernel, self._names(wanted))
        passed = tuple(a for a, p in zip(own_args, self.params, strict=True) if self._is_passed(a, p))
        self.run(code, primal, (*passed, *(tangents[n] for n in wanted)))

    def _prepare(self, launch: Launch, args: tuple[Any, ...]) -> Prepared:
        if isinstance(self.target, Gradient):
            kernel, bound, placement, own = self.target._prepare(launch, args, {})
            return Prepared(kernel, launch, bound, placement, own)
        bound, placement = self.target.bind(args)
        return Prepared(self.target, launch, bound, placement, Own())

    def _is_passed(self, argument: Any, param: Param) -> bool:
        """An adjoint that is not wanted is no parameter of the gradient's code."""
        unwanted = isinstance(self.target, Gradient) and param.name in self.target.adjoint_names and argument is None
        return not unwanted


class FunctionTangent(Differential):
    """The forward-mode derivative of a function: `t.execute(*arguments, *tangents)` gives its value and tangent."""

    def __init__(self, target: DeviceFunction, listed: tuple[str, ...]):
        self.target = target
        super().__init__(listed, user_params(target.function), c_signature(target.function))
        self._first = self.code(target.kernel, listed)

    def __repr__(self) -> str:
        return f"<jvp {self.signature}>"

    @property
    def source(self) -> str:
        return self._first.kernel.source

    def execute(self, *args: Any, **keywords: Any) -> Any:
        own_args, tangents = self.separate(args, keywords)
        wanted = tuple(name for name, tangent in tangents.items() if tangent is not None)
        code = self.code(self.target.kernel, wanted)
        bound, placement = self.target.kernel.bind(own_args)
        own, type = Own(), self.target.function.result_type
        result = result_memory(type, placement, own)
        primal = Prepared(self.target.kernel, make_launch(1, 1), bound, placement, own)
        made = self.run(code, primal, (*own_args, *(tangents[n] for n in wanted)))
        return read_result(result, type), read_result(made[_RESULT], type) if _RESULT in made else 0.0

    def execute_kernel(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError(f"{self.target.name} is not a kernel: use execute(...)")

    def __getitem__(self, key: Any) -> Any:
        raise LaunchError(f"{self.target.name} is not a kernel: use execute(...)")


# ---- small things -------------------------------------------------------------------------------------------------


def make_tangent(target: Kernel | Gradient | DeviceFunction, parameters: Names) -> Tangent | FunctionTangent:
    if isinstance(target, DeviceFunction):
        return FunctionTangent(target, _listed(parameters, *_interface(target)))
    return Tangent(target, _listed(parameters, *_interface(target)))


def _interface(target: Kernel | Gradient | DeviceFunction) -> tuple[tuple[Param, ...], str]:
    """The parameters that a user sees, and the signature they stand in."""
    if not isinstance(target, Gradient):
        return user_params(target.function), c_signature(target.function)
    inside = target.variant().derivative.adjoints
    adjoints = [
        replace(inside[n], value=Value(inside[n].type, shown))
        for n, shown in zip(target.settings.listed, target.adjoint_names, strict=True)
    ]
    return (*user_params(target.kernel.function), *adjoints), target.signature


def _listed(parameters: Names, params: tuple[Param, ...], signature: str) -> tuple[str, ...]:
    by_name = {p.name: p for p in params}
    if parameters is None:
        return tuple(n for n, p in by_name.items() if _can_list(p.type))
    listed = names_of(parameters)
    for name in listed:
        if name not in by_name:
            raise ArgumentError(f"no parameter '{name}'\n  {signature}")
        if not _can_list(by_name[name].type):
            reason = f"parameter '{name}' ({by_name[name].c_type}) holds no floating-point numbers"
            raise ArgumentError(f"{reason} and cannot be differentiated\n  {signature}")
    if not listed:
        raise ArgumentError(f"nothing to differentiate\n  {signature}")
    return listed


def _can_list(type: Type) -> bool:
    if isinstance(type, Struct):
        return any(_can_list(f.type) for f in type.fields)
    return has_derivative(type)


def _tangent_type(param: Param) -> str:
    by_value = not roots.holds_pointers(param.type)
    return f"const {param.c_type.removeprefix('const ')} *" if by_value else param.c_type


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name


def _size(name: str, primal: Prepared) -> int:
    """The bytes of memory that is not listed."""
    found = sum(b.nbytes for b in primal.bound.buffers if b.name == name)
    if found or name not in primal.own.supplied:
        declared = primal.kernel.module.globals.get(name)
        return declared.type.size if declared is not None else found
    return primal.own.supplied[name].nbytes
