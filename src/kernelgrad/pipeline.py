"""The ordered pass lists: the one file that names every stage between the C++ text and the backends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from .analysis.tuning import PLAIN, KeptRows, Tuning, Vectorization
from .cache import DiskCache, digest, source_digest
from .deep import deeply, on_large_stack
from .errors import InternalError, LookupFailed, ParseError, SourceError, UnsupportedError
from .frontend.clang import Cursor
from .frontend.lowering import Lowering
from .frontend.unit import Unit
from .frontend.variables import module_variable
from .frontend.visiting import told_plainly
from .ir import serial
from .ir.ops import (
    Atomic,
    Barrier,
    BarrierReduce,
    Call,
    Derivative,
    For,
    Function,
    Global,
    GlobalRef,
    HostCall,
    KernelLaunch,
    Leave,
    Load,
    Member,
    Module,
    Offset,
    Param,
    PtrCast,
    Registered,
    Store,
    Undef,
    Warp,
    While,
)
from .ir.printer import print_module
from .ir.traverse import used_structs, walk
from .ir.verifier import verify
from .locks import compiling
from .progress import COUNTS, doing
from .transforms.passes import Pass, applied

if TYPE_CHECKING:
    from .autodiff.requested import Compiler
    from .frontend.custom_derivatives import CustomDerivatives
    from .schedule.interleave import Groups

KERNEL = (
    Pass("inline", "transforms.inline", (Call,)),
    Pass("returns", "transforms.returns", (Leave,)),
    Pass("promote", "transforms.promote"),
    Pass("simplify", "transforms.simplify"),
    Pass("conditions", "transforms.conditions", (While,)),
    Pass("left_steps", "transforms.left_steps", (While,)),
    Pass("walks", "transforms.walks", (While,)),
    Pass("do_loops", "transforms.do_loops", (While,)),
    Pass("loops", "transforms.loops", (While,)),
    Pass("distances", "transforms.distances", (For,)),
    Pass("spaces", "transforms.spaces"),
    Pass("loads", "transforms.loads", (Load,)),
    Pass("tidy", "transforms.simplify"),
    Pass("unfused", "transforms.unfused"),
)

# A host function: its calls in place, its variables values. Pointers stay without a space: they come from anywhere.
HOST = tuple(p for p in KERNEL if p.name in ("inline", "promote", "simplify", "loops"))

# What reverse and forward mode emit is full of local variables for adjoints and tape positions.
DERIVATIVE = (
    Pass("promote", "transforms.promote"),
    Pass("simplify", "transforms.simplify"),
    Pass("branch_updates", "transforms.branch_updates", (GlobalRef,)),
    Pass("loads", "transforms.loads", (Load,)),
    Pass("tidy", "transforms.simplify"),
    Pass("stores", "transforms.stores", (Store,)),
    Pass("clean", "transforms.simplify"),
)
ARRANGED = (
    Pass("unread", "transforms.dce:without_unread", (GlobalRef, Warp, BarrierReduce)),
    Pass("barriers", "transforms.barriers", (Barrier,)),
)
# After the analyses that ask for whose elements are.
DIGITS = Pass("digits", "transforms.digit_sums", ("div", "rem"))
LAST = (Pass("schedule", "schedule.order.loads_first", (Load, Store)),)

# Each neighbour has a copy of everything at first, also of what is the same for all.
WIDENED = (
    Pass("share", "transforms.simplify"),
    Pass("loads", "transforms.loads", (Load,)),
    Pass("tidy", "transforms.simplify"),
)

# For gradients that do nothing but sum over very many blocks.
UNROLLED_UPDATES = Pass("unroll_updates", "autodiff.accumulate.block_constant_sums:unrolled", (For, While))
UNROLLED_LOADS = Pass("unroll_loads", "schedule.coarsen.unroll_loads", (For, While))

UNMASK = Pass("unmask", "transforms.unmask", ("masked",))
# What the source gives of derivatives is nothing to a backend.
GIVEN = Pass("given", "transforms.erase_custom", ("stop", "custom", "custom_forward", "custom_reverse"))
# Late: until then, loops over the same elements are recognised as such.
LONE = Pass("lone_iterations", "transforms.lone_iterations", (For,))
# The CPU gets the address of every module variable; CUDA keeps `__constant__` memory as such.
CPU = (
    GIVEN,
    Pass("cpu-variables", "transforms.globals", (GlobalRef,), (("global", "constant"),)),
    LONE,
    UNMASK,
)
# Lanes that run side by side add up together; memory has loads and stores under way.
CUDA = (
    GIVEN,
    Pass("cuda-variables", "transforms.globals", (GlobalRef,), (("global",),)),
    LONE,
    Pass("block_tiles", "schedule.coarsen.block_tiles", (For,)),
    Pass("dealt_loops", "schedule.sum_over.dealt_loops", (For, While)),
    Pass("contraction", "schedule.sum_over.contraction", (For, While)),
    Pass("lane_sums", "schedule.sum_over.lane_sums", (For,)),
    UNMASK,
    Pass("consumed", "schedule.order.late_zeros", (Store,)),
)

# A function of one thread: what its parameters lead to may be another thread's, at the same index.
CUDA_FUNCTION = tuple(p for p in CUDA if p.name not in ("block_tiles", "dealt_loops", "contraction", "lane_sums"))

STAGES = ("frontend", *(p.name for p in KERNEL))


def lower(unit: Unit, name: str) -> tuple[Module, str]:
    """The IR of the function a user names, and of all it calls, as the frontend gives it; and its name there."""
    return lower_for_derivatives(unit, name)[:2]


@doing(lambda unit, name: f"reading {name}")
@on_large_stack
@told_plainly
def lower_for_derivatives(unit: Unit, name: str) -> tuple[Module, str, SourceError | None]:
    """The same, and why it has no derivatives, if it has none though it runs."""
    found, cursor = unit.find(name)
    lowering = Lowering(found)
    ir_name = lowering.function(cursor, found.span(cursor))
    if found.may_have_guides:
        from .frontend.guides import check_guides

        check_guides(found, lowering.reached)
    if found.lacks_parts:
        from .frontend.reached import check_missing_parts

        check_missing_parts(found, lowering.reached, lowering.types.declarations())
    module = with_requests(lowering.module(), ir_name)
    if not found.may_give_derivatives:
        return module, ir_name, None
    from .frontend.custom_derivatives import CustomDerivatives

    given = CustomDerivatives(found, lowering.reached)
    if given.probes:
        return lower_for_derivatives(Unit(unit.name, "\n".join((unit.text, *given.probes)), unit.options), name)
    if given.refusal is not None or not given.of:
        return module, ir_name, given.refusal
    try:
        return _with_derivatives(found, cursor, given), ir_name, None
    except (UnsupportedError, ParseError) as error:
        return module, ir_name, error


def _with_derivatives(unit: Unit, cursor: Cursor, given: CustomDerivatives) -> Module:
    """The module with the functions that have custom derivatives made of those."""
    from .autodiff import custom

    lowering = Lowering(unit)
    name = lowering.function(cursor, unit.span(cursor))
    customs = given.lowered(lowering)
    if unit.lacks_parts:
        from .frontend.reached import check_missing_parts

        check_missing_parts(unit, lowering.reached, lowering.types.declarations())
    module = custom.run(lowering.module(), customs)
    verify(module, "custom derivatives")
    return with_requests(module, name)


def with_requests(module: Module, root: str) -> Module:
    """The module with the derivatives that device code asks for in place."""
    verify(module, "frontend")
    if not any(isinstance(op, Derivative) for f in module.functions.values() for op in walk(f.body)):
        return module
    from .autodiff import requested

    module = requested.run(module, root, request_compiler())
    verify(module, "requested derivatives")
    return module


def request_compiler() -> Compiler:
    """What makes code of the derivatives that device code asks for."""
    from .autodiff.requested import Compiler

    return Compiler(compile_kernel, _finished)


def with_requests_on_any(module: Module, kernel: str) -> Module:
    """Such a module, with a kernel whose derivatives do not count on its arguments being apart."""
    from .autodiff import requested

    module = requested.run_on_any(module, kernel, request_compiler())
    verify(module, "requested derivatives")
    return module


def _finished(function: Function, module: Module, adjoints: frozenset[str]) -> Function:
    """A derivative that becomes part of a kernel."""
    return finish_derivative(function, module, adjoints, adjoints, adjoints=adjoints).functions[function.name]


def stages(module: Module, name: str) -> Iterator[tuple[str, Module]]:
    """The module after each stage: first as it is, then one function with every call inlined."""
    yield "frontend", module
    for stage in KERNEL:
        module = _apply(stage, module, name)
        yield stage.name, module


@doing(lambda module, name: f"simplifying {name}")
@compiling
@deeply
def compile_kernel(module: Module, name: str) -> Module:
    """One function ready for the backends, with the variables and records it uses."""
    return _remembered(module, f"kernel {name}", lambda: for_target(module, name, KERNEL))


def is_program(module: Module, name: str) -> bool:
    """Whether a function, or one that it calls, does what only host code does. Kernels that it launches do not.
    `main` is the program, whatever it does."""
    if module.functions[name].kind != "host":
        return False
    if name == "main":
        return True
    waiting, seen = [name], {name}
    while waiting:
        for op in walk(module.functions[waiting.pop()].body):
            is_host = isinstance(op, HostCall | KernelLaunch | Derivative | Registered) or (
                isinstance(op, GlobalRef) and module.globals[op.name].space == "host"
            )
            if is_host:
                return True
            if isinstance(op, Call) and op.callee not in seen:
                seen.add(op.callee)
                waiting.append(op.callee)
    return False


@doing(lambda module, name: f"simplifying {name}")
@compiling
@deeply
def compile_host(module: Module, name: str) -> Module:
    """One host function with all it calls in it; the kernels that it launches stay in `module`."""
    return for_target(module, name, HOST)


@doing(lambda function, *_, **__: f"simplifying {function.name}")
@compiling
@deeply
def finish_derivative(
    function: Function,
    module: Module,
    shadows: frozenset[str] = frozenset(),
    gathering: frozenset[str] = frozenset(),
    tuning: Tuning = PLAIN,
    only_sums: bool = False,
    adjoints: frozenset[str] = frozenset(),
    filled: frozenset[str] = frozenset(),
    wide: frozenset[str] = frozenset(),
) -> Module:
    """A function that autodiff emitted, ready for the backends like a kernel of the user's. `shadows`: the parameters
    through which the user sees adjoints. `gathering`: all memory in which adjoints are added up. `tuning`: what is
    known of its launches. `only_sums`: that is all its loop does, which may take several turns at a time. `adjoints`:
    the memory of adjoints, if those of zero are to stay zero. `filled`: shared variables that it fills before it reads
    them, in every iteration. `wide`: the parameters that are doubles in place of floats."""
    COUNTS.finished += 1
    emitted = Module({function.name: function}, module.globals, module.structs)

    def compute() -> Module:
        verify(emitted, "autodiff")
        clean = _cleaned(emitted, function.name, gathering, only_sums, wide)
        tuned = _tuned(clean, function.name, tuning, gathering)
        zeros = (Pass("masks", "transforms.masks", (), (adjoints, filled)),) if adjoints else ()
        pieces = Pass("sum_pieces", "transforms.sum_pieces", (For,), (shadows | gathering | adjoints, tuning.totals))
        late = (DIGITS, *zeros, *((pieces,) if tuning.totals else ()), *LAST, *((UNROLLED_LOADS,) if only_sums else ()))
        last = Pass("zeros", "transforms.stores:positive_zeros", (Store,), (shadows,))
        result = for_target(tuned, function.name, (*late, last))
        _check_addresses(result.functions[function.name])
        return result

    told = (
        f"{sorted(shadows)} {sorted(gathering)} {tuning} {only_sums} {sorted(adjoints)} {sorted(filled)} {sorted(wide)}"
    )
    return _remembered(emitted, f"derivative {function.name} {told}", compute)


def _cleaned(
    emitted: Module,
    name: str,
    gathering: frozenset[str],
    only_sums: bool = False,
    wide: frozenset[str] = frozenset(),
) -> Module:
    sums = Pass("sums", "transforms.sums", (For, While), (gathering, only_sums, wide))
    return for_target(emitted, name, (*((UNROLLED_UPDATES,) if only_sums else ()), *DERIVATIVE, sums, *ARRANGED))


@compiling
@deeply
def cleaned_derivative(
    function: Function, module: Module, gathering: frozenset[str], wide: frozenset[str] = frozenset()
) -> Module:
    """A function that autodiff emitted, after the first of the passes that finish it: nothing is tuned yet, and no test
    for zeros is there."""
    emitted = Module({function.name: function}, module.globals, module.structs)
    told = f"cleaned {function.name} {sorted(gathering)} {sorted(wide)}"
    return _remembered(emitted, told, lambda: _cleaned(emitted, function.name, gathering, wide=wide))


@compiling
@deeply
def vectorized(module: Module, vector: Vectorization) -> Module:
    """A finished derivative whose threads do several elements each."""
    from .schedule.vectorize.rewrite import run

    (name,) = module.functions
    return for_target(module, name, (Pass("vector", lambda f, m: run(f, m, vector)), *WIDENED))


@compiling
@deeply
def with_kept_rows(module: Module, rows: KeptRows) -> Module:
    """A finished derivative whose threads keep elements from one loop over a row to the next."""
    from .schedule.rows.rewrite import cells_of, run

    ((name, function),) = module.functions.items()
    cells = cells_of(function, module, rows)
    module = replace(module, globals={**module.globals, **{own.name: own for own in cells.values()}})
    keep = Pass("rows", lambda f, _: run(f, rows, cells))
    return for_target(module, name, (keep, Pass("tidy", "transforms.simplify")))


@compiling
@deeply
def with_interleaved(module: Module, groups: Groups) -> Module:
    """A finished derivative that adds to several adjoints side by side."""
    from .schedule.interleave import run

    (name,) = module.functions
    return for_target(
        module, name, (Pass("interleave", lambda f, _: run(f, groups)), Pass("tidy", "transforms.simplify"))
    )


@compiling
@deeply
def with_slow_places(module: Module) -> Module:
    """A finished derivative whose loops add up what they add to one place in several turns."""
    slow = Pass("slow_places", "schedule.sum_over.slow_places", (For,))
    (name,) = module.functions
    return for_target(module, name, (slow, Pass("tidy", "transforms.simplify")))


@compiling
@deeply
def with_batched_loads(module: Module) -> Module:
    """A finished derivative whose loops load for several turns at once."""
    batched = Pass("batched_loads", "schedule.order.batched_loads", (For,))
    (name,) = module.functions
    return for_target(module, name, (batched, Pass("tidy", "transforms.simplify")))


@compiling
@deeply
def with_wide_loads(module: Module, aligned: frozenset[str]) -> Module:
    """A finished derivative that loads neighbours together from buffers that begin at multiples of 16 bytes."""
    wide = Pass("wide_loads", "schedule.vectorize.neighbour_loads", (Load,), (aligned,))
    (name,) = module.functions
    return for_target(module, name, (wide, Pass("tidy", "transforms.simplify")))


@compiling
@deeply
def with_half_adjoints(module: Module, params: Mapping[str, Param]) -> Module | None:
    """A finished derivative whose adjoints by these names are halves, as what they belong to; None where they cannot
    be."""
    from .schedule.half_adjoints import run

    (name,) = module.functions
    changed = run(module.functions[name], params)
    if changed is None:
        return None
    return for_target(replace(module, functions={name: changed}), name, (Pass("tidy", "transforms.simplify"),))


def in_tiles(module: Module, tuning: Tuning) -> Module:
    """With what the compiler must know of the launches, where warps are to do the work of several blocks."""
    if tuning.block is None or tuning.row == 1:
        return module
    from .schedule.coarsen.block_tiles import for_blocks

    (name,) = module.functions
    return replace(module, functions={name: for_blocks(module.functions[name], tuning.block)})


def _tuned(module: Module, name: str, tuning: Tuning, gathering: frozenset[str]) -> Module:
    if tuning.is_plain:
        return module
    from .schedule import tune

    function = module.functions[name]
    changed = tune.run(function, module, tuning, gathering)
    if changed.functions[name] is function:
        return module
    verify(changed, "tune")
    # What was put in has local variables for its sums, as autodiff's own code has.
    return for_target(changed, name, (*DERIVATIVE, *ARRANGED))


def _remembered(module: Module, what: str, compute: Callable[[], Module]) -> Module:
    """The passes' result from the disk cache, where the same IR went through the same code before."""
    texts = sorted({f.span.source.text or "" for f in module.functions.values()})
    key = digest(print_module(module), what, *texts, _code_digest())
    disk = DiskCache("ir")
    payload = disk.get(key)
    if payload is not None:
        try:
            return serial.load(payload)
        except (ValueError, LookupError, TypeError, AssertionError):  # of another version
            disk.remove(key)
    result = compute()
    disk.put(key, serial.dump(result))
    return result


@cache
def _code_digest() -> str:
    folders = ("ir", "analysis", "transforms", "autodiff", "schedule", "launches", "derivatives", ".")
    return digest(sys.version, *map(source_digest, folders))


def _check_addresses(function: Function) -> None:
    """A value that the plan forgot to keep is undefined; an access through one must never reach a device."""
    nowhere = {r for op in walk(function.body) if isinstance(op, Undef) for r in op.results}
    for op in walk(function.body):
        derived = isinstance(op, Offset | Member | PtrCast) and op.ptr in nowhere
        if derived:
            nowhere.update(op.results)
        elif isinstance(op, Load | Store | Atomic) and op.ptr in nowhere:
            raise InternalError(f"internal error in {function.name}: an address is undefined (from {op.span})")


@compiling
@deeply
def for_target(module: Module, name: str, passes: tuple[Pass, ...]) -> Module:
    """Verified at the end; if anything is wrong, after each pass, which tells whose fault it is."""
    try:
        result = module
        for stage in passes:
            result = replace(result, functions={name: applied(stage, result.functions[name], result)})
        result = _only(result, name)
        verify(result, passes[-1].name)
        return result
    except Exception:
        for stage in passes:
            module = _apply(stage, module, name)
        raise


def _apply(stage: Pass, module: Module, name: str) -> Module:
    function = applied(stage, module.functions[name], module)
    result = _only(replace(module, functions={name: function}), name)
    verify(result, stage.name)
    return result


def _only(module: Module, name: str) -> Module:
    """The module with nothing but the function and what it refers to."""
    function = module.functions[name]
    used = {op.name for op in walk(function.body) if isinstance(op, GlobalRef)}
    variables = {key: value for key, value in module.globals.items() if key in used}
    return Module({name: function}, variables, used_structs(function, variables.values()))


def declared_variable(unit: Unit, name: str) -> Global:
    """The module variable of that name, as kernels see it."""
    unit = unit.whole()
    found = [v for v in unit.variables() if name in (v.spelling, unit.qualified_name(v))]
    if not found:
        listed = ", ".join(unit.qualified_name(v) for v in unit.variables()) or "none"
        raise LookupFailed(f"no __constant__ or __device__ variable '{name}' in {unit.name}; it has: {listed}")
    return module_variable(unit, found[0])
