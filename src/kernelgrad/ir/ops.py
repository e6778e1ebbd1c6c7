"""The IR's grammar: values, blocks, and one frozen dataclass per operation.

A function's body is a `Block`: arguments, operations in order, results. Control flow nests blocks inside `If`, `For`
and `While`. Every value is defined once; a block sees the values defined before it in the blocks around it.

Each field of an operation is one of: a `Value` or a tuple of them (operands), a `Block` (region), or plain data
(attribute). `traverse`, `printer` and `parser` work from that alone, so a new operation is one class here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..errors import UNKNOWN, Span
from .constructors import constructor
from .types import Space, Struct, Type


class Value:
    """An SSA value. Equal only to itself; `name` is the source's name for it, where it has one, or what a pass calls
    it, behind a `~`."""

    __slots__ = ("type", "name")

    def __init__(self, type: Type, name: str | None = None):
        self.type, self.name = type, name

    @property
    def shown(self) -> str | None:
        """The name, for people."""
        return self.name and self.name.removeprefix("~")

    @property
    def source_name(self) -> str | None:
        return self.name if self.name and not self.name.startswith("~") else None

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    args: tuple[Value, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]
    found_kinds: frozenset[Kind] | None = field(default=None, init=False, repr=False)  # for `traverse.kinds`
    is_simple: bool = field(default=False, init=False, repr=False)  # a body in which `simplify` found nothing to do
    is_lean: bool = field(default=False, init=False, repr=False)  # a body in which `dce` would find nothing


Kind = type["Op"] | str  # of operations, and of pure functions by their names
TOGETHER = "together"  # the kind of an `Atomic` that lanes make together


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Op:
    results: tuple[Value, ...] = ()
    span: Span = UNKNOWN
    result: Value = field(init=False, repr=False)  # of an operation that has one: what passes ask for most

    def __post_init__(self) -> None:
        if len(self.results) == 1:
            object.__setattr__(self, "result", self.results[0])


# ---- values -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Op):
    """A number of the result's type; 0 for a pointer is null."""

    value: int | float | bool


@dataclass(frozen=True, eq=False, slots=True)
class Undef(Op):
    """A value nobody set: an uninitialised variable. Backends use zero."""


@dataclass(frozen=True, eq=False, slots=True)
class Apply(Op):
    """A pure function of scalars (see `functions.PURE`)."""

    fn: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Aggregate(Op):
    """A struct or array from its parts."""

    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Extract(Op):
    """Part `index` of a struct or array value."""

    aggregate: Value
    index: int


@dataclass(frozen=True, eq=False, slots=True)
class Insert(Op):
    """`aggregate` with part `index` replaced by `value`."""

    aggregate: Value
    value: Value
    index: int


@dataclass(frozen=True, eq=False, slots=True)
class Builtin(Op):
    """thread_idx, block_idx, block_dim, grid_dim (axis 0, 1, 2), lane_id, warp_size, clock, clock64, globaltimer."""

    name: str
    axis: int = 0


# ---- memory -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Alloca(Op):
    """Thread-private memory for one value of the result's pointee type; one instance per execution of its block."""


@dataclass(frozen=True, eq=False, slots=True)
class GlobalRef(Op):
    """The address of a module-level variable: `__device__`, `__constant__` or `__shared__`."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Offset(Op):
    """`ptr + index`, counted in elements of the pointee; the index is an integer of 32 or 64 bits."""

    ptr: Value
    index: Value


@dataclass(frozen=True, eq=False, slots=True)
class Member(Op):
    """The address of field `index` of the struct at `ptr`."""

    ptr: Value
    index: int


@dataclass(frozen=True, eq=False, slots=True)
class PtrCast(Op):
    """The same address as another pointer type: array decay, reinterpretation, a change of space."""

    ptr: Value


@dataclass(frozen=True, eq=False, slots=True)
class PtrDiff(Op):
    """`left - right` in elements, as i64."""

    left: Value
    right: Value


@dataclass(frozen=True, eq=False, slots=True)
class Load(Op):
    ptr: Value
    volatile: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Store(Op):
    ptr: Value
    value: Value
    volatile: bool = False


AtomicKind = Literal["add", "sub", "exch", "take", "min", "max", "inc", "dec", "and", "or", "xor", "cas"]
Scope = Literal["block", "device", "system"]


@dataclass(frozen=True, eq=False, slots=True)
class Atomic(Op):
    """Read-modify-write; the result is the old contents. `cas` takes (expected, desired), the others one value. `take`
    is an exchange of an adjoint for zero: it does not matter which thread gets it.
    `together`: a hint for an `add` whose result is not used: often, all lanes of a warp have the same address."""

    kind: AtomicKind
    ptr: Value
    args: tuple[Value, ...]
    scope: Scope = "device"
    together: bool = False


# ---- threads ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Barrier(Op):
    """All live threads of the block, or the warp's threads named in `args[0]` (a mask), meet here."""

    scope: Literal["block", "warp"]
    args: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class BarrierReduce(Op):
    """`__syncthreads_count/and/or`: a block barrier whose i32 result combines every thread's i32 predicate.
    `sum`: of every thread's float, in an order that depends on the block's size alone.
    `threads`: how many there are, where that is known and they make whole warps. With it, and where no loop is around:
    `tree_add`, `tree_max`, `tree_min`: of every thread's float, in the order of a tree that combines a block's halves
    first, or if it is `rising`, neighbours; there are a power of two. `min`: of every thread's integer."""

    kind: Literal["count", "and", "or", "sum", "tree_add", "tree_max", "tree_min", "min"]
    value: Value
    threads: int = 0
    rising: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Warp(Op):
    """A warp-wide function; `args[0]` is the mask (u32) except for activemask.

    shfl_idx, shfl_up, shfl_down, shfl_xor (mask, value, lane, width);
    vote_any, vote_all, vote_uni (mask, bool) -> bool; vote_ballot (mask, bool) -> u32;
    match_any (mask, value) -> u32; match_all (mask, value) -> u32, bool;
    reduce_add, reduce_min, reduce_max, reduce_and, reduce_or, reduce_xor (mask, integer); activemask () -> u32;
    reduce_add (mask, float), where the whole warp is there, in an order that depends on its size alone.

    On CUDA alone, where the whole warp is there (`schedule/sum_over/lane_sums`):
    lanes_alike (mask, integer) -> u32: the value is the same for each 32, 16 or 8 neighbours; 1 if it is not;
    lane_sums (mask, pointer to eight floats, lanes): for lane j, float j % 8 summed over its 32, 16 or 8 neighbours;
    warp_sums (mask, pointer to 32 floats): for lane j, float j summed over all lanes;
    lanes_total (mask, float): summed over all lanes, for each of them;
    lanes_totals (mask, float, float): the first one's for lanes below 16, the other's for those from 16 on;
    lane_columns (mask, array of N = 16 or 32 floats) -> bool: exchanges them, for lane_products (mask, float, array):
    for lane j, the sum over all lanes of their float times what float j % N was there; False if some are not finite.
    """

    fn: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Fence(Op):
    scope: Scope


# ---- effects ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Print(Op):
    """printf; string arguments are part of the format by now."""

    format: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Assert(Op):
    cond: Value
    message: str


@dataclass(frozen=True, eq=False, slots=True)
class Trap(Op):
    """Abort the kernel."""


@dataclass(frozen=True, eq=False, slots=True)
class Leave(Op):
    """The thread leaves the kernel: an early `return` that barriers notice (Note [Exit]). A mark, not a jump."""


@dataclass(frozen=True, eq=False, slots=True)
class Call(Op):
    """A call of another function of the module; inlining removes them all."""

    callee: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Derivative(Op):
    """A derivative of another function of the module, which the source asks for: `frontend/in_source` has its modes.
    `activity`: of each parameter, "dup", "out" or "const", with commas between them. `args`: what the function takes.
    `shadows`: of the `dup` ones, in order, the adjoints or tangents. `given`: the adjoint of its value and the tape,
    where `backward` has them. `config`: of a kernel, as of a `KernelLaunch`. The results: adjoints of the `out` ones,
    the tangent of the value, or the tape. In device code, `autodiff/requested` puts code in its place; in host code,
    `programs` runs it."""

    fn: str
    mode: str
    activity: str
    config: tuple[Value, ...]
    args: tuple[Value, ...]
    shadows: tuple[Value, ...]
    given: tuple[Value, ...] = ()
    tape_bytes: int = 0


# ---- the host -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class HostCall(Op):
    """What host code asks its surroundings for, by name: memory, copies, streams, clocks, output, files. What each does
    is a row of `programs/calls`. Never in a kernel."""

    fn: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class KernelLaunch(Op):
    """`kernel<<<grid, block, shared, stream>>>(args)`. `config`: grid.x, .y, .z, block.x, .y, .z, bytes, stream."""

    kernel: str
    config: tuple[Value, ...]
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Registered(Op):
    """A call of a host function whose augmented forward and reverse passes the source gives (`frontend/registered`)."""

    fn: str
    augmented: str
    reverse: str
    args: tuple[Value, ...]


# ---- control ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class If(Op):
    """`exits` says that the threads of one side leave the kernel: an early `return` (Note [Exit]). If the other side
    alone does anything, those are the ones that skip it."""

    cond: Value
    then: Block
    orelse: Block
    exits: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class For(Op):
    """`for (iv = lower; iv < upper; iv += step)`, or `iv > upper` for a negative step; step is a constant, not 0.

    The body's arguments are iv and the carried values; its results are the next carried values.
    `unroll`: None as the compiler likes, 0 fully, 1 not at all, n by n.
    """

    lower: Value
    upper: Value
    inits: tuple[Value, ...]
    step: int
    body: Block
    unroll: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class While(Op):
    """`before` computes (condition, *forwarded) from the carried values; `body` takes the forwarded values and gives
    the next carried ones. The loop's results are the forwarded values when the condition fails."""

    inits: tuple[Value, ...]
    before: Block
    body: Block
    unroll: int | None = None


# Note [Exit]
# A structured kernel has no `return`: what follows `if (i >= n) return;` stands inside an If. A barrier in there is met
# by the remaining threads only, and that is fine, since the others are gone. `exits=True` marks those Ifs, so that a
# barrier that *live* threads reach divergently can still be told apart and reported.
#
# Some returns cannot be told from branches: a thread that returns at the end of a loop's body skips nothing but the
# next iteration, as one does that is done with the loop; and where both sides of an If do something, it does not say
# which one leaves. There a `Leave` stands where the `return` stood. The conditions around it see to it that such a
# thread does nothing more; `Leave` only tells those who count threads. `transforms.returns` drops those that no barrier
# notices.


# ---- functions ----------------------------------------------------------------------------------------------------


SEGMENT = "_segment"  # the parameter that has the length of a checkpointed loop's segments
BLOCKS = "_blocks"  # the one that has the number of blocks that others are the turns of, see transforms/block_turns
ADJOINT = "_d_"  # what the names of memory that holds adjoints begin with


def called(name: str) -> str:
    """What messages call the memory of a name: users do not know their adjoints' names."""
    return f"the adjoint of {name.removeprefix(ADJOINT)}" if name.startswith(ADJOINT) else name


@dataclass(frozen=True, eq=False, slots=True)
class Param:
    """A parameter: its value in the body, and how the C++ source wrote it."""

    value: Value
    c_type: str
    const: bool = False  # a pointer to const
    restrict: bool = False  # overlaps no other
    own: bool = False  # no thread sees what another one wrote there in the same launch
    variable: str | None = (
        None  # the module variable whose address the launcher passes here; not an argument of the user
    )
    pack: str | None = None  # the parameter pack that it is an element of
    shown: str | None = None  # what the user calls it, where that is not its name
    name: str = field(init=False, repr=False)  # those of the value
    type: Type = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.value.name or "_")
        object.__setattr__(self, "type", self.value.type)

    @property
    def called(self) -> str:
        """For messages."""
        return self.shown or self.name


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    name: str
    kind: Literal["kernel", "device", "host"]
    params: tuple[Param, ...]
    body: Block
    span: Span = UNKNOWN
    launch_bounds: tuple[int, ...] = ()
    shown: str | None = None  # what the user calls it, where that is not its name: the kernel that it was made of
    apart: tuple[str, ...] = ()  # parameters no two of which may share memory: derivatives in it count on that
    tapes: tuple[tuple[str, int], ...] = ()  # parameters for memory of tapes that it makes, with bytes for each thread
    stacks: tuple[tuple[str, int], ...] = ()  # endings of those for stacks of its derivatives, with bytes of an element
    arena: bool = False  # it makes tapes of any number and size, in memory that is a parameter

    @property
    def called(self) -> str:
        """For messages."""
        return self.shown or self.name

    @property
    def result_type(self) -> Type | None:
        return self.body.results[0].type if self.body.results else None


@dataclass(frozen=True, slots=True)
class Global:
    """A module-level variable. `init` is its initial bytes, None for zero (or, in shared memory, for nothing).
    A shared array of count 0 is the launch's dynamic shared memory."""

    name: str
    type: Type
    space: Space
    init: bytes | None = None
    span: Span = UNKNOWN
    managed: bool = False  # the host may use it, too
    fixed: bool = False  # const, and so always what it is initialised with


@dataclass(frozen=True, eq=False, slots=True)
class Module:
    functions: Mapping[str, Function] = field(default_factory=dict)
    globals: Mapping[str, Global] = field(default_factory=dict)
    structs: Mapping[str, Struct] = field(default_factory=dict)


# ---- construction -------------------------------------------------------------------------------------------------

OPERATIONS = [kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, Op)]
_SET_RESULT = "if len(results) == 1: set_result(self, results[0])"  # as `Op.__post_init__`
for _kind in OPERATIONS:
    _kind.__init__ = constructor(_kind, _SET_RESULT, set_result=vars(Op)["result"].__set__)  # type: ignore[method-assign]
Block.__init__ = constructor(Block)  # type: ignore[method-assign]
