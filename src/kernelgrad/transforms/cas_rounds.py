"""Loops around atomicCAS that add or subtract: what one does is found by running its rounds on symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from ..ir.ops import Apply, Atomic, AtomicKind, Block, Constant, For, If, Load, Op, Value, While
from ..ir.types import BF16, F16, F32, F64, Pointer, Scalar

FLOATS = (F16, BF16, F32, F64)

Symbol = tuple[object, ...] | bool
Outcome = Literal["exit", "again"]


class _Unclear(Exception):
    """What the loop does next is not known."""


class Rounds:
    """Runs rounds of a loop on symbols, once with a successful and once with a failing swap."""

    def __init__(self, loop: While, swap: Atomic, definitions: Mapping[Value, Op]):
        self.loop, self.swap, self.definitions = loop, swap, definitions
        self.succeeds = True
        self.swaps = 0
        self.symbols: dict[Value, Symbol] = {}
        self.written: set[tuple[AtomicKind, Value]] = set()

    def match(self) -> tuple[AtomicKind, Value] | None:
        entry: list[Symbol] = [self.outer(v) for v in self.loop.inits]
        entry = [s if isinstance(s, bool) else ("carried", k) for k, s in enumerate(entry)]
        try:
            if not self.ends_after_success(entry) or not self.goes_on_after_failure(entry):
                return None
        except _Unclear:
            return None
        return next(iter(self.written)) if len(self.written) == 1 else None

    def ends_after_success(self, entry: list[Symbol]) -> bool:
        """At once, or at the next test of a flag."""
        self.succeeds, self.swaps = True, 0
        outcome, state = self.round(entry)
        if outcome == "again" and self.swaps == 1:
            outcome, _ = self.round([s if isinstance(s, bool) else ("later", k) for k, s in enumerate(state)])
        return outcome == "exit" and self.swaps == 1

    def goes_on_after_failure(self, entry: list[Symbol]) -> bool:
        self.succeeds, self.swaps = False, 0
        outcome, state = self.round(entry)
        flags = all(not isinstance(s, bool) or state[k] is s for k, s in enumerate(entry))
        return outcome == "again" and self.swaps == 1 and flags

    def round(self, state: list[Symbol]) -> tuple[Outcome, list[Symbol]]:
        loop = self.loop
        self.symbols = dict(zip(loop.before.args, state, strict=True))
        self.run(loop.before)
        go, *forwarded = map(self.symbol, loop.before.results)
        if go is False:
            return "exit", []
        if go is not True:
            raise _Unclear
        self.symbols.update(zip(loop.body.args, forwarded, strict=True))
        self.run(loop.body)
        return "again", [self.symbol(v) for v in loop.body.results]

    # ---- operations

    def run(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case If(cond, then, orelse):
                    chosen = self.symbol(cond)
                    if not isinstance(chosen, bool):
                        raise _Unclear
                    side = then if chosen else orelse
                    self.run(side)
                    self.symbols.update(zip(op.results, map(self.symbol, side.results), strict=True))
                case Atomic():
                    self.swap_once(op)
                case While() | For():
                    raise _Unclear
                case _:
                    self.symbols[op.result] = self.evaluate(op)

    def swap_once(self, op: Atomic) -> None:
        self.swaps += 1
        expected, desired = map(self.symbol, op.args)
        match desired:
            case ("add" | "sub" as kind, ("outer", Value() as value), found) if found == expected:
                self.written.add((kind, value))
            case _:
                raise _Unclear
        self.symbols[op.result] = expected if self.succeeds else ("seen", expected)

    def symbol(self, value: Value) -> Symbol:
        return self.symbols[value] if value in self.symbols else self.outer(value)

    def outer(self, value: Value) -> Symbol:
        definition = self.definitions.get(value)
        if isinstance(definition, Constant) and isinstance(definition.value, bool):
            return definition.value
        return ("outer", stripped(value, self.definitions))

    def evaluate(self, op: Op) -> Symbol:
        match op:
            case Constant(value) if isinstance(value, bool):
                return value
            case Load():
                return ("loaded", id(op))
            case Apply(fn, args):
                return self.apply(op, fn, [self.symbol(a) for a in args])
        return ("made", id(op))

    def apply(self, op: Apply, fn: str, args: list[Symbol]) -> Symbol:
        if _keeps_bits(op):
            return args[0]
        if _is_integer_conversion(op) and op.result.type.size > op.args[0].type.size:
            return ("wide", args[0])
        if fn in _LOGIC and all(isinstance(a, bool) for a in args):
            return _LOGIC[fn](*args)
        if fn == "select" and isinstance(args[0], bool):
            return args[1] if args[0] else args[2]
        if fn in ("eq", "ne"):
            same = self.same(*args)
            return ("made", id(op)) if same is None else same == (fn == "eq")
        if op.result.type in FLOATS and fn.removesuffix("_rn") in ("add", "sub"):
            return _summed(fn.removesuffix("_rn"), *args)
        return ("made", id(op))

    def same(self, one: Symbol, other: Symbol) -> bool | None:
        if one == other:
            return True
        if isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0] == "wide":
            return self.same(one[1], other[1])  # type: ignore[arg-type]
        return False if one == ("seen", other) or other == ("seen", one) else None


def _summed(fn: str, one: Symbol, other: Symbol) -> Symbol:
    """(kind, what is added, what was found); only a sum may have the two in either order."""
    if isinstance(one, tuple) and one[0] == "outer" and fn == "add":
        return ("add", one, other)
    return (fn, other, one)


_LOGIC: dict[str, Callable[..., bool]] = {
    "not": lambda a: not a,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


# ---- bits -----------------------------------------------------------------------------------------------------------


def stripped(value: Value, definitions: Mapping[Value, Op]) -> Value:
    """The value whose bits it is."""
    definition = definitions.get(value)
    while isinstance(definition, Apply) and _keeps_bits(definition):
        value = definition.args[0]
        definition = definitions.get(value)
    return value


def _keeps_bits(op: Apply) -> bool:
    """A reinterpretation, or a conversion between integers of one size."""
    if op.fn == "bitcast":
        return not isinstance(op.result.type, Pointer)
    return _is_integer_conversion(op) and op.args[0].type.size == op.result.type.size


def _is_integer_conversion(op: Apply) -> bool:
    types = (op.args[0].type, op.result.type)
    return op.fn == "convert" and all(isinstance(t, Scalar) and t.kind in ("int", "uint") for t in types)
