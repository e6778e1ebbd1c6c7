"""Gradients as Python objects: `gradient`, `split`, `jvp`. They compile variants as launches ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from struct import unpack_from
from typing import Any

import numpy as np

from . import claims
from .argument_copies import copy_variables, on_copies, sparing
from .autodiff import checkpoint
from .autodiff import roots as memory_analysis
from .autodiff.accumulate import USUAL, Facts
from .autodiff.cooperate import SHARED_BYTES
from .autodiff.logs import Logged
from .autodiff.reverse import Options
from .autodiff.shadows import adjoint_c_type
from .coarsening import add_grid
from .crowds import add_copies, finish_copies
from .errors import ArgumentError, LaunchError
from .finishing import add_partials, finish_partials
from .half_adjoints import in_float
from .ir.layout import param_layout
from .ir.ops import Function, Param
from .ir.types import Pointer, Scalar, Struct, Type
from .kernels import Kernel
from .ordering import add_logs, finish_logs, logged_in, segment_starts
from .runtime.arguments import Placement, Supplied
from .runtime.config import Launch, make_launch, parse_launch
from .runtime.launch import BoundArguments, Executable
from .runtime.overlap import check_overlap
from .runtime.own import Own
from .runtime.scratch import Scratch, available_bytes, zero_bytes
from .runtime.signature import c_signature, declare, user_params
from .settings import Settings, has_derivative
from .variants import ANY, Variant, Ways

# Elements of the tape and entries of the logs, per thread: for all blocks alike, or for each.
Sizes = dict[Type | Logged, np.ndarray[Any, np.dtype[np.int64]]]


class Differentiated:
    """What gradients, splits and their parts share: variants, and binding of arguments and adjoints."""

    usual = USUAL

    def __init__(self, kernel: Kernel, settings: Settings):
        self.kernel, self.settings = kernel, settings
        self._variants: dict[tuple[tuple[str, ...], Facts], Variant] = {}
        self._lock = threading.Lock()
        self.variant()  # what cannot be differentiated is known now, not at the first launch

    def variant(self, wanted: tuple[str, ...] | None = None, facts: Facts | None = None) -> Variant:
        """`wanted`: the listed parameters whose adjoint was given; `facts`: what holds for the launch."""
        settings = self.settings
        listed = settings.listed if wanted is None else wanted
        facts = self.usual if facts is None else facts
        with self._lock:
            if (listed, facts) not in self._variants:
                kept = tuple(n for n in settings.kept if n in listed and n not in facts.unkept)
                options = Options(
                    listed,
                    kept,
                    settings.mode,
                    settings.may_alias,
                    facts,
                    deterministic=settings.deterministic,
                    unique=settings.promises.unique,
                )
                self._variants[listed, facts] = Variant(self.kernel, options)
            return self._variants[listed, facts]

    def variant_for(self, wanted: tuple[str, ...], launch: Launch, primal: BoundArguments, ways: Ways = ANY) -> Variant:
        """The one whose proofs hold for the launch (rules 8 and 11), and what is fastest there."""
        known, sizes = self._known_of(wanted, primal)
        assigned = tuple(n for n in self.settings.assigned if n in sizes)
        return self.variant(wanted, self._usual_for(wanted, launch).facts_of(launch, known, sizes, assigned, ways))

    def _usual_for(self, wanted: tuple[str, ...], launch: Launch) -> Variant:
        """The one that says what holds for a launch."""
        usual = self.variant(wanted)
        return (
            self.variant(wanted, replace(self.usual, block=launch.block)) if usual.needs_shape(launch.block) else usual
        )

    def gathers(
        self, wanted: tuple[str, ...], launch: Launch, primal: BoundArguments, ways: Ways = ANY
    ) -> Iterator[Any]:
        """The launches that go before that variant's."""
        return self._usual_for(wanted, launch).gathers(launch, *self._known_of(wanted, primal), ways)

    def _known_of(self, wanted: tuple[str, ...], primal: BoundArguments) -> tuple[Callable[[Any], Any], dict[str, int]]:
        """The scalar arguments, and the sizes of the wanted buffers."""
        known = _known_scalars(self.kernel.function, primal, None)
        return known, {b.name: b.nbytes for b in primal.buffers if b.name in wanted}

    @property
    def compiled(self) -> tuple[Executable, ...]:
        """The machine code of all kernels that have run so far."""
        finished = [k for variant in self._variants.values() for k in vars(variant).get("kernels", ())]
        return tuple(executable for kernel in finished for executable in kernel.compiled)

    # ---- arguments

    @cached_property
    def adjoint_names(self) -> tuple[str, ...]:
        """`d_x` for each listed parameter x, or a fresh name where the kernel has a d_x of its own."""
        taken = {p.name for p in user_params(self.kernel.function)}
        return tuple(_fresh(f"d_{name}", taken) for name in self.settings.listed)

    def separate(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The kernel's own arguments, and the adjoint of each listed parameter."""
        own, names = len(user_params(self.kernel.function)), self.adjoint_names
        if keywords:
            unknown = [k for k in keywords if k not in names]
            missing = [n for n in names if n not in keywords]
            if unknown or missing or len(args) != own:
                raise ArgumentError(
                    f"give {own} arguments and the adjoints {', '.join(names)} by name\n  {self.signature}"
                )
            given = [keywords[n] for n in names]
        else:
            if len(args) != own + len(names):
                raise ArgumentError(
                    f"takes {own} arguments and {len(names)} adjoints, got {len(args)}\n  {self.signature}"
                )
            given = list(args[own:])
        return args[:own], dict(zip(self.settings.listed, given, strict=True))

    def check_members(self, args: tuple[Any, ...], adjoints: Mapping[str, Any]) -> None:
        """A struct of pointers has a struct of adjoints. None may be missing: shadow pointers are not tested."""
        given = dict(zip((p.name for p in user_params(self.kernel.function)), args, strict=True))
        for param in user_params(self.kernel.function):
            if isinstance(param.type, Struct) and adjoints.get(param.name) is not None:
                _check_members(param.name, param.type, given[param.name], adjoints[param.name])

    def check_overlap(self, variant: Variant, bound: BoundArguments, own: Own, others: Sequence[Kernel] = ()) -> None:
        """Also of adjoints that float copies stand for. `others`: kernels that are launched besides."""
        whole = replace(bound, buffers=(*bound.buffers, *own.originals))
        written = frozenset(name for kernel in (*variant.kernels, *others) for name in kernel.written)
        check_overlap(variant.reverse.function, whole, written | {b.name for b in own.originals})

    @property
    def shown(self) -> Function:
        """The function as the user wrote it."""
        return self.kernel.function

    @property
    def signature(self) -> str:
        function = self.shown
        by_name = {p.name: p for p in function.params}
        adjoints = [
            declare(_adjoint_type(by_name[n]), a) for n, a in zip(self.settings.listed, self.adjoint_names, strict=True)
        ]
        head, _, tail = c_signature(function).rpartition(")")
        separator = ", " if user_params(function) else ""
        return f"{head}{separator}{', '.join(adjoints)}){tail}"

    def scalars(self, bound: BoundArguments, segment: int | None = None) -> dict[str, Any]:
        """The integers among the arguments."""
        known = _known_scalars(self.kernel.function, bound, segment)
        found = {p.name: known(p.value) for p in self.kernel.function.params}
        return {name: number for name, number in found.items() if number is not None}

    # ---- memory of our own

    def hidden(
        self,
        variant: Variant,
        launch: Launch,
        bound: BoundArguments,
        placement: Placement,
        own: Own,
        segment: int | None = None,
    ) -> None:
        """Fills `own` with shadows of unlisted buffers and the tape."""
        stream = stream_of(launch, placement)
        if variant.doubles_shared:
            own.double_shared(launch, SHARED_BYTES, variant.shared_widening)
        self.add_shadows(variant, bound, placement, stream, own)
        add_partials(variant, launch, placement, stream, own)
        add_copies(variant, bound, placement, stream, own)
        add_grid(variant, launch, own)
        if segment is not None:
            own.supplied[checkpoint.SEGMENT] = Supplied(segment)
        sizes = self.elements(variant, launch, bound, placement, segment)
        self.add_tape(variant, sizes, launch, placement, own)
        add_logs(variant, logged_in(sizes), launch, placement, stream, own)

    def add_shadows(
        self, variant: Variant, bound: BoundArguments, placement: Placement, stream: int | None, own: Own
    ) -> None:
        """Zeroed shadows of buffers and module variables that are not listed."""
        variables = self.kernel.module.globals
        by_name = {p.name: p for p in self.kernel.function.params}
        for name, param in variant.derivative.internal.items():
            nbytes = sum(b.nbytes for b in bound.buffers if b.name == name)
            nbytes = variables[name].type.size if name in variables else nbytes
            nbytes = nbytes * _item_size(param) // _item_size(by_name[name])  # half precision has floats as shadows
            own.add(param.name, Scratch(nbytes, placement.cuda, stream).zero())

    def add_tape(self, variant: Variant, sizes: Sizes, launch: Launch, placement: Placement, own: Own) -> None:
        stacks = variant.derivative.stacks
        if not stacks:
            return
        threads = _threads(launch)
        total = sum(_tape_bytes(stack.type, sizes, launch) for stack in stacks)
        free = available_bytes(placement.cuda)
        if total > free:
            raise LaunchError(
                f"{self.kernel.name}: the tape needs {total:,} bytes ({total // threads:,} per thread, {threads:,}"
                f" threads) and {free:,} are free; set tape_budget=, or launch fewer threads at a time"
            )
        stream = stream_of(launch, placement)
        for stack in stacks:
            per_block = sizes[stack.type]
            own.add(stack.memory.name or "", Scratch(_tape_bytes(stack.type, sizes, launch), placement.cuda, stream))
            if stack.capacity is not None:
                own.supplied[stack.capacity.name or ""] = Supplied(int(per_block[0]))
            if stack.segments is not None:
                starts = segment_starts(per_block, launch)
                memory = own.add(stack.segments.name or "", Scratch(starts.nbytes, placement.cuda, stream))
                memory.write(starts.tobytes())
            if stack.tops is not None:
                own.add(stack.tops.name or "", Scratch(8 * threads, placement.cuda, stream))

    def elements(
        self,
        variant: Variant,
        launch: Launch,
        bound: BoundArguments,
        placement: Placement,
        segment: int | None = None,
    ) -> Sizes:
        """What each thread needs, for each block or for all alike: by arithmetic, else by counting."""
        keys = (*variant.stack_types, *variant.logged)
        if not keys:
            return {}
        found = variant.elements(_known_scalars(self.kernel.function, bound, segment), launch)
        if found is not None:
            return {key: np.array([max(1, found.get(key, 0))], np.int64) for key in keys}
        counted = self.counted(variant, launch, bound, placement, segment)
        alike = {key for key, place in zip(keys, variant.places, strict=True) if place.capacity is not None}
        return {key: np.array([max(1, n.max())]) if key in alike else n for key, n in counted.items()}

    def counted(
        self, variant: Variant, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None
    ) -> Sizes:
        kernel, stores = variant.counting
        own = Own()
        if segment is not None:
            own.supplied[checkpoint.SEGMENT] = Supplied(segment)
        stream = stream_of(launch, placement)
        if stores:
            bound = on_copies(kernel.function, bound, placement, stream, own)
            copy_variables(self.kernel, placement, stream, own)
        types: tuple[Type | Logged, ...] = (*variant.stack_types, *variant.logged)
        blocks = _threads(launch) // _block_threads(launch)
        counts = own.add("_counts", Scratch(8 * blocks * len(types), placement.cuda, stream).zero())
        kernel.run(launch, bound, placement, own.supplied)
        table = np.frombuffer(counts.read(), np.int64).reshape(blocks, len(types))
        return {t: table[:, k] for k, t in enumerate(types)}


class Gradient(Differentiated):
    """The gradient of a kernel: `g[grid, block](*arguments, *adjoints)`."""

    def __repr__(self) -> str:
        return f"<gradient {self.signature}>"

    @cached_property
    def checkpointed(self) -> Gradient:
        """The same gradient with its loops in segments, for launches whose tape would exceed the budget."""
        function = checkpoint.run(self.kernel.function, self.kernel.module)
        module = replace(self.kernel.module, functions={function.name: function})
        kernel = Kernel(function.name, module, self.kernel.variable)
        return Gradient(kernel, replace(self.settings, tape_budget=None))

    def __getitem__(self, key: Any) -> Callable[..., None]:
        launch = parse_launch(key)
        return lambda *args, **keywords: self._launch(launch, args, keywords)

    def execute_kernel(
        self, grid: Any, block: Any, *args: Any, shared: Any = None, stream: Any = None, **adjoints: Any
    ) -> None:
        """Runs the kernel and its gradient. After block, both or neither: shared_bytes, stream."""
        expected = len(user_params(self.kernel.function)) + (0 if adjoints else len(self.settings.listed))
        if len(args) == expected + 2:
            if shared is not None or stream is not None:
                raise ArgumentError("shared and stream are given twice: by position and by name")
            shared, stream, *args = args  # type: ignore[assignment]
        self._launch(make_launch(grid, block, shared or 0, stream), tuple(args), adjoints)

    def execute(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError(
            f"{self.kernel.name} is a kernel: use execute_kernel(grid, block, ...), or g[grid, block](...)"
        )

    @cached_property
    def source(self) -> str:
        """The gradient as CUDA C++ that plain nvcc compiles."""
        variant = self.variant()
        return "\n".join(map(variant.source, range(len(variant.kernels))))

    def explain(self, grid: Any = None, block: Any = None, *args: Any, shared: Any = 0, **adjoints: Any) -> str:
        """Every accumulation and every taped value: where, how, why; and the bytes that threads move. With a launch and
        its arguments, with or without the adjoints: of the variant that this launch gets, in numbers."""
        from .explaining import explain_any, explain_launch

        if grid is None:
            return explain_any(self)
        if block is None:
            raise ArgumentError("explain: give a launch as a whole, explain(grid, block, *arguments), or nothing of it")
        return explain_launch(self, grid, block, shared, args, adjoints)

    def tape_bytes(self, grid: Any, block: Any, *args: Any, shared: Any = 0, **adjoints: Any) -> int:
        """The size of the tape that this launch would use; nothing is launched but, where needed, a count."""
        launch = make_launch(grid, block, shared)
        bound, placement = self.kernel.bind(args[: len(user_params(self.kernel.function))])
        plain = self.bytes_needed(launch, bound, placement)
        if self._fits(plain):
            return plain
        segment = self.segment(launch, bound, placement)
        return self.checkpointed.bytes_needed(launch, bound, placement, segment)

    def _fits(self, nbytes: int) -> bool:
        return self.settings.tape_budget is None or nbytes <= self.settings.tape_budget

    def bytes_needed(
        self, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None = None
    ) -> int:
        variant = self.variant_for(self.settings.listed, launch, bound)
        return self.tape_total(self.elements(variant, launch, bound, placement, segment), launch)

    def tape_total(self, sizes: Sizes, launch: Launch) -> int:
        return sum(_tape_bytes(key, sizes, launch) for key in sizes)

    def segment(self, launch: Launch, bound: BoundArguments, placement: Placement) -> int:
        """How long segments must be for the tape to keep to the budget: the first of growing squares that does."""
        budget = self.settings.tape_budget or 0
        smallest = 0
        for exponent in range(3, 40):
            segment = 1 << exponent
            needed = self.checkpointed.bytes_needed(launch, bound, placement, segment)
            if needed <= budget:
                return segment
            if smallest and needed > smallest:
                break
            smallest = needed
        log = " and the log of deterministic=True need" if self.settings.deterministic else " needs"
        raise LaunchError(
            f"{self.kernel.name}: the tape{log} {smallest:,} bytes even with its loops checkpointed, over the budget"
            f" of {budget:,}; launch fewer threads at a time or allow more"
        )

    def check(
        self, grid: Any, block: Any, *args: Any, shared: Any = 0, seed: int | None = None, **adjoints: Any
    ) -> Any:
        """Runs the gradient on the CPU, watched, as `kernel.check` does for a kernel."""
        launch = make_launch(grid, block, shared)
        steps, placement, own = self._prepare(launch, args, adjoints)
        unique = self.settings.promises.unique
        reports = [
            step.kernel.check_bound(
                step.launch or own.sized(launch), step.bound, placement, {**own.supplied, **step.supplied}, seed, unique
            )
            for step in steps
        ]
        own.finish()
        return replace(reports[-1], findings=tuple(f for report in reports for f in report.findings))

    def _launch(self, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        target, segment = self._within_budget(launch, args)
        steps, placement, own = target._prepare(launch, args, keywords, segment, watched=False)
        for step in steps:
            supplied = {**own.supplied, **step.supplied}
            step.kernel.run(step.launch or own.sized(launch), step.bound, placement, supplied)
        own.finish()

    def _within_budget(self, launch: Launch, args: tuple[Any, ...]) -> tuple[Gradient, int | None]:
        """This gradient, or the checkpointed one with a length for its segments."""
        if self.settings.tape_budget is None:
            return self, None
        bound, placement = self.kernel.bind(args[: len(user_params(self.kernel.function))])
        if self._fits(self.bytes_needed(launch, bound, placement)):
            return self, None
        return self.checkpointed, self.segment(launch, bound, placement)

    def _prepare(
        self,
        launch: Launch,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        segment: int | None = None,
        single: bool = False,
        watched: bool = True,
    ) -> tuple[list[claims.Step], Placement, Own]:
        """`single`: one kernel is to do it all. `watched`: who runs it looks at what a GPU would do."""
        own_args, adjoints = self.separate(args, keywords)
        self.check_members(own_args, adjoints)
        wanted = tuple(name for name, adjoint in adjoints.items() if adjoint is not None)
        own = Own()
        adjoints = in_float(self.kernel.function, adjoints, launch, own)
        # All variants take the same arguments of the user's.
        bound, placement = self.variant(wanted).binder.bind((*own_args, *(adjoints[n] for n in wanted)))
        primal = self._without_adjoints(bound)
        ways = self.ways(placement, single, watched)
        variant = self.variant_for(wanted, launch, primal, ways)
        gathers = [] if single else [claims.Step(k, bound, *g) for k, *g in self.gathers(wanted, launch, primal, ways)]
        if not self.settings.may_alias:
            self.check_overlap(variant, bound, own, [step.kernel for step in gathers])
        bound = sparing(variant, bound, placement, stream_of(launch, placement), own)
        self.hidden(variant, launch, primal, placement, own, segment)
        finish_partials(variant, bound, launch, placement, own)
        finish_copies(variant, bound, launch, placement, own)
        finish_logs(variant, bound, launch, placement, own)
        claims.add_memory(variant, primal, placement, stream_of(launch, placement), own)
        self._assign(variant, bound, placement, launch)
        # They read adjoints that the kernel itself consumes.
        return [*gathers, *claims.steps(variant, primal, bound)], placement, own

    @staticmethod
    def ways(placement: Placement, single: bool, watched: bool) -> Ways:
        on_gpu = placement.cuda is not None
        return Ways(single, on_cpu=not (on_gpu or watched), on_gpu=on_gpu and not single)

    def _without_adjoints(self, bound: BoundArguments) -> BoundArguments:
        """The kernel's own arguments, which come first."""
        names = {p.name for p in user_params(self.kernel.function)}
        buffers = tuple(b for b in bound.buffers if b.name.partition(".")[0] in names)
        return BoundArguments(bound.packed[: self.kernel.packed_bytes], buffers, bound.keep_alive)

    def _assign(self, variant: Variant, bound: BoundArguments, placement: Placement, launch: Launch) -> None:
        """`assign`: the adjoint starts at zero instead of what it holds. What is written anyway need not be cleared."""
        sizes = {b.name: b.nbytes for b in bound.buffers}
        for name in self.settings.assigned:
            param = variant.derivative.adjoints.get(name)
            written = sizes[name] if name in variant.options.facts.overwritten else 0
            for buffer in bound.buffers:
                if param is not None and buffer.name == param.name and buffer.nbytes > written:
                    start, stream = buffer.address + written, stream_of(launch, placement)
                    zero_bytes(start, buffer.nbytes - written, placement.cuda, stream)


# ---- small things -------------------------------------------------------------------------------------------------


def _threads(launch: Launch) -> int:
    x, y, z = (g * b for g, b in zip(launch.grid, launch.block, strict=True))
    return x * y * z


def _block_threads(launch: Launch) -> int:
    x, y, z = launch.block
    return x * y * z


def _tape_bytes(key: Type | Logged, sizes: Sizes, launch: Launch) -> int:
    per_block = sizes[key]
    elements = (
        int(per_block.sum()) * _block_threads(launch) if len(per_block) > 1 else int(per_block[0]) * _threads(launch)
    )
    return key.size * elements


def stream_of(launch: Launch, placement: Placement) -> int | None:
    from .runtime.streams import stream_handle

    if placement.cuda is None:
        return None
    return stream_handle(launch.stream) if launch.stream is not None else placement.stream()


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name


def _adjoint_type(param: Param) -> str:
    plain = adjoint_c_type(param.c_type)
    return plain if memory_analysis.holds_pointers(param.type) else f"{plain} *"


def _known_scalars(function: Function, bound: BoundArguments, segment: int | None) -> Callable[[Any], Any]:
    """The values of the scalar arguments, read back from their packed bytes."""
    found: dict[Any, Any] = {}
    for param, code, offset in _integers(function):
        found[param.value] = segment if code is None else unpack_from(code, bound.packed, offset)[0]
    return found.get


@lru_cache(256)
def _integers(function: Function) -> tuple[tuple[Param, str | None, int], ...]:
    """The integers among the parameters: how they are packed and where; None for the length of a segment."""
    found: list[tuple[Param, str | None, int]] = []
    for param, offset in zip(function.params, param_layout(function)[0], strict=True):
        if isinstance(param.type, Scalar) and param.variable is None and not param.type.is_float:
            code = "?" if param.type.kind == "bool" else {1: "b", 2: "h", 4: "i", 8: "q"}[param.type.size]
            found.append((param, f"<{code.upper() if param.type.kind == 'uint' else code}", offset))
        elif param.variable == checkpoint.SEGMENT:
            found.append((param, None, offset))
    return tuple(found)


def _check_members(path: str, type: Struct, value: Any, adjoint: Any) -> None:
    for k, member in enumerate(type.fields):
        parts = [v[member.name] if isinstance(v, Mapping) else v[k] for v in (value, adjoint) if _has_parts(v)]
        if len(parts) < 2:
            continue
        where = f"{path}.{member.name}"
        if isinstance(member.type, Struct):
            _check_members(where, member.type, *parts)
        elif has_derivative(member.type) and parts[0] is not None and parts[1] is None:
            raise ArgumentError(f"the adjoint of '{path}' lacks '{where}': every array of the struct needs one")


def _item_size(param: Param) -> int:
    return max(1, param.type.pointee.size) if isinstance(param.type, Pointer) else 1


def _has_parts(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | list)
