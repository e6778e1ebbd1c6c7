"""Check mode: runs a kernel on the CPU, one block at a time, watched, and reports what is wrong with its accesses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.promises import NONE, Promises
from ..cache import Recent, digest
from ..ir.layout import param_layout
from ..ir.ops import Apply, Load, Module, Op, Store, Value, called
from ..ir.printer import print_module
from ..ir.traverse import operands, walk
from ..ir.types import Scalar
from ..locks import cached_property
from . import promised_values, races
from .cpu import ENTRY_TYPE, LaunchStatus, kernel_failure, pack_launch, unflatten, volume
from .findings import Act, Findings
from .findings import CheckReport as CheckReport
from .launch import BoundArguments, LaunchConfig
from .layouts import scalar_dtype
from .races import Log

if TYPE_CHECKING:
    from ..backends.cpu.kernel import KernelCode, Region

_RECORD = np.dtype(
    [
        ("address", "u8"),
        ("op", "u4"),
        ("thread", "u4"),
        ("epoch", "u4"),
        ("phase", "u4"),
        ("region", "i4"),
        ("size", "u1"),
        ("kind", "u1"),
        ("outside", "u1"),
        ("unused", "u1"),
    ]
)
_FIRST_CAPACITY = 1 << 16
_BATCH = 1 << 20  # records; analysing fewer at a time wastes time, more wastes memory


def check_cpu(
    module: Module,
    kernel: str,
    config: LaunchConfig,
    arguments: BoundArguments,
    seed: int | None = None,
    promises: Promises = NONE,
) -> CheckReport:
    """Run the kernel watched. `seed` shuffles the order of blocks, and of threads within each. `promises`: of what is
    read of the arguments."""
    return _Check(module, kernel, config, arguments, seed, promises).report()


class _Context(ctypes.Structure):
    """What the code and this file share: see backends.cpu.watch."""

    _fields_ = (
        ("records", ctypes.c_void_p),
        ("used", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64),
        ("grow", ctypes.c_void_p),
        ("regions", ctypes.c_void_p),
        ("region_count", ctypes.c_uint64),
        ("order", ctypes.c_void_p),
        ("epoch", ctypes.c_uint32),
        ("phase", ctypes.c_uint32),
        ("lost", ctypes.c_uint64),
    )


_GROW = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Check:
    def __init__(
        self,
        module: Module,
        kernel: str,
        config: LaunchConfig,
        arguments: BoundArguments,
        seed: int | None,
        promises: Promises,
    ):
        self.module, self.kernel, self.config, self.arguments = module, kernel, config, arguments
        self.promises = promises
        self.ops: list[Op] = list(walk(module.functions[kernel].body))
        self.code, self.entry, self.keep_alive = _load(module, kernel)
        self.random = None if seed is None else np.random.default_rng(seed)
        self.records = np.empty(_FIRST_CAPACITY, _RECORD)
        self.context = _Context()
        launch, shared, scratch = pack_launch(
            config, self.code.static_shared, self.code.slot_bytes, ctypes.addressof(self.context)
        )
        self.launch, self.shared_bytes = launch, shared
        self.scratch = np.zeros(scratch + 64, np.uint8)
        self.scratch_address = -(-self.scratch.ctypes.data // 64) * 64
        self.scratch_bytes = scratch
        self.regions = self.locate_regions()
        self.findings = Findings()
        self.failure: BaseException | None = None

    # ---- running

    def report(self) -> CheckReport:
        grow = _GROW(self.grow)
        self.context.grow = ctypes.cast(grow, ctypes.c_void_p)
        self.context.regions, self.context.region_count = self.regions.ctypes.data, len(self.regions)
        self.attach(self.records)
        summaries: list[Log] = []
        looked_up: list[Log] = []
        for log, outside in self.batches():
            self.report_outside(log.at(outside))
            inside = log.at(~outside)
            self.report_unwritten(inside)
            looked_up.append(promised_values.first_reads(inside.at(self.is_promised(inside))))
            visible = inside.at(~self.is_local(inside))
            self.report_conflicts(visible, races.conflicts_in_blocks(visible))
            summaries.append(races.summary(visible.at(~self.is_scratch(visible))))
        if summaries:
            everything = Log.joined(summaries)
            self.report_conflicts(everything, races.conflicts_between_blocks(everything))
        if looked_up:
            self.report_broken(Log.joined(looked_up))
        self.report_wrong_numbers()
        return CheckReport(self.module.functions[self.kernel].called, self.findings.merged())

    def batches(self) -> Iterator[tuple[Log, np.ndarray[Any, Any]]]:
        """Logs of whole blocks, with the rows that are out of bounds."""
        lengths: list[int] = []
        blocks: list[int] = []
        for block in self.shuffled(volume(self.config.grid)):
            before = self.context.used
            self.run_block(int(block))
            blocks.append(int(block))
            lengths.append(self.context.used - before)
            if self.context.used >= _BATCH:
                yield self.take(blocks, lengths)
                blocks, lengths = [], []
        if lengths:
            yield self.take(blocks, lengths)

    def run_block(self, block: int) -> None:
        order = self.shuffled(volume(self.config.block)).astype(np.uint32)
        self.context.order, self.context.epoch, self.context.phase = order.ctypes.data, 0, 0
        status = LaunchStatus()
        where = ctypes.addressof(status)
        self.entry(self.arguments.packed, self.launch, block, block + 1, self.scratch_address, where)
        if self.failure is not None or self.context.lost:
            raise self.failure or KeyboardInterrupt
        if status.which:
            raise kernel_failure(self.module, self.kernel, self.code.failing, self.config, status)

    def shuffled(self, count: int) -> np.ndarray[Any, Any]:
        return np.arange(count) if self.random is None else self.random.permutation(count)

    # ---- the log

    def attach(self, records: np.ndarray[Any, Any]) -> None:
        """In this order: an exception, as of Ctrl-C, may come after each step; the code goes on with what it has."""
        self.kept = (self.records, records)
        self.context.records = records.ctypes.data
        self.context.capacity = len(records)
        self.records = records

    def grow(self, _: int) -> None:
        """Called by the code, through which no exception passes: it is raised when the block has ended."""
        if self.failure is not None:
            return
        try:
            larger = np.empty(2 * len(self.records), _RECORD)
            larger[: len(self.records)] = self.records
            self.attach(larger)
        except BaseException as error:
            self.failure = error

    def take(self, blocks: list[int], lengths: list[int]) -> tuple[Log, np.ndarray[Any, Any]]:
        records = self.records[: self.context.used].copy()
        self.context.used = 0
        names = ("address", "size", "kind", "op", "region")
        columns = [records[name] for name in names] + [np.repeat(blocks, lengths)]
        columns += [records[name] for name in ("thread", "epoch", "phase")]
        return Log(*columns), records["outside"] != 0

    # ---- memory

    def locate_regions(self) -> np.ndarray[Any, Any]:
        """begin, length, stride, size of each region (see backends.cpu.watch)."""
        rows = [self.locate(region) for region in self.code.regions]
        return np.array(rows, np.uint64).reshape(len(rows), 4)

    def locate(self, region: Region) -> tuple[int, int, int, int]:
        begin = self.scratch_address + region.offset
        if region.kind == "shared":
            return begin, region.size, max(1, region.size), region.size
        if region.kind == "dynamic":
            size = self.config.shared_bytes
            return begin, size, max(1, size), size
        if region.kind == "local":
            slot_length = -(-volume(self.config.block) // 64) * 64
            begin = self.scratch_address + self.shared_bytes + region.offset * slot_length
            return begin, region.stride * volume(self.config.block), region.stride, region.size
        buffer = next((b for b in self.arguments.buffers if b.name == region.name), None)
        if buffer is None:
            return 0, 0, 1, 0
        return buffer.address, buffer.nbytes, max(1, buffer.nbytes), buffer.nbytes

    def is_scratch(self, log: Log) -> np.ndarray[Any, Any]:
        return log.address - np.uint64(self.scratch_address) < np.uint64(self.scratch_bytes)

    def is_local(self, log: Log) -> np.ndarray[Any, Any]:
        start = np.uint64(self.scratch_address + self.shared_bytes)
        return log.address - start < np.uint64(self.scratch_bytes - self.shared_bytes)

    def is_promised(self, log: Log) -> np.ndarray[Any, Any]:
        numbers = [k for k, name in enumerate(self.region_names) if name in self.promises.buffers]
        return np.isin(log.region, numbers)

    @cached_property
    def region_names(self) -> list[str]:
        return [region.name.partition("#")[0] for region in self.code.regions]

    def region_of(self, log: Log, row: int) -> int:
        """The region a row of the log is about: its pointer's, or the one it lies in, or -1."""
        if log.region[row] >= 0:
            return int(log.region[row])
        begin, length = self.regions[:, 0], self.regions[:, 1]
        found = np.flatnonzero(log.address[row] - begin < length)
        return int(found[0]) if len(found) else -1

    # ---- findings

    def report_outside(self, log: Log) -> None:
        _, first, counts = np.unique(races.group_ids(log.op, log.kind), return_index=True, return_counts=True)
        for row, count in zip(first, counts, strict=True):
            self.findings.add("out of bounds", self.act(log, int(row)), None, int(count))

    def report_unwritten(self, log: Log) -> None:
        scratch = log.at(self.is_scratch(log))
        early = scratch.at(races.unwritten_reads(scratch))
        early = early.at(~np.isin(early.op, self.bit_field_reads))
        _, first, counts = np.unique(races.group_ids(early.op), return_index=True, return_counts=True)
        for row, count in zip(first, counts, strict=True):
            self.findings.add("uninitialised", self.act(early, int(row)), None, int(count))

    @cached_property
    def bit_field_reads(self) -> list[int]:
        """Loads that only keep the other bits of a word when a bit field is set: `word & mask | field`, stored back."""
        users: dict[Value, list[Op]] = {}
        for op in self.ops:
            for value in operands(op):
                users.setdefault(value, []).append(op)

        def only(value: Value, fn: str) -> list[Value]:
            """The results of its uses if all of them are `fn`."""
            found = users.get(value, [])
            return [op.result for op in found] if all(isinstance(op, Apply) and op.fn == fn for op in found) else []

        def is_bit_field(load: Load) -> bool:
            words = [word for masked in only(load.result, "and") for word in only(masked, "or")]
            return any(isinstance(op, Store) and op.ptr is load.ptr for word in words for op in users.get(word, []))

        return [k for k, op in enumerate(self.ops) if isinstance(op, Load) and is_bit_field(op)]

    def report_conflicts(self, log: Log, pairs: races.Pairs) -> None:
        left, right = pairs
        if not len(left):
            return
        low, high = np.minimum(log.op[left], log.op[right]), np.maximum(log.op[left], log.op[right])
        _, first, counts = np.unique(races.group_ids(low, high), return_index=True, return_counts=True)
        for pair, count in zip(first, counts, strict=True):
            acts = (self.act(log, int(side[pair])) for side in (left, right))
            one, other = sorted(acts, key=lambda act: (act.span.line, act.span.column))
            self.findings.add("race", one, other, int(count))

    def report_broken(self, log: Log) -> None:
        """Promises that what was read does not keep."""
        promises, held = self.promises, {name: self.held(log, name) for name in self.promises.buffers}
        for name in promises.unique:
            found = None if held[name] is None else promised_values.repeated(held[name])
            if found is not None:
                one, other = (self.act(log, row) for row in found.rows)
                self.findings.add("promise", one, other, found.values, found.value)
        for segments in promises.disjoint:
            begin, count = held[segments.begin], held.get(segments.count or "")
            if begin is not None and (segments.count is None or count is not None):
                self.report_case(log, promised_values.overlapping(segments, begin, count))
        for name, number in promises.multiple:
            if held.get(name) is not None:
                self.report_case(log, promised_values.no_multiple(held[name], name, number))
        for name, ends in promises.within:
            if held.get(name) is not None:
                self.report_case(log, promised_values.outside(held[name], name, ends))

    def held(self, log: Log, name: str) -> Any:
        """What was read of a buffer; nothing of what is none."""
        numbers = [k for k, region in enumerate(self.region_names) if region == name]
        rows = np.flatnonzero(np.isin(log.region, numbers))
        buffer = next((b for b in self.arguments.buffers if b.name == name), None)
        type = next((p.type for p in self.module.functions[self.kernel].params if p.name == name), None)
        found = None if buffer is None or type is None else promised_values.held(log.at(rows), buffer, type)
        return None if found is None else found._replace(rows=rows[found.rows])

    def report_case(self, log: Log, found: promised_values.Broken | None) -> None:
        if found is not None:
            one, *others = (self.act(log, row) for row in found.rows)
            self.findings.add("promise", one, others[0] if others else None, found.cases, problem=found.problem)

    def report_wrong_numbers(self) -> None:
        """Promises about integers among the arguments."""
        function, promises = self.module.functions[self.kernel], self.promises
        multiple, within = dict(promises.multiple), dict(promises.within)
        for param, start in zip(function.params, param_layout(function)[0], strict=False):
            if param.name in multiple.keys() | within.keys() and isinstance(param.type, Scalar):
                data = self.arguments.packed[start : start + param.type.size]
                value = int(np.frombuffer(data, scalar_dtype(param.type))[0])
                told = (multiple.get(param.name), within.get(param.name))
                problem = promised_values.wrong_number(param.name, value, *told)
                if problem is not None:
                    act = Act(function.span, "read", param.name, 0, 1, (0, 0, 0), (0, 0, 0))
                    self.findings.add("promise", act, None, 1, problem=problem)

    def shown(self, name: str) -> str:
        """What the user calls memory."""
        params = self.module.functions[self.kernel].params
        return next((p.called for p in params if p.name == name), called(name))

    def act(self, log: Log, row: int) -> Act:
        region = self.region_of(log, row)
        size = int(log.size[row])
        name, index, elements = "", int(log.address[row]) // size, 0
        if region >= 0:
            begin, length, stride, extent = (int(v) for v in self.regions[region])
            distance = int(log.address[row]) - begin
            index = (distance % stride if stride < length else distance) // size
            name, elements = self.shown(self.region_names[region]), extent // size
        op: Op = self.ops[int(log.op[row])]
        block = unflatten(int(log.block[row]), self.config.grid)
        thread = unflatten(int(log.thread[row]), self.config.block)
        return Act(op.span, ("read", "write", "atomic update")[log.kind[row]], name, index, elements, block, thread)


# ---- code -----------------------------------------------------------------------------------------------------------

_loaded: Recent[tuple[KernelCode, Any, Any]] = Recent(64)


def _load(module: Module, kernel: str) -> tuple[KernelCode, Any, Any]:
    from ..backends.cpu.indexing import Variant
    from ..backends.cpu.kernel import lower
    from ..backends.cpu.native import ENTRY, LoadedCode, compile_object, target_id

    key = digest(print_module(module), kernel, target_id())
    if key not in _loaded:
        code = lower(module, kernel, Variant(small=False, watched=True))
        native = LoadedCode(compile_object(code.text), ENTRY)
        _loaded[key] = code, ENTRY_TYPE(native.address), native
    return _loaded[key]
