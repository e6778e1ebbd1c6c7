"""The gradient of a host function that launches and allocates, as a C++ function: it records, then reverses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from .. import pipeline
from ..autodiff.calculus.activity import holds_floats
from ..autodiff.integers import are_integers, is_integer
from ..backends.cuda import emit, kernel_name
from ..backends.cuda.emit import types_of
from ..backends.cuda.names import in_namespace
from ..backends.cuda.types import Types
from ..errors import Span, UnsupportedError
from ..host.kernel_facts import PRINTS, KernelFacts, why_it_varies
from ..ir.ops import (
    ADJOINT,
    Block,
    Derivative,
    Function,
    GlobalRef,
    KernelLaunch,
    Load,
    Member,
    Module,
    Offset,
    Op,
    Param,
    PtrCast,
    Registered,
    Store,
    Value,
)
from ..ir.traverse import walk
from ..ir.types import U8, Pointer, Scalar, Struct, Type
from ..locks import cached_property
from ..programs.integer_gradient import kinds_of
from ..runtime.parameters import parameters_of
from ..runtime.written import written_params
from . import kept_stores
from .derivative_file import INCLUDE
from .derived_functions import RESULT, Derived, derived_function, function_text, plain_type
from .growing_tapes import TAPE as FRAME
from .host_function import HostFunction
from .integer_memory import check_kinds
from .kernels import KernelGradients
from .program_variables import started
from .recorded_function import Skeleton
from .recorded_halves import HALF, augmented, backward
from .recording_text import INCLUDES, RECORDING, TAPE
from .records import is_record, numbers_of
from .stretches import inputs_of, stretch_function
from .support import AS

_RECORDING = f"Recording &{TAPE}"
_ENDINGS = {"reverse": "grad", "augmented": "augmented", "backward": "reverse"}
_DEFINED = re.compile(r"^static void (\w+)\(", re.M)


class RecordedGradient:
    """`kernels`: makes gradients of those that are launched. `static_name`: what a static variable of a function is
    called in the file."""

    def __init__(
        self, module: Module, op: Derivative, kernels: KernelGradients, static_name: Callable[[str], str | None]
    ):
        self.module, self.op, self.kernels, self._static_name = module, op, kernels, static_name
        self.host = pipeline.compile_host(module, op.fn)
        self.function = started(self.host.functions[op.fn], self.host)
        self.in_halves = op.mode != "reverse"
        self.name = kernel_name(op.fn) + ("_halves" if self.in_halves else "")
        self._definition = {v: o for o in walk(self.function.body) for v in o.results}
        self.texts: dict[str, str] = {}  # of functions, by name
        self.called: dict[str, None] = {}  # functions of the program
        pairs = zip(self.function.params, op.activity.split(","), strict=True)
        asked = [p for p, activity in pairs if activity != "const"]
        self.integers = [p for p in asked if are_integers(p.type)]
        self.listed = [p for p in asked if p in self.integers or holds_floats(_content(p.type))]
        check_kinds(kinds_of(self.function, frozenset(p.name for p in self.integers)), self.function)

    def derived(self) -> Derived:
        names = [p.name for p in self.listed]
        made = (self._stretch, self._launch, self._registered)
        skeleton = Skeleton(self.function, names, *made, self.module, self._static_name, bool(self.integers))
        recorded = skeleton.recorded(f"{self.name}_recorded")
        alone = Module({recorded.name: recorded}, {}, self.module.structs)
        types = types_of(alone, recorded.name)
        text = function_text(emit(alone, recorded.name), "static", self.op, bare=True)
        text = text.replace("_recorded(", f"_recorded({_RECORDING}{', ' if recorded.params else ''}", 1)
        params, listed = list(self.function.params), {}
        result = self.function.body.results[0].type if self.function.body.results else None
        if result is not None:
            params.append(Param(Value(Pointer(result), RESULT), "void *"))
        for param in (*self.listed, *([params[-1]] if result is not None else [])):
            type = param.type if isinstance(param.type, Pointer) else Pointer(param.type)
            own = Param(Value(type, f"{ADJOINT}{param.name}"), "void *")
            listed[param.name] = own
            params.append(own)
        emitted = self._halves if self.in_halves else self._gradient
        gradient = emitted(recorded, params, listed, types)
        pieces = [_plainly(piece) for piece in (*self.texts.values(), text)]
        includes = {f"#include <{name}>\n" for name in INCLUDES} | {i for t in pieces for i in INCLUDE.findall(t)}
        alike = [AS] if any("alike(" in t for t in pieces) else []
        base = [RECORDING, HALF] if self.in_halves else [RECORDING]
        whole = "".join(in_namespace([*base, *alike, *(INCLUDE.sub("", t) for t in pieces), gradient]))
        head, name = "".join(sorted(includes)), f"{self.name}_{_ENDINGS[self.op.mode]}"
        parts = tuple(n for n in dict.fromkeys(_DEFINED.findall(whole)) if n.startswith(f"{self.name}_") and n != name)
        taken, found = (
            self._taken(params, listed),
            Derived(f"kg::{name}", (), listed, head + whole, types, 0, frozenset()),
        )
        return replace(found, params=taken, parts=parts, is_recording=self.in_halves)

    def _taken(self, params: list[Param], listed: dict[str, Param]) -> tuple[Param, ...]:
        """What is passed to the function that is asked for."""
        if not self.in_halves:
            return tuple(params)
        shadows = list(listed.values()) if self.op.mode == "augmented" else []
        return (*(p for p in params if p not in shadows), Param(Value(Pointer(U8), FRAME), "void *"))

    def _halves(self, recorded: Function, params: list[Param], listed: dict[str, Param], types: Types) -> str:
        own = [p for p in params if p not in listed.values()]
        first = augmented(f"{self.name}_augmented", recorded, own, listed, types)
        return f"{first}\n{backward(f'{self.name}_reverse', params, listed, types)}"

    def _gradient(self, recorded: Function, params: list[Param], listed: dict[str, Param], types: Types) -> str:
        spell = types.declare
        lines = [f"Recording {TAPE};"]
        after, given = list[str](), list[str]()
        for param in self.function.params:
            adjoint = listed.get(param.name)
            shadow = adjoint.name if adjoint is not None else "nullptr"
            if isinstance(param.type, Pointer):
                lines.append(f"{TAPE}.given({param.name}, {shadow});")
                lines += [f"{TAPE}.integers({param.name});"] if param in self.integers else []
                given.append(f"({types.spell(param.type)}){param.name}" if param.const else param.name)
            elif adjoint is not None:
                lines.append(f"{spell(Pointer(param.type), f'{param.name}_cell')} = {TAPE}.cell({param.name});")
                after.append(f"*{shadow} += *{TAPE}.shadow({param.name}_cell);")
                given.append(f"{param.name}_cell")
            else:
                given.append(param.name)
        lines.append(f"{recorded.name}({', '.join((TAPE, *given))});")
        if RESULT in listed:
            pointer = types.spell(listed[RESULT].type)
            lines.append(f"*{RESULT} = *({pointer}){TAPE}.result;")
            lines.append(f"*{TAPE}.shadow(({pointer}){TAPE}.result) = *{listed[RESULT].name};")
        elif params and params[-1].name == RESULT:
            pointer = types.spell(params[-1].type)
            lines.append(f"*{RESULT} = *({pointer}){TAPE}.result;")
        body = "".join(f"    {line}\n" for line in (*lines, f"{TAPE}.backward();", *after))
        head = ", ".join(spell(p.type, p.name, p.const) for p in params)
        where = f"// Runs {self.op.fn}, records what it does, and reverses that.\n"
        return f"{where}static void {self.name}_grad({head})\n{{\n{body}}}\n"

    # ---- stretches of host code

    def _stretch(
        self, ops: tuple[Op, ...], outputs: tuple[Value, ...], cells: set[Value]
    ) -> tuple[str, tuple[Value, ...]]:
        line = ops[0].span.line
        name = self._fresh(f"{self.name}_line_{line}")
        ops = (*self._addresses(ops), *ops)
        body, inputs = Block((), ops, ()), inputs_of(ops)
        function, activity = stretch_function(name, body, inputs, outputs, cells)
        self.texts[name] = ""  # taken
        self.texts[name] = self._stretch_text(function, activity, inputs, cells)
        return f"{name}({TAPE}", inputs

    def _addresses(self, ops: tuple[Op, ...]) -> list[Op]:
        """How a stretch finds several places of one memory: it is given that memory once, since a function's gradient
        takes what it is given to be apart."""
        inputs = [v for v in inputs_of(ops) if isinstance(v.type, Pointer)]
        counts = Counter(map(self._base, inputs))
        found = dict[Op, None]()
        for value in inputs:
            if counts[self._base(value)] > 1:
                found.update(dict.fromkeys(reversed(self._offsets(value))))
        return [replace(op, span=ops[0].span) for op in found]

    def _base(self, value: Value) -> Value:
        offsets = self._offsets(value)
        return offsets[-1].ptr if offsets else value

    def _offsets(self, value: Value) -> list[Offset]:
        """What made an address, the last first. All of these are of one type: of what is cast nobody knows whether it
        has an adjoint."""
        found = list[Offset]()
        while isinstance(op := self._definition.get(value), Offset):
            found.append(op)
            value = op.ptr
        return found

    def _stretch_text(
        self, function: Function, activity: list[str], inputs: tuple[Value, ...], cells: set[Value]
    ) -> str:
        name = f"{function.name}_of"
        function = replace(function, name=name)
        module = Module({name: function}, {}, self.module.structs)
        plain = pipeline.compile_kernel(Module({name: replace(function, kind="kernel")}, {}, module.structs), name)
        plain = pipeline.for_target(plain, name, pipeline.CUDA_FUNCTION)
        types = types_of(plain, name)
        params = [(types.declare(p.type, p.name), p.name) for p in function.params]
        used = {p.name: p.name for p, v in zip(function.params, inputs, strict=False) if _is_memory(p, v, cells)}
        written = written_params(plain.functions[name])
        read = {p.name for p in parameters_of(plain.functions[name], written) if p.read}
        callers = self._callers(function, inputs, used)
        constant = [n for n in callers if n not in written and callers[n] not in {p.name for p in self.listed}]
        activity = ["const" if p.name in constant else a for p, a in zip(function.params, activity, strict=True)]
        args = tuple(Value(p.type) for p in function.params)
        op = Derivative(name, "reverse", ",".join(activity), (), args, (), span=function.span)
        pieces = [function_text(emit(plain, name), "static", op, bare=True)]
        where = f'"{_place(function.span)}"'
        call = ", ".join(given for _, given in params)
        kept = frozenset(n for n in callers if n in written)
        if kept:
            pieces.append(_kept_text(plain, name, kept, op))
            tells = f"if ({_run_again(used, read, written, where, ', true, true')[:-1]})"
            lines = [f"{tells} {name}_kept({TAPE}, {call});", f"else {name}({call});"]
        else:
            lines = [_run_again(used, read, written, where)] if used else [f"{TAPE}.record(nullptr, true);"]
            lines.append(f"{name}({call});")
        lines[:0] = [f"{TAPE}.is_constant({where}, {n});" for n in constant]
        lines[:0] = [f"{TAPE}.has_no_adjoint({where}, {n});" for n in constant if callers[n].startswith("::")]
        for p in function.params if self.integers else ():
            if p.name in used and is_integer(_content(p.type)):
                lines.insert(0, f"{TAPE}.looks_at({where}, {p.name});")
        if any(a == "dup" for a in activity):
            made = derived_function(module, op, False, True, frozenset())
            if len(used) > 1:
                lines.insert(0, _apart(used, written, where))
            pieces.append(made.text)
            order = {q.name: p for p, q in made.listed.items()}
            given = [f"{TAPE}.shadow({order[p.name]})" if p.name in order else p.name for p in made.params]
            lines.append(f"{TAPE}.reverses([=, &{TAPE}] {{ {TAPE}.settle(), {made.name}({', '.join(given)}); }});")
        text = "".join(f"    {line}\n" for line in lines)
        declared = ", ".join((f"Recording &{TAPE}", *(d for d, _ in params)))
        pieces.append(f"static void {function.name.removesuffix('_of')}({declared})\n{{\n{text}}}\n")
        return "\n".join(pieces)

    def _callers(self, function: Function, inputs: tuple[Value, ...], used: Collection[str]) -> dict[str, str]:
        """Which parameters of a stretch lead to memory of the caller's, and to that of which argument."""
        given: dict[object, str] = {p.value: p.name for p in self.function.params}
        given |= {("load", root): f"::{name}" for root, name in self._variables.items()}
        pairs = zip(function.params, map(self._root, inputs), strict=False)
        return {p.name: given[root] for p, root in pairs if p.name in used and root in given}

    @cached_property
    def _variables(self) -> dict[Value, str]:
        """Pointers outside of functions that it does not assign."""
        refs = [
            op for op in walk(self.function.body) if isinstance(op, GlobalRef) and isinstance(op.result.type, Pointer)
        ]
        found = {op.result: op.name for op in refs if self.host.globals[op.name].space == "host"}
        targets = {self._root(op.ptr) for op in walk(self.function.body) if isinstance(op, Store)}
        stored = {name for value, name in found.items() if value in targets}
        return {value: name for value, name in found.items() if name not in stored}

    # ---- launches

    def _launch(self, op: KernelLaunch) -> str:
        shares = self._shares(op)
        name = self._known(op.kernel, "launched_on_shared" if shares else "launched")
        if name not in self.texts:
            self.texts[name] = ""
            self.texts[name] = self._launch_text(name, op.kernel, op.span, shares)
        return f'{name}({TAPE}, "{_place(op.span)}"'

    def _shares(self, op: KernelLaunch) -> bool:
        """Whether some of its arguments may be one memory: derived from one pointer, or loaded from one place."""
        found = [self._root(v) for v in op.args if isinstance(v.type, Pointer)]
        return len(set(found)) < len(found)

    def _root(self, value: Value) -> object:
        match self._definition.get(value):
            case Offset(ptr) | PtrCast(ptr):
                return self._root(ptr)
            case Load(ptr):
                return "load", self._root(ptr)
            case Member(ptr, index):
                return "member", self._root(ptr), index
        return value

    def _launch_text(self, name: str, kernel: str, span: Span, shares: bool) -> str:
        self.called[kernel] = None
        self.kernels.check_known(kernel, span)
        reals = self.kernels.real_params(kernel) if self.integers else frozenset[str]()
        made: HostFunction = self.kernels.recorded(kernel, span, reals, shares)
        primal = made.variant.kernel
        _refuse_varying(kernel, self.module.functions[kernel], span)
        facts = self.kernels.facts(kernel)
        _refuse_variables(facts, span)
        where = "kg_where"
        types, shown = made.types, [p for p in primal.function.params if p.variable is None]
        scalars = [p for p in shown if isinstance(p.type, Scalar) and p.type.is_float]
        memory = {path: path for p in shown for path in _pointers(p.type, p.name)}
        memory |= {name: f"{TAPE}.symbol(::{name})" for name in facts.variables}
        kinds = {p.name: p.type for p in made.params}  # integers are doubles in the variant, and not here
        records = {p.name: numbers_of(p.type) for p in shown if is_record(p.type) and numbers_of(p.type)}
        by_place = [p for p in shown if p in scalars or p.name in records]
        params = [types.declare(Pointer(p.type) if p in by_place else kinds[p.name], p.name) for p in shown]
        config = ", ".join(f"unsigned int kg_{of}{axis}" for of in "gb" for axis in "xyz")
        structs = {p.name for p in shown if isinstance(p.type, Struct)}
        values = [f"*{p.name}" if p in by_place else p.name for p in shown]
        primal_values = [v if plain_type(p.type) else f"alike({v})" for p, v in zip(shown, values, strict=True)]
        lines = [
            "const dim3 kg_grid(kg_gx, kg_gy, kg_gz), kg_block(kg_bx, kg_by, kg_bz);",
            _run_again(memory, facts.reads, facts.writes, where),
        ]
        lines += [] if shares else [_apart(memory, facts.writes, where)]
        before = list[str]()
        lines += self._integers_of(made, memory, reals, facts, where)
        lines.append(f"::{primal.function.called}<<<kg_grid, kg_block, kg_shared>>>({', '.join(primal_values)});")
        lines.append(f"{TAPE}.check(cudaGetLastError());")
        given = list(values)
        for of, adjoint in made.variant.derivative.adjoints.items():
            if of in records:
                given.append(f"{TAPE}.owe<{records[of]}>({of})")
                continue
            if of in structs:
                before += self._struct_of_adjoints(of, adjoint, memory, kinds, span)
                given.append(f"kg_d_{of}")
                continue
            owes = any(p.name == of for p in scalars)
            shadow = f"{TAPE}.{'owe' if owes else 'shadow'}({memory.get(of, of)})"
            given.append(shadow if of not in facts.variables else f"({types.spell(adjoint.type)}){shadow}")
        given += [f"({types.spell(p.type, p.const)}){TAPE}.symbol(::{p.variable})" for p in made.variables]
        given += [f"{TAPE}.room({memory[buffer]})" for buffer in made.sizes]
        how = "" if made.shape is not None else "kg_grid, kg_block, "
        reverse = f"{TAPE}.check({made.name}({how}kg_shared, nullptr, {', '.join(given)}));"
        lines.append(f"{TAPE}.reverses([=, &{TAPE}] {{ {' '.join((*before, reverse))} }});")
        head = ", ".join((f"Recording &{TAPE}", "const char *kg_where", config, "size_t kg_shared", *params))
        body = "".join(f"    {line}\n" for line in lines)
        return f"static void {name}({head})\n{{\n{body}}}\n"

    def _struct_of_adjoints(
        self, of: str, adjoint: Param, memory: dict[str, str], kinds: dict[str, Type], span: Span
    ) -> Iterator[str]:
        """The struct `kg_d_x` for a struct of pointers `x`."""
        if adjoint.type != kinds[of]:
            problem = f"'{of}', a struct of pointers and numbers that is passed to a kernel in what is differentiated,"
            raise UnsupportedError(f"{problem} cannot be transpiled", span, "pass what is in it")
        yield f"auto kg_d_{of} = {of};"
        for path in memory:
            if path.startswith(f"{of}.") and holds_floats(_content(_member(kinds[of], path.split(".")[1:]))):
                yield f"kg_d_{path} = {TAPE}.shadow({path});"

    def _integers_of(
        self, made: HostFunction, memory: dict[str, str], reals: frozenset[str], facts: KernelFacts, where: str
    ) -> Iterator[str]:
        """What a launch does to integers that are differentiated by: some of its parameters have derivatives."""
        if not self.integers:
            return
        params = {p.name: p.type for p in made.variant.kernel.function.params}
        read, written = (
            ", ".join(memory[n] for n in memory if n in reals and n in some) for some in (facts.reads, facts.writes)
        )
        if any("." in path for path in memory):
            problem = "a struct of pointers that is passed to a kernel, in what is differentiated by integers,"
            raise UnsupportedError(f"{problem} cannot be transpiled", made.variant.kernel.function.span)
        if reals:
            yield f"{TAPE}.pass_on({{{read}}}, {{{written}}});"
        for name, text in memory.items():
            if name not in reals and not (name in params and holds_floats(_content(params[name]))):
                yield f"{TAPE}.looks_at({where}, {text});"

    def _registered(self, op: Registered) -> str:
        name = self._known(op.fn, "registered")
        if name not in self.texts:
            self.texts[name] = self._registered_text(name, op)
        return f"{name}({TAPE}"

    def _registered_text(self, name: str, op: Registered) -> str:
        self.called.update(dict.fromkeys((op.augmented, op.reverse)))
        primal, forward = self.module.functions[op.fn], self.module.functions[op.augmented]
        wrapped = replace(primal, kind="kernel", body=Block((), (), ()), name=name)
        types = types_of(Module({name: wrapped}, {}, self.module.structs), name)
        numbers = [p for p in primal.params if isinstance(p.type, Scalar) and p.type.is_float]
        params = [types.declare(Pointer(p.type) if p in numbers else p.type, p.name) for p in primal.params]
        memory = [p.name for p in primal.params if isinstance(p.type, Pointer)]
        passed = list[str]()
        for param in primal.params:
            own = f"*{param.name}" if param in numbers else param.name
            given = [own, f"{TAPE}.shadow({own})"] if param.name in memory else [own]
            passed += given if plain_type(param.type) else [f"alike({v})" for v in given]
        keeps = bool(forward.body.results)
        call = f"::{op.augmented}({', '.join(passed)});"
        where = f'"{_place(op.span)}"'
        lines = [f"{TAPE}.run_again({{}}, {{{', '.join(memory)}}}, {where}, false);"]
        lines.append(f"auto kept = {call}" if keeps else call)
        lines.append(f"{TAPE}.looks_back({{{', '.join(memory)}}});")
        reverse = f"::{op.reverse}({', '.join((*passed, *(['kept'] if keeps else [])))});"
        result = self.module.functions[op.reverse].result_type
        parts = [f".{field.name}" for field in result.fields] if isinstance(result, Struct) else [""]
        added = " ".join(f"*{TAPE}.shadow({p.name}) += found{part};" for p, part in zip(numbers, parts, strict=False))
        reverse = f"auto found = {reverse} {added}" if numbers else reverse
        lines.append(f"{TAPE}.reverses([=, &{TAPE}] {{ {TAPE}.settle(); {reverse} }});")
        body = "".join(f"    {line}\n" for line in lines)
        return f"static void {name}({', '.join((f'Recording &{TAPE}', *params))})\n{{\n{body}}}\n"

    # ---- names

    def _known(self, function: str, what: str) -> str:
        return f"{self.name}_{kernel_name(function)}_{what}"

    def _fresh(self, name: str) -> str:
        found, number = name, 1
        while found in self.texts:
            number += 1
            found = f"{name}_{number}"
        return found


def _pointers(type: Type, path: str) -> Iterator[str]:
    """Where a parameter has pointers: it is one, or they are members."""
    if isinstance(type, Pointer):
        yield path
    elif isinstance(type, Struct):
        for field in type.fields:
            yield from _pointers(field.type, f"{path}.{field.name}")


def _member(type: Type, names: list[str]) -> Type:
    for name in names:
        assert isinstance(type, Struct)
        type = next(field.type for field in type.fields if field.name == name)
    return type


def _touched(memory: Collection[str], names: Collection[str]) -> list[str]:
    """Which of it belongs to parameters, or parts of them, of these names."""
    return [path for path in memory if path in names or path.partition(".")[0] in names]


def _content(type: Type) -> Type:
    return type.pointee if isinstance(type, Pointer) else type


def _is_memory(param: Param, value: Value, cells: set[Value]) -> bool:
    return isinstance(param.type, Pointer) and value not in cells


def _refuse_varying(name: str, kernel: Function, span: Span) -> None:
    """The reverse runs launches again."""
    why = why_it_varies(kernel)
    if why is not None and why != PRINTS:
        reason = f"{name} may do something else when the reverse runs it again: {why}"
        raise UnsupportedError(reason, span, "kg.gradient(module[...]) of the host function keeps what it needs")


def _refuse_variables(facts: KernelFacts, span: Span) -> None:
    for name in facts.variables:
        if name in facts.writes and name not in facts.listed:
            problem = f"'{name}', a variable without derivatives that a kernel writes, in what is differentiated,"
            raise UnsupportedError(f"{problem} cannot be transpiled", span, "pass it to the kernel as a pointer")
    if facts.unlisted is not None:
        raise UnsupportedError("floating-point numbers behind a pointer to something else", facts.unlisted.span)


def _place(span: Span) -> str:
    return str(span).split(": ")[0]


def _kept_text(plain: Module, name: str, kept: frozenset[str], op: Derivative) -> str:
    """The function that tells what it overwrites."""
    function = replace(kept_stores.run(plain.functions[name], kept), name=f"{name}_kept")
    text = emit(Module({function.name: function}, plain.globals, plain.structs), function.name)
    return function_text(text, "static", op, bare=True).replace(f"{name}_kept(", f"{name}_kept({_RECORDING}, ", 1)


def _run_again(
    memory: dict[str, str], read: Collection[str], written: Collection[str], where: str, how: str = ""
) -> str:
    """`memory`: what leads there, by name."""
    loads = ", ".join(memory[path] for path in _touched(memory, read))
    stores = ", ".join(memory[path] for path in _touched(memory, written))
    return f"{TAPE}.run_again({{{loads}}}, {{{stores}}}, {where}{how});"


def _apart(memory: dict[str, str], written: Collection[str], where: str) -> str:
    kept = _touched(memory, written)
    others = ", ".join(text for path, text in memory.items() if path not in kept)
    stores = ", ".join(memory[path] for path in kept)
    return f"{TAPE}.apart({{{others}}}, {{{stores}}}, {where});"


_NAMESPACE = re.compile(r"^namespace kg \{\n+|^\}  // namespace kg\n", re.M)


def _plainly(text: str) -> str:
    """What goes into the namespace anyway."""
    return _NAMESPACE.sub("", text)
