"""Functions with derivatives of the user's, in a form that forward and reverse mode know: Note [Custom derivatives].

Before: a module as the frontend gives it. After: each function that has a custom derivative computes what it did, and
is made of `stop` and `custom`; nothing later knows of pullbacks.
"""

# Note [Custom derivatives]
# A pullback is linear in the adjoint of the result, so what it adds for an adjoint of 1 says it all: each
#     *d_a += v;      d_b[k] += v;
# becomes, with v for the adjoint 1, after the function's own code
#     r = custom(r, a, v);      r = custom(r, b[k], v);
# in the same place, be it in branches and loops of the pullback. `custom(r, x, slope)` is r, and its derivative by x
# grows by slope: reverse mode adds slope * d_r to the adjoint of x, and where x was loaded, to its shadow, by whichever
# way is right there; what slopes are made of is kept or computed again as everything is; forward mode multiplies the
# slope with x's tangent. `stop(r)` before that cuts off the function's own derivative. A result of several numbers has
# a copy of the pullback for each. A tangent that is given is linear in those of the arguments, and made of in the same
# way, one argument after the other.

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..analysis import roots
from ..errors import Span, UnsupportedError
from ..ir.builder import Builder
from ..ir.custom import CustomDerivative, adjoints_of_pullback, differentiable
from ..ir.ops import Alloca, Block, Call, Function, Module, Param, Value
from ..ir.traverse import clone, walk
from ..ir.types import BF16, F16, F32, Array, Pointer, Scalar, Struct, Type, element_types
from ..transforms import inline, promote, returns, simplify
from .custom_linear import Linearity, not_linear
from .custom_rebinding import refuse_rebinding
from .custom_updates import Updates

Path = tuple[int, ...]
_MOST = 64  # numbers of a result


def run(module: Module, given: Iterable[CustomDerivative]) -> Module:
    """The module with the functions in that form."""
    for one in given:
        functions = {**module.functions, one.function: _Custom(module, one).function}
        module = replace(module, functions=functions)
    return module


def leaves(type: Type) -> list[Path]:
    """Where the floating point numbers of a value are."""
    if isinstance(type, Struct | Array):
        parts = enumerate(element_types(type))
        return [(k, *path) for k, part in parts if not isinstance(part, Pointer) for path in leaves(part)]
    return [()] if isinstance(type, Scalar) and type.is_float else []


def part(b: Builder, value: Value, path: Path) -> Value:
    for k in path:
        value = b.extract(value, k)
    return value


def with_part(b: Builder, whole: Value, path: Path, value: Value) -> Value:
    if not path:
        return value
    return b.insert(whole, with_part(b, b.extract(whole, path[0]), path[1:], value), path[0])


def zero(b: Builder, type: Type) -> Value:
    if isinstance(type, Struct | Array):
        return b.aggregate(type, tuple(zero(b, t) for t in element_types(type)))
    return b.constant(0.0 if isinstance(type, Scalar) and type.is_float else 0, type)


class _Custom:
    """One function; `b` builds its body."""

    def __init__(self, module: Module, given: CustomDerivative):
        self.module, self.given, self.source = module, given, module.functions[given.function]
        self.types = tuple(p.type for p in self.source.params)
        self.b = Builder(self.source.span)
        self.check()
        own = clone(self.source.body, {})
        self.b.ops += own.ops
        (result,) = own.results
        self.cells: list[tuple[Path, Value]] = []
        for path in leaves(result.type):
            self.cells.append((path, self.cell(part(self.b, result, path))))
        if given.pullback is not None:
            self.pullback(module.functions[given.pullback], "custom" if given.tangent is None else "custom_reverse")
        if given.tangent is not None:
            self.tangent(module.functions[given.tangent], "custom" if given.pullback is None else "custom_forward")
        for path, cell in self.cells:
            wanted = part(self.b, result, path).type
            result = with_part(self.b, result, path, self.b.convert(self.b.load(cell), wanted))
        self.function = replace(self.source, body=Block((), tuple(self.b.ops), (result,)))

    def cell(self, value: Value) -> Value:
        """A variable for a number of the result; narrow ones are floats in there."""
        self.b.span = self.source.span.because(f"'{self.source.name}' has a custom derivative")
        stopped = self.b.apply("stop", value)
        wide = self.b.convert(stopped, F32) if value.type in (F16, BF16) else stopped
        cell = self.b.alloca(wide.type, "result")
        self.b.store(cell, wide)
        return cell

    def check(self) -> None:
        """What the function does besides giving its result would have no derivative."""
        type, source = self.source.body.results[0].type if self.source.body.results else None, self.source
        if type is None or isinstance(type, Pointer) or not 0 < len(leaves(type)) <= _MOST:
            problem = f"'{source.name}' has a custom derivative and returns no floating point number"
            raise UnsupportedError(problem, source.span, "return the result, as a number or a struct of some")
        for p in source.params:
            if not isinstance(p.type, Pointer) and roots.holds_pointers(p.type):
                problem = f"'{source.name}' has a custom derivative, and pointers in its parameter '{p.name}'"
                raise UnsupportedError(problem, source.span, "pass them as parameters of their own")
        plain = self.ready(source)
        memory = roots.analyse(plain)
        own = {op.result for op in walk(plain.body) if isinstance(op, Alloca)}
        for op in memory.stores:
            if not memory.of(op.ptr) <= own:  # type: ignore[attr-defined]
                problem = f"'{source.name}' has a custom derivative and writes to memory here: not supported"
                raise UnsupportedError(problem, op.span, "return the result, as a number or a struct of some")

    def ready(self, function: Function) -> Function:
        """Without calls, locals as values."""
        module = replace(self.module, functions={**self.module.functions, function.name: function})
        for stage in (inline, returns, promote, simplify):
            function = stage.run(function, module)
        return function

    # ---- reverse mode

    def pullback(self, pullback: Function, fn: str) -> None:
        result = self.source.body.results[0].type
        owners = adjoints_of_pullback(self.types, result, tuple(p.type for p in pullback.params))
        assert owners is not None
        refuse_rebinding(pullback, len(self.types) + 1)
        called, seeds, shadows = self.called_pullback(pullback, owners, result)
        memory = roots.analyse(called)
        linearity = Linearity(called, memory, seeds, frozenset(shadows))
        by_value = [k for k in owners if k not in shadows.values()]
        for k, value in zip(by_value, called.body.results, strict=True):
            self.check_linear(linearity, value, pullback, self.source.params[k].name)
        for number, (_, cell) in enumerate(self.cells):
            updates = Updates(called, memory, linearity, shadows, self.source.params, cell, fn, number)
            mapping = {p.value: own.value for p, own in zip(called.params, self.source.params, strict=False)}
            for k, seed in enumerate(seeds):
                mapping[seed] = self.b.constant(1.0 if k == number else 0.0, seed.type)
            copied = clone(updates.body, mapping)
            self.b.ops += copied.ops
            for k, slopes, found in zip(by_value, copied.results, called.body.results, strict=True):
                if number in linearity.value(found).parts:
                    self.attach(cell, self.source.params[k].value, slopes, fn, pullback.span)

    def called_pullback(
        self, pullback: Function, owners: tuple[int, ...], result: Type
    ) -> tuple[Function, list[Value], dict[Value, int]]:
        """A function of the arguments, the numbers of the result's adjoint and the pointers to adjoints, that gives the
        adjoints of the other arguments; those numbers; and whose adjoints the pointers lead to."""
        b = Builder(pullback.span)
        own = [Param(Value(p.type, p.value.name), p.c_type) for p in self.source.params]
        adjoint, seeds = zero(b, result), []
        for path in leaves(result):
            seeds.append(Value(part(b, adjoint, path).type, pullback.params[len(own)].name))
            adjoint = with_part(b, adjoint, path, seeds[-1])
        places, shadows, cells = list[Value](), dict[Value, int](), list[Value]()
        for param, k in zip(pullback.params[len(own) + 1 :], owners, strict=True):
            if isinstance(self.types[k], Pointer):
                places.append(Value(param.type, param.value.name))
                shadows[places[-1]] = k
            else:
                cells.append(b.alloca(self.types[k], param.value.name))
                b.store(cells[-1], zero(b, self.types[k]))
                places.append(b.cast_pointer(cells[-1], param.type))  # type: ignore[arg-type]
        arguments = (*(p.value for p in own), adjoint, *places)
        b.effect(Call, pullback.name, arguments)
        results = tuple(b.load(cell) for cell in cells)
        extra = [Param(v, "") for v in (*seeds, *shadows)]
        body = Block((), tuple(b.ops), results)
        called = Function(f"{pullback.name}.called", "device", (*own, *extra), body, pullback.span)
        return self.ready(called), seeds, shadows

    def check_linear(self, linearity: Linearity, value: Value, given: Function, name: str) -> None:
        found = linearity.value(value)
        if found.flaw is None and not found.apart:
            return
        raise not_linear(found.flaw or given.span, name, apart=not found.parts)

    def attach(self, cell: Value, argument: Value, slopes: Value, fn: str, span: Span) -> None:
        for path in leaves(argument.type):
            self.b.span = span
            old = self.b.load(cell)
            x = self.b.convert(part(self.b, argument, path), old.type)
            slope = self.b.convert(part(self.b, slopes, path), old.type)
            self.b.store(cell, self.b.apply(fn, old, x, slope))

    # ---- forward mode

    def tangent(self, tangent: Function, fn: str) -> None:
        wanted = differentiable(self.types)
        for k in wanted:
            if isinstance(self.types[k], Pointer):
                problem = f"a tangent by '{self.source.params[k].name}', which is a pointer, is not supported"
                hint = "give a pullback alone: forward mode follows from it"
                raise UnsupportedError(problem, tangent.span, hint)
        called, seeds = self.called_tangent(tangent, wanted)
        memory = roots.analyse(called)
        linearity = Linearity(called, memory, list(seeds), frozenset())
        (given,) = called.body.results
        self.check_linear(linearity, given, tangent, "the result")
        for number, (_, (k, path)) in enumerate(seeds.items()):
            mapping = {p.value: own.value for p, own in zip(called.params, self.source.params, strict=False)}
            for j, seed in enumerate(seeds):
                mapping[seed] = self.b.constant(1.0 if j == number else 0.0, seed.type)
            alone = Updates(called, memory, linearity, {}, self.source.params, None, fn, number)
            copied = clone(alone.body, mapping)
            self.b.ops += copied.ops
            for leaf, cell in self.cells:
                self.b.span = tangent.span
                old = self.b.load(cell)
                x = self.b.convert(part(self.b, self.source.params[k].value, path), old.type)
                slope = self.b.convert(part(self.b, copied.results[0], leaf), old.type)
                self.b.store(cell, self.b.apply(fn, old, x, slope))

    def called_tangent(
        self, tangent: Function, wanted: tuple[int, ...]
    ) -> tuple[Function, dict[Value, tuple[int, Path]]]:
        """A function of the arguments and of the numbers of their tangents; and what each of those is of."""
        b = Builder(tangent.span)
        own = [Param(Value(p.type, p.value.name), p.c_type) for p in self.source.params]
        seeds, tangents = dict[Value, tuple[int, Path]](), list[Value]()
        for k in wanted:
            whole = zero(b, self.types[k])
            for path in leaves(self.types[k]):
                seed = Value(part(b, whole, path).type, f"t_{self.source.params[k].name}")
                seeds[seed] = k, path
                whole = with_part(b, whole, path, seed)
            tangents.append(whole)
        arguments = (*(p.value for p in own), *tangents)
        result = b.emit(Call, tangent.name, arguments, type=tangent.body.results[0].type)
        if result.type != self.source.body.results[0].type:  # Clad's pair of value and tangent
            result = b.extract(result, 1)
        body = Block((), tuple(b.ops), (result,))
        params = (*own, *(Param(v, "") for v in seeds))
        return self.ready(Function(f"{tangent.name}.called", "device", params, body, tangent.span)), seeds
