"""The plan: for every forward value that the reverse sweep needs, where it gets it.

- still in scope (the function's own block, and the last If's branches): use it;
- recomputed: entering the reverse of a block, the pure slice of its forward that its reverse needs is run again;
- exported: a value of a branch outside loops that cannot be recomputed becomes a result of its If;
- taped: in loops, what is carried from iteration to iteration, and what cannot be recomputed.

A loop inside another loop is *rerun* where that is possible: its carried values are not taped by the forward sweep, but
by a second run of the loop just before it is reversed. So the tape holds one level of iterations at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import UNKNOWN as UNKNOWN_SPAN
from ..errors import UnsupportedError
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Builtin,
    Constant,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Leave,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Store,
    Undef,
    Value,
    Warp,
    While,
)
from ..ir.traverse import blocks, operands, walk
from ..ir.types import I64
from ..transforms.spellings import picks
from . import induction
from .activity import Activity
from .choices import Choices
from .induction import Induction
from .roots import UNKNOWN, Memory
from .rules import rule_for
from .structure import Place, Structure
from .tiles import Tile, find_tiles
from .winners import Winners, is_repeatable

PURE_OPS = (Constant, Undef, Apply, Aggregate, Extract, Insert, GlobalRef, Offset, Member, PtrCast, PtrDiff, Alloca)
_CLOCKS = ("clock", "clock64", "globaltimer")


@dataclass
class Plan:
    structure: Structure
    needed: dict[int, dict[Value, None]] = field(default_factory=dict)  # block -> values its reverse needs, in order
    taped: dict[int, dict[Value, None]] = field(default_factory=dict)  # block -> its frame on the tape
    exported: dict[int, dict[Value, Value]] = field(default_factory=dict)  # block -> value -> result of its If
    rerun: set[int] = field(default_factory=set)  # loops run again before their reverse
    counts: dict[int, Value] = field(default_factory=dict)  # While -> its number of iterations, a value of its block
    reversed_ops: set[int] = field(default_factory=set)  # operations that have an adjoint
    silent: frozenset[int] = frozenset()  # operations that the forward sweep leaves out
    inductions: dict[Value, Induction] = field(default_factory=dict)  # loop arguments known in every iteration
    choices: dict[Value, Value] = field(default_factory=dict)  # of maxima and minima that are kept, by their results
    refilled: dict[int, list[Tile]] = field(default_factory=dict)  # block -> tiles filled again before its reverse
    # What of an operation must run to get some of its values again: nothing else of it may, since that could read what
    # was overwritten since and, with it, read out of bounds or loop forever.
    slice_of: Callable[[Iterable[Value], Op], set[Value]] = lambda values, op: set()
    wanted_of: Callable[[For | While], list[Value]] = lambda loop: []  # what the reverse of a loop may need from inside

    def has_adjoint(self, op: Op) -> bool:
        return id(op) in self.reversed_ops


def make_plan(
    function: Function,
    structure: Structure,
    memory: Memory,
    activity: Activity,
    shadow: dict[Value, Value],
    may_alias: bool = False,
    refill: bool = True,
    winners: Winners | None = None,
    choices: dict[Value, Value] | None = None,
) -> Plan:
    planner = _Planner(function, structure, memory, activity, shadow, may_alias, refill, winners or Winners())
    planner.choices = Choices(planner, choices or {})
    return planner.run()


class Trace(NamedTuple):
    """A slice: whether any of it comes from what must not be run again (rule 4), which values from outside it uses, and
    all values in it."""

    bad: bool
    outside: dict[Value, None]
    seen: set[Value]


class _Planner:
    def __init__(
        self,
        function: Function,
        structure: Structure,
        memory: Memory,
        activity: Activity,
        shadow: dict[Value, Value],
        may_alias: bool,
        refill: bool,
        winners: Winners,
    ):
        self.function, self.structure, self.memory = function, structure, memory
        self.activity, self.shadow = activity, shadow
        self.written = memory.written()
        self.may_alias, self.refill, self.winners = may_alias, refill, winners
        self.choices = Choices(self, {})
        self.tiles: dict[Value, Tile] = {}
        self.compared: set[Value] = set()  # values of which not a bit may change
        self.plan = Plan(structure, slice_of=lambda values, op: self.trace(values, op).seen, wanted_of=self._wanted)

    def run(self) -> Plan:
        self.mark(self.function.body)
        self.choose_tiles()
        self.choose_compared()
        self.choices.choose()
        self.choose_reruns(self.structure.top)
        self.require(self.function.body)
        self.choices.need()
        self.require_tiles()
        self.keep_choices()
        return self.plan

    # ---- tiles

    def choose_tiles(self) -> None:
        """Those whose contents stay, and those that can be filled again. Values stored in branches and loops must be
        recomputable; one that the block itself stores can be kept."""
        for root, tile in find_tiles(self.memory, self.structure).items():
            bad = any(blocks(op) and self.trace(tile.stored(op), op).bad for op in tile.fill)
            if tile.stays or (self.refill and not bad):
                self.tiles[root] = tile

    def choose_compared(self) -> None:
        """Operands that are compared with memory, where computing them again may round differently: a compiler may
        fuse a product and a sum in one launch and not in another."""
        for op in walk(self.function.body):
            if self.winners.claim(op, self.memory) is not None:
                assert isinstance(op, Atomic)
                if not is_repeatable(
                    op.args[0], self.structure.definition.get, lambda load: self.tile_of(load) is None
                ):
                    self.compared.add(op.args[0])

    def tile_of(self, op: Op | None) -> Tile | None:
        """The tile that a load reads."""
        if not isinstance(op, Load):
            return None
        tile = self.tiles.get(next(iter(self.memory.of(op.ptr)), op.result))
        return tile if tile is not None and id(op) in tile.loads else None

    def note_tiles(self, values: Iterable[Value]) -> None:
        """These will be computed again: tiles they are loaded from must be there."""
        for value in values:
            tile = self.tile_of(self.structure.definition.get(value))
            if tile is not None and not tile.stays:
                used = self.plan.refilled.setdefault(id(tile.place.block), [])
                if tile not in used:
                    used.append(tile)
                    used.sort(key=lambda t: t.variable)  # the values come in no order, the text must

    def require_tiles(self) -> None:
        done: set[Tile] = set()
        while todo := [t for used in self.plan.refilled.values() for t in used if t not in done]:
            for tile in todo:
                done.add(tile)
                for op in tile.fill:
                    if isinstance(op, Store):
                        for value in operands(op):
                            self.need(value)
                    else:
                        self.need_slice(tile.stored(op), op)

    # ---- which operations have an adjoint

    def mark(self, block: Block) -> bool:
        found = False
        for op in block.ops:
            inside = [self.mark(inner) for inner in blocks(op)]
            if any(inside) or self.is_active(op):
                self.plan.reversed_ops.add(id(op))
                found = True
        return found

    def is_active(self, op: Op) -> bool:
        if isinstance(op, Store | Atomic):
            return bool(self.memory.of(op.ptr) & self.activity.roots)
        if isinstance(op, Barrier | BarrierReduce | Leave):
            return True  # phases stay apart in reverse, and who left is not waited for
        return any(r in self.activity for r in op.results)

    # ---- what can be recomputed

    def trace(self, wanted: Iterable[Value], within: Op) -> Trace:
        """Follows values back inside an operation, which would run again where it stands."""
        place = self.structure.place_of(within)
        seen: set[Value] = set()
        outside: dict[Value, None] = {}
        todo = list(wanted)
        bad = False
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            op = self.structure.definition.get(value)
            if op is not within and not self.structure.is_inside(value, within):
                outside[value] = None
            elif op is None:
                todo += self.structure.argument_sources(value)
            elif self._is_source(op, place):
                bad = True
            else:
                todo += dependencies(op, value)
        return Trace(bad, outside, seen)

    def _is_source(self, op: Op, place: Place) -> bool:
        """Whether an operation must not be run again in the reverse of a block."""
        if isinstance(op, Load):
            tile = self.tile_of(op)
            if tile is not None and tile.contains(place):
                return False
            return op.volatile or not self._unwritten(op.ptr)
        if isinstance(op, Builtin):
            return op.name in _CLOCKS
        return not isinstance(op, (*PURE_OPS, If, For, While))

    def _unwritten(self, ptr: Value) -> bool:
        """Rule 3: nothing in the whole grid writes that memory, through any pointer."""
        roots = self.memory.of(ptr)
        if self.may_alias and any(not isinstance(self.structure.definition.get(r), Alloca) for r in roots):
            return not self.written
        if UNKNOWN in roots or UNKNOWN in self.written:
            return not self.written
        return not (roots & self.written) and bool(roots)

    # ---- loops

    def choose_reruns(self, place: Place) -> None:
        for op in place.block.ops:
            if (
                isinstance(op, For | While)
                and place.in_loop
                and self.plan.has_adjoint(op)
                and not self._loop_is_bad(op)
                and not self._has_claims(op)
            ):
                self.plan.rerun.add(id(op))
            for inner in blocks(op):
                self.choose_reruns(self.structure.place(inner))

    def _loop_is_bad(self, loop: For | While) -> bool:
        """Whether something the loop's reverse needs from inside it cannot be recomputed."""
        return self.trace(self._wanted(loop), loop).bad

    def _has_claims(self, loop: For | While) -> bool:
        """Running it again would write over a tape that is read twice (Note [Claims])."""
        inside = (op for inner in blocks(loop) for op in walk(inner))
        return any(self.winners.claim(op, self.memory) is not None for op in inside)

    def _wanted(self, loop: For | While) -> list[Value]:
        """Everything the reverse of a loop may need from inside it: also how often it, and those in it, iterate."""
        found: list[Value] = []
        for op in (loop, *(op for inner in blocks(loop) for op in walk(inner))):
            if isinstance(op, While) and self.plan.has_adjoint(op):
                found += [op.inits[0], op.body.results[0]]
            found += self.direct_needs(op) if op is not loop else []
        return found

    # ---- what the reverse of an operation needs

    def direct_needs(self, op: Op) -> list[Value]:
        if not self.plan.has_adjoint(op):
            return []
        match op:
            case Apply("select", (cond, *_)):
                return [cond]
            case Apply("convert" | "bitcast"):
                return []
            case Apply() if op.result in self.plan.choices:
                return [self.plan.choices[op.result]]
            case Apply(fn, args):
                return self._rule_needs(op, fn, args)
            case Atomic(_, ptr, _) if picks(op):
                return [self.shadow_of(op, ptr), *self.winners.needs(op)]
            case Load(ptr) | Store(ptr, _) | Atomic(_, ptr, _):
                return [self.shadow_of(op, ptr)]
            case Barrier(_, args):
                return list(args)
            case Warp(_, (mask, _, *rest)):
                return [mask, *rest]
            case If(cond, _, _):
                return [cond]
            case For(lower, upper, _, _, _):
                return [lower, upper]
        return []

    def _rule_needs(self, op: Apply, fn: str, args: tuple[Value, ...]) -> list[Value]:
        rule = rule_for(fn)
        if rule is None:
            raise UnsupportedError(f"'{fn}' has no derivative and an active value passes through it", op.span)
        found: list[Value] = []
        for k, arg in enumerate(args):
            if arg in self.activity and not rule.is_zero(k):
                needs = rule.needs(k)
                found += [args[j] for j in sorted(needs.args)]
                found += [op.result] if needs.result else []
        return found

    def shadow_of(self, op: Op, ptr: Value) -> Value:
        if ptr not in self.shadow:
            raise UnsupportedError(
                "a derivative flows through a pointer whose memory is not known",
                op.span,
                "pass the pointer as a parameter",
            )
        return self.shadow[ptr]

    # ---- choices

    def keep_choices(self) -> None:
        """Where a branch or a loop puts something on the tape, its reverse must go the same way. A condition computed
        again may round differently, since compilers fuse products and sums as they like: such a one is kept."""
        found = True
        while found:  # what is kept is one more thing on the tape
            found = False
            for op in walk(self.function.body):
                if isinstance(op, If | For) and self.plan.has_adjoint(op) and any(map(self.has_frame, blocks(op))):
                    choices = (op.cond,) if isinstance(op, If) else (op.lower, op.upper)
                    for value in choices:
                        found = self.keep_choice(value) or found

    def keep_choice(self, value: Value) -> bool:
        """True if this made a difference."""
        place = self.structure.home[value]
        kept = self.plan.taped.get(id(place.block), {})
        if not place.in_loop or value in kept or value not in self.plan.needed.get(id(place.block), {}):
            return False
        if is_repeatable(value, self.structure.definition.get, lambda load: self.tile_of(load) is None):
            return False
        self.keep(value, place)
        return True

    def has_frame(self, block: Block) -> bool:
        """Whether the block leaves something on the tape; what a rerun loop puts there, its reverse takes at once."""
        nested = (inner for op in block.ops if id(op) not in self.plan.rerun for inner in blocks(op))
        return bool(self.plan.taped.get(id(block))) or any(map(self.has_frame, nested))

    # ---- requirements, closed under recomputation

    def require(self, block: Block) -> None:
        for op in block.ops:
            if not self.plan.has_adjoint(op):
                continue
            for value in self.direct_needs(op):
                if not self.choices.puts_off(value):
                    self.need(value)
            if isinstance(op, While):
                self.need_count(op)
            if isinstance(op, For | While) and id(op) in self.plan.rerun:
                # Not everything it carries: a rerun is only for what its reverse needs.
                bounds = (op.lower, op.upper) if isinstance(op, For) else ()
                self.need_slice((*bounds, *self._wanted(op)), op)
            for inner in blocks(op):
                self.require(inner)

    def need_slice(self, wanted: Iterable[Value], op: Op) -> None:
        found = self.trace(wanted, op)
        self.note_tiles(found.seen)
        for value in found.outside:
            self.need(value)

    def need_count(self, loop: While) -> None:
        """The number of iterations of a while loop, known when it has run."""
        place = self.structure.home[loop.results[0]]
        if id(loop) in self.plan.rerun or id(loop) in self.plan.counts:
            return
        count = Value(I64, "count")
        self.plan.counts[id(loop)] = count
        self.structure.home[count] = place
        self.keep(count, place)

    def need(self, value: Value) -> None:
        place = self.structure.home[value]
        if place.in_scope:
            return
        if value in self.plan.needed.setdefault(id(place.block), {}):
            return
        self.plan.needed[id(place.block)][value] = None
        op = self.structure.definition.get(value)
        if op is None:
            self.need_argument(value, place)
        elif self.must_keep(value, op, place):
            self.keep(value, place)
        elif isinstance(op, If | For | While):
            self.need_slice([value], op)
        else:
            self.note_tiles([value])
            for operand in operands(op):
                self.need(operand)

    def must_keep(self, value: Value, op: Op, place: Place) -> bool:
        if value in self.compared or self._is_source(op, place):
            return True
        return isinstance(op, If | For | While) and self.trace([value], op).bad

    def need_argument(self, arg: Value, place: Place) -> None:
        owner = place.owner
        if isinstance(owner, For) and arg is place.block.args[0]:
            self.need(owner.lower)
            return
        found = induction.find(owner, arg, self.structure) if isinstance(owner, For | While) else None
        if found is None:
            self.keep(arg, place)
            return
        self.plan.inductions[arg] = found
        for value in found.needs:
            self.need(value)

    def keep(self, value: Value, place: Place) -> None:
        """The value must be saved: on the tape inside loops, as a result of its If outside."""
        if place.in_scope:
            return
        if place.in_loop:
            self.plan.taped.setdefault(id(place.block), {})[value] = None
            self.plan.needed.setdefault(id(place.block), {})[value] = None
            return
        assert place.parent is not None
        results = self.plan.exported.setdefault(id(place.block), {})
        if value not in results:
            results[value] = outside = Value(value.type, value.name)
            self.structure.home[outside] = place.parent
            self.plan.needed.setdefault(id(place.block), {})[value] = None
            if not place.parent.in_scope:
                self.plan.needed.setdefault(id(place.parent.block), {})[outside] = None
            self.keep(outside, place.parent)


def dependencies(op: Op, result: Value) -> list[Value]:
    """What one result of a pure or structured operation depends on."""
    match op:
        case If(cond, then, orelse):
            k = op.results.index(result)
            return [cond, then.results[k], orelse.results[k]]
        case For(lower, upper, inits, _, body):
            k = op.results.index(result)
            return [lower, upper, inits[k], body.results[k]]
        case While(inits, _, body):
            k = op.results.index(result)
            return [inits[k], body.results[k], body.results[0], inits[0]]
    return list(operands(op))


def refuse_tape(plan: Plan, structure: Structure) -> None:
    """A reverse alone has no forward sweep to tape anything: what it needs must be there or be recomputed (rule 6)."""
    for key, frame in plan.taped.items():
        place: Place | None = structure.places[key]
        while place is not None and not (place.owner is not None and id(place.owner) in plan.rerun):
            place = place.parent
        if place is None and frame:
            value = next(iter(frame))
            op = structure.definition.get(value)
            what = f"'{value.name}'" if value.name else "a value"
            raise UnsupportedError(
                f"with primal=False the reverse cannot get {what} again: the kernel overwrites what it came from",
                op.span if op is not None else UNKNOWN_SPAN,
                "use kernelgrad.split, which keeps it between the forward and the reverse launch",
            )


def refuse_shadow_pointers(plan: Plan, structure: Structure, shadows: Iterable[Value]) -> None:
    """The forward launch of a split knows no shadows, so pointers into them cannot go on its tape."""
    known = set(shadows)
    for key, frame in plan.taped.items():
        for value in frame:
            if value in known:
                owner = structure.places[key].owner
                raise UnsupportedError(
                    f"split: the pointer '{(value.name or '').removeprefix('_d_')}' changes inside a loop",
                    owner.span if owner is not None else UNKNOWN_SPAN,
                    "use kernelgrad.gradient, which runs forward and reverse in one launch",
                )
