"""Checks that IR is well formed: definitions before uses, types that fit. Run after every pass, blaming the pass."""

from __future__ import annotations

from ..errors import InternalError
from .functions import PURE
from .ops import (
    Aggregate,
    Apply,
    Atomic,
    Block,
    Call,
    Extract,
    For,
    Function,
    GlobalRef,
    If,
    Insert,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    While,
)
from .traverse import blocks, operands
from .types import BOOL, Array, Pointer, Scalar, Struct, Type, element_types


def verify(module: Module, after: str) -> None:
    for function in module.functions.values():
        verify_function(function, module, after)


def verify_function(function: Function, module: Module, after: str) -> None:
    _Verifier(function, module, after).run()


class _Verifier:
    def __init__(self, function: Function, module: Module, after: str):
        self.function, self.module, self.after = function, module, after
        self.visible: set[Value] = set()
        self.ever: set[Value] = set()

    def run(self) -> None:
        for param in self.function.params:
            self.define(param.value)
        self.block(self.function.body)

    def fail(self, op: Op | None, what: str) -> None:
        at = f" ({type(op).__name__} at {op.span})" if op is not None else ""
        raise InternalError(f"internal error after '{self.after}' in {self.function.name}: {what}{at}")

    def check(self, holds: bool, op: Op, what: str, *about: object) -> None:
        """`about` is put into `what` where it is told: most of what is checked holds."""
        if not holds:
            self.fail(op, what.format(*about))

    def define(self, value: Value) -> None:
        if value in self.ever:
            self.fail(None, f"{value!r} is defined twice")
        self.ever.add(value)
        self.visible.add(value)

    def block(self, block: Block) -> None:
        local = list(block.args)
        for arg in block.args:
            self.define(arg)
        for op in block.ops:
            for value in operands(op):
                if value not in self.visible:
                    self.fail(op, f"{value!r} is used before its definition")
            for inner in blocks(op):
                self.block(inner)
            self.types(op)
            for result in op.results:
                self.define(result)
                local.append(result)
        for value in block.results:
            if value not in self.visible:
                self.fail(None, f"{value!r} is yielded before its definition")
        self.visible.difference_update(local)

    def same(self, op: Op, left: tuple[Value, ...], right: tuple[Value, ...], what: str) -> None:
        if [v.type for v in left] != [v.type for v in right]:
            self.fail(op, f"{what}: {list(left)} against {list(right)}")

    def types(self, op: Op) -> None:
        match op:
            case Apply():
                self.apply(op)
            case Load(ptr):
                self.pointee(op, ptr, op.result.type)
            case Store(ptr, value):
                self.pointee(op, ptr, value.type)
            case Atomic(_, ptr, args):
                for arg in args:
                    self.pointee(op, ptr, arg.type)
            case Offset(ptr, index):
                self.check(op.result.type == ptr.type, op, "offset changes the pointer's type")
                wide = _KINDS["int"](index.type) and index.type.size >= 4
                self.check(wide, op, "index is {}, not an integer of 32 or 64 bits", index.type)
            case PtrCast(ptr):
                both = isinstance(ptr.type, Pointer) and isinstance(op.result.type, Pointer)
                self.check(both, op, "pointer cast of a non-pointer")
            case Member(ptr, index):
                self.member(op, ptr.type, index)
            case GlobalRef(name):
                self.check(name in self.module.globals, op, "no global '{}'", name)
            case Aggregate(args):
                self.parts(op, op.result.type, tuple(a.type for a in args))
            case Extract(aggregate, index):
                self.part(op, aggregate.type, index, op.result.type)
            case Insert(aggregate, value, index):
                self.part(op, aggregate.type, index, value.type)
            case Call(callee, args):
                self.call(op, callee, args)
            case If(cond, then, orelse):
                self.check(cond.type == BOOL, op, "condition is not bool")
                self.same(op, then.results, op.results, "then-results")
                self.same(op, orelse.results, op.results, "else-results")
            case For(lower, upper, inits, step, body):
                self.check(lower.type == upper.type == body.args[0].type and step != 0, op, "loop bounds")
                self.same(op, body.args[1:], inits, "loop arguments")
                self.same(op, body.results, inits, "loop results")
                self.same(op, op.results, inits, "results")
            case While(inits, before, body):
                self.check(before.results[0].type == BOOL, op, "condition is not bool")
                self.same(op, before.args, inits, "loop arguments")
                self.same(op, body.results, inits, "loop results")
                self.same(op, body.args, before.results[1:], "forwarded values")
                self.same(op, op.results, before.results[1:], "results")
            case _:
                pass

    def apply(self, op: Apply) -> None:
        row = PURE.get(op.fn)
        if row is None:
            return self.fail(op, f"unknown function '{op.fn}'")
        self.check(len(op.args) == row.arity, op, "'{}' takes {} arguments", op.fn, row.arity)
        types = [a.type for a in op.args]
        alike = row.operands != "any" and op.fn not in ("shl", "shr", "funnel_left", "funnel_right", "byte_perm")
        if alike:
            self.check(all(t == types[0] for t in types), op, "'{}' of {}", op.fn, types)
        if row.operands in ("number", "float", "int", "bits"):
            for t in types:
                self.check(_KINDS[row.operands](t), op, "'{}' of {}", op.fn, t)
        if row.result == "bool":
            self.check(op.result.type == BOOL, op, "result is not bool")
            if row.operands == "any":
                self.check(types[0] == types[1], op, "'{}' of {}", op.fn, types)
        if row.result == "same":
            self.check(
                op.result.type == types[1 if op.fn == "select" else 0], op, "'{}' gives {}", op.fn, op.result.type
            )
        if op.fn == "select":
            self.check(types[0] == BOOL and types[1] == types[2], op, "select of {}", types)

    def pointee(self, op: Op, ptr: Value, type: Type) -> None:
        fits = isinstance(ptr.type, Pointer) and ptr.type.pointee == type
        self.check(fits, op, "{} through {}", type, ptr.type)

    def member(self, op: Op, base: Type, index: int) -> None:
        struct = base.pointee if isinstance(base, Pointer) else None
        if not isinstance(base, Pointer) or not isinstance(struct, Struct):
            self.fail(op, f"member of {base}")
        else:
            wanted = Pointer(element_types(struct)[index], base.space)
            self.check(op.result.type == wanted, op, "member is {}, not {}", wanted, op.result.type)

    def parts(self, op: Op, whole: Type, types: tuple[Type, ...]) -> None:
        fits = isinstance(whole, Struct | Array) and element_types(whole) == types
        self.check(fits, op, "{} from {}", whole, types)

    def part(self, op: Op, whole: Type, index: int, type: Type) -> None:
        fits = isinstance(whole, Struct | Array) and element_types(whole)[index] == type
        self.check(fits, op, "part {} of {} is not {}", index, whole, type)

    def call(self, op: Op, callee: str, args: tuple[Value, ...]) -> None:
        target = self.module.functions.get(callee)
        if target is None:
            return self.fail(op, f"no function '{callee}'")
        self.same(op, args, tuple(p.value for p in target.params), "arguments")
        self.same(op, op.results, target.body.results, "call results")


_KINDS = {
    "number": lambda t: isinstance(t, Scalar) and t.kind != "bool",
    "float": lambda t: isinstance(t, Scalar) and t.is_float,
    "int": lambda t: isinstance(t, Scalar) and t.kind in ("int", "uint"),
    "bits": lambda t: isinstance(t, Scalar) and not t.is_float,
}
