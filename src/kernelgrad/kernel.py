"""A kernel as a Python object: configure it with `kernel[grid, block]`, call it with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import pipeline, requests
from .analysis.promises import NONE, Promises
from .errors import ArgumentError, LaunchError, SourceError, UnsupportedError
from .ir.ops import Function, Param
from .ir.ops import Module as IRModule
from .locks import COMPILING, cached_property, compiling, make_lock
from .runtime.arguments import Binder, Placement, Supplied, with_variables
from .runtime.arrays import mark_written
from .runtime.config import Launch, Launchers, check_launch_bounds, make_launch
from .runtime.integers import integers_of
from .runtime.launch import BoundArguments, Buffer, Executable, LaunchConfig
from .runtime.recording import RECORDER, TRACE, refuse_look, refuse_while_recording
from .runtime.signature import c_signature
from .runtime.streams import stream_handle
from .runtime.written import written_params

if TYPE_CHECKING:
    from .runtime.check import CheckReport
    from .runtime.parameters import Parameter
    from .runtime.replay import Replays
    from .runtime.tapes import Growing, TapeMemory
    from .runtime.variables import Variable

SuppliedByName = Mapping[str, Supplied]


class Kernel:
    """A `__global__` function. NumPy arrays run it on the CPU, CUDA arrays on their GPU.

    `module` is the kernel's IR, ready for the backends; `variable` gives the module variable of an IR global.
    `written_later`: pointers through which the launcher writes when the kernel has run. `refusal`: why it has no
    derivatives, if it has none though it runs. `fixed`: arguments for which alone it is made.
    """

    def __init__(
        self,
        name: str,
        module: IRModule,
        variable: Callable[[str], Variable],
        written_later: frozenset[str] = frozenset(),
        refusal: SourceError | None = None,
    ):
        self.name, self.module = name, module
        self.function: Function = module.functions[name]
        self.variable, self.written_later = variable, written_later
        self.refusal = refusal or _refused(self.function)
        self.fixed: dict[str, int] = {}
        self._executables: dict[int | None, Executable] = {}
        self._guarded: dict[tuple[str, ...], Executable] = {}
        self._null_users: dict[tuple[str, ...], bool] = {}  # whether they have accesses through what is null
        self._constants: dict[tuple[int, str], int] = {}  # (device, name) -> version there
        self._launchers: Launchers[None] = Launchers(self._launch, name)
        self._lock = make_lock()
        self._was_launched = False

    def with_function(self, function: Function, fixed: Mapping[str, int] | None = None) -> Kernel:
        """The same kernel, written otherwise; for launches with the `fixed` numbers."""
        return self.with_module(replace(self.module, functions={**self.module.functions, self.name: function}), fixed)

    def with_module(self, module: IRModule, fixed: Mapping[str, int] | None = None) -> Kernel:
        made = Kernel(self.name, module, self.variable)
        made.fixed = {**self.fixed, **(fixed or {})}
        return made

    def __repr__(self) -> str:
        return c_signature(self.function)

    def _repr_html_(self) -> str:
        from .runtime.notebook import kernel_html

        return kernel_html(repr(self), self.parameters)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What its parameters are and what it does with them."""
        from .runtime.parameters import parameters_of

        return parameters_of(self.function, self.written)

    def __getitem__(self, key: Any) -> Callable[..., None]:
        return self._launchers[key]

    def __call__(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError(f"{self.name}: say how to launch it: kernel[grid, block](...)")

    def launch(self, *, grid: Any, block: Any, shared: Any = 0, stream: Any = None, args: Sequence[Any] = ()) -> None:
        """The keyword form of `kernel[grid, block, shared, stream](*args)`."""
        self._launch(make_launch(grid, block, shared, stream, of=self.name), requests.arguments("launch", args), {})

    def check(
        self, grid: Any, block: Any, *args: Any, shared: Any = 0, seed: int | None = None, **named: Any
    ) -> CheckReport:
        """Runs the kernel on the CPU, watched: out-of-bounds accesses, reads of memory nothing wrote, and data races
        are reported with their source lines. `seed` shuffles the order of threads and blocks."""
        launch = make_launch(grid, block, shared, of=self.name)
        bound, placement = self.bind(args, named)
        return self.check_bound(launch, bound, placement, {}, requests.seed(seed))

    def check_bound(
        self,
        launch: Launch,
        bound: BoundArguments,
        placement: Placement,
        supplied: SuppliedByName,
        seed: int | None,
        promises: Promises = NONE,
    ) -> CheckReport:
        """`promises`: of what is read of the arguments."""
        from .runtime.check import check_cpu

        refuse_while_recording(f"{self.function.called}.check, which runs the kernel,")
        if asks(self.function):
            raise LaunchError(f"{self.name}: check does not know the memory of derivatives that it asks for")
        if placement.cuda is not None:
            raise ArgumentError(f"{self.function.called}: check runs on the CPU; pass NumPy arrays")
        check_launch_bounds(self.function.called, self.function.launch_bounds, launch.block)
        config = LaunchConfig(launch.grid, launch.block, launch.shared_bytes)
        arguments = self._with_variables(self.cpu_module, bound, config, None, supplied)
        return check_cpu(self.cpu_module, self.name, config, arguments, seed, promises)

    def with_fixed_constants(self) -> Kernel:
        """The same kernel, whose `__constant__` variables hold what they hold now, whatever becomes of them."""
        if not self._constant_names:
            return self
        fixed = {name: self.variable(name).copy() for name in self._constant_names}

        def variable(name: str) -> Variable:
            return fixed[name] if name in fixed else self.variable(name)

        return Kernel(self.name, self.module, variable, self.written_later, self.refusal)

    # ---- what it becomes

    @cached_property
    @compiling
    def source(self) -> str:
        """The kernel as CUDA C++: what runs on a GPU, and what plain nvcc compiles."""
        from .backends.cuda import emit

        text = emit(self.cuda_module, self.name)
        if not asks(self.function):
            return text
        from .runtime.tapes import notes

        head, _, rest = text.partition("\n")
        return "\n".join((head, *notes(self.function), rest))

    @cached_property
    def ir(self) -> str:
        """The kernel's IR as text."""
        from .ir.printer import print_module

        return print_module(self.module)

    @cached_property
    def cpu_module(self) -> IRModule:
        return pipeline.for_target(self.module, self.name, pipeline.CPU)

    @cached_property
    def cuda_module(self) -> IRModule:
        return pipeline.for_target(self.module, self.name, pipeline.CUDA)

    @cached_property
    def written(self) -> frozenset[str]:
        """The pointer parameters it writes through."""
        return written_params(self.function) | self.written_later

    @cached_property
    def cast_alignments(self) -> dict[str, int]:
        """Where what a parameter points to must begin besides, in bytes, by its name or a member's."""
        from .runtime.casts import cast_alignments

        return cast_alignments(self.function, self.module)

    @property
    def of_variables(self) -> tuple[Buffer, ...]:
        """The memory on the host of the module's variables that are parameters here: also an argument may be there."""
        names = [p.variable for p in self.function.params if p.variable in self.module.globals]
        return tuple(Buffer(name, *self.variable(name).host_span) for name in names if name is not None)

    @property
    def packed_bytes(self) -> int:
        """The size of its arguments, without what the launcher supplies."""
        return self._binder.size

    @cached_property
    def _binder(self) -> Binder:
        return Binder(self.function, self.written)

    @cached_property
    def _tape_memory(self) -> TapeMemory:
        from .runtime.tapes import TapeMemory

        return TapeMemory(self.function.tapes)

    @cached_property
    def _growing(self) -> tuple[Growing, ...]:
        """Memory of derivatives that it asks for, of which a launch may need more."""
        from .runtime.tapes import ArenaMemory, StackMemory

        stacks = (StackMemory(self.function.stacks),) if self.function.stacks else ()
        return (*stacks, ArenaMemory()) if self.function.arena else stacks

    def variable_spans(self, device: int | None, stream: int | None) -> list[tuple[int, int]]:
        """Where the module's variables are that it uses, and how large."""
        function = (self.cpu_module if device is None else self.cuda_module).functions[self.name]
        names = [p.variable for p in function.params if p.variable in self.module.globals]
        found = [self.variable(name) for name in names if name is not None]
        return [
            (v.host_address() if device is None else v.device_address(device, stream or 0), v.type.size) for v in found
        ]

    @property
    def compiled(self) -> tuple[Executable, ...]:
        """Its machine code, for each device where it has run."""
        return tuple(self._executables.values())

    def local_bytes(self, device: int) -> int:
        """What the compiler keeps of each thread in memory, on a GPU: local arrays, and registers it had none for."""
        found: int = self._executable(device).local_bytes  # type: ignore[attr-defined]
        return found

    # ---- launching

    def bind(self, args: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> tuple[BoundArguments, Placement]:
        return self._binder.bind(args, keywords)

    def _launch(
        self, launch: Launch, args: tuple[Any, ...], keywords: dict[str, Any], supplied: SuppliedByName | None = None
    ) -> None:
        if keywords:
            args = self._binder.in_order(args, keywords)
        if self._was_launched and supplied is None and self.replays.launch(launch, args):
            return
        recorder = RECORDER.get()
        if recorder is not None:
            recorder.launch(self, launch, args, {})
            return
        bound, placement = self._binder.bind(args)
        self.run(launch, bound, placement, supplied or {})
        self._was_launched = True

    @cached_property
    @compiling
    def replays(self) -> Replays:
        """Launches that come again."""
        from .runtime.replay import Replays

        return Replays(self.function, 0, self._launch_plainly, False, self.is_plain)

    def _launch_plainly(self, launch: Launch, args: tuple[Any, ...]) -> None:
        bound, placement = self._binder.bind(args)
        self.run(launch, bound, placement, {})

    @cached_property
    def is_plain(self) -> bool:
        """Whether its launches depend on nothing but their arguments: not on variables of the module, nor on memory
        that is made for derivatives that it asks for."""
        function = self.function
        variables = any(g.space in ("constant", "global") for g in self.module.globals.values())
        return not (variables or asks(function) or function.apart)

    def run(
        self,
        launch: Launch,
        bound: BoundArguments,
        placement: Placement,
        supplied: SuppliedByName,
        constants: Mapping[str, bytes] | None = None,
    ) -> None:
        """Launches with arguments that are bound already; `supplied` gives what is neither theirs nor the module's.
        `constants`: what `__constant__` variables are to hold on a GPU, instead of what the module's do."""
        check_launch_bounds(self.function.called, self.function.launch_bounds, launch.block)
        if (self.function.stacks or self.function.arena) and not _is_supplied(self.function, supplied):
            from .runtime.tapes import run_until_it_fits

            stream = stream_of(launch, placement)
            run_until_it_fits(self._growing, self, launch, bound, placement, stream, supplied)
            return
        if self.function.apart:
            from .runtime.buffer_checks import check_requests

            check_requests(self.function, bound, self.written)
        if self.function.tapes:
            supplied = {**supplied, **self._tape_memory.supplied(launch, placement, stream_of(launch, placement))}
        config = _config(launch, placement)
        module = self.cpu_module if placement.cuda is None else self.cuda_module
        executable = self._executable(placement.cuda)
        arguments = self._with_variables(module, bound, config, placement.cuda, supplied)
        if bound.nulls:
            self.require_arrays(launch, bound)
            executable = self._executable_for(bound.nulls, placement.cuda)
        if placement.cuda is not None and constants:
            self._replace_constants(placement.cuda, constants)
        trace = TRACE.get()
        if trace is not None:
            trace.launch(module.functions[self.name], executable, config, arguments, placement.cuda)
            return
        executable.launch(config, arguments)
        if bound.mutated:
            mark_written(bound.mutated)

    def require_arrays(self, launch: Launch, bound: BoundArguments) -> None:
        """None is no array: an error where it is known before the launch that the kernel uses one."""
        if bound.nulls and self._may_use(bound.nulls):
            from .runtime.nulls import require_arrays

            integers = integers_of(self.function).known(bound.packed)
            require_arrays(self.function, bound.nulls, launch, integers)

    def _may_use(self, nulls: tuple[str, ...]) -> bool:
        found = self._null_users.get(nulls)
        if found is None:
            from .runtime.nulls import may_use

            found = self._null_users.setdefault(nulls, may_use(self.function, nulls))
        return found

    def _executable_for(self, nulls: tuple[str, ...], device: int | None) -> Executable:
        """On the CPU: one that looks at each access through what is null."""
        if device is not None:
            return self._executables[device]
        found = self._guarded.get(nulls)
        return found if found is not None else self._compile_guarded(nulls)

    @compiling
    def _compile_guarded(self, nulls: tuple[str, ...]) -> Executable:
        from .runtime.cpu import compile_cpu
        from .runtime.nulls import guarded

        module = guarded(self.cpu_module, self.name, nulls)
        made = self._executable(None) if module is None else compile_cpu(module, self.name)
        return self._guarded.setdefault(nulls, made)

    def _with_variables(
        self,
        module: IRModule,
        bound: BoundArguments,
        config: LaunchConfig,
        device: int | None,
        supplied: SuppliedByName | None = None,
    ) -> BoundArguments:
        if device is not None and self._constant_names:
            self._copy_constants(device)

        def supply(param: Param) -> Supplied:
            name = param.variable or ""
            if supplied and name in supplied:
                return supplied[name]
            variable = self.variable(name)
            on_host = device is None
            address = variable.host_address() if on_host else variable.device_address(device or 0, config.stream or 0)
            return Supplied(address, variable.type.size)

        return with_variables(bound, module.functions[self.name], supply)

    @cached_property
    def _constant_names(self) -> tuple[str, ...]:
        return tuple(name for name, g in self.cuda_module.globals.items() if g.space == "constant")

    def _copy_constants(self, device: int) -> None:
        """Brings `__constant__` variables that changed since the last launch to the GPU."""
        executable = self._executables[device]
        for name in self._constant_names:
            variable = self.variable(name)
            if self._constants.get((device, name), 0) != variable.version:
                executable.set_constant(name, variable.bytes())  # type: ignore[attr-defined]
                self._constants[device, name] = variable.version

    def _replace_constants(self, device: int, contents: Mapping[str, bytes]) -> None:
        """Until the next launch, which brings the module's own again."""
        refuse_look()
        for name in self._constant_names:
            variable = self.variable(name)
            if name in contents and contents[name] != variable.bytes():
                self._executables[device].set_constant(name, contents[name])  # type: ignore[attr-defined]
                self._constants[device, name] = -1

    def _executable(self, device: int | None) -> Executable:
        found = self._executables.get(device)
        if found is None:
            found = self._compile_cpu() if device is None else self._compile_cuda(device)
        return found

    @compiling
    def _compile_cpu(self) -> Executable:
        from .runtime.cpu import compile_cpu

        return self._executables.setdefault(None, compile_cpu(self.cpu_module, self.name))

    def _compile_cuda(self, device: int) -> Executable:
        """NVRTC may compile several kernels at once: not under the lock that all share (Note [Locks])."""
        with COMPILING:
            from .runtime.cuda import CudaExecutable

            text, module = self.source, self.cuda_module
        with self._lock:
            found = self._executables.get(device)
            if found is None:
                found = self._executables[device] = CudaExecutable(text, module, self.name, device)
        return found


def asks(function: Function) -> bool:
    """Whether launches have memory for derivatives that it asks for."""
    return bool(function.tapes or function.stacks or function.arena)


def _is_supplied(function: Function, supplied: SuppliedByName) -> bool:
    names = {f"_tape_{name}" for name, _ in function.stacks} | ({"_arena"} if function.arena else set())
    return supplied.keys() >= names


def _refused(function: Function) -> SourceError | None:
    if not asks(function):
        return None
    problem = f"'{function.name}' asks for derivatives that keep values, and has no derivative itself"
    return UnsupportedError(problem, function.span)


def stream_of(launch: Launch, placement: Placement) -> int | None:
    """The stream's handle: what the user named, else the current one; None on the CPU."""
    if placement.cuda is None:
        return None
    return stream_handle(launch.stream) if launch.stream is not None else placement.stream()


def _config(launch: Launch, placement: Placement) -> LaunchConfig:
    if placement.cuda is None:
        return LaunchConfig(launch.grid, launch.block, launch.shared_bytes, shadow_bytes=launch.shadow_bytes)
    stream = stream_of(launch, placement)
    return LaunchConfig(launch.grid, launch.block, launch.shared_bytes, stream, placement.cuda, launch.shadow_bytes)
