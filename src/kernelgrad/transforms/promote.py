"""Local variables become SSA values: scalar replacement of aggregates and mem2reg on structured IR.

Before: variables are allocas with loads and stores. After: what `slots` finds promotable is gone; a variable assigned
in an `If` is one of its results, one assigned in a loop a carried value, both only where it is live. Reading a variable
nobody set gives `Undef`. What stays memory stays an alloca, of only the part that needs it. Promoting a variable that
held the address of another (a reference, a closure) may free that one, hence rounds until nothing is left to promote.
The values of a promoted variable carry its name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import UNKNOWN, Span
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Block,
    Constant,
    Extract,
    For,
    Function,
    If,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Undef,
    Value,
    While,
)
from ..ir.traverse import rebuild, walk, with_body
from ..ir.types import I64, U8, Array, Pointer, Struct, Type, element_types
from .dce import eliminate
from .liveness import NOTHING, Effect, Liveness, bits
from .slots import Address, Cell, Root, Slots

_ROUNDS = 32  # as deep as references to references may nest; each round frees at least one level


def run(function: Function, module: Module) -> Function:
    body = eliminate(function.body)
    for _ in range(_ROUNDS):
        body = _with_loads_in_branches(body)
        slots = Slots(body)
        if all(root.whole for root in slots.roots.values()):
            break
        body = eliminate(_Promoter(body, slots).run())  # a dead use of an address would count as its escape
    return with_body(function, body)


def _with_loads_in_branches(body: Block) -> Block:
    """Loads through a pointer that a branch chose move into the branch."""
    branches = (op for op in walk(body) if isinstance(op, If))
    if not any(isinstance(v.type, Pointer) for op in branches for v in op.results):
        return body
    from .sink import sink_loads

    return sink_loads(body)


class _Plan:
    """How one access (a type at an address) is served: by a cell, by memory, or part by part."""

    __slots__ = ("cell", "mask", "memory", "offset", "parts", "root", "type")

    def __init__(self, root: Root, offset: int, type: Type):
        self.root, self.offset, self.type = root, offset, type
        self.memory = any(r.offset <= offset and offset + type.size <= r.end for r in root.regions)
        self.cell = None if self.memory or not is_leaf(type) else root.cells[offset]
        self.parts: list[_Plan] = []
        if not self.memory and not is_leaf(type):
            self.parts = [_Plan(root, offset + at, part) for at, part in _parts(type)]
        self.mask = 0 if self.cell is None else 1 << self.cell.index
        for part in self.parts:
            self.mask |= part.mask


def is_leaf(type: Type) -> bool:
    return not isinstance(type, Array) and not (isinstance(type, Struct) and not type.is_union)


def _parts(type: Type) -> list[tuple[int, Type]]:
    if isinstance(type, Array):
        return [(k * type.element.size, type.element) for k in range(type.count)]
    assert isinstance(type, Struct)
    return [(part.offset, part.type) for part in type.fields]


class _Promoter:
    """One round. `env` holds each cell's current value; None where nothing was stored yet."""

    def __init__(self, body: Block, slots: Slots):
        self.body, self.slots = body, slots
        self.plans: dict[tuple[Value, int, Type], _Plan] = {}
        self.liveness = Liveness(body, self.effect)
        self.env: list[Value | None] = [None] * len(slots.cells)
        self.replaced: dict[Value, Value] = {}
        self.names = self.wanted_names()
        self.parts: dict[Value, tuple[Value, ...]] = {}  # of values built by Aggregate
        self.pointers: dict[tuple[Value, int, Type], Value] = {}  # materialised addresses
        self.after_alloca: dict[Value, list[Op]] = {}
        self.allocas: dict[tuple[Value, int], Value] = {}  # of regions
        self.order: dict[Value, int] = {}  # when each value was defined
        self.out: list[Op | list[Op]] = []
        self.span: Span = UNKNOWN

    def run(self) -> Block:
        return self.block(self.body, 0).finish()

    # ---- analysis

    def plan(self, ptr: Value, type: Type) -> _Plan | None:
        """None for an access to memory that is no alloca's, or one that stays whole."""
        address = self.slots.addresses.get(ptr)
        if address is None or self.slots.roots[address.root].whole:
            return None
        key = (address.root, address.offset, type)
        if key not in self.plans:
            self.plans[key] = _Plan(self.slots.roots[address.root], address.offset, type)
        return self.plans[key]

    def effect(self, op: Op) -> Effect:
        if isinstance(op, Load):
            plan = self.plan(op.ptr, op.result.type)
            return NOTHING if plan is None else Effect(reads=plan.mask)
        if isinstance(op, Store):
            plan = None if op.value in self.slots.undefined else self.plan(op.ptr, op.value.type)
            return NOTHING if plan is None else Effect(kills=plan.mask, writes=plan.mask)
        if isinstance(op, Alloca):
            mask = sum(1 << cell.index for cell in self.slots.roots[op.result].cells.values())
            return Effect(kills=mask, writes=mask)
        return NOTHING

    def wanted_names(self) -> dict[Value, str]:
        """Names for nameless values that are stored into a promoted variable; the first variable gives its name."""
        names: dict[Value, str] = {}
        made: dict[Value, tuple[Value, ...]] = {}
        constants: set[Value] = set()

        def name(plan: _Plan, value: Value) -> None:
            if plan.cell is not None and plan.cell.name and value.name is None and value not in constants:
                names.setdefault(value, plan.cell.name)
            for part, arg in zip(plan.parts, made.get(value, ()), strict=False):
                name(part, arg)

        for op in walk(self.body):
            if isinstance(op, Aggregate):
                made[op.result] = op.args
            elif isinstance(op, Constant | Undef):
                constants.update(op.results)
            elif isinstance(op, Store) and (plan := self.plan(op.ptr, op.value.type)):
                name(plan, op.value)
        return names

    # ---- blocks

    def block(self, block: Block, live: int, args: tuple[Value, ...] = ()) -> _Open:
        """Rewrites the operations; the caller adds results. `args` are extra block arguments."""
        outer, self.out = self.out, []
        opened = _Open(self, block.args + args, self.out)
        for arg in opened.args:
            self.define(arg)
        after = self.liveness.after_each(block, live)
        for op, live_after in zip(block.ops, after, strict=True):
            self.span = op.span
            self.visit(op, live_after)
        opened.results = [self.use(v) for v in block.results]
        self.out = outer
        return opened

    def visit(self, op: Op, live: int) -> None:
        match op:
            case Alloca():
                self.alloca(op)
            case Load(ptr) if plan := self.plan(ptr, op.result.type):
                self.replaced[op.result] = self.load(plan, op.result.type, op)
            case Store(ptr, value, False) if value in self.slots.undefined and ptr in self.slots.addresses:
                pass
            case Store(ptr, value) if plan := self.plan(ptr, value.type):
                self.store(plan, self.use(value), op)
            case Member() | Offset() | PtrCast() if self.remade(op.result):
                pass  # made again where it is used, if at all
            case Extract(aggregate, index) if self.use(aggregate) in self.parts:
                self.replaced[op.result] = self.parts[self.use(aggregate)][index]
            case If():
                self.if_(op, live)
            case For():
                self.for_(op, live)
            case While():
                self.while_(op, live)
            case _:
                self.copy(op)

    def copy(self, op: Op, **changes: Any) -> Op:
        results = tuple(self.named(v) for v in op.results) + changes.pop("more", ())
        if results != op.results:
            changes["results"] = results
        copied = rebuild(op, self.use, lambda b: b, **changes)
        self.emit(copied)
        if isinstance(copied, Aggregate):
            self.parts[copied.result] = copied.args
        return copied

    def named(self, value: Value) -> Value:
        if value not in self.names:
            return value
        self.replaced[value] = fresh = Value(value.type, self.names[value])
        return fresh

    def emit(self, op: Op) -> None:
        self.out.append(op)
        for value in op.results:
            self.define(value)

    def define(self, value: Value) -> None:
        self.order[value] = len(self.order)

    def make(self, op_class: Any, *fields: Any, type: Type, name: str | None = None) -> Value:
        value = Value(type, name)
        self.emit(op_class(*fields, results=(value,), span=self.span))
        return value

    def use(self, value: Value) -> Value:
        address = self.remade(value)
        if address is not None:
            return self.pointer(address, value.type)
        return self.replaced.get(value, value)

    def remade(self, value: Value) -> Address | None:
        """The address, if it is one to make anew. The end of an array must not come back as what lies behind it."""
        address = self.slots.addresses.get(value)
        if address is None or (address.stepped and self.slots.roots[address.root].whole):
            return None
        return address

    # ---- cells

    def alloca(self, op: Alloca) -> None:
        root = self.slots.roots[op.result]
        for cell in root.cells.values():
            self.env[cell.index] = None
        for region in root.regions:
            whole = region.type is root.type
            value = op.result if whole else Value(Pointer(region.type, "local"), region.name)
            self.allocas[op.result, region.offset] = value
            self.emit(replace(op, results=(value,)))
        later: list[Op] = []
        self.after_alloca[op.result] = later
        self.out.append(later)
        self.order.setdefault(op.result, len(self.order))

    def load(self, plan: _Plan, type: Type, op: Load) -> Value:
        if plan.memory:
            return self.make(Load, self.pointer_at(plan), op.volatile, type=type, name=op.result.name)
        if plan.cell is not None:
            value = self.current(plan.cell)
            return self.converted(value, type)
        args = tuple(self.load(part, part.type, op) for part in plan.parts)
        value = self.make(Aggregate, args, type=type, name=op.result.name)
        self.parts[value] = args
        return value

    def store(self, plan: _Plan, value: Value, op: Store) -> None:
        if plan.memory:
            self.emit(replace(op, ptr=self.pointer_at(plan), value=value))
        elif plan.cell is not None:
            self.env[plan.cell.index] = self.converted(value, plan.cell.type, plan.cell.name)
        for k, part in enumerate(plan.parts):
            self.store(part, self.extract(value, k, part), op)

    def extract(self, aggregate: Value, index: int, plan: _Plan) -> Value:
        if aggregate in self.parts:
            return self.parts[aggregate][index]
        name = None if plan.cell is None else plan.cell.name
        assert isinstance(aggregate.type, Struct | Array)
        return self.make(Extract, aggregate, index, type=element_types(aggregate.type)[index], name=name)

    def current(self, cell: Cell) -> Value:
        value = self.env[cell.index]
        return value if value is not None else self.make(Undef, type=cell.type, name=cell.name)

    def converted(self, value: Value, type: Type, name: str | None = None) -> Value:
        """The same bits as another type: reinterpretation through memory."""
        if value.type == type:
            return value
        if isinstance(type, Pointer):
            return self.make(PtrCast, value, type=type, name=name)
        return self.make(Apply, "bitcast", (value,), type=type, name=name)

    # ---- addresses of what stays memory: made once, right after the alloca, so that they are the same everywhere

    def pointer_at(self, plan: _Plan) -> Value:
        return self.pointer(Address(plan.root.value, plan.offset), Pointer(plan.type, "local"))

    def pointer(self, address: Address, type: Type) -> Value:
        assert isinstance(type, Pointer)
        key = (address.root, address.offset, type)
        if key not in self.pointers:
            outer, self.out = self.out, self.after_alloca[address.root]  # type: ignore[assignment]
            self.pointers[key] = value = self.walk_to(address, type)
            self.out = outer
            self.order[value] = self.order[address.root]
        return self.pointers[key]

    def walk_to(self, address: Address, type: Pointer) -> Value:
        root = self.slots.roots[address.root]
        inside = [r for r in root.regions if r.offset <= address.offset < r.end]
        (region, *_) = inside or [r for r in root.regions if r.end == address.offset]
        ptr = self.allocas[address.root, region.offset]
        found = self.descend(ptr, address.offset - region.offset, type.pointee)
        return found if found.type == type else self.make(PtrCast, found, type=type)

    def descend(self, ptr: Value, offset: int, want: Type) -> Value:
        """The address `offset` bytes into what `ptr` points to, by members and elements as far as they lead."""
        assert isinstance(ptr.type, Pointer)
        here, space = ptr.type.pointee, ptr.type.space
        if offset == 0 and here == want:
            return ptr
        if isinstance(here, Array) and here.element.size:
            k, rest = divmod(offset, here.element.size)
            if rest + want.size <= here.element.size or (rest == 0 and here.element != want):
                first = self.make(PtrCast, ptr, type=Pointer(here.element, space))
                return self.descend(self.element(first, k), rest, want)
        if isinstance(here, Struct):
            for index, part in enumerate(here.fields):
                if part.offset <= offset and offset + want.size <= part.offset + part.type.size:
                    inner = self.make(Member, ptr, index, type=Pointer(part.type, space))
                    return self.descend(inner, offset - part.offset, want)
        if offset == 0:
            return self.make(PtrCast, ptr, type=Pointer(want, space))
        byte = self.make(PtrCast, ptr, type=Pointer(U8, space))
        return self.make(PtrCast, self.element(byte, offset), type=Pointer(want, space))

    def element(self, ptr: Value, index: int) -> Value:
        if index == 0:
            return ptr
        return self.make(Offset, ptr, self.make(Constant, index, type=I64), type=ptr.type)

    # ---- control

    def if_(self, op: If, live: int) -> None:
        effects = [self.liveness.of[b] for b in (op.then, op.orelse)]
        written = effects[0].writes | effects[1].writes
        read_later = written & live
        entry = {k: self.env[k] for k in bits(read_later | written & effects[1].reads)}
        start = len(self.order)
        sides: list[tuple[_Open, dict[int, Value | None]]] = []
        for block in (op.then, op.orelse):
            opened = self.block(block, live)
            sides.append((opened, {k: self.env[k] for k in bits(read_later)}))
            self.restore(entry)
        more: list[Value] = []
        for k in bits(read_later):
            merged = self.merge(k, sides, start)
            if merged is not None:
                more.append(merged)
        self.span = op.span
        then, orelse = (opened.finish() for opened, _ in sides)
        self.copy(op, then=then, orelse=orelse, more=tuple(more))

    def merge(self, k: int, sides: list[tuple[_Open, dict[int, Value | None]]], start: int) -> Value | None:
        """A result for cell `k`, unless one value serves after both sides."""
        values = [after[k] for _, after in sides]
        set_ones = {v for v in values if v is not None}
        if len(set_ones) <= 1:
            only = next(iter(set_ones), None)
            if only is None or self.order.get(only, -1) < start:
                self.env[k] = only
                return None
        cell = self.slots.cells[k]
        for (opened, _), value in zip(sides, values, strict=True):
            opened.give(value, cell)
        self.env[k] = merged = Value(cell.type, cell.name)
        return merged

    def restore(self, entry: dict[int, Value | None]) -> None:
        for k, value in entry.items():
            self.env[k] = value

    def enter(self, cells: list[int]) -> tuple[Value, ...]:
        """Fresh block arguments as the cells' current values."""
        args = tuple(Value(self.slots.cells[k].type, self.slots.cells[k].name) for k in cells)
        self.restore(dict(zip(cells, args, strict=True)))
        return args

    def leave(self, opened: _Open, cells: list[int]) -> Block:
        for k in cells:
            opened.give(self.env[k], self.slots.cells[k])
        return opened.finish()

    def initial(self, cells: list[int]) -> tuple[Value, ...]:
        return tuple(self.current(self.slots.cells[k]) for k in cells)

    def for_(self, op: For, live: int) -> None:
        head = self.liveness.loop_head(op, live)
        carried = list(bits(head & self.liveness.of[op.body].writes))
        inits = tuple(map(self.use, op.inits)) + self.initial(carried)
        body = self.leave(self.block(op.body, head, self.enter(carried)), carried)
        self.span = op.span
        self.copy(op, inits=inits, body=body, more=self.enter(carried))

    def while_(self, op: While, live: int) -> None:
        head, between = self.liveness.loop_head(op, live), self.liveness.after_condition(op, live)
        written = self.liveness.of[op.before].writes | self.liveness.of[op.body].writes
        carried, forwarded = list(bits(head & written)), list(bits(between & written))
        inits = tuple(map(self.use, op.inits)) + self.initial(carried)
        before = self.leave(self.block(op.before, between, self.enter(carried)), forwarded)
        body = self.leave(self.block(op.body, head, self.enter(forwarded)), carried)
        self.span = op.span
        self.copy(op, inits=inits, before=before, body=body, more=self.enter(forwarded))


class _Open:
    """A rewritten block whose results are still being collected."""

    def __init__(self, promoter: _Promoter, args: tuple[Value, ...], ops: list[Op | list[Op]]):
        self.promoter, self.args, self.ops = promoter, args, ops
        self.results: list[Value] = []

    def give(self, value: Value | None, cell: Cell) -> None:
        if value is None:
            value = Value(cell.type, cell.name)
            self.ops.append(Undef(results=(value,), span=self.promoter.span))
        self.results.append(value)

    def finish(self) -> Block:
        return Block(self.args, tuple(_flat(self.ops)), tuple(self.results))


def _flat(ops: list[Op | list[Op]]) -> list[Op]:
    flat: list[Op] = []
    for op in ops:
        if isinstance(op, list):
            flat.extend(op)
        else:
            flat.append(op)
    return flat
