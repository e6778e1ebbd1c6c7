"""Runs a host function: the skeleton (allocation, copies, launches, and the control flow around them) operation by
operation, loops without any of these natively.

Note [Recorded floats]
While a program is recorded, floats that are loaded, or computed from such, are `Cell`s: numbers in memory of their own.
Arithmetic on them waits until somebody needs a result; what has come together then is one kernel of one thread, which
the recording reverses as it does any launch. Integers, pointers and conditions are what they are: they have no
derivative. A float that was never in memory, as a constant, is a plain number.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ..analysis.fold import evaluate, wrap
from ..autodiff.integers import ARITHMETIC, HINT, MORE, is_integer, keeps_integers
from ..errors import ProgramError, Span, UnsupportedError
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Assert,
    Block,
    Builtin,
    Constant,
    Derivative,
    Extract,
    For,
    GlobalRef,
    HostCall,
    If,
    Insert,
    KernelLaunch,
    Load,
    Member,
    Offset,
    Op,
    Print,
    PtrCast,
    PtrDiff,
    Registered,
    Store,
    Trap,
    Undef,
    Value,
    While,
)
from ..ir.traverse import operands
from ..ir.types import Array, Pointer, Scalar, Struct, Type
from ..runtime.arrays import ArrayView
from ..runtime.config import make_launch
from .machine import BITS, Machine, told_at
from .memory import Allocation
from .regions import Region
from .staging import Staging
from .values import Cell, Symbol, holds, plain, unpack, view_of, zero

_LATER = object()  # a result that is not computed yet


class Interpreter:
    """One call of a host function. `program` has the IR and what was made of it before, `state` what calls share."""

    def __init__(self, program: Any, machine: Machine, state: Any):
        self.program, self.machine, self.state = program, machine, state
        self.memory = machine.memory
        self.values: dict[Value, Any] = {}
        self._waiting: list[Op] = []
        self._stack: dict[int, Allocation] = {}
        self.staging = Staging(machine)

    def run(self, args: list[Any]) -> Any:
        function = self.program.function
        for param, value in zip(function.params, args, strict=True):
            self.values[param.value] = value
        results = self._block(function.body)
        return results[0] if results else None

    def end(self) -> None:
        """Its variables are gone."""
        for allocation in self._stack.values():
            self.memory.remove(allocation)

    # ---- control

    def _block(self, block: Block, args: tuple[Any, ...] = ()) -> list[Any]:
        values = self.values
        values.update(zip(block.args, args, strict=True))
        for op in block.ops:
            if self._waiting and self._needs_waiting(op):
                self._catch_up()
            _EXECUTE[type(op)](self, op)
        if self._waiting:
            self._catch_up()
        return [values[v] for v in block.results]

    def _if(self, op: If) -> None:
        block = op.then if self._plain(op.cond) else op.orelse
        self._bind(op, self._block(block))

    def _for(self, op: For) -> None:
        if self._native(op):
            return
        carried = [self.values[v] for v in op.inits]
        for k in range(self._decided(op.lower, op.span), self._decided(op.upper, op.span), op.step):
            carried = self._block(op.body, (k, *carried))
        self._bind(op, carried)

    def _while(self, op: While) -> None:
        if self._native(op):
            return
        carried = [self.values[v] for v in op.inits]
        while True:
            goes_on, *forwarded = self._block(op.before, tuple(carried))
            if not plain(goes_on):
                self._bind(op, forwarded)
                return
            carried = self._block(op.body, tuple(forwarded))

    def _bind(self, op: Op, values: list[Any]) -> None:
        self.values.update(zip(op.results, values, strict=True))

    # ---- native stretches

    def _native(self, op: Op) -> bool:
        """Runs a loop as a kernel of one thread, if it can be."""
        found = self.program.stretch(op)
        if found is None:
            return False
        try:
            for before in found.before:
                _EXECUTE[type(before)](self, before)
            region = self.program.region((found.op,), found.op.results)
            args = tuple(self.argument(self.values[v], v.type, op.span, True) for v in region.inputs)
        except (ProgramError, UnsupportedError):
            return False  # the interpreter finds out where, if it comes there
        self._run_region(region, args, op.span)
        return True

    def _run_region(self, region: Region, args: tuple[Any, ...], span: Span) -> None:
        places = [self._place(v.type, span) for v in region.outputs]
        views = [view_of(at, v.type.size, v.type, None, None) for at, v in zip(places, region.outputs, strict=True)]
        self.machine.run_native(region.kernel, (*args, *views), span)
        for at, value in zip(places, region.outputs, strict=True):
            self.values[value] = self._result(at, value.type, span)

    def _place(self, type: Type, span: Span) -> int:
        if isinstance(type, Scalar):
            return self.machine.cell(type).address
        made = self.memory.allocate(type.size, "stack", span)
        self._stack[-len(self._stack) - 1] = made
        return made.start

    def _result(self, at: int, type: Type, span: Span) -> Any:
        if self.machine.recorded and isinstance(type, Scalar) and type.is_float:
            return Cell(at, type)
        return self.machine.result(at, type) if isinstance(type, Scalar) else self.machine.load(at, type, span)

    # ---- arithmetic that waits

    def _needs_waiting(self, op: Op) -> bool:
        if _waits_itself(op):
            return isinstance(op, Apply) and not self._may_wait(op) and self._uses_waiting(op)
        return isinstance(op, If | For | While) or self._uses_waiting(op)

    def _uses_waiting(self, op: Op) -> bool:
        return any(self.values.get(v) is _LATER for v in operands(op))

    def _may_wait(self, op: Apply) -> bool:
        if is_integer(op.result.type):
            return self.machine.has_reals and op.fn in ARITHMETIC
        return _is_number(op.result.type)

    def _wait(self, op: Op) -> bool:
        """Whether it is arithmetic of recorded floats, and now waits."""
        if not self.machine.recorded or not any(_is_recorded(self.values[v]) for v in operands(op)):
            return False
        self._waiting.append(op)
        self._bind(op, [_LATER] * len(op.results))
        return True

    def _catch_up(self) -> None:
        ops, self._waiting = tuple(self._waiting), []
        region = self.program.region(ops, self.program.used_after(ops))
        span = ops[-1].span
        args = tuple(self.argument(self.values[v], v.type, span, True) for v in region.inputs)
        self._run_region(region, args, span)

    # ---- values

    def _plain(self, value: Value) -> Any:
        return plain(self.values[value])

    def _decided(self, value: Value, span: Span) -> Any:
        """A number that decides what is done, and where."""
        if self.machine.has_reals and _is_real_integer(self.values[value]):
            raise UnsupportedError(MORE, span, HINT)
        return plain(self.values[value])

    def _constant(self, op: Constant) -> None:
        self.values[op.result] = op.value

    def _undef(self, op: Undef) -> None:
        self.values[op.result] = zero(op.result.type)

    def _apply(self, op: Apply) -> None:
        if self._may_wait(op) and self._wait(op):
            return
        given = [self.values[v] for v in op.args]
        if op.fn == "select":
            self.values[op.result] = given[1] if given[0] else given[2]
            return
        if self.machine.has_reals and any(_is_real_integer(v) for v in given):
            if op.fn != "convert" or not keeps_integers(op.args[0].type, op.result.type):
                raise UnsupportedError(MORE, op.span, HINT)
            self.values[op.result] = given[0]
            return
        if any(isinstance(v, Symbol) for v in given):
            raise ProgramError("the host has no address of a device variable", op.span, "use cudaMemcpyFromSymbol")
        if op.fn == "bitcast" and any(isinstance(v, Cell) for v in given):
            raise UnsupportedError(BITS, op.span, "compute with the number itself")
        self.values[op.result] = self._computed(op, [plain(v) for v in given])

    def _computed(self, op: Apply, given: list[Any]) -> Any:
        types = [v.type for v in op.args]
        if op.fn == "address":
            return given[0]
        if isinstance(types[0], Pointer):
            return _COMPARE[op.fn](*given)
        found = evaluate(op.fn, tuple(given), tuple(types), op.result.type)  # type: ignore[arg-type]
        if found is not None:
            return found
        if op.fn in ("div", "rem") and not types[0].is_float:  # type: ignore[union-attr]
            return self._divided(op, given)
        region = self.program.region((op,), op.results)
        by_value = dict(zip(op.args, given, strict=True))
        place = self.machine.cell(op.result.type)  # type: ignore[arg-type]
        args = (
            *(by_value[v] for v in region.inputs),
            view_of(place.address, op.result.type.size, op.result.type, None, None),
        )
        Machine.launch(self.machine, region.kernel, make_launch(1, 1), args, op.span)
        from .memory import read_bytes

        return unpack(read_bytes(place.address, op.result.type.size), op.result.type)

    def _divided(self, op: Apply, given: list[Any]) -> int:
        if given[1] == 0:
            raise ProgramError("an integer is divided by zero", op.span)
        assert isinstance(op.result.type, Scalar)
        return 0 if op.fn == "rem" else wrap(-given[0], op.result.type)

    def _aggregate(self, op: Aggregate) -> None:
        self._settle(op.args)
        self.values[op.result] = tuple(self.values[v] for v in op.args)

    def _extract(self, op: Extract) -> None:
        self.values[op.result] = self.values[op.aggregate][op.index]

    def _insert(self, op: Insert) -> None:
        parts = list(self.values[op.aggregate])
        parts[op.index] = self.values[op.value]
        self.values[op.result] = tuple(parts)

    def _settle(self, values: tuple[Value, ...]) -> None:
        if any(self.values[v] is _LATER for v in values):
            self._catch_up()

    def _builtin(self, op: Builtin) -> None:
        raise ProgramError(f"'{op.name}' has no value on the host", op.span)

    # ---- memory

    def _alloca(self, op: Alloca) -> None:
        assert isinstance(op.result.type, Pointer)
        found = self._stack.get(id(op))
        if found is None:
            found = self._stack[id(op)] = self.memory.allocate(op.result.type.pointee.size, "stack", op.span)
        self.values[op.result] = found.start

    def _global(self, op: GlobalRef) -> None:
        self.values[op.result] = self.state.address_of(self.program.variable(op.name), self.memory)

    def _offset(self, op: Offset) -> None:
        base, index = self.values[op.ptr], self._decided(op.index, op.span)
        assert isinstance(op.ptr.type, Pointer)
        if isinstance(base, Symbol):
            if index:
                raise ProgramError("the host has no address inside a device variable", op.span)
            self.values[op.result] = base
            return
        self.values[op.result] = (base + index * op.ptr.type.pointee.size) % (1 << 64)

    def _member(self, op: Member) -> None:
        base = self.values[op.ptr]
        assert isinstance(op.ptr.type, Pointer) and isinstance(op.ptr.type.pointee, Struct)
        if isinstance(base, Symbol):
            raise ProgramError("the host has no address inside a device variable", op.span)
        self.values[op.result] = base + op.ptr.type.pointee.fields[op.index].offset

    def _cast(self, op: PtrCast) -> None:
        self.values[op.result] = self.values[op.ptr]

    def _difference(self, op: PtrDiff) -> None:
        assert isinstance(op.left.type, Pointer)
        size = op.left.type.pointee.size
        self.values[op.result] = (self.values[op.left] - self.values[op.right]) // size

    def _load(self, op: Load) -> None:
        self.values[op.result] = self.machine.load(self._address(op.ptr, op.span), op.result.type, op.span)

    def _store(self, op: Store) -> None:
        self.machine.store(self._address(op.ptr, op.span), self.values[op.value], op.value.type, op.span)

    def _address(self, ptr: Value, span: Span) -> int:
        address = self.values[ptr]
        if isinstance(address, Symbol):
            raise ProgramError("the host cannot use a device variable", span, "use cudaMemcpyToSymbol or FromSymbol")
        return int(address)

    # ---- launches and calls

    def _launch(self, op: KernelLaunch) -> None:
        numbers = [self._decided(v, op.span) for v in op.config]
        kernel = self.program.kernel(op.kernel)
        if 0 in numbers[:6]:  # CUDA refuses it with an error code, and goes on
            warnings.warn(f"{op.span}: a launch of no blocks or threads: nothing runs", stacklevel=2)
            return
        with told_at(op.span):
            launch = make_launch(tuple(numbers[:3]), tuple(numbers[3:6]), numbers[6], of=kernel.name)
        stream = None if self.memory.device is None else 0
        args = tuple(self.argument(self.values[v], v.type, op.span, False) for v in op.args)
        if kernel.function.apart and _share_memory(args):
            kernel = self.program.kernel(op.kernel, apart=False)
        self.machine.launch(kernel, launch.on(stream), args, op.span)
        self.staging.bring_back(op.span)

    def argument(self, value: Any, type: Type, span: Span, on_host: bool) -> Any:
        """A value as a launch takes it."""
        if isinstance(type, Pointer):
            return self._pointer(value, type.pointee, span, on_host)
        if isinstance(type, Struct):
            named = zip(type.fields, value, strict=True)
            return {field.name: self.argument(part, field.type, span, on_host) for field, part in named}
        if isinstance(type, Array):
            return [self.argument(part, type.element, span, on_host) for part in value]
        return value

    def _pointer(self, address: Any, pointee: Type, span: Span, on_host: bool) -> Any:
        if isinstance(address, Symbol):
            raise ProgramError("the host cannot pass a device variable", span)
        if address == 0:
            return None
        found = self.memory.at(address, span, "passes")
        if not on_host and found.kind in ("host", "stack", "static") and not found.pinned:
            raise ProgramError(f"passes the host's memory to a kernel: {found.shown}", span, "copy it with cudaMemcpy")
        if on_host and found.kind == "device":
            raise ProgramError("uses device memory on the host", span, "copy it with cudaMemcpy first")
        if address == found.end and found.nbytes and self.machine.recorded:
            problem = f"a pointer to the end of {found.shown}: what is before it cannot be followed"
            raise UnsupportedError(problem, span, "pass a pointer to the beginning, and an index")
        if not on_host and self.staging.concerns(found):
            twin = self.staging.twin(found, pointee, span)
            return view_of(twin.start + address - found.start, found.end - address, pointee, twin.device, twin.owner)
        return view_of(address, found.end - address, pointee, found.device, found.owner)

    def _call(self, op: HostCall) -> None:
        from .calls import CALLS

        if not any(kind in op.fn for kind in ("print", "ostream")):
            for value in op.args:
                self._decided(value, op.span)
        with told_at(op.span):
            result = CALLS[op.fn](self, op, *(self._plain(v) for v in op.args))
        if op.results:
            self.values[op.result] = result

    def _derivative(self, op: Derivative) -> None:
        from .requested import run

        self._bind(op, run(self, op))

    def _registered(self, op: Registered) -> None:
        from .registered import run

        if self.machine.has_reals:
            problem = "passes of one's own, in a program that is differentiated by integers: not supported"
            raise UnsupportedError(problem, op.span, HINT)
        with told_at(op.span):
            run(self, op)

    def _print(self, op: Print) -> None:
        from .libc import formatted

        self.state.write(formatted(self, op.format, [self._plain(v) for v in op.args]))

    def _assert(self, op: Assert) -> None:
        if not self._plain(op.cond):
            raise ProgramError(f"assertion failed: {op.message}", op.span)

    def _trap(self, op: Trap) -> None:
        raise ProgramError("the program trapped", op.span)


def _waits_itself(op: Op) -> bool:
    return isinstance(op, Apply | Constant | Undef | Offset | Member | PtrCast)


def _is_number(type: Type) -> bool:
    return isinstance(type, Scalar) and type.is_float


def _share_memory(args: tuple[Any, ...]) -> bool:
    """Whether some of them may; what a struct holds may be anything."""
    if any(isinstance(a, dict) for a in args):
        return True
    places = sorted((a.address, a.nbytes) for a in args if isinstance(a, ArrayView))
    return any(start + nbytes > other for (start, nbytes), (other, _) in pairwise(places))


def _is_real_integer(value: Any) -> bool:
    from .real_integers import RealInteger

    return isinstance(value, RealInteger)


def _is_recorded(value: Any) -> bool:
    return value is _LATER or holds(value, Cell)


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}

_EXECUTE: dict[type[Op], Callable[[Interpreter, Any], None]] = {
    Constant: Interpreter._constant,
    Undef: Interpreter._undef,
    Apply: Interpreter._apply,
    Aggregate: Interpreter._aggregate,
    Extract: Interpreter._extract,
    Insert: Interpreter._insert,
    Builtin: Interpreter._builtin,
    Alloca: Interpreter._alloca,
    GlobalRef: Interpreter._global,
    Offset: Interpreter._offset,
    Member: Interpreter._member,
    PtrCast: Interpreter._cast,
    PtrDiff: Interpreter._difference,
    Load: Interpreter._load,
    Store: Interpreter._store,
    If: Interpreter._if,
    For: Interpreter._for,
    While: Interpreter._while,
    KernelLaunch: Interpreter._launch,
    HostCall: Interpreter._call,
    Derivative: Interpreter._derivative,
    Registered: Interpreter._registered,
    Print: Interpreter._print,
    Assert: Interpreter._assert,
    Trap: Interpreter._trap,
}
