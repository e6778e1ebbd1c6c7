"""Whether what a pullback adds is linear in the adjoint it is given, and which parts of that it depends on.

Every value is zero, a number that does not depend on the adjoint, or linear in some of its parts; what is none of that
carries the place where it went wrong, which is an error if it reaches an adjoint. What decides (branches, trip counts,
addresses) must not depend on the adjoint; that it is zero may be asked of an adjoint that is one number: nothing is
added then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..analysis.roots import Memory, Roots
from ..errors import Span, UnsupportedError
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Atomic,
    Block,
    Builtin,
    Constant,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    PtrDiff,
    Store,
    Undef,
    Value,
    While,
)
from ..ir.traverse import operands, walk
from ..ir.types import Scalar


class Linear(NamedTuple):
    """`parts`: of the adjoint, that the value depends on. `apart`: it may be something without them. `flaw`: where it
    ceased to be linear."""

    parts: frozenset[int] = frozenset()
    apart: bool = False
    flaw: Span | None = None

    @property
    def depends(self) -> bool:
        return bool(self.parts) or self.flaw is not None


ZERO, NUMBER = Linear(), Linear(apart=True)
_SUMS = frozenset("add sub add_rn sub_rn".split())
_PRODUCTS = frozenset(("mul", "mul_rn"))
_OF_FIRST = frozenset("neg convert stop div fast_div ldexp".split())
_VALUES = (Apply, Constant, Undef, Aggregate, Extract, Insert, Builtin, GlobalRef, Offset, Member, PtrCast, PtrDiff)
_ALLOWED = (*_VALUES, Alloca, Load, Store, If, For, While)
_HINT = "a pullback computes, and adds to the adjoints of the arguments"


def joined(values: Iterable[Linear]) -> Linear:
    found = list(values)
    flaw = next((v.flaw for v in found if v.flaw is not None), None)
    return Linear(frozenset[int]().union(*(v.parts for v in found)), any(v.apart for v in found), flaw)


class Linearity:
    """Of all values of a function without calls. `seeds`: the parts of the adjoint; `adjoints`: the memory that it adds
    to, whose old contents count as zero."""

    def __init__(self, function: Function, memory: Memory, seeds: Sequence[Value], adjoints: Roots):
        body = function.body
        self.memory, self.adjoints, self.single = memory, adjoints, len(seeds) == 1
        self.of = {p.value: NUMBER for p in function.params}
        self.of |= {seed: Linear(frozenset((k,))) for k, seed in enumerate(seeds)}
        self.contents: dict[Value, Linear] = {}  # of local arrays
        self.locals = frozenset(op.result for op in walk(body) if isinstance(op, Alloca))
        self.changed = True
        while self.changed:
            self.changed = False
            self.block(body)
        for op in walk(body):
            self.check(op)

    def value(self, value: Value) -> Linear:
        return self.of.get(value, NUMBER)

    def set(self, value: Value, found: Linear) -> None:
        if self.of.get(value) != found:
            self.of[value] = found
            self.changed = True

    def flow(self, targets: Iterable[Value], *sources: Iterable[Value]) -> None:
        for target, *values in zip(targets, *sources, strict=True):
            known = [self.of[v] for v in values if v in self.of]  # what a loop brings back is not known at first
            self.set(target, joined(known))

    # ---- operations

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        match op:
            case If(_, then, orelse):
                self.block(then)
                self.block(orelse)
                self.flow(op.results, then.results, orelse.results)
            case For(_, _, inits, _, body):
                self.set(body.args[0], NUMBER)
                self.flow(body.args[1:], inits, body.results)
                self.block(body)
                self.flow(op.results, inits, body.results)
            case While(inits, before, body):
                self.flow(before.args, inits, body.results)
                self.block(before)
                self.flow(body.args, before.results[1:])
                self.block(body)
                self.flow(op.results, before.results[1:])
            case Store(ptr, value):
                self.store(ptr, value)
            case _ if len(op.results) == 1:
                self.set(op.result, self.found(op))

    def found(self, op: Op) -> Linear:
        match op:
            case Constant(number):
                return NUMBER if number else ZERO
            case Undef():
                return ZERO
            case Apply():
                return self.apply(op)
            case Aggregate(args):
                return joined(map(self.value, args))
            case Extract(aggregate, _):
                return self.value(aggregate)
            case Insert(aggregate, value, _):
                return joined(map(self.value, (aggregate, value)))
            case Load(ptr):
                return self.load(ptr)
        return NUMBER

    def load(self, ptr: Value) -> Linear:
        roots = self.memory.of(ptr)
        if roots <= self.adjoints:
            return ZERO
        return joined(self.contents.get(root, NUMBER) for root in roots)

    def store(self, ptr: Value, value: Value) -> None:
        for root in self.memory.of(ptr) - self.adjoints:
            both = joined((self.contents.get(root, ZERO), self.value(value)))
            self.changed |= self.contents.get(root) != both
            self.contents[root] = both

    def apply(self, op: Apply) -> Linear:
        args = [self.value(a) for a in op.args]
        whole = joined(args)
        if not whole.depends:
            zero = not whole.apart and (op.fn in _SUMS or op.fn in _OF_FIRST or op.fn == "select")
            return ZERO if zero or (op.fn in _PRODUCTS and ZERO in args) else NUMBER
        if whole.flaw is not None:
            return whole
        linear = Linear(whole.parts)
        wrong = Linear(whole.parts, flaw=op.span)
        match op.fn:
            case fn if fn in _SUMS:
                return whole if is_linear(whole) else wrong
            case fn if fn in _PRODUCTS:
                return linear if _is_linear_product(*args) else wrong
            case fn if fn in _OF_FIRST:
                floats = isinstance(op.result.type, Scalar) and op.result.type.is_float
                return linear if floats and is_linear(args[0]) and not any(a.depends for a in args[1:]) else wrong
            case "fma":
                total = joined((Linear(args[0].parts | args[1].parts), args[2]))
                return linear if _is_linear_product(*args[:2]) and is_linear(total) else wrong
            case "select":
                chosen = joined(args[1:])
                return chosen if not args[0].depends and is_linear(chosen) else wrong
            case "eq" | "ne" if self.single and ZERO in args and all(map(is_linear, args)):
                return NUMBER
        return wrong

    # ---- what must not be

    def check(self, op: Op) -> None:
        if isinstance(op, Atomic) and op.kind in ("add", "sub") and self.memory.of(op.ptr) <= self.adjoints:
            return
        if isinstance(op, Store) and not self.memory.of(op.ptr) <= self.adjoints | self.locals:
            problem = "a custom derivative writes to memory here that holds no adjoint"
            raise UnsupportedError(problem, op.span, _HINT)
        if not isinstance(op, _ALLOWED):
            raise UnsupportedError(f"a '{type(op).__name__.lower()}' in a custom derivative", op.span, _HINT)
        decides = {If: "a branch", For: "the length of a loop", Offset: "an address"}.get(type(op))
        told = operands(op) if not isinstance(op, For) else (op.lower, op.upper)
        if decides is not None and any(self.value(v).depends for v in told if isinstance(v.type, Scalar)):
            raise UnsupportedError(f"{decides} in a custom derivative depends on the adjoint that it is given", op.span)
        if isinstance(op, While) and self.value(op.before.results[0]).depends:
            raise UnsupportedError("a loop in a custom derivative depends on the adjoint that it is given", op.span)


def is_linear(value: Linear) -> bool:
    return not (value.apart and value.parts)


def _is_linear_product(a: Linear, b: Linear) -> bool:
    return is_linear(a) and is_linear(b) and not (a.parts and b.parts)


def not_linear(span: Span, name: str, apart: bool) -> UnsupportedError:
    if apart:
        problem = f"what a custom derivative gives '{name}' does not depend on the adjoint or tangent that it is given"
        return UnsupportedError(problem, span, "multiply it with that")
    problem = f"what a custom derivative gives '{name}' is not linear in the adjoint or tangent that it is given"
    return UnsupportedError(problem, span, "derivatives are linear: multiply it with numbers and add up")
