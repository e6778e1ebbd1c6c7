"""Forward mode: a kernel that computes what the given one does and, beside every value, its tangent.

The new kernel has the old parameters and one more per listed one, `t_<name>`: for a pointer, a pointer to tangents of
the same form; for a struct with pointers, such a struct; for a number or a plain struct, a pointer to one. The tangent
of a pointer is its shadow: the same arithmetic on the tangent's memory. Local and shared arrays get tangent arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..analysis.roots import holds_pointers
from ..errors import ArgumentError, InternalError, UnsupportedError
from ..ir.builder import Builder, pointee
from ..ir.effects import OF_OPERANDS, picks
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Atomic,
    BarrierReduce,
    Block,
    Call,
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
    Module,
    Offset,
    Op,
    Param,
    PtrCast,
    Store,
    Value,
    Warp,
    While,
)
from ..ir.traverse import uses
from ..ir.types import I64, Array, Pointer, Scalar, Struct, Type, element_types
from ..ir.verifier import verify
from ..transforms import simplify
from ..transforms.passes import TIES, applied
from ..transforms.spellings import emit
from .calculus.forward_activity import ForwardActivity, has_tangent, may_pass
from .calculus.rules import forward_rule_for, pushed
from .calculus.shadows import dynamic_shadow
from .calculus.views import apart, zero_words
from .winners.trees import tree_tangent

if TYPE_CHECKING:
    from .sweep.finite_tests import FiniteTests


class Jvp(NamedTuple):
    """The kernel, the module it lives in, and the tangent parameters' names in the order of the list. `tests`: those of
    `report_nan=True`."""

    function: Function
    module: Module
    tangents: tuple[str, ...]
    tests: FiniteTests | None = None


# The parameter that says where, in bytes, the tangents of dynamic shared memory begin: behind that memory.
TANGENT_SHARED = "_tangent_shared_bytes"


def jvp(function: Function, module: Module, listed: tuple[str, ...], report_nan: bool = False) -> Jvp:
    """`listed`: parameters and module variables. The function has no calls left."""
    params = {p.name: p for p in function.params}
    unknown = [name for name in listed if name not in params and name not in module.globals]
    if unknown:
        raise ArgumentError(f"{function.name} has no parameter '{unknown[0]}'; it has: {', '.join(params)}")
    function = applied(TIES, function, module)
    activity = ForwardActivity(function, module, [params[n].value if n in params else n for n in listed])
    work = _Forward(function, module, activity)
    if report_nan:
        from .sweep.finite_tests import FiniteTests

        work.tests = FiniteTests(work.b, forward=True)
    extra = tuple(work.parameter(name, params.get(name)) for name in listed)
    body = work.body(function.body)
    name = _fresh(f"{function.name}_jvp", module.functions)
    dynamic = (Param(work.dynamic_bytes, "long long", variable=TANGENT_SHARED),) if work.uses_dynamic else ()
    records = (work.tests.memory,) if work.tests is not None else ()
    everything = function.params + extra + dynamic + records
    made = replace(function, name=name, shown=function.called, params=everything, body=body)
    extended = replace(module, functions={name: made}, globals={**module.globals, **work.globals})
    verify(extended, "jvp")
    made = simplify.run(made, extended)
    extended = replace(extended, functions={name: made})
    verify(extended, "jvp-simplify")
    return Jvp(made, extended, tuple(p.name for p in extra), work.tests)


def _fresh(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "_"
    return name


_ZEROS: dict[str, int | float | bool] = {"float": 0.0, "int": 0, "uint": 0, "bool": False}


class _Forward:
    def __init__(self, function: Function, module: Module, activity: ForwardActivity):
        self.module, self.activity = module, activity
        self.zeros = zero_words(function)
        self.apart = apart(function, activity.memory, activity.roots, activity.roots, self.zeros)
        self.b = Builder()
        self.tangents: dict[Value, Value] = {}
        self.taken = {p.name for p in function.params}
        self.globals: dict[str, Global] = {}
        self.variables: dict[str, Value] = {}  # tangents of listed module variables
        self.shared: dict[str, str] = {}  # names of the tangents of shared variables
        self.used = uses(function.body)
        self.dynamic_bytes = Value(I64, TANGENT_SHARED)
        self.uses_dynamic = False
        self.tests: FiniteTests | None = None

    # ---- parameters

    def parameter(self, name: str, param: Param | None) -> Param:
        """The tangent's parameter; None stands for a module variable."""
        t_name = _fresh(f"t_{name}", self.taken)
        self.taken.add(t_name)
        if param is None:
            type = self.module.globals[name].type
            self.variables[name] = value = Value(Pointer(type, "global"), t_name)
            return Param(value, "void *")
        shown = None if param.shown is None else f"t_{param.shown}"
        if holds_pointers(param.type):
            self.tangents[param.value] = value = Value(param.type, t_name)
            return replace(param, value=value, shown=shown)
        if not has_tangent(param.type):
            raise ArgumentError(f"the parameter '{name}' ({param.c_type}) holds no floating point number")
        value = Value(Pointer(param.type, "global"), t_name)
        self.tangents[param.value] = self.b.load(value, name=t_name)
        return Param(value, f"const {param.c_type.removeprefix('const ')} *", const=True, shown=shown)

    # ---- tangents

    def tangent(self, value: Value) -> Value:
        """The tangent of a value: zero (for a pointer, null) where it has none."""
        return self.tangents[value] if value in self.tangents else self.zero(value.type)

    def zero(self, type: Type) -> Value:
        if isinstance(type, Struct | Array):
            return self.b.aggregate(type, tuple(map(self.zero, element_types(type))))
        return self.b.constant(_ZEROS[type.kind] if isinstance(type, Scalar) else 0, type)

    def twin(self, value: Value) -> Value:
        """A fresh value to be the tangent of one that control flow defines."""
        self.tangents[value] = twin = Value(value.type, value.name and f"t_{value.name}")
        return twin

    def active(self, values: Iterable[Value]) -> list[int]:
        return [k for k, v in enumerate(values) if v in self.activity]

    # ---- walking

    def body(self, body: Block) -> Block:
        """Continues after what the parameters' tangents needed."""
        for op in body.ops:
            self.op(op)
        return Block((), tuple(self.b.ops), body.results)

    def block(self, block: Block, wanted: list[int], twins: Iterable[Value] = ()) -> Block:
        """The block with the tangents of its wanted results after the results."""
        with self.b.region() as region:
            for op in block.ops:
                self.op(op)
            extra = tuple(self.tangent(block.results[k]) for k in wanted)
        return region.block((*block.args, *twins), (*block.results, *extra))

    def op(self, op: Op) -> None:
        self.b.span = op.span
        match op:
            case If():
                self.if_(op)
            case For():
                self.for_(op)
            case While():
                self.while_(op)
            case Store(ptr, value):
                self.b.add(op)
                self.store(op, ptr, value)
            case Atomic():
                emit(self.b, op)
                self.atomic(op)
            case Call(callee):
                raise InternalError(f"forward mode met a call of '{callee}'")
            case _:
                self.b.add(op)
                self.check(op)
                if any(v in self.activity for v in op.results):
                    self.tangents[op.results[0]] = self.value(op) if self.tests is None else self.tested(op, self.tests)

    def tested(self, op: Op, tests: FiniteTests) -> Value:
        """See `report_nan`. What is loaded is tested, too: who stored it may be another thread."""
        tangent = self.value(op)
        self.b.span = op.span
        with tests.of(op):
            if isinstance(op, Apply):
                tests.at(op.args, op.result)
            tests.test(tangent)
        return tangent

    def check(self, op: Op) -> None:
        """Ways in which a derivative would be lost unseen."""
        match op:
            case Apply("bitcast", (arg,)) if arg in self.activity and not isinstance(arg.type, Pointer):
                raise UnsupportedError("cannot differentiate through the bits of a floating point number", op.span)
            case Load(ptr) if ptr in self.activity:
                self.check_access(op, ptr)

    def check_access(self, op: Op, ptr: Value) -> None:
        """Memory of floats with tangents, seen as integers."""
        if has_tangent(pointee(ptr)) or id(op) in self.apart:
            return
        source: Op | None = self.activity.definitions.get(ptr)
        while isinstance(source, Offset | PtrCast):
            if isinstance(source, PtrCast) and has_tangent(pointee(source.ptr)):
                raise UnsupportedError("cannot differentiate through the bits of a floating point number", op.span)
            source = self.activity.definitions.get(source.ptr)

    # ---- operations with one result

    def value(self, op: Op) -> Value:
        b = self.b
        match op:
            case Apply("select", (cond, one, other)):
                same = self.chosen_anyway(cond, one, other)
                if same is not None:
                    return self.tangent(same)
                return b.apply("select", cond, self.tangent(one), self.tangent(other))
            case Apply("masked", (value, guard)):
                return self.masked(self.tangent(value), guard)
            case Apply():
                return self.apply(op)
            case Aggregate(args):
                assert isinstance(op.result.type, Struct | Array)
                return b.aggregate(op.result.type, tuple(map(self.tangent, args)))
            case Extract(aggregate, part):
                return b.extract(self.tangent(aggregate), part)
            case Insert(aggregate, value, part):
                return b.insert(self.tangent(aggregate), self.tangent(value), part)
            case Alloca():
                return b.alloca(pointee(op.result), self.name(op))
            case GlobalRef(name):
                return self.variable(op, name)
            case Offset(ptr, index):
                return self.moved(ptr, lambda shadow: b.offset(shadow, index))
            case Member(ptr, part):
                return self.moved(ptr, lambda shadow: b.member(shadow, part))
            case PtrCast(ptr):
                assert isinstance(op.result.type, Pointer)
                return b.cast_pointer(self.tangent(ptr), op.result.type)
            case Load(ptr, volatile):
                return self.load(op, ptr, volatile)
            case BarrierReduce("sum", value):
                return b.emit(BarrierReduce, "sum", self.tangent(value), op.threads, type=op.result.type)
            case BarrierReduce(_, value):
                return tree_tangent(b, op, self.tangent(value))
            case Warp("reduce_add", (mask, value)):
                return b.emit(Warp, "reduce_add", (mask, self.tangent(value)), type=op.result.type)
            case Warp(fn, (mask, value, lane, width)):
                return b.emit(Warp, fn, (mask, self.tangent(value), lane, width), type=op.result.type)
        raise UnsupportedError("cannot differentiate this operation", op.span)

    def name(self, op: Op) -> str | None:
        return op.results[0].name and f"t_{op.results[0].name}"

    def apply(self, op: Apply) -> Value:
        """The chain rule: the sum of tangent times partial over the arguments."""
        rule = forward_rule_for(op.fn)
        if rule is None:
            raise UnsupportedError(f"no derivative is known of '{op.fn}'", op.span)
        total: Value | None = None
        factors = self.factors(op)
        for k, arg in enumerate(op.args):
            if arg not in self.tangents or not may_pass(op.fn, k):
                continue
            term = pushed(self.b, self.tangents[arg], rule, k, op.result, factors)
            if term is not None:
                term = self.b.convert(term, op.result.type)
                total = term if total is None else self.b.apply("add", total, term)
        return self.zero(op.result.type) if total is None else total

    def chosen_anyway(self, cond: Value, one: Value, other: Value) -> Value | None:
        """`v != 0 ? v : -0.0` is v: adjoints are given a sign of zero so, and keep their tangents."""
        test = self.activity.definitions.get(cond)
        if not isinstance(test, Apply) or test.fn not in ("ne", "eq"):
            return None
        value, else_ = (one, other) if test.fn == "ne" else (other, one)
        return value if test.args[0] is value and self.is_zero(test.args[1]) and self.is_zero(else_) else None

    def is_zero(self, value: Value) -> bool:
        op = self.activity.definitions.get(value)
        return isinstance(op, Constant) and op.value == 0

    def factors(self, op: Apply) -> tuple[Value, ...]:
        """What a tangent is multiplied by. An adjoint times a factor that is masked by it, as Note [Masks] has it, is a
        masked product: where the adjoint is zero, its tangent is multiplied by the factor all the same."""
        if op.fn not in ("mul", "fma"):
            return op.args
        a, b, *rest = op.args
        return self.unmasked(a, b), self.unmasked(b, a), *rest

    def unmasked(self, value: Value, guard: Value) -> Value:
        match self.activity.definitions.get(value):
            case Apply("masked", (inner, by)) if by is guard:
                return inner
        return value

    def masked(self, tangent: Value, guard: Value) -> Value:
        """An adjoint that is zero here may have a tangent that is not."""
        if guard not in self.tangents:
            return self.b.apply("masked", tangent, guard)
        here, moving = (self.b.apply("ne", v, self.zero(v.type)) for v in (guard, self.tangents[guard]))
        return self.b.apply("select", self.b.apply("or", here, moving), tangent, self.zero(tangent.type))

    def variable(self, op: GlobalRef, name: str) -> Value:
        assert isinstance(op.result.type, Pointer)
        if name in self.variables:
            return self.b.cast_pointer(self.variables[name], op.result.type)
        declared = self.module.globals[name]
        if isinstance(declared.type, Array) and declared.type.count == 0:
            self.uses_dynamic = True
            return dynamic_shadow(self.b, op.result, self.dynamic_bytes)
        if name not in self.shared:
            self.shared[name] = t_name = _fresh(f"t_{name}", {*self.module.globals, *self.globals})
            self.globals[t_name] = replace(declared, name=t_name)
        return self.b.global_ref(self.shared[name], declared.type, declared.space)

    # ---- memory

    def moved(self, ptr: Value, move: Callable[[Value], Value]) -> Value:
        """The shadow of a pointer derived from another; a null shadow stays null."""
        shadow = self.tangent(ptr)
        moved = move(shadow)
        if not self.activity.may_lack_shadow(ptr):
            return moved
        return self.b.apply("select", self.exists(shadow), moved, self.zero(moved.type))

    def exists(self, shadow: Value) -> Value:
        return self.b.apply("ne", shadow, self.zero(shadow.type))

    def load(self, op: Load, ptr: Value, volatile: bool) -> Value:
        shadow = self.tangent(ptr)
        if not self.activity.may_lack_shadow(ptr):
            return self.b.load(shadow, volatile, self.name(op))
        with self.b.region() as there:
            loaded = self.b.load(shadow, volatile)
        with self.b.region() as missing:
            zero = self.zero(loaded.type)
        return self.b.if_(self.exists(shadow), there.block((), (loaded,)), missing.block((), (zero,)))[0]

    def store(self, op: Store, ptr: Value, value: Value) -> None:
        """An inactive value has a zero tangent, which takes the place of the old one."""
        if ptr not in self.activity:
            return
        self.check_access(op, ptr)
        if has_tangent(value.type) or id(op) in self.zeros:
            tangent = self.tangent(value)
            self.where_shadowed(ptr, lambda shadow: self.b.store(shadow, tangent, op.volatile))
            if self.tests is not None:
                self.tests.stored(ptr, tangent)

    def where_shadowed(self, ptr: Value, write: Callable[[Value], object]) -> None:
        shadow = self.tangent(ptr)
        if not self.activity.may_lack_shadow(ptr):
            write(shadow)
            return
        with self.b.region() as there:
            write(shadow)
        self.b.if_(self.exists(shadow), there.block())

    def atomic(self, op: Atomic) -> None:
        if op.ptr not in self.activity:
            return
        self.check_access(op, op.ptr)
        if not has_tangent(pointee(op.ptr)):
            return
        if op.kind == "take":
            self.take(op)
            return
        if op.kind not in ("add", "sub"):
            what = "maximum, minimum or exchange" if picks(op) else op.kind
            raise UnsupportedError(f"forward mode does not take an atomic {what} of active values", op.span)
        if self.used.get(op.result):
            raise UnsupportedError(
                "cannot differentiate the value that an atomic operation returns: it depends on the threads' order",
                op.span,
            )
        (value,) = op.args
        if value in self.tangents:
            tangent = self.tangents[value]
            self.where_shadowed(op.ptr, lambda shadow: self.b.atomic(op.kind, shadow, tangent, scope=op.scope))
            if self.tests is not None:
                self.tests.stored(op.ptr, tangent)

    def take(self, op: Atomic) -> None:
        """Perhaps another thread takes the tangent than takes the number: what follows is linear in both."""
        nothing, shadow = self.zero(op.result.type), self.tangent(op.ptr)
        with self.b.region() as there:
            taken = self.b.atomic("take", shadow, nothing, scope=op.scope)
        if self.activity.may_lack_shadow(op.ptr):
            missing = Block((), (), (nothing,))
            (taken,) = self.b.if_(self.exists(shadow), there.block((), (taken,)), missing)
        else:
            self.b.ops += there.ops
        self.tangents[op.result] = taken

    # ---- control

    def if_(self, op: If) -> None:
        wanted = self.active(op.results)
        then, orelse = self.block(op.then, wanted), self.block(op.orelse, wanted)
        twins = tuple(self.twin(op.results[k]) for k in wanted)
        cond = self.condition(op)
        self.b.add(replace(op, cond=cond, then=then, orelse=orelse, results=(*op.results, *twins)))

    def condition(self, op: If) -> Value:
        """`if (v != 0) atomicAdd(p, v)` adds v whatever it is: the tangent of a zero is added too, if it is not zero.
        So is that of `if (v != 0) sum += v`, and of `if (v != 0) p[i] = 0`, where v is what was there.

        Reverse mode skips updates in this way, and they are often zero where second derivatives are not."""
        test = self.activity.definitions.get(op.cond)
        if not isinstance(test, Apply) or test.fn != "ne" or test.args[0] not in self.tangents:
            return op.cond
        value, zero = test.args
        effects = [inner for inner in (*op.then.ops, *op.orelse.ops) if not isinstance(inner, OF_OPERANDS)]
        adds = all(self.does_nothing(e, value) for e in effects)
        pairs = zip(op.then.results, op.orelse.results, strict=True)
        if not adds or not self.is_zero(zero) or not all(self.is_added(made, before, value) for made, before in pairs):
            return op.cond
        tangent = self.tangents[value]
        return self.b.apply("or", op.cond, self.b.apply("ne", tangent, self.zero(tangent.type)))

    def does_nothing(self, op: Op, value: Value) -> bool:
        """If the value is zero."""
        match op:
            case Atomic(kind="add" | "sub", args=(added,)):
                return added is value
            case Store(ptr, stored):
                source = self.activity.definitions.get(value)
                return self.is_zero(stored) and isinstance(source, Load) and source.ptr is ptr
        return False

    def is_added(self, made: Value, before: Value, value: Value) -> bool:
        match self.activity.definitions.get(made):
            case Apply("add", (a, b)):
                return (a is before and b is value) or (a is value and b is before)
        return made is before

    def for_(self, op: For) -> None:
        carried = op.body.args[1:]
        wanted = self.active(carried)
        inits = tuple(self.tangent(op.inits[k]) for k in wanted)
        args = tuple(self.twin(carried[k]) for k in wanted)
        with nullcontext() if self.tests is None else self.tests.loop(op, op.body.args[0]):
            body = self.block(op.body, wanted, args)
        twins = tuple(self.twin(op.results[k]) for k in wanted)
        self.b.add(replace(op, inits=(*op.inits, *inits), body=body, results=(*op.results, *twins)))

    def while_(self, op: While) -> None:
        carried, forwarded = self.active(op.before.args), self.active(op.body.args)
        inits = tuple(self.tangent(op.inits[k]) for k in carried)
        before_args = tuple(self.twin(op.before.args[k]) for k in carried)
        before = self.block(op.before, [k + 1 for k in forwarded], before_args)
        body_args = tuple(self.twin(op.body.args[k]) for k in forwarded)
        body = self.block(op.body, carried, body_args)
        twins = tuple(self.twin(op.results[k]) for k in forwarded)
        results = (*op.results, *twins)
        self.b.add(replace(op, inits=(*op.inits, *inits), before=before, body=body, results=results))
