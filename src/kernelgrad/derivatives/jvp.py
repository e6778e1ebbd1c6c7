"""Forward mode as a Python object: `t = jvp(kernel, "out, in")`, then `t[grid, block](out, in_, n, t_out, t_in)`.

Its code is also made of gradients, which are kernels like any other: second derivatives (`second_order`). What the
launcher supplies to those (the tape, shadows of unlisted buffers) gets tangents that the launcher supplies too, zeroed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import pipeline, requests
from ..analysis import roots
from ..autodiff.calculus import activity
from ..autodiff.calculus.forward_activity import has_tangent
from ..autodiff.calculus.views import zero_words
from ..autodiff.forward import TANGENT_SHARED, jvp
from ..autodiff.refusals.bits import refuse_bits
from ..deep import deeply
from ..errors import ArgumentError, LaunchError
from ..ir.ops import Function, Param
from ..ir.ops import Module as IRModule
from ..ir.types import Pointer, Struct
from ..kernel import Kernel, stream_of
from ..launches.choice.binding import RESULT
from ..locks import COMPILING
from ..requests import Names, names_in
from ..runtime.arguments import Expected, Placement
from ..runtime.buffer_checks import Pair, check_alignment, check_overlap, check_sizes
from ..runtime.config import Launch, make_launch, parse_launch
from ..runtime.launch import BoundArguments
from ..runtime.launch_memory import LaunchMemory
from ..runtime.recording import is_recorded
from ..runtime.scratch import Scratch
from ..runtime.signature import c_signature, declare, user_params
from ..transforms import bit_moves, cas_loops, rotate
from .asked.settings import check_outputs, has_derivative, no_numbers
from .device_function import DeviceFunction, read_result, result_memory
from .module_variables import with_variables
from .struct_adjoints import completed, named


@dataclass(frozen=True)
class Interface:
    """What a user sees: the name, the parameters arguments are given for, module variables that can be listed, the
    signature."""

    name: str
    params: tuple[Param, ...]
    variables: tuple[Param, ...]
    signature: str


@dataclass(frozen=True)
class Prepared:
    """A launch of the kernel to differentiate: the kernel itself and what its launcher supplies to it."""

    kernel: Kernel
    launch: Launch
    bound: BoundArguments
    placement: Placement
    own: LaunchMemory


class Code:
    """The tangent's code for one kernel and one choice of wanted tangents.

    `internal`: parameters and module variables that are not wanted but through which derivatives flow.
    """

    @deeply
    def __init__(self, kernel: Kernel, listed: tuple[str, ...], report_nan: bool = False):
        function = bit_moves.run(cas_loops.run(kernel.function, kernel.module), kernel.module)
        self.internal = _flowing(function, kernel.module, listed)
        made = jvp(function, kernel.module, (*listed, *self.internal), report_nan)
        self.tests = made.tests
        self.given = dict(zip(listed, made.tangents, strict=False))
        self.tangents = dict(zip(self.internal, made.tangents[len(listed) :], strict=True))
        params = [_supplied(p, self.tangents.values(), made.tangents) for p in made.function.params]
        ordered = tuple(sorted(params, key=lambda p: p.variable is not None))
        function = replace(made.function, params=ordered)
        own = made.module.globals.keys() - kernel.module.globals.keys()
        memory = frozenset((*made.tangents, *own, TANGENT_SHARED))
        module = pipeline.finish_derivative(function, made.module, adjoints=memory)
        self.kernel = Kernel(function.name, module, kernel.variable)


def _supplied(param: Param, internal: Iterable[str], tangents: Iterable[str]) -> Param:
    """Internal tangents come from the launcher, the others from the user; also those of module variables."""
    if param.name in internal:
        return replace(param, variable=param.name)
    return replace(param, variable=None) if param.name in tangents else param


def _flowing(function: Function, module: IRModule, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Memory that is not listed, where values that depend on the listed parameters are kept (rule 13)."""
    function = rotate.run(function, module)
    memory = roots.analyse(function)
    by_name = {p.name: p.value for p in function.params} | memory.global_names
    inputs = frozenset(by_name[name] for name in listed if name in by_name)
    active = activity.analyse(function, memory, inputs, frozenset(by_name.values()))
    refuse_bits(function, memory, active, zero_words(function))
    found = active.roots
    written = memory.written()
    kept = {p.value for p in function.params if p.variable is not None and p.value in written}  # a tape of pointers
    pointers = [
        p.name
        for p in function.params
        if isinstance(p.type, Pointer) and has_tangent(p.type.pointee)
        if p.value in found or (p.value in kept and isinstance(p.type.pointee, Pointer))
    ]
    variables = [n for n, root in memory.global_names.items() if root in found and module.globals[n].space == "global"]
    return tuple(name for name in (*pointers, *variables) if name not in listed)


class Differential:
    """What the tangents of kernels and of functions share: their code, names, and the binding of arguments."""

    may_alias = False

    def __init__(self, parameters: Names, interface: Interface, report_nan: bool = False):
        self.report_nan = report_nan
        self.name, self.params, self.primal_signature = interface.name, interface.params, interface.signature
        self.types = {p.name: p for p in (*interface.params, *interface.variables)}
        self.listed = _listed(parameters, self.types, interface)
        self._codes: dict[tuple[int, tuple[str, ...]], tuple[Kernel, Code]] = {}

    def code(self, kernel: Kernel, listed: tuple[str, ...]) -> Code:
        key = (id(kernel), listed)
        with COMPILING:
            if key not in self._codes:
                self._codes[key] = (kernel, Code(kernel, listed, self.report_nan))  # the kernel stays, so its id does
            return self._codes[key][1]

    @property
    def tangent_names(self) -> tuple[str, ...]:
        taken = {p.name for p in self.params}
        return tuple(_fresh(f"t_{name}", taken) for name in self.listed)

    @property
    def signature(self) -> str:
        names = zip(self.listed, self.tangent_names, strict=True)
        tangents = [declare(tangent_declared(self.types[name]), tangent) for name, tangent in names]
        head, _, tail = self.primal_signature.rpartition(")")
        return f"{head}, {', '.join(tangents)}){tail}"

    def separate(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The primal's own arguments, and the tangent of each listed parameter."""
        own = tuple(p.called for p in self.params)
        expected = Expected(own, self.tangent_names, "tangents", self.signature)
        own_args, given = expected.separate(args, keywords)
        return own_args, {n: self._completed(n, tangent) for n, tangent in zip(self.listed, given, strict=True)}

    def _completed(self, name: str, tangent: Any) -> Any:
        """What has no derivative need not be given."""
        type = self.types[name].type
        if not isinstance(type, Struct) or not roots.holds_pointers(type):
            return tangent
        with named(self.name):
            return completed(name, type, tangent, "tangent")

    def run(self, code: Code, primal: Prepared, args: tuple[Any, ...]) -> dict[str, Scratch]:
        """Launches, and gives what it made for the tangents of what is internal."""
        bound, placement = self.bind(code, primal, args)
        launch, made = supplied(code, primal)
        code.kernel.run(launch, bound, placement, primal.own.supplied)
        primal.own.finish()
        return made

    def bind(self, code: Code, primal: Prepared, args: tuple[Any, ...]) -> tuple[BoundArguments, Placement]:
        bound, placement = code.kernel.bind(args)
        params = {p.name: p for p in (*primal.kernel.function.params, *code.kernel.function.params)}
        pairs = [
            Pair(params[name], params[tangent], params[tangent].called)
            for name, tangent in code.given.items()
            if name in params
        ]
        check_sizes(primal.kernel.function.called, "tangent", pairs, bound)
        if placement.cuda is not None and primal.kernel.cast_alignments:
            check_alignment(primal.kernel.function.called, "tangent", pairs, bound, primal.kernel.cast_alignments)
        if not self.may_alias:
            check_overlap(code.kernel.function, bound, code.kernel.written, primal.kernel.of_variables)
        return bound, placement


def supplied(code: Code, primal: Prepared) -> tuple[Launch, dict[str, Scratch]]:
    """The launch with what the code needs besides its arguments: zeros as the tangents of what is internal."""
    own, placement, made = primal.own, primal.placement, dict[str, Scratch]()
    stream = stream_of(primal.launch, placement)
    for name, tangent in code.tangents.items():
        made[name] = own.add(tangent, Scratch(_size(name, primal), placement.cuda, stream).zero())
    launch = own.sized(primal.launch)
    if code.tests is not None:
        from ..launches.memory.finite_report import add_records

        add_records(code.tests, launch, placement, stream, own)
    if any(p.variable == TANGENT_SHARED for p in code.kernel.function.params):
        own.double_shared(launch, TANGENT_SHARED)
    return own.sized(launch), made


class Tangent(Differential):
    """The forward-mode derivative of a kernel: `t[grid, block](*arguments, *tangents)`. `outputs`: the list must have
    one. `may_alias`: arguments may share memory, as their tangents do then; each load and store is where it was."""

    def __init__(
        self,
        target: Kernel,
        parameters: Names,
        outputs: bool = False,
        report_nan: bool = False,
        may_alias: bool = False,
    ):
        self.target, self.may_alias = with_variables(target, parameters), may_alias
        super().__init__(parameters, _interface(self.target.function), report_nan)
        if outputs:
            check_outputs(self.target.function, parameters, self.listed)
        # What cannot be differentiated is known now, not at the first launch.
        self._first = self.code(self.target, self.listed)

    def __repr__(self) -> str:
        return f"<jvp {self.signature}{'; report_nan=True' if self.report_nan else ''}>"

    def _repr_html_(self) -> str:
        from ..runtime.notebook import gradient_html

        return gradient_html(repr(self), self.source)

    def __getitem__(self, key: Any) -> Callable[..., None]:
        launch = parse_launch(key, self.name)
        return lambda *args, **keywords: self._launch(launch, args, keywords)

    def launch(
        self, *, grid: Any, block: Any, shared: Any = 0, stream: Any = None, args: Sequence[Any] = (), **tangents: Any
    ) -> None:
        """The keyword form of `t[grid, block, shared, stream](*args, **tangents)`."""
        self._launch(
            make_launch(grid, block, shared, stream, of=self.name), requests.arguments("launch", args), tangents
        )

    def execute_kernel(
        self, grid: Any, block: Any, *args: Any, shared: Any = 0, stream: Any = None, **tangents: Any
    ) -> None:
        self._launch(make_launch(grid, block, shared, stream, of=self.name), args, tangents)

    def execute(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError("this is the tangent of a kernel: use execute_kernel(grid, block, ...), or t[grid, block]")

    @property
    def source(self) -> str:
        """The tangent as CUDA C++ that plain nvcc compiles."""
        return self._first.kernel.source

    def _launch(self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        if is_recorded(self, launch, args, keywords):
            return
        self.run(*self._prepare(launch, *self.separate(args, keywords)))

    def check_arguments(self, launch: Launch, args: tuple[Any, ...]) -> None:
        """What a launch would say of its arguments."""
        self.bind(*self._prepare(launch, *self.separate(args, {})))

    def _prepare(
        self, launch: Launch, own_args: tuple[Any, ...], tangents: Mapping[str, Any]
    ) -> tuple[Code, Prepared, tuple[Any, ...]]:
        wanted = tuple(name for name, tangent in tangents.items() if tangent is not None)
        bound, placement = self.target.bind(own_args)
        primal = Prepared(self.target, launch, bound, placement, LaunchMemory())
        return self.code(self.target, wanted), primal, (*own_args, *(tangents[n] for n in wanted))


class FunctionTangent(Differential):
    """The forward-mode derivative of a function: `t.execute(*arguments, *tangents)` gives its value and tangent."""

    def __init__(self, target: DeviceFunction, parameters: Names, report_nan: bool = False):
        self.target = with_variables(target, parameters)
        super().__init__(parameters, _interface(self.target.function), report_nan)
        self._first = self.code(self.target.kernel, self.listed)

    def __repr__(self) -> str:
        return f"<jvp {self.signature}>"

    def _repr_html_(self) -> str:
        from ..runtime.notebook import gradient_html

        return gradient_html(repr(self), self.source)

    @property
    def source(self) -> str:
        return self._first.kernel.source

    def execute(self, *args: Any, **keywords: Any) -> Any:
        own_args, tangents = self.separate(args, keywords)
        wanted = tuple(name for name, tangent in tangents.items() if tangent is not None)
        code = self.code(self.target.kernel, wanted)
        bound, placement = self.target.kernel.bind(own_args)
        own, type = LaunchMemory(), self.target.function.result_type
        result = result_memory(type, placement, own)
        primal = Prepared(self.target.kernel, make_launch(1, 1), bound, placement, own)
        made = self.run(code, primal, (*own_args, *(tangents[n] for n in wanted)))
        return read_result(result, type), read_result(made[RESULT], type) if RESULT in made else 0.0

    def execute_kernel(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError(f"{self.target.name} is not a kernel: use execute(...)")

    def __getitem__(self, key: Any) -> Any:
        raise LaunchError(f"{self.target.name} is not a kernel: use execute(...)")


# ---- small things -------------------------------------------------------------------------------------------------


def make_tangent(
    target: Kernel | DeviceFunction, parameters: Names, report_nan: bool = False
) -> Tangent | FunctionTangent:
    if isinstance(target, DeviceFunction):
        function = FunctionTangent(target, parameters, report_nan)
        check_outputs(function.target.function, parameters, function.listed)
        return function
    return Tangent(target, parameters, outputs=True, report_nan=report_nan)


def _interface(function: Function) -> Interface:
    variables = tuple(p for p in function.params if p.variable not in (None, RESULT))
    return Interface(function.called, user_params(function), variables, c_signature(function))


def _listed(parameters: Names, known: Mapping[str, Param], interface: Interface) -> tuple[str, ...]:
    if parameters is None:
        return tuple(p.name for p in interface.params if has_derivative(p.type))
    listed = names_in(parameters, known.values())
    for name in listed:
        if name not in known:
            raise ArgumentError(f"no parameter '{name}'\n  {interface.signature}")
        if not has_derivative(known[name].type):
            raise no_numbers(known[name], interface.signature)
    if not listed:
        raise ArgumentError(f"nothing to differentiate\n  {interface.signature}")
    return listed


def tangent_declared(param: Param) -> str:
    by_value = not roots.holds_pointers(param.type)
    return f"const {param.c_type.removeprefix('const ')} *" if by_value else param.c_type


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name


def _size(name: str, primal: Prepared) -> int:
    """The bytes of memory that is not listed."""
    found = sum(b.nbytes for b in primal.bound.buffers if b.name == name)
    if not found and name in primal.own.supplied:
        return primal.own.supplied[name].nbytes
    passed = {p.name: p.variable for p in primal.kernel.function.params}
    variable = passed.get(name, name if name in primal.kernel.module.globals else None)
    return found if variable is None else primal.kernel.variable(variable).type.size
