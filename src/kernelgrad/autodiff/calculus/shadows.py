"""Shadow pointers: beside every pointer into memory that carries derivatives, the pointer into its shadow.

A pass that adds, after each operation that makes such a pointer, the same operation on the shadow: also through
selects, ifs and loops, so that pointers may be swapped and carried. The shadow of a local array is another local
array, zeroed where it is made. What this adds is ordinary IR; the reverse sweep finds it in `Shadowed.of`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ...analysis.roots import UNKNOWN, Memory, holds_pointers
from ...errors import Span, UnsupportedError
from ...ir.builder import Builder, pointee
from ...ir.ops import (
    ADJOINT,
    Aggregate,
    Alloca,
    Apply,
    Block,
    Constant,
    Extract,
    For,
    Function,
    Global,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Offset,
    Op,
    Param,
    PtrCast,
    Undef,
    Value,
    While,
)
from ...ir.types import BF16, F16, F32, F64, I32, U8, Array, Pointer, Scalar, Struct, Type


@dataclass
class Shadowed:
    """A function with shadow pointers, and which value is the shadow of which."""

    function: Function
    of: dict[Value, Value] = field(default_factory=dict)


class _Pass:
    def __init__(
        self,
        memory: Memory,
        active: frozenset[Value],
        params: dict[Value, Value],
        shared: dict[str, Global],
        shared_bytes: Value,
        wide: frozenset[Value],
        in_block: frozenset[Value],
    ):
        self.memory, self.active, self.shared, self.shared_bytes = memory, active, shared, shared_bytes
        self.wide, self.in_block = wide, in_block
        self.of: dict[Value, Value] = dict(params)
        self.top: list[Op] = []  # shadows of local arrays

    def wants(self, value: Value) -> bool:
        """Pointers all of whose memory is active; null and undefined ones have no roots and need no shadow."""
        roots = self.memory.of(value)
        return holds_pointers(value.type) and bool(roots) and bool(roots & self.active)

    def shadow(self, value: Value, span: Span, like: Value | None = None) -> Value:
        """The shadow of an operand; a pointer that has none stands in for itself and is never used as a shadow. `like`:
        what it becomes, whose shadow may be of another type: then null, which leads nowhere, is null of that type."""
        if value in self.of:
            return self.of[value]
        if like is not None and isinstance(value.type, Pointer) and not self.memory.of(value):
            return self.null(value, self.type_of(like), span)
        if UNKNOWN in self.memory.of(value):
            raise UnsupportedError(
                "a derivative flows through a pointer that was loaded from memory",
                span,
                "pass the pointer as a parameter",
            )
        if holds_halves(value.type):
            raise UnsupportedError("a pointer to half-precision numbers is mixed with one that has no adjoint", span)
        return value

    def null(self, value: Value, type: Type, span: Span) -> Value:
        if type == value.type:
            return value
        assert isinstance(type, Pointer)
        b = Builder(span)
        found = b.null(type)
        self.top += b.ops
        return found

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            ops += self.op(op)
        return Block(block.args, tuple(ops), block.results)

    def op(self, op: Op) -> list[Op]:
        match op:
            case If() | For() | While():
                return [self.control(op)]
        if len(op.results) != 1 or not self.wants(op.result):
            return [op]
        match op:
            case Alloca():
                self.alloca(op)
                return [op]
            case GlobalRef(name):
                return [op, *self.shared_variable(op, self.shared[name])]
            case Offset(ptr, _) | Member(ptr, _) | PtrCast(ptr):
                return [op, replace(op, ptr=self.shadow(ptr, op.span), results=self.fresh(op))]
            case Extract(aggregate, _):
                return [op, replace(op, aggregate=self.shadow(aggregate, op.span), results=self.fresh(op))]
            case Aggregate(args):
                return [op, replace(op, args=tuple(self.shadow(a, op.span) for a in args), results=self.fresh(op))]
            case Insert(aggregate, value, _):
                whole, part = self.shadow(aggregate, op.span), self.shadow(value, op.span)
                return [op, replace(op, aggregate=whole, value=part, results=self.fresh(op))]
            case Apply("select", (cond, a, b)):
                args = (cond, *(self.shadow(v, op.span, op.result) for v in (a, b)))
                return [op, replace(op, args=args, results=self.fresh(op))]
            case Constant() | Undef():
                return [op]
            case Load():
                raise UnsupportedError(
                    "a derivative flows through a pointer that was loaded from memory",
                    op.span,
                    "pass the pointer as a parameter",
                )
        return [op]

    def fresh(self, op: Op) -> tuple[Value, ...]:
        value = Value(self.type_of(op.result), shadow_name(op.result.name))
        self.of[op.result] = value
        return (value,)

    def type_of(self, value: Value) -> Type:
        roots = self.memory.of(value)
        type = wide_type(value.type) if roots & self.wide else adjoint_type(value.type)
        return replace(type, space="shared") if isinstance(type, Pointer) and roots & self.in_block else type

    def alloca(self, op: Alloca) -> None:
        """In the function's own block wherever the array is: a pointer that the forward sweep kept and one that the
        reverse sweep makes again are then the same. The reverse of the array's block zeroes it first."""
        b = Builder(op.span)
        type = self.type_of(op.result)
        assert isinstance(type, Pointer)
        self.of[op.result] = b.alloca(type.pointee, shadow_name(op.result.name))
        self.top += b.ops

    def shared_variable(self, op: GlobalRef, shadow: Global) -> list[Op]:
        if not is_dynamic(shadow):
            return [replace(op, name=shadow.name, results=self.fresh(op))]
        b = Builder(op.span)
        shadow_of = dynamic_shadow(b, op.result, self.shared_bytes)
        type = self.type_of(op.result)
        assert isinstance(type, Pointer)
        self.of[op.result] = b.cast_pointer(shadow_of, type)
        return b.ops

    def control(self, op: If | For | While) -> Op:
        match op:
            case If(_, then, orelse):
                chosen = [k for k, r in enumerate(op.results) if self.wants(r)]
                new_then, new_orelse = self.block(then), self.block(orelse)
                targets = [op.results[k] for k in chosen]
                extra = tuple(map(self.twin_value, targets))
                return replace(
                    op,
                    then=self.yielding(new_then, [then.results[k] for k in chosen], targets, op.span),
                    orelse=self.yielding(new_orelse, [orelse.results[k] for k in chosen], targets, op.span),
                    results=(*op.results, *extra),
                )
            case For(_, _, inits, _, body):
                return self.loop(op, inits, body, body.args[1:])
            case While(inits, _, body):
                return self.loop(op, inits, body, body.args)

    def loop(self, op: For | While, inits: tuple[Value, ...], body: Block, args: tuple[Value, ...]) -> Op:
        chosen = [k for k, arg in enumerate(args) if self.wants(arg)]
        starts = tuple(self.shadow(inits[k], op.span, args[k]) for k in chosen)
        arg_twins = tuple(self.twin_value(args[k]) for k in chosen)
        new_body = self.block(body)
        new_body = Block((*new_body.args, *arg_twins), new_body.ops, new_body.results)
        new_body = self.yielding(new_body, [body.results[k] for k in chosen], [args[k] for k in chosen], op.span)
        results = (*op.results, *(self.twin_value(op.results[k]) for k in chosen))
        if isinstance(op, For):
            return replace(op, inits=(*inits, *starts), body=new_body, results=results)
        passed = tuple(Value(v.type, v.name) for v in arg_twins)
        before = Block((*op.before.args, *passed), op.before.ops, (*op.before.results, *passed))
        return replace(op, inits=(*inits, *starts), before=before, body=new_body, results=results)

    def twin_value(self, value: Value) -> Value:
        self.of[value] = twin = Value(self.type_of(value), shadow_name(value.name))
        return twin

    def yielding(self, block: Block, pointers: list[Value], targets: list[Value], span: Span) -> Block:
        """The block with the shadows of its results, which become those of the targets."""
        shadows = (self.shadow(p, span, t) for p, t in zip(pointers, targets, strict=True))
        return Block(block.args, block.ops, (*block.results, *shadows))


def add_shadows(
    function: Function,
    memory: Memory,
    active: frozenset[Value],
    params: dict[Value, Value],
    shared: dict[str, Global],
    shared_bytes: Value,
    wide: frozenset[Value] = frozenset(),
    in_block: frozenset[Value] = frozenset(),
) -> Shadowed:
    """`params`: the shadow of each active pointer parameter; `shared`: the shadow of each shared variable; `wide`: the
    memory whose shadow is in double precision; `in_block`: that whose shadow is in shared memory."""
    work = _Pass(memory, active, params, shared, shared_bytes, wide, in_block)
    ops: list[Op] = []
    for op in function.body.ops:
        made = work.op(op)
        ops += [*made, *work.top] if isinstance(op, Alloca) else [*work.top, *made]
        work.top.clear()
    return Shadowed(replace(function, body=replace(function.body, ops=tuple(ops))), work.of)


def adjoint_type(type: Type) -> Type:
    """Adjoints are kept as what they belong to, but in float where that is half precision."""
    return _widened(type, (F16, BF16), F32, "_adjoint")


def holds_halves(type: Type) -> bool:
    """Whether its adjoint is wider than itself."""
    wider = adjoint_type(type)
    return wider is not type and wider != type


def wide_type(type: Type) -> Type:
    """Of adjoints to which so much is added that floats would lose some of it (see `prepare/double_cells`). In records
    of floats, all is twice as far from the beginning as in the adjoint, whatever lies between them."""
    return _widened(type, (F16, BF16, F32), F64, "_wide", adjoint_type)


def _widened(
    type: Type,
    narrow: tuple[Scalar, ...],
    wide: Scalar,
    suffix: str,
    stretched: Callable[[Type], Type] | None = None,
) -> Type:
    number = type
    while isinstance(number, Pointer):
        number = number.pointee
    if isinstance(number, Scalar) and number not in narrow:
        return type
    from ...transforms.widen import Widened

    return Widened(narrow, wide, suffix, stretched)(type)


def adjoint_c_type(c_type: str) -> str:
    return _C_HALVES.sub("float", c_type.replace("const ", ""))


SHARED_BYTES = "_shared_bytes"  # the parameter that says where the shadow of dynamic shared memory begins


def is_dynamic(variable: Global) -> bool:
    return isinstance(variable.type, Array) and variable.type.count == 0


def dynamic_shadow(b: Builder, base: Value, shared_bytes: Value) -> Value:
    """The shadow of dynamic shared memory lies behind it, in bytes the launcher asks for on top."""
    assert isinstance(base.type, Pointer)
    behind = b.offset(b.cast_pointer(base, Pointer(U8, base.type.space)), shared_bytes)
    return b.cast_pointer(behind, base.type)


def shadow_name(name: str | None) -> str | None:
    return None if name is None else f"{ADJOINT}{name}"


_C_HALVES = re.compile(r"\b(?:__half|half|__nv_bfloat16|nv_bfloat16)\b")

# The neutral element of addition is -0.0: `-0.0 + x` is x for every x, while `0.0 + -0.0` is not -0.0. Sums that start
# with it simplify exactly.
ZERO = -0.0
_ZEROS: dict[str, int | float | bool] = {"float": ZERO, "int": 0, "uint": 0, "bool": False}


def zero_fill(b: Builder, ptr: Value) -> None:
    """Stores zero behind `ptr`, also to integers beside the floats of a record, since it is read as a whole. Arrays are
    filled by a loop, so that the code stays small."""
    type = pointee(ptr)
    if isinstance(type, Scalar | Pointer):
        b.store(ptr, b.constant(_ZEROS[type.kind] if isinstance(type, Scalar) else 0, type))
    elif isinstance(type, Struct):
        for k in range(len(type.fields)):
            zero_fill(b, b.member(ptr, k))
    elif isinstance(type, Array):
        with b.region() as body:
            k_value = Value(I32, "~k")
            zero_fill(b, b.offset(b.decay(ptr), k_value))
        b.for_(b.constant(0, I32), b.constant(type.count, I32), (), 1, body.block((k_value,)))


def shadow_param(param: Param) -> Param:
    return Param(Value(param.type, shadow_name(param.name)), param.c_type.replace("const ", ""), False, param.restrict)
