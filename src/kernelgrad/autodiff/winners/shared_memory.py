"""Winners in shared memory (rule 18): the final contents of a cell are known at the next barrier of the block.

Note [Claims in shared memory]. After that barrier, the threads whose operand is in the cell bid for it with their ids,
in an array beside the shared one, and those that found something else there note that the cell was changed at all.
They meet again, the lowest bidder has won if the cell was changed, and clears both for the next time. All of this is
code of the forward sweep; what the reverse needs of it is one bool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ...analysis.roots import Memory
from ...errors import UnsupportedError
from ...ir.builder import Builder, linear_thread, pointee
from ...ir.effects import picks
from ...ir.ops import Atomic, Barrier, BarrierReduce, Block, For, Function, Global, If, Load, Module, Op, Value, While
from ...ir.traverse import blocks, uses, walk, with_body
from ...ir.types import BOOL, I64, U16, U32, U64, Array, Pointer
from ...transforms.spellings import Spelled, Spelling
from ..calculus.activity import Activity
from ..calculus.shadows import is_dynamic
from .winners import SharedWinners

NOBODY = 0xFFFFFFFF
_BITS = {2: U16, 4: U32, 8: U64}


@dataclass(frozen=True)
class _Site:
    """An atomic, and what is known of it where its barrier is: whether the thread came there, the cell's index, the
    operand, what it found in the cell."""

    op: Atomic
    variable: str
    came: Value
    index: Value
    operand: Value
    found: Value

    @property
    def values(self) -> tuple[Value, ...]:
        return self.came, self.index, self.operand, self.found


def find(function: Function, module: Module, memory: Memory, activity: Activity) -> SharedWinners:
    names = {root: name for name, root in memory.global_names.items() if root in activity.roots}
    shared = {root: name for root, name in names.items() if module.globals[name].space == "shared"}
    work = _Rewrite(function, module, memory, shared)
    if any(map(work.is_site, walk(function.body))):
        work.result.function = with_body(function, work.block(function.body))
    return work.result


class _Rewrite:
    def __init__(self, function: Function, module: Module, memory: Memory, shared: dict[Value, str]):
        self.module, self.memory, self.shared = module, memory, shared
        self.result = SharedWinners(function)
        self.uses = uses(function.body)

    def is_site(self, op: Op) -> bool:
        return picks(op) and bool(self.memory.of(op.ptr) & self.shared.keys())  # type: ignore[attr-defined]

    # ---- blocks

    def block(self, block: Block) -> Block:
        """A block whose barriers decide about its atomics."""
        b = Builder()
        pending: list[_Site] = []
        phase: list[Op] = []  # since the last barrier
        for op in block.ops:
            phase.append(op)
            if _is_barrier(op):
                b.add(op)
                self.refuse_loads(phase, pending)
                self.decide(b, pending)
                pending, phase = [], []
            elif not any(map(self.is_site, _with_inner(op))):
                if pending and any(map(_is_barrier, _with_inner(op))):
                    self.refuse(pending[0].op, "is followed by a barrier inside a branch or loop")
                b.add(op)
            elif any(map(_is_barrier, _with_inner(op))):
                if pending:
                    self.refuse(pending[0].op, "is followed by a barrier inside a branch or loop")
                b.add(self.inner(op))
                phase = []
            else:
                pending += self.sites(b, op)
        if pending:
            self.refuse(pending[0].op, "is not followed by a barrier")
        return replace(block, ops=tuple(b.ops))

    def inner(self, op: Op) -> Op:
        match op:
            case If(_, then, orelse):
                return replace(op, then=self.block(then), orelse=self.block(orelse))
            case For(body=body) | While(body=body):  # while loops have all their work in the body by now
                return replace(op, body=self.block(body))
        raise AssertionError(op)

    def refuse_loads(self, phase: list[Op], pending: list[_Site]) -> None:
        names = {site.variable for site in pending}
        for op in (inner for outer in phase for inner in _with_inner(outer)):
            read = {self.shared.get(root) for root in self.memory.of(op.ptr)} if isinstance(op, Load) else set()
            if read & names:
                raise UnsupportedError(
                    "shared memory is read between the barriers between which an atomic maximum, minimum or exchange"
                    " is taken in it",
                    op.span,
                    "put __syncthreads() between them",
                )

    def refuse(self, op: Op, what: str) -> None:
        raise UnsupportedError(
            f"an atomic maximum, minimum or exchange in shared memory that {what} has no gradient",
            op.span,
            "reduce in a register first, and put __syncthreads() after the atomic, in the same block of code",
        )

    # ---- atomics

    def sites(self, b: Builder, op: Op) -> list[_Site]:
        """The operation, made to tell what its atomics did."""
        if isinstance(op, Atomic):
            return [self.site(b, op)]
        if not isinstance(op, If):
            self.refuse(next(o for o in _with_inner(op) if self.is_site(o)), "stands in a loop without its barrier")
        assert isinstance(op, If)
        made: list[tuple[Block, list[_Site]]] = []
        for side in (op.then, op.orelse):
            found: list[_Site] = []
            with b.region() as region:
                for inner in side.ops:
                    if any(map(self.is_site, _with_inner(inner))):
                        found += self.sites(b, inner)
                    else:
                        b.add(inner)
            made.append((region.block(side.args, side.results), found))
        return self.exported(b, op, made)

    def exported(self, b: Builder, op: If, made: list[tuple[Block, list[_Site]]]) -> list[_Site]:
        sites = [(k, site) for k, (_, found) in enumerate(made) for site in found]
        sides: list[Block] = []
        for k, (block, _) in enumerate(made):
            more: list[Value] = []
            with b.region() as region:
                for side, site in sites:
                    more += site.values if side == k else _absent(b, site)
            sides.append(Block(block.args, (*block.ops, *region.ops), (*block.results, *more)))
        outside = [_Site(site.op, site.variable, *(Value(v.type) for v in site.values)) for _, site in sites]
        results = (*op.results, *(v for site in outside for v in site.values))
        b.add(replace(op, then=sides[0], orelse=sides[1], results=results))
        return outside

    def site(self, b: Builder, op: Atomic) -> _Site:
        roots = self.memory.of(op.ptr)
        (root, *others) = roots
        if others or root not in self.shared:
            self.refuse(op, "may be in one array or another")
        variable = self.module.globals[self.shared[root]]
        if is_dynamic(variable):
            self.refuse(op, "is of dynamic size")
        if isinstance(op, Spelled):
            if self.uses.get(op.result):
                self.refuse(op, "gives its old value to others")
            op = replace(op, spelling=_observing(op), inputs=(*op.inputs, op.ptr))
        b.span = op.span
        b.add(op)
        base = b.global_ref(variable.name, variable.type, "shared")
        assert isinstance(op.ptr.type, Pointer)
        index = b.pointer_difference(op.ptr, b.cast_pointer(base, op.ptr.type))
        self.result.bids.setdefault(variable.name, _bids(variable, op))
        return _Site(op, variable.name, b.constant(True, BOOL), index, op.args[0], op.result)

    # ---- after the barrier

    def decide(self, b: Builder, sites: list[_Site]) -> None:
        if not sites:
            return
        b.span = sites[0].op.span
        me = b.convert(linear_thread(b), U32)
        hits = [self.bid(b, site, me) for site in sites]
        b.effect(Barrier, "block")
        mine = [self.mine(b, site, hit, me) for site, hit in zip(sites, hits, strict=True)]
        b.effect(Barrier, "block")
        for site, lowest in zip(sites, mine, strict=True):
            self.clear(b, site, lowest)

    def bid(self, b: Builder, site: _Site, me: Value) -> Value:
        """Whether the operand is in the cell; then the thread bids for it."""
        variable = self.module.globals[site.variable]
        with b.region() as came:
            base = b.global_ref(variable.name, variable.type, "shared")
            cells = b.cast_pointer(base, Pointer(site.operand.type, "shared"))
            hit = b.apply("eq", site.operand, b.load(b.offset(cells, site.index)))
            with b.region() as equal:
                bids, changed = self.cells(b, site)
                b.atomic("min", bids, me)
                if site.op.kind == "exch":
                    b.atomic("and", changed, b.constant(0, U32))
                else:
                    with b.region() as raised:
                        b.atomic("and", changed, b.constant(0, U32))
                    b.if_(b.apply("ne", site.found, site.operand), raised.block())
            b.if_(hit, equal.block())
        with b.region() as absent:
            no = b.constant(False, BOOL)
        return b.if_(site.came, came.block((), (hit,)), absent.block((), (no,)))[0]

    def mine(self, b: Builder, site: _Site, hit: Value, me: Value) -> Value:
        """Whether the thread was the lowest to bid; it has won if the cell was changed at all."""
        with b.region() as there:
            bids, changed = self.cells(b, site)
            lowest = b.apply("eq", b.load(bids), me)
            won = b.apply("and", lowest, b.apply("eq", b.load(changed), b.constant(0, U32)))
        with b.region() as absent:
            no = b.constant(False, BOOL)
        lowest, won = b.if_(hit, there.block((), (lowest, won)), absent.block((), (no, no)))
        self.result.won[site.op.result] = won
        return lowest

    def clear(self, b: Builder, site: _Site, lowest: Value) -> None:
        with b.region() as cleared:
            for cell in self.cells(b, site):
                b.store(cell, b.constant(NOBODY, U32))
        b.if_(lowest, cleared.block())

    def cells(self, b: Builder, site: _Site) -> tuple[Value, Value]:
        variable = self.result.bids[site.variable]
        assert isinstance(variable.type, Array)
        base = b.decay(b.global_ref(variable.name, variable.type, "shared"))
        behind = b.apply("add", site.index, b.constant(variable.type.count // 2, I64))
        return b.offset(base, site.index), b.offset(base, behind)


# ---- small things ---------------------------------------------------------------------------------------------------


def _is_barrier(op: Op) -> bool:
    return isinstance(op, BarrierReduce) or (isinstance(op, Barrier) and op.scope == "block")


def _with_inner(op: Op) -> Iterator[Op]:
    yield op
    for block in blocks(op):
        yield from walk(block)


def _bids(variable: Global, op: Atomic) -> Global:
    count = variable.type.size // pointee(op.ptr).size
    return Global(f"_bids_{variable.name}", Array(U32, 2 * count), "shared", None, variable.span)


def _absent(b: Builder, site: _Site) -> list[Value]:
    """For a thread that did not come to the atomic."""
    return [b.constant(False, BOOL), b.constant(0, I64), *(b.undef(v.type) for v in (site.operand, site.found))]


def _observing(op: Spelled) -> Spelling:
    """The code with a look at the cell before it: a swap of zero for zero changes nothing."""
    b = Builder(op.span)
    cell = Value(op.ptr.type)
    assert isinstance(op.ptr.type, Pointer)
    integer = _BITS[pointee(op.ptr).size]
    zero = b.constant(0, integer)
    bits = b.atomic("cas", b.cast_pointer(cell, Pointer(integer, op.ptr.type.space)), zero, zero, scope=op.scope)
    old = b.apply("bitcast", bits, type=pointee(op.ptr))
    spelling = op.spelling
    return Spelling((*spelling.formals, cell), (*b.ops, *spelling.ops), old)


def fill_bids(b: Builder, bids: dict[str, Global], fill: Callable[[Builder, Value, Value, int], None]) -> None:
    """At the start of the kernel, all threads together. The first bid comes after a barrier of the kernel's own."""
    for variable in bids.values():
        base = b.global_ref(variable.name, variable.type, "shared")
        fill(b, base, b.constant(variable.type.size, I64), NOBODY)
