"""The C++ host function that launches a gradient: allocates what its kernels are given besides the arguments, launches
them and what comes before and after them, and frees. Printed from the same data that a launch from Python evaluates
(`launches/needs`, `launches/memory/additions`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from ..autodiff.accumulate.logs import Log, Logged
from ..autodiff.calculus.shadows import SHARED_BYTES
from ..autodiff.calculus.tape import Stack
from ..autodiff.integers import HINT
from ..backends.cuda import emit, kernel_name
from ..backends.cuda.emit import types_of
from ..backends.cuda.names import Scope
from ..backends.cuda.shared import shared_layout
from ..backends.cuda.types import Types
from ..errors import UnsupportedError
from ..ir.ops import Function, Module, Param
from ..ir.types import Pointer, Scalar, Type
from ..kernel import Kernel
from ..launches.choice.variant import Variant
from ..launches.memory.additions import Addition
from ..launches.memory.buffers import Alias, Copy, Extents, Memory, Need, Sized, Value
from ..launches.memory.partial_sums import sums_after
from ..launches.memory.tape_expressions import tape_elements
from ..launches.needs import needs_of
from ..launches.plan import kernels_in_order
from .expressions import Printer
from .integer_memory import EMPTY, check_kinds, in_module

_WIDTH = 120
_LOCALS = ("grid", "block", "shared", "stream", "scratch", "blocks", "block_threads", "counts", "shared_bytes")


class Shape(NamedTuple):
    """A grid and a block that are known."""

    grid: Extents
    block: Extents


class HostFunction:
    """`shape`: of the launches that the form is for; without one, they have any. `assigned`: the parameters whose
    adjoints start at zero. `integers`: of the kernel's parameters that lead to some which are differentiated by, and
    are doubles in the variant, the kinds by name (`integer_memory`)."""

    def __init__(
        self,
        variant: Variant,
        shape: Shape | None,
        assigned: tuple[str, ...] = (),
        name: str = "",
        integers: Mapping[str, Scalar] = EMPTY,
    ):
        self.variant, self.shape, self.assigned = variant, shape, assigned
        _refuse(variant)
        check_kinds(integers, variant.kernel.function)
        adjoints = variant.derivative.adjoints
        self._integers = {**integers, **{adjoints[n].name: kind for n, kind in integers.items() if n in adjoints}}
        self._modules: dict[str, Module] = {}
        self._log_counts: dict[Logged, str] = {}  # how many entries there is room for
        stacks = variant.derivative.stacks
        self.tape = tape_elements(variant.derivative.prepared.plan) if stacks else {}
        # Whether a launch must count what threads keep.
        by_expression = self.tape is not None and all(stack.capacity is not None for stack in stacks)
        self.counts = bool(variant.derivative.logs) or not by_expression
        self.reverse = variant.reverse
        self.types: Types = types_of(self.module(self.reverse), self.reverse.name)
        self.name = name or f"launch_{kernel_name(self.reverse.name)}"
        self.params = [p for p in self._function(self.reverse).params if p.variable is None]
        variables = variant.kernel.module.globals
        self.variables = [p for p in self._all_params() if p.variable in variables]
        self._scope = Scope(taken=(self.name, *(kernel_name(k.name) for k in self.kernels)))
        self._names = {p.name: self._scope.declare(p.name) for p in (*self.params, *self.variables)}
        self._local = {name: self._scope.declare(name, own=True) for name in _LOCALS}
        self.sizes: dict[str, str] = {}  # of buffers, that the function is told
        self._given = dict(self._names)  # what kernels are given for their parameters
        self.printer = Printer(self._names.__getitem__, self._nbytes, self._local.__getitem__)
        self.body = list(self._lines())

    def module(self, kernel: Kernel) -> Module:
        """As it is in the text."""
        if not self._integers:
            return kernel.cuda_module
        if kernel.name not in self._modules:
            self._modules[kernel.name] = in_module(kernel.cuda_module, kernel.name, self._integers)
        return self._modules[kernel.name]

    def text_of(self, kernel: Kernel) -> str | None:
        """Of a kernel that integers concern."""
        return emit(self.module(kernel), kernel.name) if self._integers else None

    def _function(self, kernel: Kernel) -> Function:
        return self.module(kernel).functions[kernel.name]

    def _all_params(self) -> Iterator[Param]:
        found = (p for kernel in self.kernels for p in self._function(kernel).params)
        yield from {p.name: p for p in found}.values()

    @property
    def kernels(self) -> list[Kernel]:
        """All of them, as they are launched first."""
        counting = [self.variant.counting[0]] if self.counts else []
        after = {a.kernel.name: a.kernel for a in self.additions}
        return [*counting, *(kernel for kernel, _ in kernels_in_order(self.variant)), *after.values()]

    @property
    def additions(self) -> tuple[Addition, ...]:
        found = sums_after(self.variant, self._sized) if self.variant.derivative.partials else ()
        return tuple(self._to_integers(a) if a.target in self._integers else a for a in found)

    def _to_integers(self, addition: Addition) -> Addition:
        """That of sums to an adjoint that holds integers."""
        kind, kernel = self._integers[addition.target], addition.kernel
        name = f"{kernel.name}_to_{kind.name}"
        made = Kernel(
            name, replace(kernel.module, functions={name: replace(kernel.function, name=name)}), kernel.variable
        )
        target = made.cuda_module.functions[name].params[0].name
        self._modules.setdefault(name, in_module(made.cuda_module, name, {target: kind}))
        return replace(addition, kernel=made)

    @property
    def _sized(self) -> Sized:
        grid, block = self.shape or ((1, 1, 1), (1, 1, 1))
        return Sized(grid, block, {})

    def _nbytes(self, buffer: str) -> str:
        if buffer in self._integers:
            problem = "a gradient by integers that depends on how many they are"
            raise UnsupportedError(f"{problem} cannot be transpiled", self.variant.kernel.function.span, HINT)
        if buffer not in self.sizes:
            self.sizes[buffer] = self._scope.declare(f"{self._names[buffer]}_bytes")
        return self.sizes[buffer]

    # ---- text

    @property
    def signature(self) -> str:
        shape = ["dim3 {grid}", "dim3 {block}"] if self.shape is None else []
        launch = [text.format(**self._local) for text in (*shape, "size_t {shared}", "cudaStream_t {stream}")]
        own = [self.types.declare(p.type, self._names[p.name], p.const) for p in (*self.params, *self.variables)]
        sizes = [f"size_t {name}" for name in self.sizes.values()]
        return _listed(f"cudaError_t {self.name}", (*launch, *own, *sizes))

    @property
    def text(self) -> str:
        lines = (*self._comments(), self.signature, "{", *(f"    {line}" if line else "" for line in self.body), "}")
        return "".join(f"{line}\n" for line in lines)

    def _comments(self) -> Iterator[str]:
        kernel = self.variant.kernel.function.called
        alone = self.variant.options.mode == "reverse"
        does = f"Runs the reverse of {kernel}" if alone else f"Runs {kernel} and its gradient"
        yield f"// {does}, behind what is in the stream."
        if self.shape is not None:
            grid, block = (f"dim3({', '.join(map(str, extents))})" for extents in self.shape)
            yield f"// For launches with a grid of {grid} and blocks of {block}."
        yield "// Buffers lie on the device and do not overlap; an adjoint has as many elements as its argument."
        for buffer, name in self.sizes.items():
            yield f"// {name}: the bytes of {self._names[buffer]}."
        yield "// Returns the first error of a CUDA call."

    def _lines(self) -> Iterator[str]:
        memory = [*self._zeroed(), *self._memory(), *self._shared()]
        launches = [line for kernel, _ in kernels_in_order(self.variant) for line in self._launch(kernel)]
        launches += [line for addition in self.additions for line in self._addition(addition)]
        launches += [line for log in self.variant.derivative.logs for line in self._sum(log)]
        scratch = self._local["scratch"]
        if self.shape is not None:
            yield from self._constants(self.shape)
        if not any(scratch in line for line in (*memory, *launches[:-1])):  # nothing but a launch
            yield from (*memory, *launches[:-1], "return cudaGetLastError();")
            return
        yield f"kg::Scratch {scratch}({self._local['stream']});"
        yield from self._opening()
        yield from memory
        if memory:
            yield f"if ({scratch}.error != cudaSuccess) return {scratch}.error;"
        yield from launches
        yield f"return {scratch}.finish();"

    def _zeroed(self) -> Iterator[str]:
        """Adjoints that are assigned to start at zero."""
        for name in self.assigned:
            adjoint = self.variant.derivative.adjoints[name].name
            given, scratch = self._names[adjoint], self._local["scratch"]
            zero = f"cudaMemsetAsync({given}, 0, {self._nbytes(adjoint)}, {self._local['stream']})"
            yield f"if ({scratch}.failed({zero})) return {scratch}.error;"

    def _constants(self, shape: Shape) -> Iterator[str]:
        for name, extents in zip(("grid", "block"), shape, strict=True):
            yield f"const dim3 {self._local[name]}({', '.join(map(str, extents))});"

    def _opening(self) -> Iterator[str]:
        at = self._local
        derivative = self.variant.derivative
        if derivative.stacks or derivative.partials or derivative.logs:
            grid, block = at["grid"], at["block"]
            yield f"size_t {at['blocks']} = (size_t){grid}.x * {grid}.y * {grid}.z;"
            yield f"size_t {at['block_threads']} = (size_t){block}.x * {block}.y * {block}.z;"

    # ---- memory

    def _memory(self) -> Iterator[str]:
        for name in sorted(self.variant.options.facts.unkept):
            yield from self._spared(self.variant.derivative.adjoints[name])
        if self.counts:
            yield from self._count()
        for need in needs_of(self.variant, self._sized, self.tape):
            if not (self.counts and need.name in self._given):
                yield from self._need(need)

    def _spared(self, adjoint: Param) -> Iterator[str]:
        """A copy in place of an adjoint that is to be kept."""
        given, scratch = self._names[adjoint.name], self._local["scratch"]
        copy = self._scope.declare(f"{given}_copy", own=True)
        self._given[adjoint.name] = copy
        yield f"// {given} is to be kept, and would be consumed."
        yield f"auto *{copy} = {scratch}.copy_of({given}, {self._nbytes(adjoint.name)});"

    def _need(self, need: Need) -> Iterator[str]:
        if self._integers and getattr(need, "of", None) in self._integers:
            problem = "a gradient by integers that copies what they are in"
            raise UnsupportedError(f"{problem} cannot be transpiled", self.variant.kernel.function.span, HINT)
        if isinstance(need, Alias):
            self._given[need.name] = self._given[need.of]
            return
        name, scratch = self._scope.declare(need.name), self._local["scratch"]
        self._given[need.name] = name
        if need.role:
            yield f"// {name}: {need.role}"
        if isinstance(need, Value):
            count = self.printer.size(need.value) if need.name == SHARED_BYTES else self.printer.count(need.value)
            self.printer.declare(need.value, name)
            yield f"long long {name} = {count};"
            return
        type, nbytes = self._element(need.name), self.printer.size(need.nbytes)
        declared = self.types.declare(Pointer(type), name)
        spelled = self.types.spell(type)
        match need:
            case Copy():
                yield f"{declared} = {scratch}.copy_of(({spelled} *){self._given[need.of]}, {nbytes});"
            case Memory(fill=None):
                yield f"{declared} = {scratch}.get<{spelled}>({nbytes});"
            case Memory():
                yield f"{declared} = {scratch}.filled<{spelled}>({nbytes}, {need.fill:#x});"

    def _element(self, name: str) -> Type:
        """What a parameter points to; memory that only additions use has the type of what they add."""
        found = next((p.type for p in self._all_params() if p.name == name), None)
        if found is None:
            addition = next(a for a in self.additions if name in (a.target, a.memory))
            found = self._function(addition.kernel).params[1 if name == addition.memory else 0].type
        assert isinstance(found, Pointer)
        return found.pointee

    # ---- counting

    def _count(self) -> Iterator[str]:
        kernel, stores = self.variant.counting
        scratch, blocks, counts = (self._local[name] for name in ("scratch", "blocks", "counts"))
        kinds = len(self.variant.stack_types) + len(self.variant.logged)
        yield "// First, a launch counts how much each block keeps."
        given = dict(self._given)
        if stores:
            yield "// It writes, and so has copies of the buffers."
            yield from self._copies(kernel)
        each = "" if kinds == 1 else f" * {kinds}"
        counted = self._scope.declare("_counts")
        self._given["_counts"] = counted
        yield f"long long *{counted} = {scratch}.filled<long long>({blocks}{each} * sizeof(long long), 0);"
        yield f"if ({scratch}.error != cudaSuccess) return {scratch}.error;"
        yield from self._launch(kernel)
        self._given = given
        yield f"kg::Counts {counts}({scratch}, {counted}, {blocks}, {kinds});"
        for kind, type in enumerate(self.variant.stack_types):
            yield from self._stack(kind, type)
        for log in self.variant.derivative.logs:
            yield from self._log(log, len(self.variant.stack_types) + self.variant.logged.index(log.of))

    def _copies(self, kernel: Kernel) -> Iterator[str]:
        for param in self._function(kernel).params:
            if isinstance(param.type, Pointer) and param.name in self._names:
                name = self._names[param.name]
                copy = self._scope.declare(f"{name}_copy", own=True)
                yield f"auto *{copy} = {self._local['scratch']}.copy_of({name}, {self._nbytes(param.name)});"
                self._given[param.name] = copy

    def _stack(self, kind: int, type: Type) -> Iterator[str]:
        """The tape of a type, as large as was counted."""
        scratch = self._local["scratch"]
        stack = next(s for s in self.variant.derivative.stacks if s.type == type)
        memory = self._declared(stack.memory.name)
        declared, spelled = self.types.declare(Pointer(type), memory), self.types.spell(type)
        lines, total = self._counted(stack, kind)
        yield from lines
        yield f"{declared} = {scratch}.get<{spelled}>({total} * sizeof({spelled}));"

    def _counted(self, of: Stack | Log, kind: int) -> tuple[list[str], str]:
        """Where the threads' parts are, and how much all have together."""
        scratch, counts, threads = (self._local[name] for name in ("scratch", "counts", "block_threads"))
        if of.capacity is not None:
            capacity = self._declared(of.capacity.name)
            return [
                f"long long {capacity} = {counts}.most({kind});"
            ], f"{self._local['blocks']} * {threads} * {capacity}"
        assert of.segments is not None
        segments = self._declared(of.segments.name)
        starts = self._scope.declare(f"{segments}_starts", own=True)
        made = f"std::vector<long long> {starts} = {counts}.starts({kind}, {threads});"
        return [made, f"long long *{segments} = {scratch}.copy_of({starts});"], f"{starts}.back()"

    # ---- logs of what is added in order

    def _log(self, log: Log, kind: int) -> Iterator[str]:
        scratch, at = self._local["scratch"], self._local
        places, values = self._declared(log.places.name), self._declared(log.values.name)
        type, where = self.types.spell(log.of.type), self.types.spell(log.of.where)
        lines, total = self._counted(log, kind)
        count = self._scope.declare(f"{values}_count", own=True)
        self._log_counts[log.of] = count
        yield from (*lines, f"size_t {count} = {total};")
        none = "" if log.of.variable else ", 0"
        made = "get" if log.of.variable else "filled"
        yield f"{where} *{places} = {scratch}.{made}<{where}>({count} * sizeof({where}){none});"
        yield f"{type} *{values} = {scratch}.get<{type}>({count} * sizeof({type}));"
        if log.filled is not None:
            filled, nbytes = self._declared(log.filled.name), f"{at['blocks']} * {at['block_threads']} * 8"
            yield f"long long *{filled} = {scratch}.filled<long long>({nbytes}, 0);"

    def _sum(self, log: Log) -> Iterator[str]:
        """What was logged for global memory, added up after the launch."""
        if log.of.variable:
            return
        type, adjoints = self.types.spell(log.of.type), list[str]()
        for name, param in self.variant.derivative.adjoints.items():
            of = next(p for p in self.variant.kernel.function.params if p.name == name)
            nbytes = self._nbytes(param.name) if isinstance(of.type, Pointer) else str(of.type.size)
            adjoints.append(f"{{({type} *){self._given[param.name]}, {nbytes} / sizeof({type})}}")
        places, values = (self._given[v.name or ""] for v in (log.places, log.values))
        given = (
            self._local["scratch"],
            places,
            values,
            f"(long long){self._log_counts[log.of]}",
            f"{{{', '.join(adjoints)}}}",
        )
        yield from _listed(f"kg::add_logged<{type}>", given, ");").split("\n")
        yield f"if ({self._local['scratch']}.error != cudaSuccess) return {self._local['scratch']}.error;"

    def _declared(self, name: str | None) -> str:
        self._given[name or ""] = self._scope.declare(name or "")
        return self._given[name or ""]

    # ---- launches

    def _shared(self) -> Iterator[str]:
        if self.variant.doubles_shared:
            own, widening = self._given[SHARED_BYTES], self.variant.derivative.shared_widening
            yield f"size_t {self._local['shared_bytes']} = {own} * {1 + widening};  // its shadow lies behind it"

    def _launch(self, kernel: Kernel) -> Iterator[str]:
        function, at = self._function(kernel), self._local
        name, shared = kernel_name(kernel.name), at["shared"]
        if self.variant.doubles_shared and kernel in self.variant.kernels:
            shared = at["shared_bytes"]
        moved = shared_layout(kernel.cuda_module, kernel.name).moved
        if moved:
            shared = f"{shared} + {moved}"
        if moved or self.variant.doubles_shared:
            yield f"if ({at['scratch']}.failed(kg::allow_shared({name}, {shared}))) return {at['scratch']}.error;"
        head = f"{name}<<<{at['grid']}, {at['block']}, {shared}, {at['stream']}>>>"
        yield from _listed(head, [self._given[p.name] for p in function.params], ");").split("\n")
        yield f"if ({at['scratch']}.failed(cudaGetLastError())) return {at['scratch']}.error;"

    def _addition(self, addition: Addition) -> Iterator[str]:
        at, (target, memory, *_) = self._local, self._function(addition.kernel).params
        places = ((target, addition.target, addition.target_offset), (memory, addition.memory, addition.memory_offset))
        args = [self._place(*place) for place in places]
        args += [f"(long long)({self.printer.size(number)})" for number in addition.numbers]
        blocks = self.printer.size(addition.blocks)
        head = f"{kernel_name(addition.kernel.name)}<<<{blocks}, {addition.threads}, 0, {at['stream']}>>>"
        yield from _listed(head, args, ");").split("\n")
        yield f"if ({at['scratch']}.failed(cudaGetLastError())) return {at['scratch']}.error;"

    def _place(self, param: Param, name: str, offset: int) -> str:
        spelled = self.types.spell(param.type, param.const)
        given = f"(char *){self._given[name]} + {offset}" if offset else self._given[name]
        return f"({spelled})({given})" if offset else f"({spelled}){given}"


def _listed(head: str, parts: Iterable[str], end: str = ")") -> str:
    parts = list(parts)
    line = f"{head}({', '.join(parts)}{end}"
    return line if len(line) <= _WIDTH - 4 else f"{head}(\n    " + ",\n    ".join(parts) + end


def _refuse(variant: Variant) -> None:
    """What has no text yet."""
    derivative, function = variant.derivative, variant.kernel.function
    reason = None
    if derivative.logs and derivative.internal:
        reason = "deterministic sums of what flows through memory without an adjoint"
    elif derivative.copies or derivative.wide or variant.options.facts.cells or derivative.coarse is not None:
        reason = "adjoints in replicas or doubles"
    elif (
        variant.options.facts.gathered
        or variant.options.facts.vector is not None
        or variant.options.facts.rows is not None
    ):
        reason = "this form of the gradient"
    if reason is not None:
        hint = "say of which shape launches are, by --grid and --block; else launch the gradient from Python"
        raise UnsupportedError(f"{reason} cannot be written as a host function", function.span, hint)
