"""Divisions of adjoints by the same number: one reciprocal, and multiplications.

Where a kernel divides by a sum, its gradient divides several numbers by it for each element, and a division takes ten
times as long as a multiplication. Products with a reciprocal are rounded twice. That is fine for what ends up in
adjoints and nowhere else: neither in memory of the kernel's own, nor in a decision, but for whether there is anything
to add at all. The reciprocal of a number next to zero would be infinite, so that such numbers are scaled before.
"""

from __future__ import annotations

from dataclasses import replace

from ...analysis.aliases import Aliases
from ...ir.builder import Builder
from ...ir.ops import Apply, Atomic, BarrierReduce, Block, Constant, For, Function, Op, Store, Value, Warp, While
from ...ir.traverse import control_flows, descend, operands, walk, with_body
from ...ir.types import F32, F64, Scalar, Type

_FEW = 2  # divisions for which it is not worth it
# Numbers that are smaller or larger than this, and by how much they are scaled then.
_SMALL: dict[Type, tuple[float, float]] = {F32: (2.0**-120, 2.0**64), F64: (2.0**-1000, 2.0**256)}
_PASSED = ("shfl_idx", "shfl_up", "shfl_down", "shfl_xor", "reduce_add")


def run(function: Function, gathering: frozenset[str]) -> Function:
    """`gathering`: the parameters and variables that hold adjoints."""
    uses = _Uses(function, gathering)
    by: dict[Value, set[Op]] = {}
    for op in walk(function.body):
        if isinstance(op, Apply) and op.fn == "div" and op.result.type in _SMALL and uses.is_adjoint(op.result):
            by.setdefault(op.args[1], set()).add(op)
    chosen = {y: ops for y, ops in by.items() if len(ops) > _FEW and not isinstance(uses.definition.get(y), Constant)}
    return with_body(function, _Rewrite(chosen).body(function)) if chosen else function


class _Uses:
    def __init__(self, function: Function, gathering: frozenset[str]):
        self.aliases = Aliases(function)
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.adjoints = {p.value for p in function.params if p.name in gathering}
        self.gathering = gathering
        self.flows: dict[Value, list[Value]] = {}
        self.decides: set[Value] = set()  # values that are used for something else
        self.found: dict[Value, bool] = {}
        for op in walk(function.body):
            self._index(op)

    def _index(self, op: Op) -> None:
        carried = op.inits if isinstance(op, For | While) else ()
        for value in operands(op):
            if (following := self.following(op, value)) is not None:
                self.flows.setdefault(value, []).extend(following)
            elif value not in carried or value in (getattr(op, "lower", None), getattr(op, "upper", None)):
                self.decides.add(value)
        if isinstance(op, While):
            self.decides.add(op.before.results[0])
        for target, sources in control_flows(op):
            for value in sources:
                self.flows.setdefault(value, []).append(target)

    def is_adjoint(self, value: Value) -> bool:
        """Whether it ends up in adjoints alone, whatever loops carry it through."""
        if value not in self.found:
            waiting, seen = [value], {value}
            while waiting:
                new = [v for v in self.flows.get(waiting.pop(), ()) if v not in seen]
                seen.update(new)
                waiting += new
            self.found[value] = seen.isdisjoint(self.decides)
        return self.found[value]

    def following(self, op: Op, value: Value) -> tuple[Value, ...] | None:
        """What an operation makes of a value that may end up in adjoints; None where it does something else with it."""
        match op:
            case Apply("eq" | "ne", (_, other)) if other is not value:
                zero = self.definition.get(other)
                return () if isinstance(zero, Constant) and zero.value == 0 else None
            case Apply("select", (cond, _, _)) if cond is value:
                return None
            case Apply():
                return op.results if isinstance(op.result.type, Scalar) and op.result.type.is_float else None
            case Store(ptr, _) | Atomic("add", ptr, _):
                return () if ptr is not value and self.is_gathering(ptr) else None
            case BarrierReduce("sum", _):
                return op.results
            case Warp(fn, _) if fn in _PASSED:
                return op.results
        return None

    def is_gathering(self, ptr: Value) -> bool:
        root = self.aliases.root(ptr)
        return root in self.adjoints or self.aliases.variable(root) in self.gathering


class _Rewrite:
    def __init__(self, chosen: dict[Value, set[Op]]):
        self.chosen = chosen
        self.factors: dict[Value, tuple[Value, Value]] = {}

    def body(self, function: Function) -> Block:
        b = Builder(function.span)
        for param in function.params:
            self.define(b, param.value)
        body = self.block(function.body)
        return Block(body.args, (*b.ops, *body.ops), body.results)

    def define(self, b: Builder, y: Value) -> None:
        if y in self.chosen:
            one, size = b.constant(1.0, y.type), b.apply("abs", y)
            small, factor = _SMALL[y.type]
            large = b.apply("gt", size, b.constant(1 / small, y.type))
            scale = b.apply("select", large, b.constant(1 / factor, y.type), one)
            tiny = b.apply("lt", size, b.constant(small, y.type))
            scale = b.apply("select", tiny, b.constant(factor, y.type), scale, name="~scale")
            self.factors[y] = b.apply("div", one, b.apply("mul", y, scale), name="~reciprocal"), scale

    def block(self, block: Block) -> Block:
        b = Builder()
        for arg in block.args:
            self.define(b, arg)
        ops = list(b.ops)
        for op in block.ops:
            b = Builder(op.span)
            self.op(b, op)
            for result in op.results:
                self.define(b, result)
            ops += b.ops
        return Block(block.args, tuple(ops), block.results)

    def op(self, b: Builder, op: Op) -> None:
        if isinstance(op, Apply) and op.fn == "div" and op in self.chosen.get(op.args[1], ()):
            reciprocal, scale = self.factors[op.args[1]]
            product = b.apply("mul", op.args[0], reciprocal)
            b.add(replace(op, fn="mul", args=(product, scale)))
        else:
            b.add(descend(op, self.block))
