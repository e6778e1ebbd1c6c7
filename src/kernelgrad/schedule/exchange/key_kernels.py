"""The kernel of the keys of an exchange (see `row_exchange`): a thread has a key, and sums up what rows add to it.

A block goes through a chunk of the rows, some at a time: each of its first threads finds what is wanted of one of them
and puts it into shared memory, where all threads read it. Then each adds atomically what it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...analysis.block_interpreter.lanes import Update, added, copy_block
from ...analysis.machine import VECTORS
from ...autodiff.calculus.shadows import ZERO
from ...ir.builder import Builder
from ...ir.ops import Apply, Atomic, Barrier, BarrierReduce, Block, Builtin, Function, Global, If, Load, Op, Value
from ...ir.traverse import blocks, operands, rebuild, settle, walk
from ...ir.types import F32, F64, I32, I64, U32, Array, Pointer, Scalar
from .row_exchange import Dependence, Part, is_linear
from .row_kernels import IN_GRID, Indices, Left, Told, as_was, first_of, got, kept_as, keys_of, linear, put

BLOCK = 128  # threads
_SHARED = 24 << 10  # bytes of a block, for what is wanted of rows
_MOST_ROWS = 64  # at a time
_MOST = 2**31 - 1


class Copies:
    """Values of the function for another thread. `at`: its indices."""

    def __init__(self, b: Builder, known: Dependence, at: Indices, values: dict[Value, Value] | None = None):
        self.b, self.known, self.at, self.values = b, known, at, dict(values or {})

    def value(self, value: Value) -> Value:
        settle(value, self.values, self._needs, self._make)
        return self.values[value]

    def _needs(self, value: Value) -> tuple[Value, ...]:
        op = self.known.definition.get(value)
        return () if op is None or value in self.known.params else operands(op)

    def _make(self, value: Value) -> None:
        op = self.known.definition.get(value)
        if value in self.known.params:
            self.values[value] = value
        elif isinstance(op, Builtin):
            self.values[value] = self._index(op)
        else:
            assert op is not None
            self.values[value] = self.copy(op).result

    def _index(self, op: Builtin) -> Value:
        if op.name == "warp_size":
            return self.b.builtin("warp_size", op.axis, op.result.type)
        return self.b.convert(self.at[op.name, op.axis], op.result.type)

    def copy(self, op: Op) -> Op:
        results = tuple(Value(v.type, v.name) for v in op.results)
        return self.b.add(rebuild(op, self.values.__getitem__, lambda block: block, results=results))


class KeysKernel:
    """Emits the kernel of one part. `variables`: names that are taken."""

    def __init__(
        self, function: Function, part: Part, known: Dependence, left: Left, adjoints: set[Value], taken: Iterable[str]
    ):
        self.function, self.part, self.known, self.left, self.adjoints = function, part, known, left, adjoints
        self.b, self.told, self.taken = Builder(part.loop.span), Told(), {*taken}
        self.number = left.loops[part.loop]
        self.variables: dict[str, Global] = {}
        self.definition = known.definition
        self._numbers: dict[str, Value] = {}
        self.top = Builder(part.loop.span)

    def told32(self, name: str) -> Value:
        if name not in self._numbers:
            self._numbers[name] = self.top.convert(self.told.wide(name), I32)
        return self._numbers[name]

    def run(self, name: str) -> Function:
        b = self.b
        self.thread = b.convert(b.builtin("thread_idx"), I32)
        self.key = b.apply(
            "add", b.apply("mul", b.convert(b.builtin("block_idx"), I32), self.const(BLOCK)), self.thread
        )
        self.at = self.launch_indices()
        chunk = self.told32("_chunk")
        self.first = b.apply("mul", b.convert(b.builtin("block_idx", 1), I32), chunk)
        self.last = b.apply("min", b.apply("add", self.first, chunk), self.told32("_rows"))
        self.counter = self.counter_of()
        here = self.is_here()
        early = self.early(here)
        sums, self.groups = self.sums(), self.grouped()
        self.over_rows(early, sums)
        self.add_up(here, early, sums)
        used = {v for op in (*self.top.ops, *b.ops) for v in _used(op)}
        own = (p for p in self.function.params if p.variable is None or p.value in used)
        scratch = (p for p in self.left.params.values() if p.value in used)
        body = Block((), (*self.top.ops, *b.ops), ())
        params = (*own, *scratch, *self.told.params)
        return replace(self.function, name=name, params=params, body=body, launch_bounds=(BLOCK,))

    # ---- numbers

    def const(self, value: int) -> Value:
        return self.b.constant(value, I32)

    def launch_indices(self) -> Indices:
        """Of the kernel's launch, as far as they are the same for all rows of this block."""
        b, rest = self.b, self.b.convert(self.b.builtin("block_idx", 2), I32)
        at = {(f"{of}_dim", a): self.told32(f"_{of}_{a}") for of in ("block", "grid") for a in range(3)}
        for axis in self.part.axes:
            is_last = axis == self.part.axes[-1]
            at["block_idx", axis] = rest if is_last else b.apply("rem", rest, at["grid_dim", axis])
            rest = rest if is_last else b.apply("div", rest, at["grid_dim", axis])
        return at

    def row_indices(self, row: Value) -> Indices:
        """Of the thread that a row is."""
        b, at = self.b, dict(self.at)
        size = self.told32("_threads_of_block")
        thread, block = b.apply("rem", row, size), b.apply("div", row, size)
        for axis in range(3):
            extent = at["block_dim", axis]
            at["thread_idx", axis] = thread if axis == 2 else b.apply("rem", thread, extent)
            thread = thread if axis == 2 else b.apply("div", thread, extent)
        summed = [axis for axis in range(3) if axis not in self.part.axes]
        for axis in summed:
            at["block_idx", axis] = block if axis == summed[-1] else b.apply("rem", block, at["grid_dim", axis])
            block = block if axis == summed[-1] else b.apply("div", block, at["grid_dim", axis])
        return at

    def thread_of(self, at: Indices, row: Value) -> Value:
        """Its number among all threads of the kernel's launch, 64 bits wide."""
        b, size = self.b, self.told32("_threads_of_block")
        if not self.part.axes:
            return b.convert(row, I64)
        block = linear(b, at, IN_GRID)
        thread = b.apply("rem", row, size)
        wide = b.apply("mul", b.convert(block, I64), b.convert(size, I64))
        return b.apply("add", wide, b.convert(thread, I64))

    def counter_of(self) -> Value:
        b, loop = self.b, self.part.loop
        moved = b.convert(self.key, I64)
        if abs(loop.step) != 1:
            moved = b.apply("mul", moved, b.constant(loop.step, I64))
        at = b.apply("add", self.told.wide(first_of(self.number)), moved)
        return b.convert(at, loop.body.args[0].type, loop.body.args[0].name)

    # ---- before the rows

    def keys_of_row(self, at: Indices, row: Value) -> tuple[Value, Value]:
        """The first key of a row, and how many it has."""
        b, thread, name = self.b, self.thread_of(at, row), keys_of(self.number)
        threads = self.told.wide("_threads")
        begin, count = (b.load(self.left.place(b, name, slot, threads, thread)) for slot in range(2))
        return begin, count

    def is_here(self) -> Value:
        """Whether a row of the chunk may have the key: between the least and the largest that one has."""
        b = self.b
        least, most = (b.alloca(I32, name) for name in ("~least", "~most"))
        b.store(least, self.const(_MOST))
        b.store(most, self.const(0))
        row = Value(I32, "~row")
        with b.region() as body:
            begin, count = self.keys_of_row(self.row_indices(row), row)
            with b.region() as some:
                b.store(least, b.apply("min", b.load(least), begin))
                b.store(most, b.apply("max", b.load(most), b.apply("add", begin, count)))
            b.if_(b.apply("gt", count, self.const(0)), some.block())
        b.for_(b.apply("add", self.first, self.thread), self.last, (), BLOCK, body.block((row,)))
        lowest = self.least_of_block(b.load(least))
        highest = b.apply(
            "sub", self.const(_MOST), self.least_of_block(b.apply("sub", self.const(_MOST), b.load(most)))
        )
        above = b.apply("ge", self.key, lowest)
        return b.apply("and", above, b.apply("lt", self.key, highest), name="~here")

    def least_of_block(self, value: Value) -> Value:
        """Of numbers that are not negative: the reduction is one of numbers without a sign."""
        found = self.b.emit(BarrierReduce, "min", self.b.convert(value, U32), BLOCK, type=U32)
        return self.b.convert(found, I32)

    def early(self, here: Value) -> dict[Value, Value]:
        """What depends on the key alone, and what is the same for all: loads, and what is made of them, only if a row
        has the key."""
        part, b = self.part, self.b
        given = Copies(b, self.known, self.at, {part.loop.body.args[0]: self.counter})
        wanted = [*part.launched, *(v for op in part.early for v in op.results)]
        behind = [v for v in wanted if self.loads(v)]
        for value in wanted:
            if value not in behind:
                given.value(value)
        kept = self.numbers_in(behind)
        if kept:
            with b.region() as some:
                inside = Copies(b, self.known, self.at, given.values)
                found = tuple(inside.value(v) for v in kept)
            with b.region() as none:
                zeros = tuple(b.constant(0.0 if v.type.is_float else 0, v.type) for v in kept)  # type: ignore[union-attr]
            given.values.update(zip(kept, b.if_(here, some.block((), found), none.block((), zeros)), strict=True))
        for value in behind:
            if isinstance(value.type, Pointer):
                given.value(value)
        return given.values

    def numbers_in(self, values: Iterable[Value]) -> list[Value]:
        """Those among them, and those that addresses among them are made of."""
        found, todo = dict[Value, None](), list(reversed(list(values)))
        while todo:
            value = todo.pop()
            if isinstance(value.type, Scalar) and self.loads(value):
                found.setdefault(value)
            elif isinstance(value.type, Pointer) and value in self.definition:
                todo += reversed(operands(self.definition[value]))
        return list(found)

    def loads(self, value: Value) -> bool:
        """Whether memory is read for it."""
        todo, seen = [value], set[Value]()
        while todo:
            op = self.definition.get(todo.pop())
            if op is None or op.results[0] in seen or op.results[0] in self.known.params:
                continue
            seen.update(op.results)
            if isinstance(op, Load):
                return True
            todo += operands(op)
        return False

    def sums(self) -> dict[int, Value]:
        b, found = self.b, {}
        for update in self.part.updates:
            type = self.summed(update).type
            (root,) = self.known.memory.of(update.ptr)
            found[id(update.atomic)] = total = b.alloca(type, f"{root.name}_sum")
            b.store(total, b.constant(ZERO, type))
        return found

    def summed(self, update: Update) -> Value:
        """What is summed up: a chunk of rows is short enough for floats. What a row leaves is there as it is alone."""
        if update.value in self.part.wanted:
            return update.value
        op = self.definition.get(update.value)
        is_wider = isinstance(op, Apply) and op.fn == "convert" and op.args[0].type == F32
        return op.args[0] if is_wider and update.value.type == F64 else update.value  # type: ignore[union-attr]

    # ---- the rows

    def over_rows(self, early: dict[Value, Value], sums: dict[int, Value]) -> None:
        b, shared = self.b, _Shared(self)
        first = Value(I32, "~first")
        with b.region() as body:
            b.effect(Barrier, "block")
            with b.region() as stage:
                self.stage(b.apply("add", first, self.thread), shared)
            b.if_(b.apply("lt", self.thread, self.const(shared.rows)), stage.block())
            b.effect(Barrier, "block")
            self.over_tile(shared, early, sums)
        b.for_(self.first, self.last, (), shared.rows, body.block((first,)), unroll=1)

    def stage(self, row: Value, shared: _Shared) -> None:
        """What is wanted of a row, by the thread that finds it."""
        b = self.b
        first, count = (b.alloca(I32, name) for name in ("~begin", "~count"))
        for variable in (first, count):
            b.store(variable, self.const(0))
        with b.region() as exists:
            at = self.row_indices(row)
            for variable, number in zip((first, count), self.keys_of_row(at, row), strict=True):
                b.store(variable, number)
            with b.region() as has_some:
                self.find(at, row, shared)
            b.if_(b.apply("gt", b.load(count), self.const(0)), has_some.block())
        b.if_(b.apply("lt", row, self.last), exists.block())
        b.store(shared.begin(self.thread), b.load(first))
        b.store(shared.count(self.thread), b.load(count))

    def find(self, at: Indices, row: Value, shared: _Shared) -> None:
        b, threads, thread = self.b, self.told.wide("_threads"), self.thread_of(at, row)
        values = {v: got(b, self.left.place(b, *self.left.slots[v], threads, thread), v) for v in self.left_of_part()}
        copies = Copies(b, self.known, at, values)
        for value in self.part.wanted:
            put(b, shared.place(value, self.thread), copies.value(value))

    def left_of_part(self) -> list[Value]:
        """Of what rows leave before the loop, what this part is made of."""
        left, found, todo, seen = set(self.left.of[self.part.loop]), list[Value](), list(self.part.wanted), set[Value]()
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in left:
                found.append(value)
            elif value in self.definition:
                todo += operands(self.definition[value])
        return found

    def over_tile(self, shared: _Shared, early: dict[Value, Value], sums: dict[int, Value]) -> None:
        b, row = self.b, Value(I32, "~row")
        with b.region() as body:
            begin, count = b.load(shared.begin(row)), b.load(shared.count(row))
            at = b.convert(b.apply("sub", self.key, begin), U32)
            with b.region() as work:
                self.work(row, shared, early, sums)
            b.if_(b.apply("lt", at, b.convert(count, U32)), work.block())
        b.for_(self.const(0), self.const(shared.rows), (), 1, body.block((row,)))

    def work(self, row: Value, shared: _Shared, early: dict[Value, Value], sums: dict[int, Value]) -> None:
        """Of one iteration of a row."""
        b, part = self.b, self.part
        given = {**early, **shared.of_row(row)}
        again = Copies(b, self.known, self.at, given)
        for op in part.again:
            again.value(op.results[0])
        given, mapping = again.values, dict(again.values)
        before = {id(op) for op in (*part.early, *part.own)}
        guards = {id(u.guarded): u for u in part.updates if u.guarded is not None}
        updates = {id(u.atomic): u for u in part.updates}

        def change(op: Op, copy: Op) -> list[Op]:
            update = guards.get(id(op)) or updates.get(id(op))
            if update is not None:
                value = self.summed(update)
                return [*added(sums[id(update.atomic)], mapping.get(value, value), op), *self.reached(update)]
            if id(op) in before and (op in part.own or op.results[0] in given):
                mapping.update((v, given[v]) for v in op.results if v in given)
                return []
            if op not in part.needs.ops or isinstance(op, Atomic):
                return []
            return [_bare(copy)] if isinstance(copy, If) and op in part.needs.bare else [copy]

        b.ops += copy_block(part.loop.body, mapping, change).ops

    def add_up(self, here: Value, early: dict[Value, Value], sums: dict[int, Value]) -> None:
        b = self.b
        with b.region() as some:
            copies = Copies(b, self.known, self.at, early)
            pointers = {id(u.atomic): copies.value(u.ptr) for u in self.part.updates}
            for flag, updates in self.groups:
                with b.region() as there:
                    for update in updates:
                        self.add(update, pointers[id(update.atomic)], sums[id(update.atomic)])
                if flag is None:
                    b.ops += there.ops
                else:
                    b.if_(b.apply("ne", b.load(flag), self.const(0)), there.block())
        b.if_(here, some.block())

    def add(self, update: Update, ptr: Value, sum_: Value) -> None:
        b, atomic = self.b, update.atomic
        total = b.convert(b.load(sum_), update.value.type)
        b.add(Atomic("add", ptr, (total,), atomic.scope, True, results=(Value(total.type),), span=atomic.span))

    def grouped(self) -> list[tuple[Value | None, list[Update]]]:
        """The updates that rows make together, and a flag that says whether one of them did with this key: if none did,
        the place may lie outside of the buffer. None where all rows do that have keys around it."""
        found: dict[Block, list[Update]] = {}
        for update in self.part.updates:
            place = update.guarded if update.guarded is not None else update.atomic
            around = next(block for block in _all_blocks(self.part.loop.body) if place in block.ops)
            found.setdefault(around, []).append(update)
        groups: list[tuple[Value | None, list[Update]]] = []
        for block, updates in found.items():
            surely = self.part.fixed or all(is_linear(u.ptr, self.known) for u in updates)
            flag = None if surely and block is self.part.loop.body else self.b.alloca(I32, "~reached")
            if flag is not None:
                self.b.store(flag, self.const(0))
            groups.append((flag, updates))
        return groups

    def reached(self, update: Update) -> list[Op]:
        """Where the first of a group is made."""
        b, flags = Builder(update.atomic.span), {id(updates[0]): flag for flag, updates in self.groups}
        flag = flags.get(id(update))
        if flag is not None:
            b.store(flag, b.constant(1, I32))
        return b.ops


def _all_blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for inner in blocks(op):
            yield from _all_blocks(inner)


class _Shared:
    """What is wanted of some rows, in shared memory: of one row after the other, in as much as a thread can load at
    once."""

    def __init__(self, kernel: KeysKernel):
        self.kernel, self.b = kernel, kernel.b
        self.groups: dict[str, list[Value]] = {}
        self.types: dict[str, tuple[Scalar, int]] = {}  # and how many numbers a row has
        found: dict[tuple[Scalar, bool], list[Value]] = {}
        for value in kernel.part.wanted:
            found.setdefault((kept_as(value), value in kernel.adjoints), []).append(value)
        for (type, is_adjoint), values in found.items():
            name = self.fresh(f"_of_rows_{'d_' if is_adjoint else ''}{type.name}")
            self.groups[name] = values
            self.types[name] = type, -(-len(values) // _together(type)) * _together(type)
        self.slots = {v: (name, k) for name, values in self.groups.items() for k, v in enumerate(values)}
        self.keys = self.fresh("_keys_of_rows")
        self.types[self.keys] = I32, 2
        nbytes = sum(type.size * width for type, width in self.types.values())
        self.rows = max(8, min(_MOST_ROWS, 2 ** int(math.log2(max(1, _SHARED // nbytes)))))
        for name, (type, width) in self.types.items():
            vector = type if name == self.keys else VECTORS.get(type, type)
            array = Array(vector, width * self.rows * type.size // vector.size)
            kernel.variables[name] = Global(name, array, "shared")

    def fresh(self, name: str) -> str:
        while name in self.kernel.taken:
            name += "_"
        self.kernel.taken.add(name)
        return name

    def first(self, name: str) -> Value:
        return self.b.decay(self.b.global_ref(name, self.kernel.variables[name].type, "shared"))

    def at(self, name: str, row: Value, slot: int) -> Value:
        """Of a number."""
        b, (type, width) = self.b, self.types[name]
        index = b.apply("mul", row, b.constant(width, I32))
        index = b.apply("add", index, b.constant(slot, I32)) if slot else index
        return b.offset(b.cast_pointer(self.first(name), Pointer(type, "shared")), index)

    def place(self, value: Value, row: Value) -> Value:
        name, slot = self.slots[value]
        return self.at(name, row, slot)

    def begin(self, row: Value) -> Value:
        return self.at(self.keys, row, 0)

    def count(self, row: Value) -> Value:
        return self.at(self.keys, row, 1)

    def of_row(self, row: Value) -> dict[Value, Value]:
        """All that is there of a row."""
        found: dict[Value, Value] = {}
        for name, values in self.groups.items():
            each = _together(self.types[name][0])
            whole = len(values) // each * each
            numbers = [n for k in range(whole // each) for n in self.several(name, row, k)]
            numbers += [self.b.load(self.at(name, row, k)) for k in range(whole, len(values))]
            found.update((v, as_was(self.b, n, v)) for v, n in zip(values, numbers, strict=True))
        return found

    def several(self, name: str, row: Value, k: int) -> list[Value]:
        b, (type, width) = self.b, self.types[name]
        each = _together(type)
        index = b.apply("mul", row, b.constant(width // each, I32))
        loaded = b.load(b.offset(self.first(name), b.apply("add", index, b.constant(k, I32))))
        return [b.extract(loaded, n) for n in range(each)] if each > 1 else [loaded]


def _together(type: Scalar) -> int:
    """Numbers that a thread loads at once."""
    return VECTORS[type].size // type.size if type in VECTORS else 1


def _bare(op: If) -> If:
    then, orelse = (Block((), side.ops, ()) for side in (op.then, op.orelse))
    return replace(op, then=then, orelse=orelse, results=())


def _used(op: Op) -> Iterable[Value]:
    yield from operands(op)
    for block in blocks(op):
        for inner in walk(block):
            yield from operands(inner)
        yield from block.results
