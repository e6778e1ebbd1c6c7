"""How arguments and adjoints are taken, before it is known which form of a derivative a launch gets: all forms take the
same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...autodiff.reverse import Derivation
from ...deep import deeply
from ...ir.effects import picks
from ...ir.ops import Atomic, Block, Function, Module, Param, Store, Value
from ...ir.types import Struct
from ...kernel import Kernel
from ...runtime.written import Origin, Trace, written_params

RESULT = "_result"  # the parameter through which a function's value leaves


@deeply
def binder(kernel: Kernel, derivation: Derivation) -> Kernel:
    """Takes the kernel's arguments and the adjoints; it has no code."""
    source = derivation.prepared.planned.source
    params = derivation.marked((*source.params, *derivation.adjoints.values()))
    name = f"{source.name}_{'reverse' if derivation.prepared.options.mode == 'split' else 'grad'}"
    function = replace(source, name=name, shown=source.called, params=params, body=_NOTHING)
    if any(isinstance(p.type, Struct) for p in params):
        from ...autodiff.calculus import struct_members

        function = struct_members.bound(function, kernel.function)
    function = with_hidden(function, {p.name for p in derivation.adjoints.values()} & _supplied(function, derivation))
    module = Module({name: function}, kernel.module.globals, kernel.module.structs)
    return Kernel(name, module, kernel.variable, written(kernel, derivation))


_NOTHING = Block((), (), ())


def with_hidden(function: Function, ours: set[str]) -> Function:
    """Marks the parameters that the launcher supplies; they come last."""
    params = [replace(p, variable=p.name) if p.name in ours else p for p in function.params]
    return replace(function, params=tuple(sorted(params, key=lambda p: p.variable is not None)))


def _supplied(function: Function, derivation: Derivation) -> set[str]:
    """The adjoint of a function's value, which is the seed."""
    supplied = {p.name for p in function.params if p.variable == RESULT}
    return {p.name for name, p in derivation.adjoints.items() if name in supplied}


def hidden_names(function: Function, derivation: Derivation) -> set[str]:
    """The parameters of a derivative's function that are not the user's: shadows of unlisted buffers, the tape, ..."""

    def params() -> Iterator[Param]:
        yield from derivation.internal.values()
        yield from derivation.partials.values()
        yield from (p for own in derivation.copies.values() for p in own.params)
        yield from derivation.wide.values()
        yield from (derivation.coarse.extents if derivation.coarse is not None else ())
        yield from (p for stack in derivation.stacks for p in stack.params)
        yield from (p for log in derivation.logs for p in log.params)
        yield from (p for claim in derivation.claims for p in claim.params)
        yield from (derivation.tests.memory,) if derivation.tests is not None else ()

    return _supplied(function, derivation) | {p.name for p in params()}


def written(kernel: Kernel, derivation: Derivation) -> frozenset[str]:
    """The pointers that a launch may write through: the kernel's own, and adjoints that are added to or consumed."""
    options = derivation.prepared.options
    own = written_params(kernel.function) if options.mode == "joint" and not options.silent else frozenset[str]()
    active = derivation.prepared.activity
    values = {p.name: p.value for p in derivation.prepared.function.params}
    numbers = {p.name for name, p in derivation.numbers.items() if values[name] in active}
    return own | numbers | frozenset(_written_adjoints(derivation))


def _written_adjoints(derivation: Derivation) -> Iterator[str]:
    trace, names = Trace(derivation.prepared.function), {n: p.name for n, p in derivation.adjoints.items()}
    for address in _updated(derivation):
        roots = trace.roots(address)
        if not roots:
            yield from names.values()
        for root in roots:
            name = root.path.partition(".")[0].partition("[")[0] if isinstance(root, Origin) else ""
            if isinstance(root, Origin) and name in names:
                yield names[name] + root.path[len(name) :]


def _updated(derivation: Derivation) -> Iterator[Value]:
    """The addresses whose shadows are added to, or zeroed."""
    prepared = derivation.prepared
    memory, plan = prepared.memory, prepared.plan
    yield from (op.ptr for op in memory.loads if plan.has_adjoint(op))
    for op in memory.stores:
        zeroes = isinstance(op, Store) and not memory.of(op.ptr) & prepared.kept
        if plan.has_adjoint(op) and (zeroes or (isinstance(op, Atomic) and picks(op))):
            yield op.ptr  # type: ignore[attr-defined]
