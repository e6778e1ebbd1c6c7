"""Decides which values the text writes out where they are used, and which become variables.

The walk goes backwards, so that all uses of a value are known when it is decided on. What is written at its use takes
its own operands along to that place: a value's *sites* are the statements whose text will evaluate it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ...ir.effects import ADDRESSES, CHANGES, is_clock
from ...ir.ops import (
    TOGETHER,
    Aggregate,
    Alloca,
    Apply,
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
    Load,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Trap,
    Undef,
    Value,
    Warp,
    While,
)
from ...ir.traverse import blocks, kinds, operands, uses, walk
from ...ir.types import BOOL, Array, Pointer, Scalar
from .conversions import is_free
from .names import is_own

if TYPE_CHECKING:
    from .neighbours import Neighbours
    from .sincos import Pair

_PURE = (Apply, Aggregate, Extract, PtrDiff, Constant, Undef, Builtin, *ADDRESSES)
# What another thread may see, or what may bring another thread's stores into view: no load is moved across.
_EFFECTS = (*CHANGES, Trap)
# Their text may stand in the statement that uses them, as the sources write it.
_MOVABLE = (Load, Warp, BarrierReduce)
# Functions with branches inside, for rare arguments.
_LONG = frozenset("sin cos tan sinpi cospi tanpi exp log pow erf erfc tgamma lgamma fmod remainder".split())
_STEPS = frozenset("add sub shl shr div select convert".split())
# An index such as `i * n + j` is repeated at a few accesses rather than named; beyond this it gets a variable.
_MOST_REPEATS = 4


@dataclass(frozen=True)
class Site:
    """A statement that evaluates a value. `conditional`: not on every execution of the statement, or more than once;
    `in_address`: as part of an index; `in_header`: in the condition of the `for` whose body is `block`;
    `starts`: as the initial value of a loop's variable; `follows`: as what it is in the next iteration."""

    block: Block
    at: int
    conditional: bool = False
    in_address: bool = False
    in_header: bool = False
    starts: Value | None = None
    follows: Value | None = None


@dataclass
class Folding:
    """The decisions: `inline` holds the values written at their uses, `sites` where each value is evaluated.

    `dead` values have no sites and no effect: they are not written at all. `wanted` gives, for each block, the indices
    of those of its results that are read; `carried` holds the values that stand for such results of loops.
    """

    definition: dict[Value, Op] = field(default_factory=dict)
    counters: dict[Value, For] = field(default_factory=dict)
    inline: set[Value] = field(default_factory=set)
    sites: dict[Value, list[Site]] = field(default_factory=dict)
    dead: set[Value] = field(default_factory=set)
    wanted: dict[Block, tuple[int, ...]] = field(default_factory=dict)
    carried: set[Value] = field(default_factory=set)
    stepped: dict[While, int] = field(default_factory=dict)  # loops written `for (i = ...; ...; i += ...)`: which i
    paired: dict[Op, Pair] = field(default_factory=dict)  # sines and cosines that are computed together
    vectors: dict[Op, Neighbours] = field(default_factory=dict)  # additions that are made together

    def is_used(self, value: Value) -> bool:
        return bool(self.sites.get(value))

    def is_variable(self, value: Value) -> bool:
        return (self.is_used(value) or value in self.carried) and value not in self.inline

    def is_written(self, op: Op) -> bool:
        """Whether the operation has a statement of its own."""
        return not any(r in self.inline or r in self.dead for r in op.results)

    def is_guarded_shift(self, op: Op) -> bool:
        """Whether the amount may exceed the width, which C++ leaves undefined: the text then tests it."""
        if not isinstance(op, Apply) or op.fn not in ("shl", "shr") or not isinstance(op.result.type, Scalar):
            return False
        from .ranges import is_below

        return not is_below(op.args[1], op.result.type.bits, self.definition, self.counters)

    def is_same_uncast(self, value: Value) -> bool:
        """Whether a conversion between integers gives the number that it is given, which is not negative."""
        op = self.definition.get(value)
        if not isinstance(op, Apply) or not is_free(op) or value.type.size < 4:
            return False
        from .ranges import is_below

        return is_below(value, 1 << 31, self.definition, self.counters)

    def results(self, block: Block) -> tuple[Value, ...]:
        return tuple(block.results[k] for k in self.wanted[block])

    def leaves(self, value: Value) -> Iterable[Value]:
        """The variables that the text of a value mentions."""
        if value not in self.inline:
            return (value,)
        return (leaf for operand in operands(self.definition[value]) for leaf in self.leaves(operand))


class Together(NamedTuple):
    """What is computed together: sines with cosines, additions to neighbouring floats."""

    pairs: tuple[Pair, ...] = ()
    neighbours: tuple[Neighbours, ...] = ()


def find_together(function: Function) -> Together:
    """In a function in which such operations stand next to each other."""
    held, found = kinds(function.body), Together()
    if "sin" in held:
        from .sincos import pairs

        found = found._replace(pairs=tuple(pairs(function.body)))
    if TOGETHER in held:
        from .neighbours import neighbours

        found = found._replace(neighbours=tuple(neighbours(function)))
    return found


def fold(function: Function, together: Together) -> Folding:
    return _Folder(function).run(together)


class _Folder:
    def __init__(self, function: Function):
        self.function = function
        self.result = Folding()
        self.loop: dict[Block, Block | None] = {}
        self.effects: dict[Block, list[int]] = {}
        self.uses = uses(function.body)
        self.steps: set[Value] = set()

    def run(self, together: Together) -> Folding:
        for op in walk(self.function.body):
            for result in op.results:
                self.result.definition[result] = op
            if isinstance(op, For):
                self.result.counters[op.body.args[0]] = op
        self.result.paired = {op: pair for pair in together.pairs for op in pair[:2]}
        self.result.vectors = {op: group for group in together.neighbours for op in group.adds}
        self._survey(self.function.body, None)
        self._block(self.function.body, range(len(self.function.body.results)))
        return self.result

    def _survey(self, block: Block, loop: Block | None) -> bool:
        """Notes each block's loop and the positions of its effects; says whether it has any."""
        self.loop[block] = loop
        found: list[int] = []
        for at, op in enumerate(block.ops):
            is_loop = isinstance(op, For | While)
            inner = [self._survey(b, b if is_loop else loop) for b in blocks(op)]
            if isinstance(op, _EFFECTS) or any(inner):
                found.append(at)
        self.effects[block] = found
        return bool(found)

    # ---- backwards over the operations

    def _block(self, block: Block, wanted: Iterable[int], carried: tuple[Value, ...] = ()) -> None:
        """`wanted`: which of the block's results anyone reads; `carried`: of a loop's body, what they follow."""
        self.result.wanted[block] = tuple(wanted)
        end = Site(block, len(block.ops))
        for k in self.result.wanted[block]:
            self._use(block.results[k], replace(end, follows=carried[k]) if carried else end)
        for at in range(len(block.ops) - 1, -1, -1):
            self._op(block.ops[at], Site(block, at))

    def _use(self, value: Value, site: Site) -> None:
        self.result.sites.setdefault(value, []).append(site)

    def _op(self, op: Op, site: Site) -> None:
        match op:
            case If():
                self._if(op, site)
            case For():
                self._for(op, site)
            case While():
                self._while(op, site)
            case _:
                self._plain(op, site)

    def _if(self, op: If, site: Site) -> None:
        wanted = [k for k, r in enumerate(op.results) if self.result.is_used(r)]
        for branch in (op.then, op.orelse):
            self._block(branch, wanted)
        self._use(op.cond, site)

    def _for(self, op: For, site: Site) -> None:
        self._block(op.body, self._read(op.body.args[1:], op.results), op.body.args[1:])
        # The bound stands in the loop's condition, which is evaluated in every iteration.
        self._use(op.upper, Site(op.body, -1, conditional=True, in_header=True))
        self._use(op.lower, replace(site, starts=op.body.args[0]))
        for value, arg in zip(op.inits, op.body.args[1:], strict=True):
            self._use(value, replace(site, starts=arg))

    def _while(self, op: While, site: Site) -> None:
        condition_and_forwarded = [0, *(k + 1 for k in self._read(op.body.args, op.results))]
        self._block(op.before, condition_and_forwarded)
        from .stepping import stepped_state

        step = stepped_state(op, self.result, self.uses)
        if step is not None:
            self.result.stepped[op] = step
            self.steps.add(op.body.results[step])
        self._block(op.body, self._read(op.before.args), _in_body(op))
        for value, arg in zip(op.inits, op.before.args, strict=True):
            self._use(value, replace(site, starts=arg))

    def _read(self, *carried: tuple[Value, ...]) -> list[int]:
        """Which of a loop's carried values are read, under any of the values that stand for them."""
        groups = [(k, group) for k, group in enumerate(zip(*carried, strict=True)) if any(map(self.uses.get, group))]
        self.result.carried.update(value for _, group in groups for value in group)
        return [k for k, _ in groups]

    def _plain(self, op: Op, site: Site) -> None:
        if (
            isinstance(op, (Insert, Load, *_PURE))
            and not any(map(self.result.is_used, op.results))
            and not _volatile(op)
        ):
            self.result.dead.update(op.results)
            return
        sites = [site]
        if len(op.results) == 1 and self._is_inline(op, op.result, site):
            self.result.inline.add(op.result)
            sites = self.result.sites[op.result]
        if self.result.is_guarded_shift(op):
            sites = sites * 2  # the test repeats the operands
        for k, operand in enumerate(operands(op)):
            for each in sites:
                self._use(operand, _for_operand(op, k, each))

    # ---- the decision

    def _is_inline(self, op: Op, value: Value, home: Site) -> bool:
        if isinstance(op, Constant | Undef | GlobalRef | Alloca) or is_alias(op):
            return True
        sites = self.result.sites.get(value, [])
        if value in self.steps:
            return True
        if not sites or op in self.result.paired:
            return False
        if not self._is_nameless(value, sites, home) and not self._comes_last(op, sites):
            return False
        if isinstance(op, (Extract, *ADDRESSES)):
            return True
        if isinstance(op, Builtin):
            return not is_clock(op)
        if isinstance(op, Apply) and (is_free(op) or (op.fn == "convert" and self._is_builtin(op.args[0]))):
            return True
        if isinstance(op, _MOVABLE):
            return (
                len(sites) == 1
                and len(op.results) == 1
                and self._may_move(home, sites[0])
                and self._may_wait(op, home, sites[0])
            )
        if isinstance(op, Apply) and op.fn in _LONG and not all(self._may_move(home, site) for site in sites):
            return False  # a compiler would let the loads in the same expression wait until after the stores
        return isinstance(op, _PURE) and self._is_cheap_to_move(value, sites, home)

    def _is_nameless(self, value: Value, sites: list[Site], home: Site) -> bool:
        """Whether the source has no variable for the value, or only one that a loop takes over as its own. What passes
        named is computed where it is needed, if that is not always."""
        if is_own(value.name) and len(sites) == 1 and sites[0].block is not home.block:
            return True
        return value.name is None or all(s.starts is not None and s.starts.name == value.name for s in sites)

    def _comes_last(self, op: Op, sites: list[Site]) -> bool:
        """Whether a value waits until what it follows is not read any more: `top += threads;` after a push."""
        follows = sites[0].follows
        late = len(sites) == 1 and follows is not None and self.uses.get(follows, 0) > 1
        return late and isinstance(op, Apply) and op.fn in _STEPS

    def _is_builtin(self, value: Value) -> bool:
        op = self.result.definition.get(value)
        return isinstance(op, Builtin) and not is_clock(op) and value.name is None

    def _is_cheap_to_move(self, value: Value, sites: list[Site], home: Site) -> bool:
        """A pure value is written once, and not inside a loop that it stands outside of."""
        if any(not s.in_header and self.loop[s.block] is not self.loop[home.block] for s in sites):
            return False
        in_addresses = isinstance(value.type, Scalar) and all(s.in_address for s in sites)
        return len(sites) == 1 or (in_addresses and len(sites) <= _MOST_REPEATS)

    def _may_wait(self, op: Op, home: Site, to: Site) -> bool:
        """Of a barrier that gives a value: no load behind it may come first."""
        if not isinstance(op, BarrierReduce):
            return True
        return not any(isinstance(o, Load) or blocks(o) for o in home.block.ops[home.at + 1 : to.at])

    def _may_move(self, home: Site, to: Site) -> bool:
        """Whether a load (or a warp function) gives the same at `to`: the same block, no effect between."""
        if to.block is not home.block or to.conditional:
            return False
        return not any(home.at < at < to.at for at in self.effects[home.block])


def _in_body(loop: While) -> tuple[Value, ...]:
    """What the body knows the carried values as."""
    known = dict(zip(loop.before.results[1:], loop.body.args, strict=True))
    return tuple(known.get(v, v) for v in loop.before.args)


def is_alias(op: Op) -> bool:
    """Another name for the same address: an array's first element, a change of address space."""
    if not isinstance(op, PtrCast) or not isinstance(op.ptr.type, Pointer) or not isinstance(op.result.type, Pointer):
        return False
    source, target = op.ptr.type.pointee, op.result.type.pointee
    return source == target or (isinstance(source, Array) and source.element == target)


def _volatile(op: Op) -> bool:
    return isinstance(op, Load) and op.volatile


def _for_operand(op: Op, index: int, site: Site) -> Site:
    """The site as operand `index` of an operation sees it."""
    skipped = isinstance(op, Apply) and index > 0 and _may_skip(op)
    in_address = site.in_address if isinstance(op, Apply) else isinstance(op, Offset) and index == 1
    conditional = site.conditional or skipped
    return replace(site, conditional=conditional, in_address=in_address, starts=None, follows=None)


def _may_skip(op: Apply) -> bool:
    """`?:`, `&&` and `||` evaluate only some of their operands."""
    logical = op.fn in ("and", "or") and op.args[0].type == BOOL
    return op.fn == "select" or logical
