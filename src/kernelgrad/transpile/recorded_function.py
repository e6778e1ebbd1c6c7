"""A host function that launches and allocates, as C++ that records what it does: its skeleton, with calls of a
recording in place of what allocates, copies and launches (Note [Recordings in C++] in `recording_text`).

Floats that may have derivatives are pointers to their cells. Arithmetic of such, and loops without calls of the host,
are functions of their own, with gradients of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..autodiff.integers import is_integer
from ..errors import Span, UnsupportedError
from ..frontend.literals import LITERAL
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
from . import records
from .program_variables import method_for, paths_of_pointers
from .recorded_calls import host_call, not_yet
from .recording_text import TAPE
from .records import is_record, numbers_of

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
    functions that do that. `static_name`: what a static variable of a function is called in the file."""

    def __init__(
        self,
        function: Function,
        listed: Iterable[str],
        stretch_function: Callable[[tuple[Op, ...], tuple[Value, ...], set[Value]], tuple[str, tuple[Value, ...]]],
        launch_function: Callable[[KernelLaunch], str],
        registered_function: Callable[[Registered], str],
        module: Module,
        static_name: Callable[[str], str | None],
        has_integers: bool = False,
    ):
        self.function, self.module, self._static_name = function, module, static_name
        self.has_integers = has_integers  # that are differentiated by
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
        if is_listed and is_record(param.type):
            problem = f"'{param.name}', a struct with floating-point numbers that is differentiated by,"
            raise not_yet(problem, self.function.span, "pass its members")
        if not (is_listed and _is_number(param.type)):
            self.of[param.value] = param.value
            return replace(param, const=False)  # as the functions are that it is passed to
        cell = Value(Pointer(param.type), param.name)
        self.cells[param.value] = cell
        return Param(cell, f"{param.c_type} *")

    def recorded(self, name: str) -> Function:
        for path in paths_of_pointers(self.function, self.module):
            self.b.effect(HostCall, f"{TAPE}.leads_to({path}", ())
        for op in self.function.body.ops:
            self._op(op)
        self._catch_up()
        if any(
            isinstance(op, HostCall) and ".vector_variable(" in op.fn for op in walk(Block((), tuple(self.b.ops), ()))
        ):
            self.host("check_vectors", (), None)
        for value in self.function.body.results:
            self.host("result_is", (self.cell_of(value),), None)
        body = Block((), tuple(self.b.ops), ())
        return replace(self.function, name=name, kind="kernel", params=tuple(self._params), body=body)

    # ---- values

    def host(self, method: str, args: tuple[Value, ...], type: Type | None) -> Value | None:
        name = f"{TAPE}.{method}"
        if type is None:
            self.b.effect(HostCall, name, args)
            return None
        return self.b.emit(HostCall, name, args, type=type)

    def value(self, value: Value) -> Value:
        """As a plain one; what a cell holds, where a number is only looked at."""
        if value in self.cells:
            return self.b.load(self.cells[value])
        return self.of[value]

    def cell_of(self, value: Value) -> Value:
        if value in self.cells:
            return self.cells[value]
        made = self.host("cell", (self.of[value],), Pointer(value.type))
        assert made is not None
        return made

    def _new_cell(self, type: Type) -> Value:
        made = self.host("cell", (self.b.constant(0.0, type),), Pointer(type))
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
        for access in (op, *_inside(op)):
            if isinstance(access, Load | Store) and self._is_of_device(access.ptr):
                hint = "use cudaMemcpyToSymbol or FromSymbol"
                raise UnsupportedError("the host cannot use a device variable", access.span, hint)
        if isinstance(op, If | For | While) and not _has_host(op) and self._stretch(op):
            return
        if self._joins(op):
            self._waiting.append(op)
            return
        if isinstance(op, (If, For, While, *_HOST)) or any(self._is_waiting(v) for v in operands(op)):
            self._catch_up()
        self.b.span = op.span
        match op:
            case _ if records.concerns(self, op):
                records.record(self, op)
            case If() | For() | While():
                self._control(op)
            case KernelLaunch():
                self._launch(op)
            case Registered():
                self.b.effect(HostCall, self._registered_function(op), tuple(map(self._passed, op.args)))
            case HostCall():
                host_call(self, op)
            case Load() if _is_number(op.result.type):
                found = self.host("load", (self.value(op.ptr),), Pointer(op.result.type))
                assert found is not None
                self.cells[op.result] = found
            case Store() if _is_number(op.value.type):
                self.host("store", (self.value(op.ptr), self.cell_of(op.value)), None)
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
        if found is None:  # it follows pointers that it finds on its way
            return False
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
            raise not_yet(f"'{type(op).__name__}', in a host function that is differentiated,", op.span)
        if isinstance(op, Store) and not isinstance(op.value.type, Pointer):
            size = self.b.constant(op.value.type.size, U64)
            self.host("overwrite", (self.value(op.ptr), size), None)
        if self.has_integers and isinstance(op, Load) and is_integer(op.result.type):
            self.host(f'looks_at("{place_of(op.span)}"', (self.value(op.ptr),), None)
        new = rebuild(op, self.value, lambda block: block)
        self.b.ops.append(new)
        self.of.update(zip(op.results, new.results, strict=True))

    def _alloca(self, op: Alloca) -> None:
        assert isinstance(op.result.type, Pointer)
        type = op.result.type.pointee
        size = self.b.constant(type.size, U64)
        made = self.b.emit(HostCall, f"{TAPE}.host", (size,), type=op.result.type, name=op.result.name)
        self.of[op.result] = made

    def _is_of_device(self, pointer: Value) -> bool:
        """Whether it leads to a variable of the device."""
        op = self._definition.get(pointer)
        if isinstance(op, Offset | PtrCast | Member):
            return self._is_of_device(op.ptr)
        declared = self.module.globals[op.name] if isinstance(op, GlobalRef) else None
        return declared is not None and declared.space != "host" and not declared.managed

    def manipulator(self, value: Value) -> str | None:
        """Which of a stream's a value is: `endl`, `fixed` and the like, in the namespace std."""
        op = self._definition.get(value)
        if isinstance(op, PtrCast):
            return self.manipulator(op.ptr)
        return op.name.removeprefix("std::") if isinstance(op, GlobalRef) and self._is_manipulator(op) else None

    def _is_manipulator(self, op: GlobalRef) -> bool:
        type = self.module.globals[op.name].type
        return isinstance(type, Struct) and type.name == "std::__kg_manipulator"

    def _variable(self, op: GlobalRef) -> None:
        """Of the program, which its own text names, or a text that stands in it."""
        if self._is_manipulator(op):  # a function in the text
            assert isinstance(op.result.type, Pointer)
            self.of[op.result] = self.b.null(op.result.type)
            return
        declared, scope = self.module.globals[op.name], op.name.rpartition("::")[0]
        if op.name.startswith(LITERAL) and declared.init is not None:
            text = "".join(_escaped(byte) for byte in declared.init[:-1])
            self.of[op.result] = self.b.emit(HostCall, f'{TAPE}.variable("{text}"', (), type=op.result.type)
            return
        name = self._static_name(op.name) if declared.space == "host" and scope else None
        is_named = re.fullmatch(r"[A-Za-z_][\w:]*", op.name) is not None
        if name is None and (not is_named or scope in self.module.functions or declared.space == "shared"):
            of, hint = (
                ("", "set it in a function") if not scope else (" of a function", "declare it outside of the function")
            )
            problem = f"a static variable{of} that starts by code, in a host function that is differentiated,"
            raise not_yet(problem, op.span, hint)
        method = method_for(declared, op)
        self.of[op.result] = self.b.emit(HostCall, f"{TAPE}.{method}(::{name or op.name}", (), type=op.result.type)

    # ---- control

    def _control(self, op: Op) -> None:
        """Numbers go in and come out as cells."""
        inits = tuple(getattr(op, "inits", ()))
        carried = tuple(self._passed(v) for v in inits)
        bodies = [self._block(block) for block in blocks(op)]
        results = tuple(self._result(v) for v in op.results)
        match op:
            case If(cond):
                new: Op = replace(op, cond=self.value(cond), then=bodies[0], orelse=bodies[1], results=results)
            case For(lower, upper):
                ends = self.value(lower), self.value(upper)
                new = replace(op, lower=ends[0], upper=ends[1], inits=carried, body=bodies[0], results=results)
            case _:
                assert isinstance(op, While)
                new = replace(op, inits=carried, before=bodies[0], body=bodies[1], results=results)
        self.b.ops.append(new)

    def _passed(self, value: Value) -> Value:
        if is_record(value.type):
            problem = "a struct with floating-point numbers that branches or loops of the host give"
            raise not_yet(problem, self.b.span, "let them set its members")
        return self.cell_of(value) if _is_number(value.type) else self.of[value]

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
        config = tuple(self.value(v) for v in op.config[:7])
        args = (
            records.place_of(self, v, op.span) if is_record(v.type) and numbers_of(v.type) else self._passed(v)
            for v in op.args
        )
        self.b.effect(HostCall, self._launch_function(op), (*config, *args))


def _escaped(byte: int) -> str:
    """In a literal; without parentheses, by which calls are told."""
    is_plain = 32 <= byte < 127 and chr(byte) not in '"\\()?'
    return chr(byte) if is_plain else f"\\{byte:03o}"


def place_of(span: Span) -> str:
    return str(span).split(": ")[0]


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
