"""A host function as a Python object: `module["launch"](*arguments)` runs it as it is."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from .. import pipeline
from ..errors import ArgumentError, LaunchError, UnsupportedError
from ..ir.ops import Function, Global, KernelLaunch, Module, Op, Value
from ..ir.traverse import blocks, operands, walk
from ..ir.types import Array, Pointer, Scalar, Struct, Type, element_types
from ..kernel import Kernel
from ..runtime.arrays import ArrayView, view
from ..runtime.devices import cuda_available
from ..runtime.layouts import flat_dtypes
from ..runtime.recording import refuse_while_recording
from ..runtime.signature import c_signature
from ..runtime.variables import Variable
from .interpreter import Interpreter
from .libc import STANDARD, Exit
from .machine import Machine
from .memory import Allocation, Memory, write_bytes
from .regions import Region, Stretch, Uses, leads_to_memory, stretch
from .values import Cell, Symbol, pack_scalar, part_names, plain, pointee_dtype

MakeVariable = Callable[[Global], Variable]


class State:
    """What calls of host functions of one module share: variables with static storage, and memory that outlives a call.
    On the CPU and on a GPU they are different programs."""

    def __init__(self, make_variable: MakeVariable):
        self._make_variable = make_variable
        self._memories: dict[int | None, Memory] = {}
        self._static: dict[tuple[int | None, str], Allocation] = {}
        self._names: dict[int, str] = {}
        self.managed: dict[int, Symbol] = {}  # variables that the host uses, by where they are
        self._handles = 0
        self.events: dict[int, float] = {}
        self.precision: int | None = None
        self._style = "g"
        self.filler = " "
        self.columns = 0  # of the next that is written to a stream of C++
        self.token = 0  # where strtok goes on
        self.halves: dict[int, Any] = {}  # of reverses that are not done yet, by their tapes

    def memory(self, device: int | None) -> Memory:
        if device not in self._memories:
            self._memories[device] = Memory(device)
        return self._memories[device]

    def new_handle(self) -> int:
        self._handles += 1
        return self._handles << 4

    def address_of(self, variable: Global, memory: Memory) -> int | Symbol:
        if variable.managed:
            return self._managed_address(Symbol(self._make_variable(variable)), variable, memory)
        if variable.space != "host":
            return Symbol(self._make_variable(variable))
        name = re.sub(r"_\d+$", "", variable.name)  # which is there where another one has its name
        key = memory.device, f"{name} {variable.span} {variable.init!r}"
        found = self._static.get(key)
        if found is None:
            found = self._static[key] = memory.allocate(max(1, variable.type.size), "static", variable.span)
            self._names[found.start] = variable.name
            short = variable.name.rpartition("::")[2]
            init = STANDARD[short].to_bytes(8, "little") if short in STANDARD else variable.init
            write_bytes(found.start, init or b"")
        return found.start

    def _managed_address(self, symbol: Symbol, variable: Global, memory: Memory) -> int:
        if memory.device is not None:
            problem = f"'{variable.name}' is __managed__, and the host uses it: not supported on a GPU"
            hint = "use __device__ with cudaMemcpyToSymbol and FromSymbol, or run with device='cpu'"
            raise UnsupportedError(problem, variable.span, hint)
        self.managed[self.symbol_address(symbol, memory, "managed")] = symbol
        return self.symbol_address(symbol, memory)

    def name_at(self, address: int) -> str:
        """Of a variable, by where it is."""
        return self._names.get(address, "")

    def symbol_address(self, symbol: Symbol, memory: Memory, kind: Literal["argument", "managed"] = "argument") -> int:
        variable = symbol.variable
        on_host = memory.device is None
        address = variable.host_address() if on_host else variable.device_address(memory.device or 0, 0)
        if memory.find(address) is None:
            memory.add(Allocation(address, variable.type.size, kind, memory.device, variable))
        return int(address)

    def symbol_written(self, symbol: Symbol, memory: Memory) -> None:
        """Executables on a GPU have copies of constants."""
        if memory.device is not None and symbol.variable.space == "constant":
            symbol.variable.version += 1

    # ---- output

    def write(self, text: str, to: Any = None) -> None:
        (to or sys.stdout).write(text)

    def manipulate(self, name: str) -> None:
        if name in ("std::fixed", "std::scientific"):
            self._style = "f" if name == "std::fixed" else "e"
            self.precision = 6 if self.precision is None else self.precision

    def set_precision(self, digits: int) -> int:
        before, self.precision = self.precision, digits
        return 6 if before is None else before

    def set_format(self, kind: int, value: int) -> None:
        """`setprecision`, `setw`, `setfill`"""
        if kind == 1:
            self.precision = value
        elif kind == 2:
            self.columns = value
        else:
            self.filler = chr(value & 255)

    def set_columns(self, columns: int) -> int:
        before, self.columns = self.columns, columns
        return before

    def shown_float(self, value: float) -> str:
        return f"%.{self.precision}{self._style}" % value


class HostProgram:
    """The IR of a host function and what is made of it when it runs."""

    def __init__(self, name: str, lowered: Module, make_variable: MakeVariable, refusal: UnsupportedError | None):
        self.name, self.lowered, self.refusal = name, lowered, refusal
        self.module = pipeline.compile_host(lowered, name)
        self.function: Function = self.module.functions[name]
        self.make_variable = make_variable
        self.requested: dict[Any, Any] = {}  # derivatives that the program asks for
        self._kernels: dict[tuple[str, bool], Kernel] = {}
        self._stretches: dict[int, Stretch | None] = {}
        self._regions: dict[tuple[int, ...], Region] = {}
        self._after: dict[tuple[int, ...], tuple[Value, ...]] = {}
        self._uses = Uses(self.function)

    def variable(self, name: str) -> Global:
        return self.module.globals[name]

    def kernel(self, name: str, apart: bool = True) -> Kernel:
        """`apart`: whether the derivatives that it asks for itself may count on its arguments being."""
        found = self._kernels.get((name, apart))
        if found is None:
            lowered = self.lowered if apart else pipeline.with_requests_on_any(self.lowered, name)
            module = pipeline.compile_kernel(lowered, name)
            found = Kernel(name, module, lambda v: self.make_variable(module.globals[v]), refusal=self.refusal)
            self._kernels[name, apart] = found
        return found

    def of(self, name: str) -> HostProgram:
        """Another function of the same text."""
        known: HostProgram | None = self.requested.get(name)
        if known is None:
            known = self.requested[name] = HostProgram(name, self.lowered, self.make_variable, self.refusal)
        return known

    def stretch(self, op: Op) -> Stretch | None:
        if id(op) not in self._stretches:
            self._stretches[id(op)] = stretch(op)
        return self._stretches[id(op)]

    def region(self, ops: tuple[Op, ...], outputs: tuple[Value, ...]) -> Region:
        key = tuple(map(id, ops))
        found = self._regions.get(key)
        if found is None:
            name = f"{self.name.replace('::', '_')}_line_{ops[0].span.line}"
            found = self._regions[key] = Region(name, ops, outputs, dict(self.lowered.structs))
        return found

    def used_after(self, ops: tuple[Op, ...]) -> tuple[Value, ...]:
        """The results that others than these operations use."""
        key = tuple(map(id, ops))
        if key not in self._after:
            self._after[key] = self._uses.after(ops)
        return self._after[key]

    @property
    def launches(self) -> bool:
        return any(isinstance(op, KernelLaunch) for op in walk(self.function.body))

    def passed_to_kernels(self) -> frozenset[str]:
        """The pointer parameters that launches get: on a GPU, their memory is there."""
        reached: set[Value] = set()
        for op in walk(self.function.body):
            if isinstance(op, KernelLaunch):
                reached.update(v for v in op.args if leads_to_memory(v))
        size = -1
        while size != len(reached):
            size = len(reached)
            for op in walk(self.function.body):
                _flow_back(op, reached)
        return frozenset(p.name for p in self.function.params if p.value in reached)


def _flow_back(op: Op, reached: set[Value]) -> None:
    """From pointers to what they are made of, also around loops."""
    if any(v in reached for v in op.results):
        if not blocks(op):
            reached.update(v for v in operands(op) if leads_to_memory(v))
        for block in blocks(op):
            pairs = zip(reversed(op.results), reversed(block.results), strict=False)
            reached.update(inner for outer, inner in pairs if outer in reached)
    for block in blocks(op):
        inits = getattr(op, "inits", ())
        for arg, init in zip(reversed(block.args), reversed(inits), strict=False):
            if arg in reached:
                reached.add(init)
                reached.update(r for r in block.results if r.type == arg.type)


class HostFunction:
    """A function of the host that launches kernels, allocates, copies, prints. Called with NumPy arrays, it runs on the
    GPU if there is one; `device="cpu"` or "cuda" says where."""

    def __init__(self, program: HostProgram, state: State):
        self.program, self.state = program, state

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def function(self) -> Function:
        return self.program.function

    @property
    def refusal(self) -> UnsupportedError | None:
        return self.program.refusal

    def __repr__(self) -> str:
        return c_signature(self.function)

    @property
    def source(self) -> str:
        raise LaunchError(f"{self.name} is a host function: it is interpreted, and has no text but its own")

    def __getitem__(self, key: Any) -> Any:
        raise LaunchError(f"{self.name} is not a kernel: call it, {self.name}(...)")

    def execute(self, *args: Any, device: str | None = None) -> Any:
        refuse_while_recording(f"{self.name}, a host function,")
        with Call(self, args, device) as call:
            result = call.run(Machine(call.memory))
            call.bring_back()
        return result

    __call__ = execute


class Call:
    """One call: its arguments as the program sees them, and what must be undone when it ends."""

    def __init__(self, target: HostFunction, args: tuple[Any, ...], device: str | None):
        self.target, self.given = target, args
        if target.name == "main":
            self.given = self._main(args)
        params = target.function.params
        if len(self.given) != len(params):
            count = f"takes {len(params)} argument{'s' * (len(params) != 1)}, got {len(self.given)}"
            raise ArgumentError(f"{target.name}: {count}\n  {c_signature(target.function)}")
        self.device = _ordinal(target.name, self.given, device)
        self.memory = target.state.memory(self.device)
        self._known = {id(a) for a in self.memory}
        self.arguments: dict[str, Allocation] = {}  # of pointers, by parameter
        self.mirrored: dict[str, ArrayView] = {}  # NumPy's, of those whose memory is on a GPU here
        self.dtypes: dict[str, Any] = {}
        self.cells: dict[str, Cell] = {}  # of numbers that have an adjoint
        self.values: list[Any] = []
        self.machine = Machine(self.memory)
        self._owned: list[Allocation] = []
        self._interpreter: Interpreter | None = None
        self._ended = False  # by `exit`

    def __enter__(self) -> Call:
        on_device = self.target.program.passed_to_kernels() if self.device is not None else frozenset()
        try:
            self.machine.synchronize()  # what others do to the arguments, on streams of theirs
            for param, value in zip(self.target.function.params, self.given, strict=True):
                self.values.append(self._bound(param.name, param.type, value, param.name in on_device))
        except BaseException:
            self.memory.drop_since(self._known)
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Memory that a call allocated is freed where it fails."""
        if kind is not None or self._ended:
            self.memory.drop_since(self._known)
        if self._interpreter is not None:
            self._interpreter.end()
        self.memory.forget_freed()
        for allocation in (*self.arguments.values(), *self._owned):
            self.memory.remove(allocation)

    def track(self, listed: tuple[str, ...], machine: Machine) -> None:
        """Gives the listed numbers memory, where their adjoints find them."""
        for k, param in enumerate(self.target.function.params):
            if param.name in listed:
                self.values[k] = self._tracked(param.name, param.type, self.values[k], machine)

    def _tracked(self, path: str, type: Type, value: Any, machine: Machine) -> Any:
        if isinstance(type, Scalar) and type.is_float:
            cell = self.cells[path] = machine.cell(type)
            write_bytes(cell.address, pack_scalar(value, type))
            return cell
        if isinstance(type, Struct | Array):
            named = zip(part_names(path, type), element_types(type), value, strict=True)
            return tuple(self._tracked(name, part, inner, machine) for name, part, inner in named)
        return value

    def _main(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        params = self.target.function.params
        words = [self.target.name, *map(str, args)]
        return (len(words), words)[: len(params)]

    def run(self, machine: Machine) -> Any:
        """Its value."""
        self.machine = machine
        self._interpreter = Interpreter(self.target.program, machine, self.target.state)
        try:
            result = self._interpreter.run(self.values)
        except Exit as done:
            result, self._ended = done.code, True
        machine.synchronize()
        return plain(result) if not machine.recorded else result

    def _bound(self, name: str, type: Type, value: Any, on_device: bool) -> Any:
        if isinstance(type, Pointer):
            return self._pointer(name, type, value, on_device)
        if isinstance(type, Scalar):
            return _number(self.target.name, name, type, value)
        assert isinstance(type, Struct | Array)
        given, names = self._parts(name, type, value), part_names(name, type)
        parts = zip(names, element_types(type), given, strict=True)
        return tuple(self._bound(path, part, inner, on_device) for path, part, inner in parts)

    def _parts(self, name: str, type: Struct | Array, value: Any) -> list[Any]:
        """Of a struct: by name, or in order; of an array, its elements."""
        count = len(element_types(type))
        fields = [field.name for field in type.fields] if isinstance(type, Struct) else []
        if isinstance(type, Struct):
            if isinstance(value, np.void | np.ndarray) and value.dtype.names is not None:
                value = {field: value[field] for field in value.dtype.names}
            if isinstance(value, Mapping):
                if set(value) != set(fields):
                    wanted = f"wants the members {', '.join(fields)}, got {', '.join(map(str, value))}"
                    raise ArgumentError(f"{self.target.name}: '{name}': {wanted}")
                return [value[field] for field in fields]
        if isinstance(value, list | tuple | np.ndarray) and len(value) == count:
            return list(value)
        shown = f"a dict of {', '.join(fields)}" if isinstance(type, Struct) else f"{count} elements"
        raise ArgumentError(f"{self.target.name}: '{name}' wants {shown}, got {value!r}")

    def _pointer(self, name: str, type: Pointer, value: Any, on_device: bool) -> int:
        if value is None:
            return 0
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return self._words(value)
        if isinstance(type.pointee, Pointer) and isinstance(value, list | tuple):
            return self._table(name, type.pointee, value)
        array = view(value)
        if array is None:
            raise ArgumentError(f"{self.target.name}: '{name}': wants an array, got {value.__class__.__name__}")
        self._check(name, type, array)
        self.dtypes[name] = array.dtype
        on = array.device[1] if isinstance(array.device, tuple) else None
        if on_device and on is None:
            made = self.memory.allocate(array.nbytes, "device", self.target.function.span)
            Machine(self.memory)._move(made.start, array.address, array.nbytes, (self.device, None))
            self.mirrored[name] = array
        else:
            kind: Any = "argument" if on is None else "device"
            made = self._adopted(array, kind, on)
        self.arguments[name] = made
        return made.start

    def _adopted(self, array: ArrayView, kind: Any, device: int | None) -> Allocation:
        around = self.memory.find(array.address)  # of the program that asks for a derivative
        known = [*self.arguments.values(), *([] if around is None or around.freed is not None else [around])]
        if any(k.start <= array.address and array.address + array.nbytes <= k.end for k in known):
            return Allocation(array.address, array.nbytes, kind, device, array.owner)
        return self.memory.add(Allocation(array.address, array.nbytes, kind, device, array.owner))

    def _check(self, name: str, type: Pointer, array: ArrayView) -> None:
        """Structs come as such, or flat, as kernels take them."""
        wanted = pointee_dtype(type.pointee)
        is_bytes = isinstance(wanted, np.dtype) and wanted.kind == "u" and wanted.itemsize == 1
        if array.dtype != wanted and not is_bytes and array.dtype not in flat_dtypes(type.pointee):
            raise ArgumentError(f"{self.target.name}: '{name}' wants an array of {wanted}, got {array.dtype}")
        if not array.contiguous:
            raise ArgumentError(f"{self.target.name}: '{name}': the array is not contiguous")

    def _words(self, words: list[str]) -> int:
        """`argv`."""
        texts = [word.encode() + b"\0" for word in words]
        made = [self._own(len(text)) for text in texts]
        for address, text in zip(made, texts, strict=True):
            write_bytes(address, text)
        return self._addresses([*made, 0])

    def _table(self, name: str, type: Pointer, arrays: Sequence[Any]) -> int:
        """Pointers to arrays, which are `name[0]` and so on; on a GPU, to memory there."""
        on_device = self.device is not None
        return self._addresses([self._pointer(f"{name}[{k}]", type, a, on_device) for k, a in enumerate(arrays)])

    def _addresses(self, addresses: list[int]) -> int:
        at = self._own(8 * len(addresses))
        write_bytes(at, b"".join(address.to_bytes(8, "little") for address in addresses))
        return at

    def _own(self, nbytes: int) -> int:
        """Memory that ends with the call."""
        self._owned.append(self.memory.allocate(nbytes, "static", self.target.function.span))
        return self._owned[-1].start

    def bring_back(self) -> None:
        for name, array in self.mirrored.items():
            if array.writable:
                mirror = self.arguments[name]
                Machine(self.memory)._move(array.address, mirror.start, array.nbytes, (None, self.device))


def _ordinal(name: str, args: tuple[Any, ...], device: str | None) -> int | None:
    """The GPU that a call's kernels run on; None is the CPU."""
    parts = [part for a in args for part in (a if isinstance(a, list | tuple) else (a,)) if not isinstance(part, str)]
    views = [v for v in map(view, parts) if v is not None]
    given = [v.device[1] for v in views if isinstance(v.device, tuple)]
    if device not in (None, "cpu", "cuda"):
        raise ArgumentError(f"{name}: device wants 'cpu' or 'cuda', got {device!r}")
    if device == "cpu" and given:
        raise ArgumentError(f"{name}: device='cpu', but an argument is on a GPU")
    if device == "cuda" and not cuda_available():
        raise ArgumentError(f"{name}: device='cuda', but there is no GPU here")
    if given:
        return int(given[0])
    return 0 if device != "cpu" and cuda_available() else None


def _number(function: str, name: str, type: Scalar, value: Any) -> Any:
    try:
        item = value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value
        if type.is_float:
            return float(np.dtype(f"f{type.size}").type(item)) if type.size > 2 else float(item)
        if type.kind == "bool":
            return bool(item)
        if isinstance(item, float) and not item.is_integer():
            raise TypeError
        number = int(item)
    except (TypeError, ValueError):
        raise ArgumentError(f"{function}: '{name}' wants a number, got {value!r}") from None
    low = 0 if type.kind == "uint" else -(1 << (type.bits - 1))
    if not low <= number < low + (1 << type.bits):
        raise ArgumentError(f"{function}: '{name}': {number} does not fit {type}")
    return number
