"""Sums over lanes, eight at a time: for CUDA, since only there lanes run side by side.

A loop adds to addresses that neighbouring lanes share: `d_a[row * n + k] += ...` where the lanes of a warp are columns.
One sum over a warp takes five shuffles. Eight of them take nine, if the lanes exchange halves: so whole warps go
through such loops in strips of eight iterations, keep what they would add, and lane j then has the warp's sum for
iteration j and adds it. What is left of the loop, and what other warps do, stays as it was.

Of loops that add to many addresses, or are long, strips would take too many registers. There lanes add up eight of the
sums of one iteration, for addresses that all threads share, and lane j has sum j.

Note [Strips of lanes]
Whether lanes share the address is tested where the loop begins: the address is computed from the counter and from
values that the loop does not change, and it is the same for 32, 16 or 8 neighbours if those are. Lanes that share none
add for themselves, without the test that each iteration would make. What is the same for all threads needs no test,
but where lanes may be in different iterations of a loop around (Note [Drift]).
A sum is added at the end of its strip. So nothing in the loop may look at the memory it goes to, or wait for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import NamedTuple

from ...analysis.aliases import Aliases
from ...analysis.drift import drifting
from ...analysis.passed import only_read
from ...analysis.uniform import uniform_values
from ...ir.effects import ADDRESSING, PURE
from ...ir.ops import (
    Apply,
    Atomic,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Module,
    Op,
    Store,
    Value,
)
from ...ir.traverse import blocks, descend, operands, uses, walk, with_body
from ...ir.types import F32, F64, Array, Pointer, Scalar
from ...transforms.unroll import constants_of, iterations
from .lane_strips import Strips, Sum

_SHORT = 3  # iterations: fewer are not worth a strip
_MOST_SUMS = 4  # in one loop: each takes eight registers
_MOST_OPERATIONS = 200  # in a loop's body, of which a strip has eight copies
_MOST_PACKED = 24  # sums of one iteration
_LONGEST = 1500  # operations in a loop's body, of which there is a copy for whole warps
_PLAIN = (*PURE, Load, Store, Atomic, If)
# With these, a value that differs between lanes makes for addresses that differ.
_LINEAR = frozenset(("add", "sub", "mul", "neg", "convert", "shl"))
_TRAPPING = frozenset(("div", "rem"))


def run(function: Function, module: Module) -> Function:
    found = _found(function)
    return with_body(function, _Rewrite(found, function).block(function.body)) if found else function


class Sums(NamedTuple):
    """The updates of a loop that lanes can add up in strips, and those of one iteration."""

    strips: tuple[Sum, ...]
    packed: tuple[Sum, ...]


def summed(function: Function) -> dict[For, tuple[Sum, ...]]:
    """The updates of each loop that lanes can add up in strips."""
    return {loop: sums.strips for loop, sums in _found(function).items() if sums.strips}


def _found(function: Function) -> dict[For, Sums]:
    if not any(isinstance(op, Atomic) and op.together for op in walk(function.body)):
        return {}
    search = Search(function)
    found = {op: search.sums(op) for op in walk(function.body) if isinstance(op, For)}
    return {loop: sums for loop, sums in found.items() if any(sums)}


def fixed_loads(function: Function, loop: For) -> dict[Load, Address]:
    """Those of each iteration that give the same whenever they are made, with their addresses."""
    search = Search(function)
    fixed = {op for op in walk(loop.body) if isinstance(op, Load) and search.is_fixed(op)}
    slices = Slices(loop, fixed)
    found = {op: slices.address(op) for op in loop.body.ops if isinstance(op, Load) and op in fixed}
    return {op: address for op, address in found.items() if address is not None}


def places(function: Function) -> frozenset[str]:
    """Where the reads are whose adjoints are added so."""
    found = (s for sums in _found(function).values() for s in (*sums.strips, *sums.packed))
    return frozenset(str(s.update.span) for s in found if s.together)


class _Rewrite:
    def __init__(self, found: dict[For, Sums], function: Function):
        self.found = found
        self.uniform = uniform_values(function)
        self.drifting = drifting(function, self.uniform)
        self.constants = constants_of(function)

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, For) and op in self.found:
                sums, alike = self.found[op], self.uniform - self.drifting[op]
                ops += Strips(op, sums.strips, alike, self.constants, sums.packed).ops()
            else:
                ops.append(descend(op, self.block))
        return Block(block.args, tuple(ops), block.results)


class Search:
    def __init__(self, function: Function):
        self.aliases = Aliases(function)
        self.uniform = uniform_values(function)
        self.drifting = drifting(function, self.uniform)
        self.constants = constants_of(function)
        self.uses = uses(function.body)
        self.variables = {
            op.result: op.name for op in walk(function.body) if isinstance(op, GlobalRef) and not _is_dynamic(op.result)
        }
        self.read_only = only_read(function)
        self.zeros = {op.result for op in walk(function.body) if isinstance(op, Constant) and op.value == 0}

    def sums(self, loop: For) -> Sums:
        inside = list(walk(loop.body))
        known = iterations(loop, self.constants)
        short = known is not None and len(known) < _SHORT
        if short or len(inside) > _LONGEST or not all(isinstance(op, _PLAIN) for op in inside):
            return Sums((), ())
        fixed = {op for op in inside if isinstance(op, Load) and self.is_fixed(op)}
        slices, alike = Slices(loop, fixed), self.uniform - self.drifting[loop]
        updates = _updates(loop.body, self.zeros)
        found = [self.sum(op, slices, alike) for op in updates if self.is_unseen(op.update, inside)]
        possible = [s for s in found if s is not None]
        together = [s for s in possible if s.together]
        # Others move out of the way of loads, as far as there are registers.
        strips = (together + [s for s in possible if not s.together])[:_MOST_SUMS] if together else []
        strips = strips if len(inside) <= _MOST_OPERATIONS else []
        packed = [s for s in together if s not in strips and not s.tested]
        return Sums(tuple(strips), tuple(packed[:_MOST_PACKED]))

    def is_fixed(self, op: Load) -> bool:
        """Of memory that nobody writes."""
        return not op.volatile and self.aliases.root(op.ptr) in self.read_only

    def sum(self, found: _Update, slices: Slices, alike: Set[Value]) -> Sum | None:
        op, update = found
        address = slices.address(update)
        if address is None:
            return None
        tested = tuple(v for v in address.given if v not in alike) if update.together else ()
        # What the address is computed from must be comparable, and say whether addresses differ.
        comparable = all(isinstance(v.type, Pointer) or _is_integer(v) for v in tested)
        if tested and not (comparable and address.linear):
            return None
        root = self.aliases.root(update.ptr)
        name = self.variables.get(root) or root.name or "sum"
        made = slices.definition.get(update.args[0])
        widened = isinstance(made, Apply) and made.fn == "convert" and made.args[0].type == F32
        always, convert = op in slices.always, made if isinstance(made, Apply) and widened else None
        return Sum(name, op, update, address.ops, tested, update.together, always, convert)

    def is_unseen(self, op: Atomic, inside: list[Op]) -> bool:
        """An update that may come later: nothing else in the loop but other updates touches the memory."""
        if op.kind != "add" or op.result.type not in (F32, F64) or self.uses.get(op.result):
            return False
        root = self.aliases.root(op.ptr)
        return not any(self.sees(other, root) for other in inside)

    def sees(self, op: Op, root: Value) -> bool:
        if isinstance(op, Atomic) and op.kind == "add" and not self.uses.get(op.result):
            return False
        if not isinstance(op, Load | Store | Atomic):
            return False
        # By their roots: elements that differ in one iteration may meet in the next.
        other = self.aliases.root(op.ptr)
        variables = {self.variables.get(other), self.variables.get(root)}
        apart = len(variables) == 2 and None not in variables
        return not apart and self.aliases.may_alias(other, root)


class _Update(NamedTuple):
    op: Atomic | If
    update: Atomic


def _updates(block: Block, zeros: set[Value]) -> Iterator[_Update]:
    """The atomics of a block, with the tests for zero around them."""
    definition = {r: op for op in block.ops for r in op.results}
    for op in block.ops:
        if isinstance(op, Atomic):
            yield _Update(op, op)
        elif isinstance(op, If) and (update := _behind_test(op, definition.get(op.cond), zeros)) is not None:
            yield _Update(op, update)
        else:
            for inner in blocks(op):
                yield from _updates(inner, zeros)


def _behind_test(op: If, condition: Op | None, zeros: set[Value]) -> Atomic | None:
    """`if (v != 0) atomicAdd(p, v)`."""
    updates = [inner for inner in op.then.ops if not isinstance(inner, ADDRESSING)]
    match condition, updates:
        case Apply("ne", (value, zero)), [Atomic("add", _, (added,)) as update] if value is added and zero in zeros:
            return update if not op.orelse.ops and not op.results else None
    return None


@dataclass(frozen=True)
class Address:
    """How an address in a loop is computed. `given`: from which values that the loop does not change."""

    ops: tuple[Op, ...]
    given: tuple[Value, ...]
    linear: bool


class Slices:
    """The arithmetic behind addresses in a loop's body. `fixed`: loads that give the same whenever they are made."""

    def __init__(self, loop: For, fixed: set[Load]):
        self.fixed = fixed
        self.loop = loop
        self.definition = {r: op for op in walk(loop.body) for r in op.results}
        self.always = set(loop.body.ops)
        self.changing = {loop.body.args[0]}  # with the counter
        for op in walk(loop.body):
            if any(v in self.changing for v in operands(op)):
                self.changing.update(op.results)

    def address(self, op: Atomic | Load) -> Address | None:
        needed: dict[Op, None] = {}
        if not self.collect(op.ptr, needed):
            return None
        changing = [o for o in needed if o.result in self.changing]
        reads = [v for o in changing for v in operands(o)] or [op.ptr]
        given = dict.fromkeys(v for v in reads if v not in self.changing)
        linear = all(not isinstance(o, Load) and (not isinstance(o, Apply) or o.fn in _LINEAR) for o in changing)
        return Address(tuple(needed), tuple(given), linear)

    def collect(self, value: Value, needed: dict[Op, None]) -> bool:
        """Adds what computes the value, in order; False if that is more than arithmetic and fixed loads, from the
        counter and from values from before the loop."""
        op = self.definition.get(value)
        if op is None:
            return value not in self.loop.body.args[1:]
        if not self.may_repeat(op):
            return False
        if not all(self.collect(v, needed) for v in operands(op)):
            return False
        needed.setdefault(op)
        return True

    def may_repeat(self, op: Op) -> bool:
        """Where it does not stand in a branch, it runs in every iteration: loads are valid, divisors not zero."""
        if isinstance(op, Load):
            return op in self.fixed and op in self.always
        if isinstance(op, Builtin):
            return "clock" not in op.name and "timer" not in op.name
        if isinstance(op, Apply):
            integers = all(_is_integer(v) for v in (op.result, *op.args))
            return integers and (op.fn not in _TRAPPING or op in self.always)
        return isinstance(op, ADDRESSING)


def _is_dynamic(variable: Value) -> bool:
    """One of the names that dynamic shared memory may have."""
    type = variable.type.pointee if isinstance(variable.type, Pointer) else None
    return isinstance(type, Array) and type.count == 0


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.is_float
