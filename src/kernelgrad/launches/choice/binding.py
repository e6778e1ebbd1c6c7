"""How arguments and adjoints are taken, before it is known which form of a derivative a launch gets: all forms take the
same. And what the emitted text of one says of the parameters that it has besides: how large they are, and what must be
in them."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ...autodiff.calculus.shadows import SHARED_BYTES
from ...autodiff.reverse import Derivation
from ...deep import deeply
from ...ir.effects import picks
from ...ir.ops import SEGMENT, Atomic, Block, Function, Module, Param, Store, Value
from ...ir.types import Struct
from ...kernel import Kernel
from ...runtime.written import Origin, Trace, written_params

if TYPE_CHECKING:
    from ...autodiff.accumulate.logs import Log
    from ...autodiff.calculus.tape import Stack
    from ...schedule.interleave import Groups

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
    function = with_supplied(function, {p.name for p in derivation.adjoints.values()} & _supplied(function, derivation))
    module = Module({name: function}, kernel.module.globals, kernel.module.structs)
    return Kernel(name, module, kernel.variable, written(kernel, derivation))


_NOTHING = Block((), (), ())


def with_supplied(function: Function, ours: set[str]) -> Function:
    """Marks the parameters that the launcher supplies; they come last."""
    params = [replace(p, variable=p.name) if p.name in ours else p for p in function.params]
    return replace(function, params=tuple(sorted(params, key=lambda p: p.variable is not None)))


def _supplied(function: Function, derivation: Derivation) -> set[str]:
    """The adjoint of a function's value, which is the seed."""
    supplied = {p.name for p in function.params if p.variable == RESULT}
    return {p.name for name, p in derivation.adjoints.items() if name in supplied}


def supplied_names(function: Function, derivation: Derivation) -> set[str]:
    """The parameters of a derivative's function that are not the user's: shadows of unlisted buffers, the tape, ..."""

    def params() -> Iterator[Param]:
        yield from derivation.internal.values()
        yield from derivation.partials.values()
        yield from (p for own in derivation.copies.values() for p in own.params)
        yield from (p for own in derivation.deferred.values() for p in own.params)
        yield from derivation.wide.values()
        yield from (own.length for own in derivation.cells.values())
        yield from (derivation.coarse.extents if derivation.coarse is not None else ())
        yield from (p for stack in derivation.stacks for p in stack.params)
        yield from (p for log in derivation.logs for p in log.params)
        yield from (p for buffer in derivation.won_buffers for p in buffer.params)
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


# ---- what the text says of parameters besides the kernel's own ------------------------------------------------------


_WIDTH = 116
_FRESH = "not cleared"
_ZEROED = "zeroed"
_ALL = "(threads of the grid)"
_BLOCKS_SUM = "for all blocks, (threads of a block) times the most that one of its threads needs of:"
_OTHERS = {
    SHARED_BYTES: "the bytes of dynamic shared memory that the kernel itself uses; a launch asks for its shadow's too",
    SEGMENT: "how many iterations a checkpointed loop does between two checkpoints",
}


def parameter_notes(
    derivative: Derivation, together: Groups, function: Function, variables: Collection[str]
) -> Iterator[str]:
    """Comments for the head of the text of one of its functions. `together`: adjoints that are added to side by side;
    `variables`: the source's."""
    told = {**{name: f"the address of the source's variable {name}" for name in variables}, **_OTHERS}
    told |= dict(_all(derivative)) | dict(map(_side_by_side, range(len(together)), together))
    rows = [(p.name, told.get(p.name if p.variable is None else p.variable)) for p in function.params]
    lines = [f"{name}: {text}" for name, text in rows if text]
    if lines:
        yield "// Besides the kernel's own parameters and their adjoints:"
    for line in lines:
        first, *more = textwrap.wrap(line, _WIDTH - 4)
        yield f"//   {first}"
        yield from (f"//     {text}" for text in more)


def _all(derivative: Derivation) -> Iterator[tuple[str, str]]:
    for stack in derivative.stacks:
        from ...autodiff.costs.tape_size import elements_per_thread

        yield from _of_stack(stack, elements_per_thread(derivative.prepared.plan, stack.type))
    for log in derivative.logs:
        yield from _of_log(log)
    for name, param in derivative.internal.items():
        yield param.name, f"as many elements as {name}, {_ZEROED}: the adjoint of what is in between"
    for name, param in derivative.partials.items():
        yield param.name, _partial_sums(derivative, name)
    for name, copies in derivative.copies.items():
        adjoint = derivative.adjoints[name].name
        yield (
            copies.memory.name,
            f"{copies.count} * {copies.length.name} elements, {_ZEROED}; to be added to {adjoint} after",
        )
        yield copies.length.name, f"the number of elements of {name}"
    for slots in derivative.deferred.values():
        from ...autodiff.accumulate.deferred import EMPTY

        adjoint, each = derivative.adjoints[slots.of.name].name, f"{slots.of.every} threads of a block along each axis"
        yield slots.places.name, f"for one of {each} (0: all of them) an element, every byte {EMPTY:#x}"
        yield slots.values.name, f"as many elements, {_FRESH}; to be added to {adjoint} there after the launch"
    for name, cells in derivative.cells.items():
        yield cells.length.name, f"how many numbers {name} has: each block has a cell of each"
    for axis, param in zip("xyz", derivative.coarse.extents if derivative.coarse is not None else (), strict=False):
        yield param.name, f"gridDim.{axis} of the kernel's launch: fewer blocks do its work"
    if derivative.tests is not None:
        from ...autodiff.sweep.finite_tests import RECORDS, WORDS

        yield (
            derivative.tests.memory.name,
            f"{WORDS} * {RECORDS} elements, {_ZEROED}: the first number in the reverse that is not finite",
        )
    for buffer in derivative.won_buffers:
        name = buffer.root.name
        yield buffer.before.name or "", f"a copy of {name} from before the forward launch"
        yield buffer.after.name or "", f"{name} as the forward launch left it"
        yield buffer.winner.name or "", f"as many elements as {name}, all bits set before the claims"


def _side_by_side(number: int, group: tuple[str, ...]) -> tuple[str, str]:
    from ...schedule.interleave import memory_of, width_of

    width = width_of(group)
    parts = ", ".join(f"{width} * i + {k} to {name}" for k, name in enumerate(group))
    return memory_of(number), f"{width} elements for each of the longest, {_ZEROED}; to be added after: {parts}"


def _of_stack(stack: Stack, needed: str) -> Iterator[tuple[str, str]]:
    memory = stack.memory.name or ""
    if stack.capacity is not None:
        capacity = stack.capacity.name or ""
        yield memory, f"{capacity} * {_ALL} elements, {_FRESH}"
        yield capacity, f"{needed}, and at least 1"
    if stack.segments is not None:
        yield memory, f"{_BLOCKS_SUM} {needed}, {_FRESH}"
        yield stack.segments.name or "", _segments(memory)
    if stack.tops is not None:
        yield stack.tops.name or "", f"{_ALL} elements, {_FRESH}: the forward tells the reverse where it stopped"


def _of_log(log: Log) -> Iterator[tuple[str, str]]:
    places, values = log.places.name or "", log.values.name or ""
    if log.capacity is not None:
        count = f"{log.capacity.name} * {_ALL} elements"
        yield log.capacity.name or "", "how many updates a thread logs at most, and at least 1"
    else:
        count = f"{_BLOCKS_SUM} updates that are logged"
        yield (log.segments.name or "" if log.segments is not None else ""), _segments(places)
    yield places, f"{count}, {_FRESH if log.of.variable else _ZEROED}"
    yield values, f"as many elements as {places}, {_FRESH}"
    if log.filled is not None:
        yield log.filled.name or "", f"{_ALL} elements, {_ZEROED}"


def _partial_sums(derivative: Derivation, name: str) -> str:
    warps = "(blocks of the grid) * (warps of a block, the last may be part of one)"
    count = "(blocks that are started)" if derivative.coarse is not None else warps
    return f"{count} elements, {_FRESH}; to be added to {derivative.adjoints[name].name} after the launch"


def _segments(memory: str) -> str:
    return f"for each block, with blockIdx.x fastest, the number of its first element in {memory}"
