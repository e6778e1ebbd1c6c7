"""Derivatives that device code asks for (`ir/ops.Derivative`), put in place as code: Note [Requests].

Before: a module as the frontend gives it. After: no function that runs on a device has a `Derivative`; the host's stay.
What kernels count on is in `Function.apart`, and launches see to it.
"""

# Note [Requests]
# A request is a call of one thread: what its arguments lead to may be other threads' too, so adjoints are added
# atomically, and what is overwritten is taken atomically. Where an argument is a variable of the thread,
# `local_atomics` makes plain code of that, and `promote` makes values of it.
#
# A derivative counts on its arguments being apart, as every one does here: what is read again must not be overwritten
# under another name. Arguments whose memory has different names in the kernel are apart if the kernel's parameters are,
# which launches check; others may be the same, and the derivative is one that counts on nothing. Host programs launch
# kernels whose arguments are parts of one allocation, which may overlap for all that is known: for these, `run_on_any`.
#
# Numbers have adjoints in variables of the thread, which start as zero; that of the function's value starts as 1.
#
# Between the halves of a reverse everything may change, and what the second reads is on the tape: the same bytes,
# however the two are called, since both come from one derivation that counts on nothing. A tape that the caller has a
# place for is a value of the type that the call is declared to return. One that it has only a pointer to lies in memory
# that the launch gets (`runtime/tapes`): a word that leads to the number of tapes there that are not used yet, then the
# frame. When that number is zero, the memory is used again.
#
# A derivative that keeps more values than a constant number has them on stacks in memory of the launch, and is in two
# halves: the second one runs if all found room. If a thread's did not, the launch is undone and made again with more.
# All requests of a kernel have the same stacks, one after the other.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations, count
from typing import NamedTuple

from ..analysis import roots
from ..errors import UnsupportedError
from ..ir.builder import Builder, pointee
from ..ir.ops import (
    Alloca,
    Barrier,
    BarrierReduce,
    Block,
    Call,
    Derivative,
    For,
    Function,
    Module,
    Op,
    Param,
    Value,
    Warp,
    While,
)
from ..ir.traverse import blocks, rebuild, walk, with_body
from ..ir.types import BOOL, I64, U8, Pointer, Type
from ..transforms import inline, local_atomics, promote, returns, simplify
from .accumulate.choice import Facts
from .calculus.activity import holds_floats
from .calculus.tape import linear_block, linear_thread
from .forward import jvp
from .integers import HINT, are_integers
from .prepare.options import Mode, Options
from .prepare.prepared import Derivations
from .reverse import Derivation
from .saving.tape_capacity import is_constant

_RESULT = "_result"
_MODES: dict[str, Mode] = {"reverse": "joint", "augmented": "split", "backward": "split"}
_THREAD = Facts(private=frozenset(), exclusive=frozenset(), apart=frozenset(), inlined=True)


class Compiler(NamedTuple):
    """The lists of passes: `ready` for a function of the module, in its own module; `finished` for one that was
    derived, with the names of its parameters for adjoints."""

    ready: Callable[[Module, str], Module]
    finished: Callable[[Function, Module, frozenset[str]], Function]


def run(module: Module, root: str, compiler: Compiler) -> Module:
    """The module with the requests of kernels, and of the function that the user named, in place. Kernels whose
    requests count on arguments being apart are there as they were, too, under `asking(name)`."""
    return Requests(module, compiler).run(root)


def run_on_any(module: Module, name: str, compiler: Compiler) -> Module:
    """The module with a kernel whose requests count on nothing."""
    requests = Requests(module, compiler, apart=False)
    function = replace(requests.expanded(asking(name)), name=name)
    return replace(module, functions={**module.functions, name: function}, globals=requests.globals)


def asking(name: str) -> str:
    """What a kernel is called before code is put in place of its requests."""
    return f"{name}.asking"


HEADER = 256  # bytes before the tapes of a launch: how many of them are not used yet
_WORD = 8  # of each: where that is


@dataclass(frozen=True)
class Made:
    """Derived functions by mode. `listed`: the parameters that have an adjoint, with the derived function's parameter
    for it. `frame`: bytes of the tape between two of them."""

    names: dict[str, str]
    listed: dict[str, Param]
    frame: int = 0
    stacks: tuple[tuple[str, Type], ...] = ()  # endings of the parameters for stacks, and of what type these are


class Requests:
    """The derivatives that a module's functions ask for, each made once. `apart`: whether kernels' parameters may be
    counted on to be."""

    def __init__(self, module: Module, compiler: Compiler, apart: bool = True):
        self.module, self.compiler, self.apart = module, compiler, apart
        self.functions = dict(module.functions)
        self.globals = dict(module.globals)
        self.made: dict[object, Made] = {}
        self.active: list[str] = []

    def run(self, root: str) -> Module:
        done = dict(self.module.functions)
        for name in self.asking():
            kind = done[name].kind
            if kind == "kernel" or (kind == "device" and name == root):
                done[name] = self.expanded(name)
                if done[name].apart and kind == "kernel":
                    done[asking(name)] = replace(self.module.functions[name], name=asking(name))
        return replace(self.module, functions=done, globals=self.globals)

    def asking(self) -> list[str]:
        """The functions that ask for derivatives, or call one that does."""
        uses = {
            name: [op for op in walk(f.body) if isinstance(op, Derivative | Call)] for name, f in self.functions.items()
        }
        found = {name for name, ops in uses.items() if any(isinstance(op, Derivative) for op in ops)}
        size = -1
        while size != len(found):
            size = len(found)
            found |= {n for n, ops in uses.items() if any(isinstance(op, Call) and op.callee in found for op in ops)}
        return [name for name in self.functions if name in found]

    def extended(self) -> Module:
        return replace(self.module, functions=dict(self.functions), globals=dict(self.globals))

    # ---- callers

    def expanded(self, name: str) -> Function:
        """A function without calls, in which derivatives are code."""
        if name in self.active:
            span = self.functions[name].span
            raise UnsupportedError(f"'{name}' is differentiated in its own derivative: not supported", span)
        self.active.append(name)
        function = self.functions[name]
        for stage in (inline, returns, promote, simplify):
            function = stage.run(function, self.extended())
        caller = _Caller(self, function)
        function = caller.run()
        params = (*function.params, *(param for param, _ in caller.tapes), *caller.of_stacks.values())
        tapes = tuple((param.name, nbytes) for param, nbytes in caller.tapes)
        stacks = tuple((name, type.size) for name, type in caller.stacks.items())
        function = replace(function, apart=caller.apart, tapes=tapes, stacks=stacks, params=params)
        for stage in (inline, local_atomics):
            function = stage.run(function, self.extended())
        self.active.pop()
        return function

    def of(self, op: Derivative, may_alias: bool) -> Made:
        """What is called in place of a request."""
        key = op.fn, op.mode == "forward", _MODES.get(op.mode), op.activity, may_alias
        if key not in self.made:
            self.made[key] = self.tangent(op) if op.mode == "forward" else self.reverse(op, may_alias)
        return self.made[key]

    # ---- the derived functions

    def source(self, op: Derivative) -> tuple[Function, Module, tuple[str, ...]]:
        """The function to differentiate, with its value in memory, its module, and the parameters with derivatives."""
        extended = self.extended()
        if op.fn in self.asking():
            extended = replace(extended, functions={**self.functions, op.fn: self.expanded(op.fn)})
        module = self.compiler.ready(extended, op.fn)
        function = _with_result(module.functions[op.fn])
        pairs = zip(function.params, op.activity.split(","), strict=False)
        listed = [p.name for p, activity in pairs if activity != "const" and holds_floats(_content(p.type))]
        has_result = len(function.params) > len(op.args) and holds_floats(_content(function.params[-1].type))
        return function, replace(module, functions={op.fn: function}), (*listed, *((_RESULT,) if has_result else ()))

    def reverse(self, op: Derivative, may_alias: bool) -> Made:
        function, module, listed = self.source(op)
        if not listed:
            hint = HINT if any(are_integers(p.type) for p in function.params) else None
            raise UnsupportedError(f"nothing to differentiate: no floating-point parameter of '{op.fn}'", op.span, hint)
        changing = frozenset(p.name for p in function.params) if _MODES[op.mode] == "split" else frozenset[str]()
        facts = replace(_THREAD, taped=changing)
        options = Options(listed, mode=_MODES[op.mode], may_alias=may_alias, facts=facts, changing=changing)
        derivations = Derivations(function, module)
        derivation = Derivation(derivations.prepared(options))
        stacks = op.mode == "reverse" and not is_constant(derivation.prepared.plan)
        if stacks:
            options = replace(options, mode="split", facts=replace(facts, stacks=True))
            derivation = Derivation(derivations.prepared(options))
        self.check(op, derivation)
        self.globals.update({g.name: g for g in derivation.shared.values()})
        adjoints = frozenset(p.name for p in derivation.adjoints.values())
        known = replace(module, globals={**module.globals, **self.globals})
        modes = ("augmented", "backward") if options.mode == "split" else (op.mode,)
        names = {}
        for mode, derived in zip(modes, derivation.functions, strict=True):
            own = replace(self.compiler.finished(derived, known, adjoints), name=self.fresh(derived.name))
            self.functions[own.name] = own
            names[mode] = own.name
        found = ((str(stack.memory.name).removeprefix("_tape_"), stack.type) for stack in derivation.stacks)
        return Made(names, derivation.adjoints, derivation.emitted.frame, tuple(found) if stacks else ())

    def check(self, op: Derivative, derivation: Derivation) -> None:
        """What only launches of whole kernels have."""
        if derivation.prepared.options.facts.stacks and any(map(_meets, derivation.functions)):
            problem = f"'{op.fn}' keeps values of every iteration of a loop, and threads meet in it: not supported"
            raise UnsupportedError(problem, op.span, "let the loop's bounds be constants, or differentiate the kernel")
        if derivation.won_buffers:
            problem = "an atomic maximum, minimum or exchange has a gradient in whole kernels only"
            raise UnsupportedError(problem, op.span, "differentiate the kernel")
        if derivation.internal:
            name = next(iter(derivation.internal))
            problem = f"derivatives flow through '{name}', for which no adjoint is given"
            raise UnsupportedError(problem, op.span, f"give '{name}' a shadow")
        if derivation.shared_params:
            problem = "dynamic shared memory has a derivative in whole kernels only"
            raise UnsupportedError(problem, op.span, "give the array a size, or differentiate the kernel")

    def tangent(self, op: Derivative) -> Made:
        function, module, listed = self.source(op)
        made = jvp(function, module, listed)
        own = replace(made.function, name=self.fresh(made.function.name))
        self.functions[own.name] = own
        self.globals.update({n: g for n, g in made.module.globals.items() if n not in self.globals})
        params = {p.name: p for p in own.params}
        return Made({"forward": own.name}, {n: params[t] for n, t in zip(listed, made.tangents, strict=True)})

    def fresh(self, name: str) -> str:
        candidates = (name if k == 0 else f"{name}.{k}" for k in count())
        return next(c for c in candidates if c not in self.functions)


class _Caller:
    """One function with requests."""

    def __init__(self, requests: Requests, function: Function):
        self.requests, self.function = requests, function
        self.memory = roots.analyse(function)
        self.own = {op.result for op in walk(function.body) if isinstance(op, Alloca)}
        self.apart: tuple[str, ...] = ()
        self.tapes: list[tuple[Param, int]] = []
        self.stacks: dict[str, Type] = {}
        self.of_stacks: dict[str, Param] = {}
        self.loops = {id(o) for op in walk(function.body) if isinstance(op, For | While) for o in _inside(op)}
        self.replaced: dict[Value, Value] = {}

    def run(self) -> Function:
        return with_body(self.function, self.block(self.function.body))

    def value(self, v: Value) -> Value:
        return self.replaced.get(v, v)

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            new = rebuild(op, self.value, self.block)
            ops += self.call(op, new) if isinstance(op, Derivative) and isinstance(new, Derivative) else (new,)
        return Block(block.args, tuple(ops), tuple(map(self.value, block.results)))

    def may_alias(self, op: Derivative) -> bool:
        """Whether some of what it is given may share memory, but for what launches check."""
        found = [self.memory.of(v) for v in (*op.args, *op.shadows) if isinstance(v.type, Pointer)]
        if any(not r or roots.UNKNOWN in r for r in found) or any(a & b for a, b in combinations(found, 2)):
            return True
        names = {p.value: p.name for p in self.function.params}
        others = frozenset[Value]().union(*found) - self.own
        if not self.requests.apart and len(others) > 1:
            return True
        self.apart = tuple(dict.fromkeys((*self.apart, *sorted(names[r] for r in others if r in names))))
        return False

    def call(self, source: Derivative, op: Derivative) -> list[Op]:
        """The call of the derived function, and what it needs around it."""
        in_halves = op.mode in ("augmented", "backward")
        made = self.requests.of(source, in_halves or self.may_alias(source))
        return _Call(self, op, made, id(source) in self.loops).ops()

    def for_stacks(self, op: Derivative, made: Made, params: tuple[Param, ...]) -> dict[str, Value]:
        """Parameters of the kernel for those of a derived function that have to do with its stacks."""
        if self.function.kind != "kernel":
            problem = "this derivative keeps values of every iteration of a loop, in memory that launches provide"
            raise UnsupportedError(problem, op.span, "ask for it in a kernel")
        for name, type in made.stacks:
            if self.stacks.setdefault(name, type) != type:
                raise UnsupportedError("derivatives that keep pointers of several types on stacks", op.span)
        names = {f"_{what}_{name}" for name, _ in made.stacks for what in ("tape", "capacity", "tops", "needed")}
        for param in params:
            if param.name in names and param.name not in self.of_stacks:
                own = Param(Value(param.type, param.name), param.c_type, variable=param.name)
                self.of_stacks[param.name] = own
        return {name: self.of_stacks[name].value for name in names if name in self.of_stacks}

    def arena(self, op: Derivative, nbytes: int) -> Value:
        """A parameter for memory of tapes."""
        if self.function.kind != "kernel":
            problem = "a tape behind a pointer needs memory that launches of a kernel provide"
            raise UnsupportedError(problem, op.span, "ask for it in a kernel, or use enzyme_allocated")
        name = f"_tapes_{len(self.tapes)}"
        self.tapes.append((Param(Value(Pointer(U8, "global"), name), "void *", variable=name), nbytes))
        return self.tapes[-1][0].value


class _Call:
    def __init__(self, caller: _Caller, op: Derivative, made: Made, in_loop: bool):
        self.caller, self.op, self.made, self.in_loop = caller, op, made, in_loop
        mode = "backward" if made.stacks else op.mode  # which takes all that the other half does
        self.function = caller.requests.functions[made.names[mode]]
        self.b = Builder(op.span)
        self.after: list[Callable[[], None]] = []
        self.results: list[Value] = []

    def ops(self) -> list[Op]:
        op, b, primal = self.op, self.b, self.caller.requests.functions[self.op.fn]
        shadows, activity = iter(op.shadows), op.activity.split(",")
        given: dict[str, Value] = {}
        for param, how, value in zip(primal.params, activity, op.args, strict=True):
            given[param.name] = value
            shadow = next(shadows) if how == "dup" and op.shadows else None
            adjoint = self.made.listed.get(param.name)
            if adjoint is not None and op.mode != "augmented":
                given[adjoint.name] = self.adjoint(param, adjoint, how, shadow)
        if primal.result_type is not None:
            given[_RESULT] = b.alloca(primal.result_type, "value")
            adjoint = self.made.listed.get(_RESULT)
            if adjoint is not None and op.mode != "augmented":
                given[adjoint.name] = self.of_value(adjoint)
        if op.mode in ("augmented", "backward"):
            given["_tape"] = self.tape()
        if self.made.stacks:
            self.in_two(given)
        else:
            self.call(self.function, given)
        for step in self.after:
            step()
        self.caller.replaced.update(zip(op.results, self.results, strict=False))
        return b.ops

    def call(self, function: Function, given: dict[str, Value]) -> None:
        arguments = tuple(self.fitted(given[p.name], p.type) for p in function.params)
        self.b.effect(Call, function.name, arguments)

    def in_two(self, given: dict[str, Value]) -> None:
        """Forward, and if all that it keeps found room, backward."""
        b, forward = self.b, self.caller.requests.functions[self.made.names["augmented"]]
        given |= self.caller.for_stacks(self.op, self.made, (*forward.params, *self.function.params))
        given["_fits"] = fits = b.alloca(BOOL, "fits")
        self.call(forward, given)
        with b.region() as region:
            self.call(self.function, given)
        b.if_(b.load(fits), region.block())

    def fitted(self, value: Value, type: Type) -> Value:
        return self.b.cast_pointer(value, type) if isinstance(type, Pointer) else value

    def adjoint(self, param: Param, adjoint: Param, how: str, shadow: Value | None) -> Value:
        """Where the derived function finds the adjoint or tangent of a parameter."""
        if isinstance(param.type, Pointer):
            assert shadow is not None
            self.check(param, adjoint, shadow)
            return shadow
        b, type = self.b, pointee(adjoint.value)
        own = b.alloca(type, f"d_{param.name}")
        if self.op.mode == "forward":
            b.store(own, shadow if shadow is not None else b.constant(1.0, type))
            return own
        b.store(own, b.constant(0.0, type))
        if how == "out":
            self.after.append(lambda: self.results.append(b.convert(b.load(own), param.type)))
        else:
            assert shadow is not None
            self.after.append(lambda: self.add(shadow, own))
        return own

    def add(self, shadow: Value, own: Value) -> None:
        """To the adjoint of a number: others may add to it too."""
        self.b.atomic("add", shadow, self.b.convert(self.b.load(own), pointee(shadow)))

    def check(self, param: Param, adjoint: Param, shadow: Value) -> None:
        if isinstance(adjoint.type, Pointer) and pointee(shadow) != adjoint.type.pointee:
            problem = f"the shadow of '{param.called}' must lead to {adjoint.type.pointee}, not to {pointee(shadow)}"
            raise UnsupportedError(problem, self.op.span)

    def of_value(self, adjoint: Param) -> Value:
        """The adjoint of the function's value, or where its tangent goes."""
        b, type = self.b, pointee(adjoint.value)
        own = b.alloca(type, "d_value")
        if self.op.mode == "forward":
            b.store(own, b.constant(0.0, type))
            self.after.append(lambda: self.results.append(b.load(own)))
        else:
            has_seed = self.op.mode == "backward" and len(self.op.given) > 1
            b.store(own, b.convert(self.op.given[0], type) if has_seed else b.constant(1.0, type))
        return own

    # ---- tapes

    def tape(self) -> Value:
        """Where the frame is."""
        op, b = self.op, self.b
        held = op.results[0].type if op.mode == "augmented" else op.given[-1].type
        if isinstance(held, Pointer):
            return self.made_tape() if op.mode == "augmented" else self.used_tape()
        room = min(held.size, op.tape_bytes)
        if self.made.frame > room:
            problem = f"the tape of '{op.fn}' needs {self.made.frame} bytes, and has {room}"
            raise UnsupportedError(problem, op.span, "give it a larger type, and its sizeof to enzyme_allocated")
        own = b.alloca(held, "tape")
        if op.mode == "augmented":
            self.after.append(lambda: self.results.append(b.load(own)))
        else:
            b.store(own, op.given[-1])
        return b.cast_pointer(own, Pointer(U8))

    def made_tape(self) -> Value:
        """In memory of the launch, which each thread uses once."""
        if self.in_loop:
            problem = "a tape behind a pointer is made once by each thread, and this is in a loop"
            raise UnsupportedError(problem, self.op.span, "use enzyme_allocated, with a place for each iteration")
        b, nbytes = self.b, -(-(self.made.frame + _WORD) // 16) * 16
        arena = self.caller.arena(self.op, nbytes)
        thread = b.apply("add", b.apply("mul", linear_block(b), _threads(b)), linear_thread(b))
        start = b.apply("add", b.apply("mul", thread, b.constant(nbytes, I64)), b.constant(HEADER, I64))
        tape = b.cast_pointer(b.offset(arena, start), Pointer(U8))
        unused = b.cast_pointer(b.cast_pointer(arena, Pointer(U8)), Pointer(I64))
        b.store(b.cast_pointer(tape, Pointer(Pointer(I64))), unused)
        b.atomic("add", unused, b.constant(1, I64))
        self.results.append(tape)
        return b.offset(tape, b.constant(_WORD, I64))

    def used_tape(self) -> Value:
        b, tape = self.b, self.op.given[-1]
        tape = b.cast_pointer(tape, Pointer(U8))

        def done() -> None:
            unused = b.load(b.cast_pointer(tape, Pointer(Pointer(I64))))
            b.atomic("add", unused, b.constant(-1, I64))

        self.after.append(done)
        return b.offset(tape, b.constant(_WORD, I64))


def _meets(function: Function) -> bool:
    """Whether a thread that does not run it keeps others waiting."""
    return any(isinstance(op, Barrier | BarrierReduce | Warp) for op in walk(function.body))


def _threads(b: Builder) -> Value:
    x, y, z = (b.convert(b.builtin("block_dim", axis), I64) for axis in range(3))
    return b.apply("mul", b.apply("mul", x, y), z)


def _inside(op: Op) -> list[Op]:
    return [inner for block in blocks(op) for inner in walk(block)]


def _content(type: Type) -> Type:
    return type.pointee if isinstance(type, Pointer) else type


def _with_result(function: Function) -> Function:
    """With its value in memory, as a kernel's."""
    if not function.body.results:
        return replace(function, kind="kernel")
    (value,) = function.body.results
    result = Value(Pointer(value.type), _RESULT)
    b = Builder(function.span)
    b.store(result, value)
    params = (*function.params, Param(result, "void *"))
    return replace(function, kind="kernel", params=params, body=Block((), (*function.body.ops, *b.ops), ()))
