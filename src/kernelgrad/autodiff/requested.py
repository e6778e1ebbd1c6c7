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
# frame. When that number is zero, the memory is used again. Tapes of a constant size that a thread makes once have a
# place each; others lie in the thread's part of an arena, one behind the other. If they do not find room there, the
# kernel goes on to the first reverse without its tape; the launch is undone and made again with more.
#
# A derivative that keeps more values than a constant number has them on stacks in memory of the launch, and is in two
# halves: the second one runs if all found room. If a thread's did not, the launch is undone and made again with more.
# Threads that lack memory leave: Note [Left launches] in `request_exits`.
# All requests of a kernel have the same stacks, one after the other.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import combinations, count
from typing import NamedTuple

from ..analysis import roots
from ..errors import UnsupportedError
from ..ir.builder import Builder
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
from ..ir.types import I64, U8, Pointer, Type
from ..transforms import inline, local_atomics, promote, returns, simplify
from . import request_exits
from .accumulate.choice import Facts
from .calculus.activity import holds_floats
from .forward import jvp
from .integers import HINT, are_integers
from .prepare.options import Mode, Options
from .prepare.prepared import Derivations
from .request_calls import NEEDED, RESULT, Made, RequestCall
from .reverse import Derivation
from .saving.tape_capacity import is_constant

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
        caller = Caller(self, function)
        function = caller.run()
        tapes_of = (*(param for param, _ in caller.tapes), *caller.of_arena)
        params = (*function.params, *tapes_of, *caller.of_stacks.values())
        tapes = tuple((param.name, nbytes) for param, nbytes in caller.tapes)
        stacks = tuple((name, type.size) for name, type in caller.stacks.items())
        arena = bool(caller.of_arena)
        if arena or stacks:
            caller.check_undone()
            caller.check_meetings(function)
            function = request_exits.run(function, caller.marks, caller.lacks)
        else:
            function = request_exits.without(function, caller.marks)
        function = replace(function, apart=caller.apart, tapes=tapes, stacks=stacks, arena=arena, params=params)
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
        return function, replace(module, functions={op.fn: function}), (*listed, *((RESULT,) if has_result else ()))

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
        in_halves, fixed = _MODES[op.mode] == "split", is_constant(derivation.prepared.plan)
        if not fixed:
            options = replace(options, mode="split", facts=replace(facts, stacks=True, arena=in_halves))
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
        stacks = () if fixed or in_halves else tuple(found)
        return Made(names, derivation.adjoints, derivation.emitted.frame, in_halves and not fixed, stacks)

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


class Caller:
    """One function with requests."""

    def __init__(self, requests: Requests, function: Function):
        self.requests, self.function = requests, function
        self.memory = roots.analyse(function)
        self.own = {op.result for op in walk(function.body) if isinstance(op, Alloca)}
        self.apart: tuple[str, ...] = ()
        self.tapes: list[tuple[Param, int]] = []
        self.of_arena: tuple[Param, ...] = ()
        self.stacks: dict[str, Type] = {}
        self.of_stacks: dict[str, Param] = {}
        self.loops = {id(o) for op in walk(function.body) if isinstance(op, For | While) for o in _inside(op)}
        self.replaced: dict[Value, Value] = {}
        self.made: list[Made] = []
        self.marks: set[Value] = set()  # conditions under which a thread leaves

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
        self.made.append(made)
        return RequestCall(self, op, made, id(source) in self.loops).ops()

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

    def tape_memory(self, op: Derivative, nbytes: int) -> Value:
        """A parameter for tapes of so many bytes, one of each thread."""
        self.check_launched(op)
        name = f"_tapes_{len(self.tapes)}"
        self.tapes.append((Param(Value(Pointer(U8, "global"), name), "void *", variable=name), nbytes))
        return self.tapes[-1][0].value

    def arena(self, op: Derivative) -> tuple[Value, Value]:
        """Parameters for memory of all tapes that a thread makes, and how much of that each has."""
        self.check_launched(op)
        if not self.of_arena:
            memory, room = Value(Pointer(U8, "global"), "_arena"), Value(I64, "_arena_room")
            self.of_arena = (
                Param(memory, "void *", variable="_arena"),
                Param(room, "long long", variable="_arena_room"),
            )
        return self.of_arena[0].value, self.of_arena[1].value

    def lacks(self, b: Builder) -> Value:
        """Whether a thread of the launch has needed more memory than there is."""
        found = [self.lacks_stack(b, name) for name in self.stacks]
        if self.of_arena:
            memory, room = (param.value for param in self.of_arena)
            needed = b.cast_pointer(b.offset(memory, b.constant(NEEDED, I64)), Pointer(I64, "global"))
            found.append(b.apply("gt", b.load(needed, volatile=True), room))
        return reduce(lambda one, other: b.apply("or", one, other), found)

    def lacks_stack(self, b: Builder, name: str) -> Value:
        needed, capacity = (self.of_stacks[f"_{what}_{name}"].value for what in ("needed", "capacity"))
        return b.apply("gt", b.load(needed, volatile=True), capacity)

    def check_meetings(self, function: Function) -> None:
        """Threads that lack memory leave, which the kernel's own barriers notice."""
        for op in walk(function.body) if self.marks else ():
            if isinstance(op, Call) and _meets(self.requests.functions[op.callee]):
                problem = "threads meet in this derivative, and another one keeps values of every iteration of a loop"
                raise UnsupportedError(f"{problem}: not supported", op.span, "ask for them in two kernels")

    def check_undone(self) -> None:
        """Launches may be made again, on the memory of their arguments as it was."""
        derived = (self.requests.functions[name] for made in self.made for name in made.names.values())
        for function in (self.function, *derived):
            if roots.UNKNOWN in roots.analyse(function).written():
                problem = f"'{self.function.name}' has derivatives that keep values of loops, for which launches may be"
                problem += f" made again, and '{function.called}' writes through pointers that memory holds"
                raise UnsupportedError(f"{problem}: not supported", self.function.span, "pass the pointers themselves")

    def check_launched(self, op: Derivative) -> None:
        if self.function.kind != "kernel":
            problem = "a tape behind a pointer needs memory that launches of a kernel provide"
            raise UnsupportedError(problem, op.span, "ask for it in a kernel, or use enzyme_allocated")


def _meets(function: Function) -> bool:
    """Whether a thread that does not run it keeps others waiting."""
    return any(isinstance(op, Barrier | BarrierReduce | Warp) for op in walk(function.body))


def _inside(op: Op) -> list[Op]:
    return [inner for block in blocks(op) for inner in walk(block)]


def _content(type: Type) -> Type:
    return type.pointee if isinstance(type, Pointer) else type


def _with_result(function: Function) -> Function:
    """With its value in memory, as a kernel's."""
    if not function.body.results:
        return replace(function, kind="kernel")
    (value,) = function.body.results
    result = Value(Pointer(value.type), RESULT)
    b = Builder(function.span)
    b.store(result, value)
    params = (*function.params, Param(result, "void *"))
    return replace(function, kind="kernel", params=params, body=Block((), (*function.body.ops, *b.ops), ()))
