"""What a recording must know of a kernel: which memory it reads and writes, whether it may be run again, and in which
form it is reversed.

Note [Forms of a reverse]
`reverse`: the reverse alone (`primal=False`), on buffers that hold what they held before the launch; it reads few of
them, none if the kernel is linear. `joint`: the kernel and its reverse, where the reverse needs what the kernel made
and overwrote on the way; it reads what the kernel reads. `split`: for kernels that may do something else when they run
again (slots that integer atomics hand out, clocks, output): the launch itself keeps what its reverse needs, on a tape
of its own. `none`: nothing it writes has an adjoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..analysis.roots import UNKNOWN, Memory, analyse, holds_pointers
from ..analysis.store_deciders import store_deciders
from ..autodiff.calculus.activity import holds_floats
from ..derivatives.asked.settings import Settings, has_derivative, make_settings
from ..derivatives.gradient import Gradient
from ..derivatives.jvp import Tangent
from ..derivatives.module_variables import with_variables
from ..derivatives.split import Forward, Reverse
from ..errors import SourceError, UnsupportedError
from ..ir.layout import leaves, param_layout
from ..ir.ops import Atomic, Builtin, Function, Load, Op, Print, Store, Value
from ..ir.traverse import uses, walk
from ..ir.types import Pointer
from ..kernel import Kernel
from ..launches.memory.saved_buffers import changing
from ..locks import COMPILING, cached_property
from ..runtime.config import Launch
from ..runtime.integers import integers_of
from ..runtime.launch import BoundArguments
from ..runtime.signature import user_params
from .bit_traffic import bit_traffic

_CLOCKS = ("clock", "clock64", "globaltimer")
_REMEMBERED = 1024  # kinds of launches
PRINTS = "it prints"


class Deciding(NamedTuple):
    """The parameters that decide where a kernel stores: their names, and where in packed arguments their numbers are,
    and their pointers, which may be null."""

    names: frozenset[str]
    places: tuple[tuple[int, int], ...]
    pointers: tuple[tuple[int, int], ...]


Kind = Literal["reverse", "joint", "split", "none"]


@dataclass
class Form:
    """How launches of a kernel are reversed. `problem`: why they cannot be; an error when an adjoint gets there."""

    kind: Kind
    gradient: Gradient | None = None
    forward: Forward | None = None
    reverse: Reverse | None = None
    problem: SourceError | None = None
    reread: dict[Any, frozenset[str]] = field(default_factory=dict)  # by kinds of launches


class KernelFacts:
    """`reads`, `writes`: parameters and module variables. `varies`: what may come out differently when it is run again,
    None if nothing. `unknown_load`: from behind a pointer that lies in memory, which may be any memory. `listed`: what
    has an adjoint; `floats`: the memory among it, by paths."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.function = kernel.function
        memory = analyse(self.function)
        _refuse_unknown(self.function, memory)
        self.variables = tuple(n for n in memory.global_names if kernel.module.globals[n].space != "shared")
        self.names = _names(self.function, memory, self.variables)
        loads = [op for op in walk(self.function.body) if isinstance(op, Load | Atomic)]
        self.reads = frozenset(self._of(memory, loads))
        self.unknown_load = next((op for op in loads if UNKNOWN in memory.of(op.ptr)), None)
        stores = frozenset(self._of(memory, memory.stores))
        self.writes = frozenset(kernel.written) | {name for name in stores if name in self.variables}
        self.varies = why_it_varies(self.function)
        self.bits = bit_traffic(self.function, memory, self.names)
        self.adds_floats = any(isinstance(op, Atomic) and holds_floats(op.result.type) for op in memory.stores)
        floats = [n for n in self.variables if holds_floats(kernel.module.globals[n].type)]
        self.listed = (*(p.name for p in user_params(self.function) if has_derivative(p.type)), *floats)
        self.floats = frozenset((*_float_pointers(self.function), *floats))
        self.unlisted = self._unlisted_floats(memory, loads)
        self.writes_adjoints = bool({name.partition(".")[0] for name in self.writes} & set(self.listed))
        self.covered: dict[Any, frozenset[str]] = {}  # by kinds of launches: the buffers that they store to all of
        self._forms: dict[bool, Form] = {}
        self._tapes: dict[bool, Form | None] = {}

    def _of(self, memory: Memory, ops: Any) -> list[str]:
        return [self.names[root] for op in ops for root in memory.of(op.ptr) if root in self.names]

    def _unlisted_floats(self, memory: Memory, loads: list[Load | Atomic]) -> Op | None:
        """An access to floats behind pointers to something else: these have no adjoint that could be given."""
        accesses: list[Any] = [*loads, *memory.stores]
        for op in accesses:
            type = op.value.type if isinstance(op, Store) else op.results[0].type
            if holds_floats(type) and any(self._is_unlisted(root) for root in memory.of(op.ptr)):
                found: Op = op
                return found
        return None

    def _is_unlisted(self, root: Value) -> bool:
        return root is UNKNOWN or (root in self.names and self.names[root] not in self.listed)

    @cached_property
    def deciding(self) -> Deciding | None:
        """None where memory decides, too."""
        found = store_deciders(self.function)
        if found is None:
            return None
        params = zip(user_params(self.function), param_layout(self.function)[0], strict=False)
        own = [(p, start) for p, start in params if p.value in found]
        parts = [leaf for p, start in own for leaf in leaves(p.type, p.name, start)]
        places = [tuple([(at, t.size) for _, at, t in parts if isinstance(t, Pointer) is k]) for k in (False, True)]
        return Deciding(frozenset(p.name for p, _ in own), *places)

    # ---- how it is reversed

    def form(self, may_alias: bool) -> Form:
        if may_alias not in self._forms:
            with COMPILING:
                self._forms[may_alias] = self._make_form(may_alias)
        return self._forms[may_alias]

    def _make_form(self, may_alias: bool) -> Form:
        if self.kernel.refusal is not None:
            return Form("none", problem=self.kernel.refusal)
        if self.unlisted is not None:
            return Form("none", problem=self._behind_other_pointers(self.unlisted))
        if not self.writes_adjoints:
            return Form("none")
        if self.unknown_load is not None:
            return Form("none", problem=_through_memory(self.function, self.unknown_load, "reads"))
        makers = (self._split,) if self.varies else (self._reverse, self._joint, self._split)
        problem: SourceError | None = None
        for make in makers:
            try:
                return make(may_alias)
            except UnsupportedError as error:
                problem = error
        return Form("none", problem=problem)

    def _behind_other_pointers(self, op: Op) -> UnsupportedError:
        reason = "floating-point numbers behind a pointer to something else cannot be followed from launch to launch"
        return UnsupportedError(reason, op.span, "give the parameter its type, float * or double *")

    @cached_property
    def tangent(self) -> Tangent:
        """Forward mode, by all parameters that have a derivative; an error where there is none."""
        if self.kernel.refusal is not None:
            raise self.kernel.refusal
        if self.unlisted is not None:
            raise self._behind_other_pointers(self.unlisted)
        own = {p.name for p in user_params(self.function)}
        return Tangent(self.kernel, tuple(name for name in self.listed if name in own), may_alias=True)

    @cached_property
    def target(self) -> Kernel:
        """The kernel with the variables that have adjoints as parameters."""
        return with_variables(self.kernel, self.listed)

    def _settings(self, mode: Any, may_alias: bool, saved: frozenset[str] = frozenset()) -> Settings:
        return make_settings(self.target.function, self.listed, mode, None, None, may_alias, None, changing=saved)

    def _reverse(self, may_alias: bool) -> Form:
        return Form("reverse", Gradient(self.target, self._settings("reverse", may_alias)))

    def _joint(self, may_alias: bool) -> Form:
        return Form("joint", Gradient(self.target, self._settings("joint", may_alias)))

    def _split(self, may_alias: bool) -> Form:
        forward = Forward(self.target, self._settings("split", may_alias, changing(self.target, None)))
        return Form("split", None, forward, Reverse(forward))

    def tape_form(self, may_alias: bool) -> Form | None:
        """The launch that keeps what its reverse needs, where there is one."""
        if may_alias not in self._tapes:
            with COMPILING:
                try:
                    self._tapes[may_alias] = self._split(may_alias)
                except UnsupportedError:
                    self._tapes[may_alias] = None
        return self._tapes[may_alias]

    def use_instead(self, may_alias: bool) -> Form:
        """Where a launch has no variant of the reverse alone."""
        self._forms[may_alias] = self._joint(may_alias)
        return self._forms[may_alias]

    def reread(
        self, form: Form, launch: Launch, bound: BoundArguments, device: int | None, args: Any, adjoints: Any
    ) -> frozenset[str]:
        """Which of its parameters and variables the reverse of a launch reads. `adjoints()`: such as it will get."""
        if form.gradient is None:
            return frozenset()
        integers = integers_of(self.function).read(bound.packed)
        shape = tuple([(b.name, b.nbytes, b.address % 16) for b in bound.buffers])
        key = launch.grid, launch.block, launch.shared_bytes, integers, shape, device
        found = form.reread.get(key)
        if found is None:
            if len(form.reread) >= _REMEMBERED:
                form.reread.clear()
            read = form.gradient.buffers_read(launch, (*args, *adjoints()))
            found = self.reads if read is None or form.kind == "joint" else read | frozenset()
            form.reread[key] = found
        return found


def _refuse_unknown(function: Function, memory: Memory) -> None:
    """Memory behind pointers in memory: nobody knows what is overwritten there."""
    for op in memory.stores:
        if UNKNOWN in memory.of(op.ptr):  # type: ignore[attr-defined]
            raise _through_memory(function, op, "writes")


def _through_memory(function: Function, op: Op, does: str) -> UnsupportedError:
    reason = f"{function.name} cannot be reversed in a recording: it {does} through a pointer that lies in memory"
    return UnsupportedError(reason, op.span, "pass the array itself")


def _names(function: Function, memory: Memory, variables: Iterable[str]) -> dict[Value, str]:
    params = {p.value: p.variable or p.name for p in function.params if holds_pointers(p.type)}
    return params | {memory.global_names[name]: name for name in variables}


def _float_pointers(function: Function) -> list[str]:
    """The paths of pointers to floats."""
    found = [leaf for p in user_params(function) for leaf in leaves(p.type, p.name)]
    return [path for path, _, type in found if isinstance(type, Pointer) and holds_floats(type.pointee)]


def why_it_varies(function: Function) -> str | None:
    """Why the kernel may do something else when it runs again; that it prints is said where nothing else is found."""
    used = uses(function.body)
    prints = None
    for op in walk(function.body):
        match op:
            case Print():
                prints = PRINTS
            case Builtin(name) if name in _CLOCKS:
                return "it reads a clock"
            case Atomic() if used.get(op.result):
                return "it uses what an atomic returns"
            case Atomic(kind="exch" | "cas"):
                return "the last of its threads to write wins"
            case Load(volatile=True) | Store(volatile=True):
                return "it reads or writes volatile memory"
            case _:
                pass
    return prints


def facts_of(kernel: Kernel) -> KernelFacts:
    """Found once for a kernel, which keeps them."""
    found: KernelFacts | None = vars(kernel).get("host_facts")
    if found is None:
        with COMPILING:
            found = vars(kernel).setdefault("host_facts", KernelFacts(kernel))
    return found
