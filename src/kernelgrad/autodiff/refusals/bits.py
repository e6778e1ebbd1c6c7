"""Where the bits of an active value are taken as an integer, its derivative would be lost unseen (rule 15).

Follows integers that hold such bits to where they become floats again. Comparing them, or computing an address from
them, loses nothing: those have no derivative anyway. Memory is seen as the type it is declared with: integers read from
an array of floats are bits, a float read from an array of doubles is half of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from ...analysis.roots import Memory
from ...errors import Span, UnsupportedError
from ...ir.builder import pointee
from ...ir.ops import (
    Aggregate,
    Apply,
    Atomic,
    Extract,
    Function,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.traverse import blocks, control_flows, walk
from ...ir.types import Array, Pointer, Scalar, Struct, Type
from ...transforms.half_steps import odd_steps
from ..calculus.activity import Activity
from ..calculus.views import apart, held, leaves


def refuse_bits(function: Function, memory: Memory, activity: Activity, zeros: frozenset[int] = frozenset()) -> None:
    """`zeros`: stores of integers that are known to be zeros of whatever is there."""
    work = _Bits(function, memory, activity, zeros)
    ops = list(walk(function.body))
    for op in ops:
        if isinstance(op, While):
            work.check_swaps(op)
    for op in ops:
        work.check_access(op)
    while work.changed:
        work.changed = False
        for op in ops:
            work.op(op)


def refuse_odd_steps(function: Function, memory: Memory, activity: Activity) -> None:
    """Steps through half-precision numbers that lead elsewhere among their adjoints (see `transforms/half_steps`)."""
    for op, root in odd_steps(function, memory):
        if root in activity.roots:
            if isinstance(op, Offset | Member):
                reason = (
                    f"a pointer steps through the half-precision numbers in '{root.name}' as through something else"
                )
                raise UnsupportedError(reason, op.span, "step in numbers of its type, then cast the pointer")
            reason = f"half-precision numbers in '{root.name}', which is declared otherwise, have no gradient"
            raise UnsupportedError(reason, op.span, "declare the memory as what it holds")


class _Bits:
    def __init__(self, function: Function, memory: Memory, activity: Activity, zeros: frozenset[int]):
        self.memory, self.activity = memory, activity
        self.varied = activity.roots | self._written()  # memory that holds floats with derivatives
        self.apart = apart(function, memory, self.varied, activity.roots, zeros)
        self.values: set[Value] = set()  # integers that hold bits of active values
        self.roots: set[Value] = set()  # memory of integers that does
        self.mixed: set[Value] = set()  # memory of floats that does, or of bytes
        self.changed = True

    # ---- memory

    def _written(self) -> frozenset[Value]:
        stores = (op for op in self.memory.stores if isinstance(op, Store) and op.value in self.activity.varied)
        return frozenset[Value]().union(*(self.memory.of(op.ptr) for op in stores))

    def check_access(self, op: Op) -> None:
        """Memory that carries derivatives, written as something else than it holds."""
        if not isinstance(op, Store | Atomic | Load) or id(op) in self.apart:
            return
        types = leaves(pointee(op.ptr))
        for root in self.memory.of(op.ptr) & self.activity.roots:
            floats = held(root)
            narrower = {t for t in types if t.is_float} - floats
            if floats and narrower:
                self.refuse(f"memory of {_names(floats)} is accessed as {_names(narrower)}", op.span)
            if floats and not isinstance(op, Load) and not types & floats and not types & _integers(root):
                self.refuse(f"the bits of an active value in '{root.name}' are written", op.span)

    def check_swaps(self, loop: While) -> None:
        """Loops around atomicCAS that are known (see transforms/cas_loops) have become something else by now."""
        for op in (inner for block in blocks(loop) for inner in walk(block)):
            if isinstance(op, Atomic) and op.kind == "cas" and not _is_float(op.result):
                active = self.memory.of(op.ptr) & self.activity.roots
                if any(held(root) and not _integers(root) for root in active):
                    raise UnsupportedError(
                        "a loop around atomicCAS that is not known to add, or to take a maximum or minimum, has no"
                        " gradient",
                        loop.span,
                        "use atomicAdd, or the usual form of such a loop",
                    )

    def read_bits(self, op: Load) -> bool:
        types = leaves(op.result.type)
        if any(t.is_float for t in types):
            return False
        for root in self.memory.of(op.ptr):
            if root in self.roots:
                return True
            if id(op) in self.apart or root not in self.varied:
                continue
            if types and (not held(root) or not types & _integers(root)):
                return True
        return False

    # ---- values

    def op(self, op: Op) -> None:
        match op:
            case Apply("bitcast", (arg,)) if _is_float(arg) and not _is_float(op.result):
                if arg in self.activity.varied:
                    self.mark(op.result)
            case Apply(fn, args):
                if fn == "select":
                    args = args[1:]
                if any(a in self.values for a in args):
                    self.derived(op)
            case Load(ptr):
                if self.read_bits(op):
                    self.mark(op.result)
                if self.memory.of(ptr) & self.mixed and op.result in self.activity.useful:
                    self.refuse("the bits of an active value become a floating-point number again", op.span)
            case Store(ptr, value):
                if value in self.values:
                    self.keep(ptr)
            case Atomic(_, ptr, args):
                if any(a in self.values for a in args):
                    self.keep(ptr)
                if self.memory.of(ptr) & self.roots:
                    self.mark(op.result)
        for target, sources in flows(op):
            if any(v in self.values for v in sources):
                self.mark(target)

    def derived(self, op: Apply) -> None:
        type = op.result.type
        if _is_float(op.result):
            if op.result in self.activity.useful:
                self.refuse("the bits of an active value become a floating-point number again", op.span)
        elif not (isinstance(type, Scalar) and type.kind == "bool"):
            self.mark(op.result)

    def mark(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self.changed = True

    def keep(self, ptr: Value) -> None:
        roots = self.memory.of(ptr)
        self.changed |= not roots <= self.roots
        self.roots |= roots
        self.mixed |= {r for r in roots if not held(r) or not leaves(pointee(ptr)) & _integers(r)}

    def refuse(self, reason: str, span: Span) -> None:
        raise UnsupportedError(f"{reason}: the derivative would be lost", span, "compute with the value, not its bits")


def flows(op: Op) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """(value, what it takes over unchanged) for operations that move values."""
    match op:
        case Warp(fn, (_, value, *_)) if fn.startswith(("shfl", "reduce")):
            yield op.result, (value,)
        case Aggregate(args):
            yield op.result, args
        case Extract(aggregate, _):
            yield op.result, (aggregate,)
        case Insert(aggregate, value, _):
            yield op.result, (aggregate, value)
        case _:
            yield from control_flows(op)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


def _integers(root: Value) -> set[Scalar]:
    """The integers it holds beside them; those that share their place with a float, in a union, are its bits."""
    return _own_integers(root.type.pointee) if isinstance(root.type, Pointer) else set()


def _own_integers(type: Type) -> set[Scalar]:
    match type:
        case Scalar():
            return set() if type.is_float else {type}
        case Array(element, _):
            return _own_integers(element)
        case Struct():
            if type.is_union and any(t.is_float for t in leaves(type)):
                return set()
            return {leaf for field in type.fields for leaf in _own_integers(field.type)}
    return set()


def _names(types: Set[Scalar]) -> str:
    return " and ".join(sorted(t.name for t in types))
