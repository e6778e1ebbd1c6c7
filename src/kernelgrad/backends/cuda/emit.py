"""A kernel as a complete .cu text.

In order: `folding` decides what is written at its use, `variables` gives the rest C++ variables, `statements` and
`expressions` write the body; this file adds what stands around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...analysis.passed import unshared
from ...deep import deeply
from ...errors import InternalError
from ...ir.ops import (
    TOGETHER,
    Alloca,
    Apply,
    Assert,
    Atomic,
    BarrierReduce,
    Builtin,
    For,
    Function,
    Global,
    Module,
    Param,
    Print,
    Warp,
    While,
)
from ...ir.traverse import blocks, used_globals, walk
from ...ir.types import Array, Scalar, Type
from ...progress import doing
from ...transforms.passes import Pass, applied
from .atomics import to_any_memory
from .comments import annotated
from .conversions import initialiser, needs_bit_cast
from .expressions import LANE_FUNCTIONS, Expressions
from .folding import find_together, fold
from .names import C_FUNCTIONS, Scope, identifier, in_namespace, is_own, once
from .qualifiers import Volatility
from .spellings import HELPERS, SPELLINGS, has_normal_root
from .statements import Statements
from .types import ARRAY_VALUE, Types, definitions, headers, scalars_in, struct_names
from .variables import assign_variables

ARRANGING = (
    Pass("loop_tests", "backends.cuda.loop_tests", (While,)),
    Pass("single_trips", "backends.cuda.single_trips", (For,)),
    Pass("sincos", "backends.cuda.sincos", ("sin",)),
    Pass("neighbours", "backends.cuda.neighbours", (TOGETHER,)),
)
_BUILTIN_HELPERS = {"lane_id": "lane_id", "globaltimer": "global_timer"}
# NVRTC brings these along; nvcc takes them from the host's headers.
_HOST_HEADERS = {Print: "cstdio", Assert: "cassert"}


def kernel_name(name: str) -> str:
    """The name of the `extern "C"` function that a kernel becomes. Of C functions there is one for each name."""
    found = identifier(name)
    return f"{found}_" if {found, found.removesuffix("f")} & C_FUNCTIONS else found


def global_names(module: Module, kernel: str) -> dict[str, str]:
    """The names that the module variables of a kernel have in its text."""
    return _Emitter(module, module.functions[kernel]).names


def types_of(module: Module, kernel: str) -> Types:
    """How types are spelled in a kernel's text."""
    return _Emitter(module, module.functions[kernel]).types


@doing(lambda module, kernel: f"writing {kernel}")
@deeply
def emit(module: Module, kernel: str) -> str:
    return _Emitter(module, module.functions[kernel]).text()


def _arranged(function: Function, module: Module) -> Function:
    """As it is written: loops as the source has them, and next to each other what is done together."""
    for stage in ARRANGING:
        function = applied(stage, function, module)
    return function


class _Emitter:
    def __init__(self, module: Module, function: Function):
        self.module, self.function = module, _arranged(function, module)
        if function.kind != "kernel":
            raise InternalError(f"{function.name} is not a kernel")
        self.used = used_globals(module, function)
        self.unshared = unshared(self.function)
        self.all_types = list(self._types())
        self.types = Types(struct_names(self.all_types))
        self.reductions = self._reductions()
        self.together = find_together(self.function)
        self.anywhere = to_any_memory(self.function)
        self.helpers = sorted(self._helpers())
        taken = [*self._functions(), kernel_name(function.name)]
        self.scope = Scope(taken=taken)
        self.names = {g.name: self.scope.declare(g.name) for g in self.used}

    def text(self) -> str:
        constants = [self._constant(g, self.names[g.name]) for g in self.used if g.space == "constant"]
        shared = [*definitions(self.types), *([once("array", ARRAY_VALUE)] if self._has_array_values() else [])]
        shared += [once(h, HELPERS.get(h) or _reduction(h)) for h in self.helpers]
        parts = [self._head(), *in_namespace(shared)]
        parts += ["".join(constants)] if constants else []
        return "\n".join([*parts, self._kernel()])

    # ---- what the kernel uses

    def _types(self) -> Iterator[Type]:
        yield from (p.type for p in self.function.params)
        yield from (g.type for g in self.used)
        for op in walk(self.function.body):
            yield from (r.type for r in op.results)

    def _helpers(self) -> Iterable[str]:
        groups = self.together.neighbours
        found = {helper for group in groups for helper in group.helpers}
        added = {op for group in groups for op in group.adds}
        definition = {v: op for op in walk(self.function.body) for v in op.results}
        for op in walk(self.function.body):
            if isinstance(op, Builtin) and op.name in _BUILTIN_HELPERS:
                found.add(_BUILTIN_HELPERS[op.name])
            elif isinstance(op, BarrierReduce) and op in self.reductions:
                from .shared import reduction_name

                found.add(reduction_name(op))
            elif isinstance(op, BarrierReduce) and op.kind == "sum":
                found.add("block_sum")
            elif isinstance(op, Warp) and op.fn == "reduce_add" and _is_float(op.result.type):
                found.add("warp_sum")
            elif isinstance(op, Warp) and op.fn in LANE_FUNCTIONS:
                found.add(op.fn)
            elif isinstance(op, Atomic) and op in self.anywhere:
                found.add(f"{op.kind}_anywhere")
            elif isinstance(op, Atomic) and op.together and op not in added:
                found.add("warp_add")
            elif isinstance(op, Atomic) and op.kind == "take":
                found.add("take")
            elif isinstance(op, Apply) and op.fn == "bitcast" and needs_bit_cast(op.args[0].type, op.result.type):
                found.add("bit_cast")
            elif isinstance(op, Apply) and op.fn == "rsqrt" and has_normal_root(op, definition):
                found.add("rsqrt_normal")
            elif isinstance(op, Apply) and op.fn in SPELLINGS:
                found.update(HELPERS.keys() & SPELLINGS[op.fn].cells.values())
        return found

    def _reductions(self) -> dict[BarrierReduce, int]:
        """Those over blocks of a known size that are helpers of the text."""
        if not any(isinstance(op, BarrierReduce) and op.threads for op in walk(self.function.body)):
            return {}
        from .shared import reductions_met_once

        return reductions_met_once(self.function)

    def _functions(self) -> set[str]:
        """The functions that the text calls: no variable may hide them."""
        cells = (
            cell
            for op in walk(self.function.body)
            if isinstance(op, Apply) and op.fn in SPELLINGS
            for cell in SPELLINGS[op.fn].cells.values()
        )
        together = {pair.function for pair in self.together.pairs}
        return together | {word for cell in cells for word in re.findall(r"[A-Za-z_]\w*", cell)}

    def _source_names(self) -> Iterator[str]:
        """Of parameters and variables: no temporary takes one of them."""
        values = [p.value for p in self.function.params]
        values += [
            v for op in walk(self.function.body) for v in (*op.results, *(a for b in blocks(op) for a in b.args))
        ]
        yield from {identifier(v.name) for v in values if v.name is not None and not is_own(v.name)}

    def _has_array_values(self) -> bool:
        values = (r for op in walk(self.function.body) if not isinstance(op, Alloca) for r in op.results)
        return any(isinstance(v.type, Array) for v in values)

    # ---- around the kernel

    def _head(self) -> str:
        source = f" from {self.function.span.source.short_name}" if self.function.span.line else ""
        lines = [f"// Generated by kernelgrad{source}."]
        scalars = {s for t in self.all_types for s in scalars_in(t)}
        lines += [f"#include <{h}>" for h in headers(scalars, self.types.structs)]
        host = sorted({_HOST_HEADERS[type(op)] for op in walk(self.function.body) if type(op) in _HOST_HEADERS})
        if host:
            lines += ["#ifndef __CUDACC_RTC__", *(f"#include <{h}>" for h in host), "#endif"]
        return "\n".join(lines) + "\n"

    def _constant(self, variable: Global, name: str) -> str:
        text = f"__constant__ {self.types.declare(variable.type, name)}"
        if variable.init is not None and any(variable.init):
            text += f" = {initialiser(variable.init, variable.type, self.types)}"
        return once(f"constant_{name}", f"{text};\n", tell_apart=True)

    # ---- the kernel

    def _kernel(self) -> str:
        folding = fold(self.function, self.together)
        variables = assign_variables(self.function, folding)
        volatility = Volatility(self.function, folding)
        expressions = Expressions(folding, variables, volatility, self.types, self.names)
        expressions.reductions, expressions.anywhere = self.reductions, self.anywhere
        scope = Scope(self.scope, reserved=self._source_names())
        for param in self.function.params:
            variables.of[param.value].name = scope.declare(param.name)
        returns = bool(self.function.arena or self.function.stacks)
        statements = Statements(expressions, scope, self.function.span.source, returns)
        if any(g.space == "shared" for g in self.used):
            expressions.decayed = self._declare_shared(statements, scope, volatility)
        statements.block(self.function.body, tail=True)
        params = [self._param(p, variables.of[p.value].name, volatility) for p in self.function.params]
        signature = self._signature(params)
        body = "".join(f"{line}\n" for line in annotated(statements.lines))
        return f"{signature}\n{{\n{body}}}\n"

    def _declare_shared(self, statements: Statements, scope: Scope, volatility: Volatility) -> frozenset[str]:
        """The names of those that are pointers into the launch's array."""
        from .shared import SharedText, shared_layout

        layout = shared_layout(self.module, self.function.name)
        for line in SharedText(layout, self.names, self.types, volatility).lines(scope):
            statements.line(line, is_effect=False)
        return frozenset(self.names[g.name] for g in layout.views)

    def _signature(self, params: list[str]) -> str:
        bounds = ", ".join(map(str, self.function.launch_bounds))
        launch_bounds = f" __launch_bounds__({bounds})" if bounds else ""
        head = f'extern "C" __global__ void{launch_bounds} {kernel_name(self.function.name)}('
        line = head + ", ".join(params) + ")"
        return line if len(line) <= 120 else head + "\n    " + ",\n    ".join(params) + ")"

    def _param(self, param: Param, name: str, volatility: Volatility) -> str:
        if param.value in self.unshared:
            name = f"__restrict__ {name}"
        qualifier = "volatile " if volatility.holds(param.value) else ""
        return qualifier + self.types.declare(param.type, name, param.const)


def _reduction(name: str) -> str:
    from .shared import REDUCTIONS

    return REDUCTIONS[name]


def _is_float(type: Type) -> bool:
    return isinstance(type, Scalar) and type.is_float
