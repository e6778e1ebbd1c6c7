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
# which launches check; others may be the same, and the derivative is one that counts on nothing.
#
# Numbers have adjoints in variables of the thread, which start as zero; that of the function's value starts as 1.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations, count
from typing import NamedTuple

from ..analysis import roots
from ..errors import UnsupportedError
from ..ir.builder import Builder, pointee
from ..ir.ops import Alloca, Block, Call, Derivative, Function, Module, Op, Param, Value
from ..ir.traverse import rebuild, walk, with_body
from ..ir.types import Pointer, Type
from ..transforms import inline, local_atomics, promote, returns, simplify
from .accumulate.choice import Facts
from .calculus.activity import holds_floats
from .forward import jvp
from .prepare.options import Mode, Options
from .prepare.prepared import Derivations
from .reverse import Derivation

_RESULT = "_result"
_MODES: dict[str, Mode] = {"reverse": "joint", "augmented": "split", "backward": "split"}
_THREAD = Facts(private=frozenset(), exclusive=frozenset(), apart=frozenset(), inlined=True)


class Compiler(NamedTuple):
    """The lists of passes: `ready` for a function of the module, in its own module; `finished` for one that was
    derived, with the names of its parameters for adjoints."""

    ready: Callable[[Module, str], Module]
    finished: Callable[[Function, Module, frozenset[str]], Function]


def run(module: Module, compiler: Compiler) -> Module:
    """The module with the requests of kernels and device functions in place."""
    return _Requests(module, compiler).run()


@dataclass(frozen=True)
class _Made:
    """A derived function. `listed`: the parameters that have an adjoint, with the derived function's parameter for it.
    `frame`: bytes of its tape."""

    name: str
    listed: dict[str, Param]
    returns: Type | None
    frame: int = 0


class _Requests:
    def __init__(self, module: Module, compiler: Compiler):
        self.module, self.compiler = module, compiler
        self.functions = dict(module.functions)
        self.globals = dict(module.globals)
        self.made: dict[object, _Made] = {}
        self.active: list[str] = []

    def run(self) -> Module:
        asking = self.asking()
        for name in asking:
            if self.functions[name].kind != "host":
                self.functions[name] = self.expanded(name)
        return replace(self.module, functions=self.functions, globals=self.globals)

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
        function = replace(caller.run(), apart=caller.apart)
        for stage in (inline, local_atomics):
            function = stage.run(function, self.extended())
        self.active.pop()
        return function

    def of(self, op: Derivative, may_alias: bool) -> _Made:
        """What is called in place of a request."""
        key = op.fn, op.mode == "forward", _MODES.get(op.mode), op.activity, may_alias
        if key not in self.made:
            self.made[key] = self.tangent(op) if op.mode == "forward" else self.reverse(op, may_alias)
        return self.made[key]

    # ---- the derived functions

    def source(self, op: Derivative) -> tuple[Function, Module, tuple[str, ...]]:
        """The function to differentiate, with its value in memory, its module, and the parameters with derivatives."""
        if any(isinstance(o, Derivative) for o in walk(self.functions[op.fn].body)):
            self.functions[op.fn] = self.expanded(op.fn)
        module = self.compiler.ready(self.extended(), op.fn)
        function = _with_result(module.functions[op.fn])
        pairs = zip(function.params, op.activity.split(","), strict=False)
        listed = [p.name for p, activity in pairs if activity != "const" and holds_floats(_content(p.type))]
        has_result = len(function.params) > len(op.args) and holds_floats(_content(function.params[-1].type))
        return function, replace(module, functions={op.fn: function}), (*listed, *((_RESULT,) if has_result else ()))

    def reverse(self, op: Derivative, may_alias: bool) -> _Made:
        function, module, listed = self.source(op)
        if not listed:
            raise UnsupportedError(f"nothing to differentiate: no floating-point parameter of '{op.fn}'", op.span)
        changing = frozenset(p.name for p in function.params) if _MODES[op.mode] == "split" else frozenset[str]()
        facts = replace(_THREAD, taped=changing)
        options = Options(listed, mode=_MODES[op.mode], may_alias=may_alias, facts=facts, changing=changing)
        derivation = Derivation(Derivations(function, module).prepared(options))
        self.check(op, derivation)
        self.globals.update({g.name: g for g in derivation.shared.values()})
        adjoints = frozenset(p.name for p in derivation.adjoints.values())
        known = replace(module, globals={**module.globals, **self.globals})
        name = ""
        for derived in derivation.functions:
            own = replace(self.compiler.finished(derived, known, adjoints), name=self.fresh(derived.name))
            self.functions[own.name] = own
            name = name or own.name
        return _Made(name, derivation.adjoints, function.params[-1].type if function.result_type else None, 0)

    def check(self, op: Derivative, derivation: Derivation) -> None:
        """What only launches of whole kernels have."""
        if derivation.claims:
            problem = "an atomic maximum, minimum or exchange has a gradient in whole kernels only"
            raise UnsupportedError(problem, op.span, "differentiate the kernel")
        if derivation.internal:
            name = next(iter(derivation.internal))
            problem = f"derivatives flow through '{name}', for which no adjoint is given"
            raise UnsupportedError(problem, op.span, f"give '{name}' a shadow")
        if derivation.shared_params:
            problem = "dynamic shared memory has a derivative in whole kernels only"
            raise UnsupportedError(problem, op.span, "give the array a size, or differentiate the kernel")

    def tangent(self, op: Derivative) -> _Made:
        function, module, listed = self.source(op)
        inputs = tuple(name for name in listed if name != _RESULT)
        made = jvp(function, module, listed)
        own = replace(made.function, name=self.fresh(made.function.name))
        self.functions[own.name] = own
        self.globals.update({n: g for n, g in made.module.globals.items() if n not in self.globals})
        params = {p.name: p for p in own.params}
        assert inputs is not None
        return _Made(own.name, {n: params[t] for n, t in zip(listed, made.tangents, strict=True)}, None)

    def fresh(self, name: str) -> str:
        candidates = (name if k == 0 else f"{name}.{k}" for k in count())
        return next(c for c in candidates if c not in self.functions)


class _Caller:
    """One function with requests."""

    def __init__(self, requests: _Requests, function: Function):
        self.requests, self.function = requests, function
        self.memory = roots.analyse(function)
        self.own = {op.result for op in walk(function.body) if isinstance(op, Alloca)}
        self.apart: tuple[str, ...] = ()
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
        self.apart = tuple(dict.fromkeys((*self.apart, *sorted(names[r] for r in others if r in names))))
        return False

    def call(self, source: Derivative, op: Derivative) -> list[Op]:
        """The call of the derived function, and what it needs around it."""
        made = self.requests.of(source, self.may_alias(source))
        return _Call(self, op, made).ops()


class _Call:
    def __init__(self, caller: _Caller, op: Derivative, made: _Made):
        self.caller, self.op, self.made = caller, op, made
        self.function = caller.requests.functions[made.name]
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
            if adjoint is not None:
                given[adjoint.name] = self.adjoint(param, adjoint, how, shadow)
        if primal.result_type is not None:
            given[_RESULT] = b.alloca(primal.result_type, "value")
            adjoint = self.made.listed.get(_RESULT)
            if adjoint is not None:
                given[adjoint.name] = self.of_value(adjoint)
        arguments = tuple(self.fitted(given[p.name], p.type) for p in self.function.params)
        b.effect(Call, self.made.name, arguments)
        for step in self.after:
            step()
        self.caller.replaced.update(zip(op.results, self.results, strict=False))
        return b.ops

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
            b.store(own, self.op.given[0] if self.op.given else b.constant(1.0, type))
        return own


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
