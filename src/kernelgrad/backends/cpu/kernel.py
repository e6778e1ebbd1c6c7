"""A kernel as two LLVM functions: one runs a block, the entry runs a range of the grid's blocks.

Pointers arrive in the block function as arguments, so that `noalias` can say which do not overlap: `__restrict__`
parameters, each shared variable, each slot (Note [Phases] in `plan`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

from llvmlite import ir

from ...deep import deeply
from ...errors import LookupFailed
from ...ir.builder import pointee
from ...ir.layout import param_layout
from ...ir.ops import Apply, For, Function, GlobalRef, If, Module, Op, Value, While
from ...ir.traverse import blocks, kinds, walk
from ...ir.types import F32, Array, Pointer, Scalar
from . import block_sums, totals, worker_sums
from . import llvm_types as lt
from .blocks import BlockCode
from .frame import Failing, Failure, Frame, WorkerMemory, failing_ops
from .indexing import IndexArithmetic, Variant
from .interleaved import ordered_accesses
from .llvm_types import I32, I64, PTR, byte_offset, i32, i64
from .loops import Row, row_indices, runs_by_row
from .memory import load
from .native import ENTRY
from .plan import Plan, make_plan
from .sections import Invariants, find_bounds
from .workarounds import address_parts

if TYPE_CHECKING:
    from .narrow import Narrow
    from .watch import Watch

_SHARED_ALIGN = 16
_MOST_SUMMED = 1 << 15  # threads of a row that one register adds up: a vector of them
_MOST_BRANCHED = 1 << 10  # the same, where either side of a branch adds: a single number

# The launch, as the entry gets it: u32 grid[3], u32 block[3], u64 bytes of shared memory (static and dynamic, rounded
# up to 64), u64 the length of every slot (the block's threads, rounded up to 64), the address of the watch's context,
# then for each parameter with own sums, in the parameters' order, two u64 (Note [Worker sums]).
LAUNCH_FORMAT = "<6I3Q"
_GRID, _BLOCK, _SHARED, _SLOT_LENGTH, _WATCH, _OWN_SUMS = 0, 12, 24, 32, 40, 48


@dataclass(frozen=True)
class _Outside:
    """The key of what a parameter with own sums stands for, or of the end of the worker's memory for it."""

    param: int
    end: bool = False


_DYNAMIC = object()  # the key of the dynamic shared memory, which variables of any name share


@dataclass(frozen=True)
class KernelCode:
    """LLVM text, and what launching it takes. A worker's scratch memory is the block's shared memory (`static_shared`
    bytes, then the dynamic ones), then `slot_bytes` for each thread. `failing`: for each nonzero status, from 1, why
    the kernel stopped and the operation that did it, by its place in `failing_ops`."""

    text: str
    static_shared: int
    slot_bytes: int
    failing: tuple[tuple[Failure, int], ...]
    prints: bool
    dynamic: bool = False  # whether it uses dynamic shared memory
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Region:
    """Memory that watched code may access. Where it lies: `offset` bytes into the scratch memory for a shared
    variable, so many bytes per thread into the slots for a local array, at the buffer of that name otherwise."""

    kind: Literal["buffer", "shared", "dynamic", "local"]
    name: str
    offset: int = 0
    size: int = 0
    stride: int = 0


@deeply
def lower(module: Module, kernel: str, variant: Variant | None = None) -> KernelCode:
    """The kernel (calls inlined, module variables turned into parameters) as LLVM IR."""
    if kernel not in module.functions:
        raise LookupFailed(f"no kernel '{kernel}' in the module")
    return _Kernel(module, module.functions[kernel], variant or Variant()).code()


def _in_step(function: Function) -> tuple[Function, frozenset[Op]]:
    """With the loops that share out work among threads rewritten, and those loops."""
    if kinds(function.body).isdisjoint((For, While)):
        return function, frozenset()
    from . import strides

    return strides.run(function)


def _conditional_divisions(function: Function) -> frozenset[Apply]:
    if kinds(function.body).isdisjoint(("div", "rem")):
        return frozenset()
    from .divisions import conditional_divisions

    return conditional_divisions(function)


class _Kernel:
    def __init__(self, module: Module, function: Function, variant: Variant):
        red_zone, self.roots, self.regions = 0, dict[Value, str](), tuple[Region, ...]()
        in_step: frozenset[Op] = frozenset()
        if variant.watched:
            from .watch import RED_ZONE, root_names

            red_zone, self.roots = RED_ZONE, root_names(function)
        else:
            function, in_step = _in_step(block_sums.run(totals.expanded(function)))
        self.function, self.variant = function, variant
        self.plan: Plan = make_plan(function, in_step, red_zone)
        self.shared, self.dynamic, self.static_shared = shared_layout(module, function, red_zone)
        if variant.watched:
            self.regions = self.all_regions(module)
        self.failing: list[Failing] = []
        self.llvm = ir.Module(name="kernel")
        self.by_row = not (self.plan.phased or variant.watched) and runs_by_row(function)
        self.summed = {} if variant.watched else totals.find(function, self.by_row)
        self.pointers = [k for k, p in enumerate(function.params) if isinstance(p.type, Pointer)]

    def code(self) -> KernelCode:
        block = self.block_function()
        self.entry_function(block)
        prints = "printf" in self.llvm.globals
        places = failing_ops(self.function.body)
        failing = tuple((f.kind, places.index(f.op)) for f in self.failing)
        slot_bytes = sum(self.plan.slots.values())
        dynamic = bool(self.dynamic)
        return KernelCode(str(self.llvm), self.static_shared, slot_bytes, failing, prints, dynamic, self.regions)

    def all_regions(self, module: Module) -> tuple[Region, ...]:
        allocas = {v: self.roots[v] for v in self.plan.allocas}
        local_names, shared_names = set(allocas.values()), {*self.shared, *self.dynamic}
        buffers = [n for n in dict.fromkeys(self.roots.values()) if n not in local_names | shared_names]
        found = [Region("buffer", name) for name in buffers]
        found += [Region("shared", name, at, module.globals[name].type.size) for name, at in self.shared.items()]
        found += [Region("dynamic", name, self.static_shared) for name in self.dynamic]
        start = 0
        for slot, stride in self.plan.slots.items():
            if isinstance(slot, Value) and isinstance(slot.type, Pointer) and slot in allocas:
                found.append(Region("local", allocas[slot], start, slot.type.pointee.size, stride))
            start += stride
        return tuple(found)

    # ---- one block

    def block_function(self) -> ir.Function:
        """(params, status, watch context, linear block, block_idx[3], the end of a row's blocks, grid_dim[3],
        block_dim[3], pointers, shared variables, dynamic shared memory, slots, and for checked own sums what they stand
        for and where they end)"""
        checked = [key for k in self.checked for key in (_Outside(k), _Outside(k, end=True))]
        pointer_args: list[object] = [*self.pointers, *self.shared, _DYNAMIC, *self.plan.slots, *checked]
        types = [PTR, PTR, PTR, I64, *[I32] * 10, *[PTR] * len(pointer_args)]
        function = ir.Function(self.llvm, ir.FunctionType(lt.VOID, types), "kg.block")
        function.linkage = "internal"
        function.attributes.add("noinline")  # inlined, the noalias of its arguments would be lost
        function.attributes.add("nounwind")
        params, status, context, linear, x, y, z, row_end, *dims = function.args[:14]
        params.add_attribute("noalias")
        by_key: dict[object, ir.Argument] = dict(zip(pointer_args, function.args[14:], strict=True))
        self.mark_noalias(by_key)
        first, body = function.append_basic_block("entry"), function.append_basic_block("body")
        b = ir.IRBuilder(body)
        block_dim = list(map(i32, self.variant.block)) if self.variant.block else dims[3:]
        extents = [b.zext(d, I64) for d in block_dim]
        frame = Frame(
            b=b,
            function=function,
            allocas=first,
            block_idx=(x, y, z),
            grid_dim=(dims[0], dims[1], dims[2]),
            block_dim=(block_dim[0], block_dim[1], block_dim[2]),
            threads=b.mul(b.mul(extents[0], extents[1]), extents[2]),
            linear_block=linear,
            status=status,
            shared={name: by_key[name] for name in self.shared} | dict.fromkeys(self.dynamic, by_key[_DYNAMIC]),
            failing=self.failing,
            nowrap=self.bounded(),
            address_parts=address_parts(self.function),
            ordered=ordered_accesses(self.function),
            conditional_divisions=_conditional_divisions(self.function),
            watch=self.watch(context) if self.variant.watched else None,
            row=self.row(x, row_end) if self.by_row else None,
            alone=self.alone(self.worker_sums),
            strays=self.strays(by_key),
            summed=self.summed,
        )
        self.load_params(frame, params, by_key)
        slots = {slot: by_key[slot] for slot in self.plan.slots}
        BlockCode(frame, self.plan, slots, self.narrow()).run(self.function.body)
        b.ret_void()
        with b.goto_block(first):
            b.branch(body)
        return function

    def narrow(self) -> Narrow | None:
        """How few threads take part in a phase, where the loop over threads is one block's."""
        if self.by_row or self.variant.watched:
            return None
        from .narrow import Narrow

        return Narrow(self.function, self.plan)

    def alone(self, params: list[int]) -> frozenset[Op]:
        by_root = totals.additions_by_root(self.function) if params else {}
        return frozenset(op for k in params for op in by_root[self.function.params[k].value])

    def strays(self, args: dict[object, ir.Argument]) -> dict[Op, WorkerMemory]:
        owns = {k: WorkerMemory(args[k], args[_Outside(k, end=True)], args[_Outside(k)]) for k in self.checked}
        return {op: own for k, own in owns.items() for op in self.alone([k])}

    @property
    def checked(self) -> list[int]:
        return [k for k in self.worker_sums if self.function.params[k].name in self.variant.checked]

    @property
    def worker_sums(self) -> list[int]:
        """The numbers of those parameters."""
        return [k for k in self.pointers if self.function.params[k].name in self.variant.worker_sums]

    def row(self, begin: ir.Value, end: ir.Value) -> Row:
        width = self.variant.block[0] if self.variant.block else None
        indices = row_indices(self.function, width) if self.variant.small else frozenset()
        invariants = Invariants(self.function, by_row=True)
        return Row(begin, end, indices, find_bounds(self.function, indices), invariants)

    def watch(self, context: ir.Value) -> Watch:
        from .watch import Watch

        numbers = {op: k for k, op in enumerate(walk(self.function.body))}
        return Watch(context, numbers, {r.name: k for k, r in enumerate(self.regions)}, self.roots)

    def bounded(self) -> frozenset[Apply]:
        return IndexArithmetic(self.function).ops if self.variant.small else frozenset()

    def mark_noalias(self, args: dict[object, ir.Argument]) -> None:
        for key, arg in args.items():
            if not isinstance(key, int) or self.function.params[key].restrict:
                arg.add_attribute("noalias")

    def load_params(self, frame: Frame, params: ir.Value, args: dict[object, ir.Argument]) -> None:
        offsets, _ = param_layout(self.function)
        for k, (param, offset) in enumerate(zip(self.function.params, offsets, strict=True)):
            address = byte_offset(frame.b, params, offset)
            frame.values[param.value] = args[k] if k in args else load(frame.b, address, param.type)

    # ---- a range of blocks

    def entry_function(self, block: ir.Function) -> None:
        """(params, launch, first block, last block + 1, scratch, status)"""
        function = ir.Function(self.llvm, ir.FunctionType(lt.VOID, [PTR, PTR, I64, I64, PTR, PTR]), ENTRY)
        params, launch, begin, end, scratch, status = function.args
        entry, loop, done = (function.append_basic_block(name) for name in ("entry", "blocks", "done"))
        b = ir.IRBuilder(entry)
        grid = [b.load(byte_offset(b, launch, _GRID + 4 * k), typ=I32) for k in range(3)]
        threads = [b.load(byte_offset(b, launch, _BLOCK + 4 * k), typ=I32) for k in range(3)]
        pointers = [*self.pointer_params(b, params), *self.scratch_pointers(b, launch, scratch)]
        own = self.own_memory(b, launch, scratch)
        targets = [pointers[self.pointers.index(k)] for k in own]
        for k, target in zip(own, targets, strict=True):
            if k in self.checked:
                pointers += target, worker_sums.byte_offset_by(b, *own[k])
        for k, (memory, nbytes) in own.items():
            pointers[self.pointers.index(k)] = memory
            worker_sums.clear(b, memory, nbytes, self.is_float(k))
        folded = {k: parts for k, parts in own.items() if self.is_float(k)}
        since = b.alloca(I64)
        b.store(i64(0), since)
        entry = b.block
        watch = b.load(byte_offset(b, launch, _WATCH), typ=PTR)
        b.cbranch(b.icmp_unsigned("<", begin, end), loop, done)
        b.position_at_end(loop)
        index = b.phi(I64)
        index.add_incoming(begin, entry)
        x, y, z = _unflatten(b, index, grid)
        row_end = self.row_end(b, x, b.sub(end, index), grid[0], threads[0])
        row_end = self.until_fold(b, x, row_end, threads[0], folded)
        b.call(block, [params, status, watch, index, x, y, z, row_end, *grid, *threads, *pointers])
        following = b.add(index, b.zext(b.sub(row_end, x), I64), flags=("nuw", "nsw"))
        self.fold(b, b.sub(row_end, x), threads, since, folded)
        index.add_incoming(following, b.block)
        failed = b.icmp_unsigned("!=", b.load_atomic(status, "monotonic", 4, typ=I32), i32(0))
        b.cbranch(b.or_(failed, b.icmp_unsigned(">=", following, end)), done, loop)
        b.position_at_end(done)
        for target, (k, (memory, nbytes)) in zip(targets, own.items(), strict=True):
            type = pointee(self.function.params[k].value)
            assert isinstance(type, Scalar)
            worker_sums.flush(b, memory, nbytes, target, lt.memory_type(type), type.size)
        b.ret_void()

    def own_memory(self, b: ir.IRBuilder, launch: ir.Value, scratch: ir.Value) -> dict[int, tuple[ir.Value, ir.Value]]:
        """Note [Worker sums]: for each such parameter, the worker's memory and its bytes."""
        found = {}
        for number, k in enumerate(self.worker_sums):
            at, nbytes = (b.load(byte_offset(b, launch, _OWN_SUMS + 16 * number + 8 * n), typ=I64) for n in range(2))
            found[k] = worker_sums.byte_offset_by(b, scratch, at), nbytes
        return found

    def is_float(self, k: int) -> bool:
        return pointee(self.function.params[k].value) == F32

    def in_registers(self, k: int) -> bool:
        """Whether the loop over threads adds up all that is added to a buffer."""
        additions = totals.additions_by_root(self.function).get(self.function.params[k].value, set())
        return additions <= set(self.summed)

    def until_fold(
        self,
        b: ir.IRBuilder,
        x: ir.Value,
        row_end: ir.Value,
        threads: ir.Value,
        folded: dict[int, tuple[ir.Value, ir.Value]],
    ) -> ir.Value:
        """No later than where sums of floats have become long (Note [Worker sums])."""
        lengths = [nbytes for k, (_, nbytes) in folded.items() if self.by_row and not self.in_registers(k)]
        for nbytes in lengths:
            blocks = b.udiv(worker_sums.threads_between_folds(b, nbytes), b.zext(threads, I64))
            last = b.add(b.zext(x, I64), b.add(blocks, i64(1)))
            row_end = b.select(b.icmp_unsigned("<", last, b.zext(row_end, I64)), b.trunc(last, I32), row_end)
        return row_end

    def fold(
        self,
        b: ir.IRBuilder,
        blocks: ir.Value,
        threads: list[ir.Value],
        since: ir.Value,
        folded: dict[int, tuple[ir.Value, ir.Value]],
    ) -> None:
        if not folded:
            return
        each = reduce(b.mul, (b.zext(t, I64) for t in threads))
        run = b.add(b.load(since, typ=I64), b.mul(each, b.zext(blocks, I64)))
        b.store(run, since)
        lengths = [
            i64(0) if self.in_registers(k) else worker_sums.threads_between_folds(b, nbytes)
            for k, (_, nbytes) in folded.items()
        ]
        least = reduce(lambda one, other: b.select(b.icmp_unsigned("<", one, other), one, other), lengths)
        with b.if_then(b.icmp_unsigned(">=", run, least)):
            for memory, nbytes in folded.values():
                worker_sums.fold(b, memory, nbytes)
            b.store(i64(0), since)

    def row_end(self, b: ir.IRBuilder, x: ir.Value, left: ir.Value, width: ir.Value, threads: ir.Value) -> ir.Value:
        """Where the blocks of one call end: after one block, or at the end of its row or of the range; earlier where
        numbers are added up in floats, since a long sum loses the small ones."""
        if not self.by_row:
            return b.add(x, i32(1))
        limits = [left, b.zext(b.sub(width, x), I64)]
        if self.summed:
            most = _MOST_BRANCHED if self.sums_either_way() else _MOST_SUMMED
            limits.append(b.zext(b.udiv(i32(most), threads), I64))
        count = reduce(lambda one, other: b.select(b.icmp_unsigned("<", one, other), one, other), limits)
        return b.add(x, b.trunc(count, I32))

    def sums_either_way(self) -> bool:
        branches = (op for op in walk(self.function.body) if isinstance(op, If))
        return any(all(any(op in self.summed for op in walk(side)) for side in blocks(branch)) for branch in branches)

    def pointer_params(self, b: ir.IRBuilder, params: ir.Value) -> list[ir.Value]:
        offsets, _ = param_layout(self.function)
        return [b.load(byte_offset(b, params, offsets[k]), typ=PTR) for k in self.pointers]

    def scratch_pointers(self, b: ir.IRBuilder, launch: ir.Value, scratch: ir.Value) -> list[ir.Value]:
        shared_bytes = b.load(byte_offset(b, launch, _SHARED), typ=I64)
        length = b.load(byte_offset(b, launch, _SLOT_LENGTH), typ=I64)
        shared = [byte_offset(b, scratch, offset) for offset in self.shared.values()]
        dynamic = byte_offset(b, scratch, self.static_shared)
        slots, start = [], 0
        first = byte_offset(b, scratch, shared_bytes)
        for size in self.plan.slots.values():
            slots.append(byte_offset(b, first, b.mul(length, i64(start))))
            start += size
        return [*shared, dynamic, *slots]


def _unflatten(b: ir.IRBuilder, index: ir.Value, grid: list[ir.Value]) -> list[ir.Value]:
    x, y, _ = (b.zext(g, I64) for g in grid)
    row = b.udiv(index, x)
    return [b.trunc(v, I32) for v in (b.urem(index, x), b.urem(row, y), b.udiv(row, y))]


def shared_layout(module: Module, function: Function, red_zone: int) -> tuple[dict[str, int], list[str], int]:
    """Offsets of the static shared variables the kernel uses, the names of the dynamic ones, and where those start."""
    used = {op.name for op in walk(function.body) if isinstance(op, GlobalRef)}
    offsets: dict[str, int] = {}
    dynamic: list[str] = []
    end = 0
    for name, variable in module.globals.items():
        if name not in used or variable.space != "shared":
            continue
        if isinstance(variable.type, Array) and variable.type.count == 0:
            dynamic.append(name)
            continue
        offsets[name] = end
        end += -(-variable.type.size // _SHARED_ALIGN) * _SHARED_ALIGN + red_zone
    return offsets, dynamic, end
