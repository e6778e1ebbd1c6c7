"""A host function that launches and allocates, as C++ that records what it does: its skeleton, with calls of a
recording in place of what allocates, copies and launches (Note [Recordings in C++] in `recording_text`).

Floats that may have derivatives are pointers to their cells. Arithmetic of such, and loops without calls of the host,
are functions of their own, with gradients of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..errors import Span, UnsupportedError
from ..ir.builder import Builder
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Assert,
    Block,
    Constant,
    Derivative,
    Extract,
    For,
    Function,
    GlobalRef,
    HostCall,
    If,
    Insert,
    KernelLaunch,
    Load,
    Member,
    Module,
    Offset,
    Op,
    Param,
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
from ..ir.traverse import blocks, operands, rebuild, walk
from ..ir.types import I8, U8, U64, Array, Pointer, Scalar, Struct, Type, element_types
from ..programs.regions import Uses, stretch

TAPE = "kg_recording"
_HOST = (HostCall, KernelLaunch, Derivative, Registered, Print)
_PLAIN = (
    Constant,
    Undef,
    Apply,
    Offset,
    Member,
    PtrCast,
    PtrDiff,
    Load,
    Store,
    Aggregate,
    Extract,
    Insert,
    Assert,
    Trap,
)


class Skeleton:
    """`module`: the function's, with its variables. `stretch_function`: the name and the inputs of a function for
    operations, by what they give and which values have cells; `launch_function`, `registered_function`: the names of
    functions that do that."""

    def __init__(
        self,
        function: Function,
        listed: Iterable[str],
        stretch_function: Callable[[tuple[Op, ...], tuple[Value, ...], set[Value]], tuple[str, tuple[Value, ...]]],
        launch_function: Callable[[KernelLaunch], str],
        registered_function: Callable[[Registered], str],
        module: Module,
    ):
        self.function, self.module = function, module
        self._stretch_function = stretch_function
        self._launch_function, self._registered_function = launch_function, registered_function
        self.of: dict[Value, Value] = {}
        self.cells: dict[Value, Value] = {}  # where active floats are
        self.b = Builder(function.span)
        self._waiting: list[Op] = []
        self._uses = Uses(function)
        self._definition = {v: op for op in walk(function.body) for v in op.results}
        names = set(listed)
        self._params = [self._param(p, p.name in names) for p in function.params]

    def _param(self, param: Param, is_listed: bool) -> Param:
        if not (is_listed and _is_number(param.type)):
            self.of[param.value] = param.value
            return param
        cell = Value(Pointer(param.type), param.name)
        self.cells[param.value] = cell
        return Param(cell, f"{param.c_type} *")

    def recorded(self, name: str) -> Function:
        for op in self.function.body.ops:
            self._op(op)
        self._catch_up()
        for value in self.function.body.results:
            self._host("result_is", (self._cell(value),), None)
        body = Block((), tuple(self.b.ops), ())
        return replace(self.function, name=name, kind="kernel", params=tuple(self._params), body=body)

    # ---- values

    def _host(self, method: str, args: tuple[Value, ...], type: Type | None) -> Value | None:
        name = f"{TAPE}.{method}"
        if type is None:
            self.b.effect(HostCall, name, args)
            return None
        return self.b.emit(HostCall, name, args, type=type)

    def _value(self, value: Value) -> Value:
        """As a plain one; what a cell holds, where a number is only looked at."""
        if value in self.cells:
            return self.b.load(self.cells[value])
        return self.of[value]

    def _cell(self, value: Value) -> Value:
        if value in self.cells:
            return self.cells[value]
        made = self._host("cell", (self.of[value],), Pointer(value.type))
        assert made is not None
        return made

    def _new_cell(self, type: Type) -> Value:
        made = self._host("cell", (self.b.constant(0.0, type),), Pointer(type))
        assert made is not None
        return made

    def pointed(self, value: Value) -> Scalar | None:
        """The kind of numbers behind a pointer, before it became a `void *`."""
        while True:
            parts = set(_leaves(value.type.pointee)) if isinstance(value.type, Pointer) else set()
            if len(parts) == 1 and not parts & {U8, I8}:
                return parts.pop()
            op = self._definition.get(value)
            if not isinstance(op, PtrCast | Offset):
                return None
            value = op.ptr

    # ---- operations

    def _op(self, op: Op) -> None:
        self.b.span = op.span
        if isinstance(op, If | For | While) and not _has_host(op) and self._stretch(op):
            return
        if self._joins(op):
            self._waiting.append(op)
            return
        if isinstance(op, (If, For, While, *_HOST)) or any(self._is_waiting(v) for v in operands(op)):
            self._catch_up()
        self.b.span = op.span
        match op:
            case If() | For() | While():
                self._control(op)
            case KernelLaunch():
                self._launch(op)
            case Registered():
                self.b.effect(HostCall, self._registered_function(op), tuple(map(self._passed, op.args)))
            case HostCall():
                _call(self, op)
            case Load() if _is_number(op.result.type):
                found = self._host("load", (self._value(op.ptr),), Pointer(op.result.type))
                assert found is not None
                self.cells[op.result] = found
            case Store() if _is_number(op.value.type):
                self._host("store", (self._value(op.ptr), self._cell(op.value)), None)
            case Alloca():
                self._alloca(op)
            case GlobalRef():
                self._variable(op)
            case _:
                self._plain(op)

    def _joins(self, op: Op) -> bool:
        """Whether it is arithmetic of numbers with cells."""
        return isinstance(op, Apply) and any(v in self.cells or self._is_waiting(v) for v in op.args)

    def _is_waiting(self, value: Value) -> bool:
        return any(value in op.results for op in self._waiting)

    def _catch_up(self) -> None:
        ops, self._waiting = tuple(self._waiting), []
        if ops:
            self._run(ops, self._uses.after(ops))

    def _run(self, ops: tuple[Op, ...], outputs: tuple[Value, ...]) -> None:
        """A function of its own, with cells for what it gives."""
        span, self.b.span = self.b.span, ops[0].span
        name, inputs = self._stretch_function(ops, outputs, set(self.cells))
        places = [self._new_cell(v.type) for v in outputs]
        given = tuple(self.cells[v] if v in self.cells else self.of[v] for v in inputs)
        self.b.effect(HostCall, name, (*given, *places))
        for value, place in zip(outputs, places, strict=True):
            if _is_number(value.type):
                self.cells[value] = place
            else:
                self.of[value] = self.b.load(place)
        self.b.span = span

    def _stretch(self, op: Op) -> bool:
        """A loop, or a branch, without calls of the host."""
        if not any(_touches_numbers(o) for o in (op, *_inside(op))):
            return False
        found = stretch(op)
        if found is None:
            problem = "a loop of the host that follows pointers it finds on its way, with floating-point numbers"
            raise _not_yet(problem, op.span)
        self._catch_up()
        for before in found.before:
            self._op(before)
        self._catch_up()
        self._run((found.op,), found.op.results)
        for old, new in zip(op.results, found.op.results, strict=True):
            if new in self.cells:
                self.cells[old] = self.cells[new]
            else:
                self.of[old] = self.of[new]
        return True

    def _plain(self, op: Op) -> None:
        if not isinstance(op, (*_PLAIN, Print)):
            raise _not_yet(f"'{type(op).__name__}', in a host function that is differentiated,", op.span)
        touched = (*op.results, *([op.value] if isinstance(op, Store) else []))
        if any(isinstance(v.type, Struct | Array) and _holds_numbers(v.type) for v in touched):
            raise _not_yet("a struct with floating-point numbers that is copied by host code", op.span)
        if isinstance(op, Store) and not isinstance(op.value.type, Pointer):
            size = self.b.constant(op.value.type.size, U64)
            self._host("overwrite", (self._value(op.ptr), size), None)
        new = rebuild(op, self._value, lambda block: block)
        self.b.ops.append(new)
        self.of.update(zip(op.results, new.results, strict=True))

    def _alloca(self, op: Alloca) -> None:
        assert isinstance(op.result.type, Pointer)
        type = op.result.type.pointee
        size = self.b.constant(type.size, U64)
        made = self.b.emit(HostCall, f"{TAPE}.host", (size,), type=op.result.type, name=op.result.name)
        self.of[op.result] = made

    def _variable(self, op: GlobalRef) -> None:
        """Of the program, which its own text names."""
        declared, scope = self.module.globals[op.name], op.name.rpartition("::")[0]
        is_named = re.fullmatch(r"[A-Za-z_][\w:]*", op.name) is not None
        if not is_named or scope in self.module.functions or declared.space == "shared":
            problem = "a static variable of a function, in a host function that is differentiated,"
            raise _not_yet(problem, op.span, "declare it outside of the function")
        method = "variable" if declared.space == "host" else "symbol"
        self.of[op.result] = self.b.emit(HostCall, f"{TAPE}.{method}(::{op.name}", (), type=op.result.type)

    # ---- control

    def _control(self, op: Op) -> None:
        """Numbers go in and come out as cells."""
        inits = tuple(getattr(op, "inits", ()))
        carried = tuple(self._passed(v) for v in inits)
        bodies = [self._block(block) for block in blocks(op)]
        results = tuple(self._result(v) for v in op.results)
        match op:
            case If(cond):
                new: Op = replace(op, cond=self._value(cond), then=bodies[0], orelse=bodies[1], results=results)
            case For(lower, upper):
                ends = self._value(lower), self._value(upper)
                new = replace(op, lower=ends[0], upper=ends[1], inits=carried, body=bodies[0], results=results)
            case _:
                assert isinstance(op, While)
                new = replace(op, inits=carried, before=bodies[0], body=bodies[1], results=results)
        self.b.ops.append(new)

    def _passed(self, value: Value) -> Value:
        return self._cell(value) if _is_number(value.type) else self.of[value]

    def _result(self, value: Value) -> Value:
        if _is_number(value.type):
            self.cells[value] = Value(Pointer(value.type), value.name)
            return self.cells[value]
        self.of[value] = Value(value.type, value.name)
        return self.of[value]

    def _block(self, block: Block) -> Block:
        args = tuple(self._result(a) for a in block.args)
        with self.b.region() as region:
            for op in block.ops:
                self._op(op)
            self._catch_up()
            results = tuple(self._passed(v) for v in block.results)
        return region.block(args, results)

    def _launch(self, op: KernelLaunch) -> None:
        config = tuple(self._value(v) for v in op.config[:7])
        args = []
        for value in op.args:
            if isinstance(value.type, Struct | Array) and _holds_numbers(value.type):
                problem = "a struct with floating-point numbers that a host function passes to a kernel by value"
                raise _not_yet(problem, op.span, "pass the numbers themselves, or a pointer to them")
            args.append(self._passed(value))
        self.b.effect(HostCall, self._launch_function(op), (*config, *args))


# ---- calls of the host --------------------------------------------------------------------------------------------


def _call(at: Skeleton, op: HostCall) -> None:
    if op.fn not in _CALLS:
        raise _not_yet(f"'{op.fn}' in a host function that is differentiated", op.span)
    _CALLS[op.fn](at, op)


def _allocate(method: str) -> Callable[[Skeleton, HostCall], None]:
    def allocate(at: Skeleton, op: HostCall) -> None:
        count = 2 if op.fn == "calloc" else 1
        args = tuple(at._value(v) for v in op.args[:count])
        at.of[op.result] = at.b.emit(HostCall, f"{TAPE}.{method}", args, type=op.result.type, name=op.result.name)

    return allocate


def _copied(at: Skeleton, op: HostCall, to: Value, of: Value) -> str:
    """What kind of numbers a copy is of, the pointers tell: what is called for that."""
    kinds = {k for k in (at.pointed(to), at.pointed(of)) if k is not None}
    if not kinds:
        raise _not_yet("a copy of which neither end tells what it holds", op.span, "pass pointers of the type it has")
    numbers = {k for k in kinds if k.is_float}
    if len(numbers) > 1 or not {k.name for k in numbers} <= _SPELLED.keys():
        raise UnsupportedError("a copy between memory of different floating-point types, or of halves", op.span)
    return "copy" if not numbers else f"copy_of<{_SPELLED[next(iter(numbers)).name]}>"


def _copy(at: Skeleton, op: HostCall) -> None:
    to, of, nbytes = op.args[:3]
    method = _copied(at, op, to, of)
    at._host(method, tuple(at._value(v) for v in (to, of, nbytes)), None)
    if op.results:
        at.of[op.result] = at._value(to)


def _copy_rows(at: Skeleton, op: HostCall) -> None:
    to, to_pitch, of, of_pitch, width, height = op.args[:6]
    method = _copied(at, op, to, of).replace("copy", "copy_rows", 1)
    at._host(method, tuple(at._value(v) for v in (to, to_pitch, of, of_pitch, width, height)), None)


def _copy_symbol(first: bool) -> Callable[[Skeleton, HostCall], None]:
    """`first`: the variable is the first argument, which is copied to; else the second."""

    def copy(at: Skeleton, op: HostCall) -> None:
        to, of, nbytes = op.args[:3]
        method = _copied(at, op, to, of)
        ends = [at._value(to), at._value(of)]
        if len(op.args) > 3:
            k = 0 if first else 1
            ends[k] = at.b.offset(at.b.cast_pointer(ends[k], Pointer(U8)), at._value(op.args[3]))
        at._host(method, (*ends, at._value(nbytes)), None)

    return copy


def _fill(at: Skeleton, op: HostCall) -> None:
    at._host("fill", tuple(at._value(v) for v in op.args[:3]), None)
    if op.results:
        at.of[op.result] = at._value(op.args[0])


def _method(name: str, count: int) -> Callable[[Skeleton, HostCall], None]:
    def method(at: Skeleton, op: HostCall) -> None:
        at._host(name, tuple(at._value(v) for v in op.args[:count]), None)

    return method


def _handle(at: Skeleton, op: HostCall) -> None:
    """Of a stream or an event: everything is done in the default stream."""
    type = op.result.type
    at.of[op.result] = at.b.null(type) if isinstance(type, Pointer) else at.b.constant(0, type)


_SPELLED = {"f32": "float", "f64": "double"}
_CALLS: dict[str, Callable[[Skeleton, HostCall], None]] = {
    **dict.fromkeys(("cudaMalloc", "cudaMallocAsync"), _allocate("device")),
    "cudaMallocManaged": _allocate("managed"),
    **dict.fromkeys(("malloc", "calloc", "cudaMallocHost", "cudaHostAlloc"), _allocate("host")),
    **dict.fromkeys(("free", "cudaFree", "cudaFreeAsync", "cudaFreeHost"), _method("release", 1)),
    **dict.fromkeys(("cudaMemcpy", "cudaMemcpyAsync", "memcpy", "memmove"), _copy),
    **dict.fromkeys(("cudaMemcpy2D", "cudaMemcpy2DAsync"), _copy_rows),
    **dict.fromkeys(("cudaMemcpyToSymbol", "cudaMemcpyToSymbolAsync"), _copy_symbol(True)),
    **dict.fromkeys(("cudaMemcpyFromSymbol", "cudaMemcpyFromSymbolAsync"), _copy_symbol(False)),
    **dict.fromkeys(("cudaMemset", "cudaMemsetAsync", "memset"), _fill),
    **dict.fromkeys(
        ("cudaDeviceSynchronize", "cudaThreadSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
        _method("synchronize", 0),
    ),
    **dict.fromkeys(("cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaEventCreate"), _handle),
    **dict.fromkeys(
        ("cudaStreamDestroy", "cudaEventDestroy", "cudaEventRecord", "cudaStreamWaitEvent", "cudaSetDevice"),
        _method("synchronize", 0),
    ),
}


def _not_yet(what: str, span: Span, hint: str = "") -> UnsupportedError:
    instead = "kg.gradient(module[...]) runs it from Python"
    return UnsupportedError(f"{what} cannot be transpiled", span, f"{hint}; {instead}" if hint else instead)


def _inside(op: Op) -> list[Op]:
    return [inner for block in blocks(op) for inner in walk(block)]


def _has_host(op: Op) -> bool:
    return any(isinstance(o, _HOST) for o in _inside(op))


def _is_number(type: Type) -> bool:
    return isinstance(type, Scalar) and type.is_float


def _holds_numbers(type: Type) -> bool:
    if isinstance(type, Struct | Array):
        return any(_holds_numbers(part) for part in element_types(type))
    return _is_number(type)


def _touches_numbers(op: Op) -> bool:
    return any(_holds_numbers(v.type) for v in (*op.results, *operands(op)))


def _leaves(type: Type) -> Iterable[Scalar]:
    if isinstance(type, Struct | Array):
        for part in element_types(type):
            yield from _leaves(part)
    elif isinstance(type, Scalar):
        yield type
