"""Floating point formulas in Python's own notation: `Real` is an LLVM value that knows how to be computed with."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from . import llvm_types as lt
from .llvm_types import intrinsic


class Real:
    """An f32 or f64. Comparisons give LLVM booleans, as `select` wants them; no operation is contracted."""

    def __init__(self, b: ir.IRBuilder, value: ir.Value):
        self.b, self.value = b, value

    @property
    def type(self) -> ir.Type:
        return self.value.type

    def of(self, value: ir.Value) -> Real:
        return Real(self.b, value)

    def lift(self, other: Real | float) -> Real:
        return other if isinstance(other, Real) else Real(self.b, ir.Constant(self.type, float(other)))

    def __add__(self, other: Real | float) -> Real:
        return self.of(self.b.fadd(self.value, self.lift(other).value))

    def __radd__(self, other: float) -> Real:
        return self.lift(other) + self

    def __sub__(self, other: Real | float) -> Real:
        return self.of(self.b.fsub(self.value, self.lift(other).value))

    def __rsub__(self, other: float) -> Real:
        return self.lift(other) - self

    def __mul__(self, other: Real | float) -> Real:
        return self.of(self.b.fmul(self.value, self.lift(other).value))

    def __rmul__(self, other: float) -> Real:
        return self.lift(other) * self

    def __truediv__(self, other: Real | float) -> Real:
        return self.of(self.b.fdiv(self.value, self.lift(other).value))

    def __rtruediv__(self, other: float) -> Real:
        return self.lift(other) / self

    def __neg__(self) -> Real:
        return self.of(self.b.fneg(self.value))

    def __abs__(self) -> Real:
        return self.call("llvm.fabs")

    def __lt__(self, other: Real | float) -> ir.Value:
        return self.b.fcmp_ordered("<", self.value, self.lift(other).value)

    def __gt__(self, other: Real | float) -> ir.Value:
        return self.b.fcmp_ordered(">", self.value, self.lift(other).value)

    def equals(self, other: Real | float) -> ir.Value:
        return self.b.fcmp_ordered("==", self.value, self.lift(other).value)

    def is_finite(self) -> ir.Value:
        return abs(self) < float("inf")

    def is_nan(self) -> ir.Value:
        return self.b.fcmp_unordered("uno", self.value, self.value)

    def select(self, condition: ir.Value, otherwise: Real | float) -> Real:
        """This number where the condition holds."""
        return self.of(self.b.select(condition, self.value, self.lift(otherwise).value))

    def call(self, name: str, *args: Real) -> Real:
        """A function of this number and `args`: an LLVM intrinsic, or (without the prefix) one of the C library."""
        values = [self.value, *(a.value for a in args)]
        if name.startswith("llvm."):
            return self.of(intrinsic(self.b, name, self.type, values, [self.type]))
        return self.of(library_call(self.b, name, self.type, values))

    def sqrt(self) -> Real:
        return self.call("llvm.sqrt")

    def exp(self) -> Real:
        return self.call("llvm.exp")

    def fma(self, factor: Real | float, summand: Real | float) -> Real:
        """self * factor + summand, rounded once."""
        return self.call("llvm.fma", self.lift(factor), self.lift(summand))


def library_call(b: ir.IRBuilder, name: str, result: ir.Type, args: list[ir.Value]) -> ir.Value:
    """Call a function of the C math library: `name` is double's, floats have an `f` at the end."""
    is_float = any(a.type == lt.F32 for a in args)
    symbol = name + ("f" if is_float else "")
    function = b.module.globals.get(symbol)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [a.type for a in args]), symbol)
        for attribute in ("readnone", "nounwind"):
            function.attributes.add(attribute)
    return b.call(function, args)


def polynomial(x: Real, coefficients: tuple[float, ...]) -> Real:
    """Horner's scheme; the constant term comes first."""
    *rest, last = coefficients
    total = x.lift(last)
    for coefficient in reversed(rest):
        total = total.fma(x, coefficient)
    return total


Loop = Callable[[Real, tuple[Real, ...]], tuple[ir.Value, tuple[Real, ...]]]


def iterate(x: Real, start: tuple[Real, ...], step: Loop) -> tuple[Real, ...]:
    """Carry `start` through `step(k, carried) -> (go on, carried)`, k = 1, 2, ..., while it wants to go on."""
    b, before = x.b, x.b.block
    loop, done = b.append_basic_block("iterate"), b.append_basic_block("iterated")
    b.branch(loop)
    b.position_at_end(loop)
    phis = [b.phi(x.type) for _ in (x, *start)]
    for phi, first in zip(phis, (x.lift(1.0), *start), strict=True):
        phi.add_incoming(first.value, before)
    k, *carried = map(x.of, phis)
    go_on, following = step(k, tuple(carried))
    for phi, value in zip(phis, (k + 1.0, *following), strict=True):
        phi.add_incoming(value.value, b.block)
    b.cbranch(go_on, loop, done)
    b.position_at_end(done)
    return following
