"""How much tape a launch needs, per thread: by arithmetic where trip counts follow from the scalar arguments and the
launch, else by a function that counts, run before the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...analysis.loop_counts import Bounded, BuiltinValue, Known, Number, Played
from ...analysis.roots import Memory
from ...analysis.structure import Place, Structure
from ...errors import UNKNOWN, UnsupportedError
from ...ir.builder import Builder, linear_block
from ...ir.effects import NESTING, PURE
from ...ir.ops import Alloca, Block, For, Function, If, Load, Op, Param, Value, While
from ...ir.traverse import clone, closed, walk
from ...ir.types import BOOL, I64, Pointer, Scalar, Type
from ..calculus.tape import leaf_types
from .carried_derivatives import erased
from .forward_code import Copier
from .plan import Plan
from .recompute import dependencies
from .turn_bounds import most_turns, similar_turns


def by_arithmetic(plan: Plan, known: Known, builtin: BuiltinValue, roomy: bool | None = None) -> dict[Type, int] | None:
    """Elements per thread and stack, or None where a trip count is not known before the launch. `roomy`: other than
    the plan says, whether it is enough to know at most how often loops run."""
    bounded = most_turns if (plan.roomy if roomy is None else roomy) else similar_turns
    found: dict[Type, int] = {}
    for key, frame in plan.taped.items():
        times = _executions(plan.structure.places[key], plan, known, builtin, bounded)
        if times is None:
            return None
        for value in frame:
            for type in leaf_types(value.type):
                found[type] = found.get(type, 0) + times
    return found


@dataclass(frozen=True)
class ConstantSizes:
    """What a thread keeps, where that is a constant: elements of each type, and which values; `in_loops`: whether some
    of them more than once."""

    elements: dict[Type, int]
    values: tuple[Value, ...]
    in_loops: bool


def _constants(plan: Plan) -> dict[Type, int] | None:
    return by_arithmetic(plan, lambda value: None, lambda name, axis: None)  # type: ignore[arg-type, return-value]


def constant_executions(plan: Plan, key: int) -> int | None:
    """How often each thread runs a block at most; None where that is not the same in every launch."""
    place, unknown = plan.structure.places[key], lambda name, axis: None
    return _executions(place, plan, lambda value: None, unknown, similar_turns)  # type: ignore[arg-type]


def is_constant(plan: Plan) -> bool:
    """Whether each thread keeps as much as any other, in every launch."""
    return _constants(plan) is not None


def constant_sizes(plan: Plan) -> ConstantSizes:
    """An error where it is not a constant."""
    found = _constants(plan)
    places = [plan.structure.places[key] for key, frame in plan.taped.items() if frame]
    if found is None:
        loops = [p.owner.span for place in places for p in place.around() if isinstance(p.owner, For | While)]
        hint = "let the loop's bounds be constants, or ask for both passes at once, with __enzyme_autodiff"
        raise UnsupportedError(_UNBOUNDED, loops[0] if loops else UNKNOWN, hint)
    in_loops = any(isinstance(p.owner, For | While) for place in places for p in place.around())
    return ConstantSizes(found, tuple(v for frame in plan.taped.values() for v in frame), in_loops)


_UNBOUNDED = "the derivative of this loop keeps values of every iteration, and how many there are is not a constant"


def is_known_before(plan: Plan) -> bool:
    """Whether every trip count that matters follows from scalar arguments and the launch."""
    return by_arithmetic(plan, arguments_as_ones(plan.structure), lambda name, axis: 1) is not None


def arguments_as_ones(structure: Structure) -> Known:
    """For asking whether something follows from scalar arguments, whatever they are."""

    def known(value: Value) -> Number | None:
        is_scalar = isinstance(value.type, Scalar) and not value.type.is_float
        return 1 if is_scalar and structure.home[value] is structure.launch else None

    return known


def _executions(place: Place, plan: Plan, known: Known, builtin: BuiltinValue, bounded: Bounded) -> int | None:
    """How many frames of a block can be on the tape at once."""
    return Played(plan.structure, builtin, bounded).executions([*loops_around(place, plan)][::-1], known)


def loops_around(place: Place, plan: Plan) -> Iterator[For | While]:
    """The loops whose iterations have a frame of the block each on the tape: from the innermost up to one that is
    rerun."""
    current: Place | None = place
    while current is not None:
        loop = current.owner
        if isinstance(loop, For | While):
            yield loop
            if id(loop) in plan.rerun:
                return
        current = current.parent


# ---- counting -----------------------------------------------------------------------------------------------------


Logs = Sequence[Mapping[int, int]]  # for each log: how many entries a run of a block adds


@dataclass(frozen=True)
class Counting:
    """`function` leaves the largest need of any thread of each block in `counts[block][stack]`, then those of its logs.
    `stores`: whether it writes the kernel's buffers, and so must run on copies of them (rule 5)."""

    function: Function
    stores: bool


def counting_function(
    function: Function, plan: Plan, memory: Memory, stacks: tuple[Type, ...], logs: Logs = ()
) -> Counting:
    stores = _depends_on_writes(function, plan, memory)
    counts = Value(Pointer(I64, "global"), "_counts")
    b = Builder()
    counter = _Counter(b, plan, stacks, stores, logs)
    counter.ops(function.body, taping=True)
    counter.count_logged(function.body)
    if plan.structure.top.in_loop:
        counter.push(function.body)
    totals = [*map(counter.total, stacks), *map(b.load, counter.logged)]
    row = b.apply("mul", linear_block(b), b.constant(len(totals), I64))
    for k, total in enumerate(totals):
        b.atomic("max", b.offset(counts, b.apply("add", row, b.constant(k, I64))), total)
    params = (*function.params, Param(counts, "long long *"))
    # Pointers into shadows are still there, and nothing uses them.
    counting = erased(Block((), (*counter.prologue.ops, *b.ops), ()))
    body = clone(closed(counting, (p.value for p in params)), {})
    return Counting(
        replace(function, name=f"{function.name}_count", shown=function.called, params=params, body=body), stores
    )


class _Counter(Copier):
    """A forward sweep that counts pushes instead of doing them; a rerun loop's are counted by themselves."""

    def __init__(self, b: Builder, plan: Plan, stacks: tuple[Type, ...], stores: bool, logs: Logs):
        super().__init__(
            b, plan, lambda v: v if plan.structure.home[v] is plan.structure.launch else None, self.count, stores
        )
        self.prologue = Builder()
        self.stacks = stacks
        self.totals = self.new_counters()
        self.sites: list[dict[Type, Value]] = []
        self.logs = logs
        self.logged = [self.new_counter() for _ in logs]

    def new_counters(self) -> dict[Type, Value]:
        return {type: self.new_counter() for type in self.stacks}

    def new_counter(self) -> Value:
        counter = self.prologue.alloca(I64)
        self.prologue.store(counter, self.prologue.constant(0, I64))
        return counter

    def total(self, type: Type) -> Value:
        total = self.b.load(self.totals[type])
        for site in self.sites:
            total = self.b.apply("add", total, self.b.load(site[type]))
        return total

    def count(self, value: Value) -> None:
        if value.type == BOOL and self.plan.bits:
            return
        for type in leaf_types(value.type):
            if type in self.totals:
                self.add(self.totals[type], 1)

    def add(self, counter: Value, number: int) -> None:
        self.b.store(counter, self.b.apply("add", self.b.load(counter), self.b.constant(number, I64)))

    def block(self, block: Block, taping: bool) -> None:
        super().block(block, taping)
        self.count_logged(block)

    def count_logged(self, block: Block) -> None:
        """The reverse of the block logs as often as the block runs."""
        for counter, entries in zip(self.logged, self.logs, strict=True):
            if entries.get(id(block)):
                self.add(counter, entries[id(block)])

    def loop(self, op: For | While, taping: bool) -> Value | None:
        if id(op) not in self.plan.rerun:
            return super().loop(op, taping)
        around, most = self.totals, self.new_counters()
        self.totals = self.new_counters()
        for counter in self.totals.values():
            self.b.store(counter, self.b.constant(0, I64))
        result = super().loop(op, True)
        for type, counter in self.totals.items():
            self.b.store(most[type], self.b.apply("max", self.b.load(most[type]), self.b.load(counter)))
        self.sites.append(most)
        self.totals = around
        return result


def _depends_on_writes(function: Function, plan: Plan, memory: Memory) -> bool:
    """Whether control flow depends on memory that the kernel writes, or on what must not be run twice."""
    written = memory.written()
    todo: list[Value] = []
    for op in walk(function.body):
        if isinstance(op, If):
            todo.append(op.cond)
        elif isinstance(op, For):
            todo += [op.lower, op.upper]
        elif isinstance(op, While):
            todo += [op.inits[0], op.body.results[0]]

    def is_bad(op: Op) -> bool:
        if isinstance(op, Load):
            return bool(memory.of(op.ptr) & written)
        return not isinstance(op, (*PURE, Alloca, *NESTING))

    return _reaches(todo, plan, is_bad)


def _reaches(todo: list[Value], plan: Plan, is_bad: Callable[[Op], bool]) -> bool:
    seen: set[Value] = set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        op = plan.structure.definition.get(value)
        if op is None:
            todo += plan.structure.argument_sources(value)
        elif is_bad(op):
            return True
        else:
            todo += dependencies(op, value)
    return False


def scalars(function: Function, values: Mapping[str, Number]) -> Known:
    by_value = {p.value: values[p.name] for p in function.params if p.name in values}
    return by_value.get
