"""Digits that are put together and taken apart again: the divisions go, and nothing changes."""

from __future__ import annotations

import operator
import random
from collections.abc import Sequence
from typing import Any

import pytest

import ir_interpreter
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Block, Function, Module, Value
from kernelgrad.ir.types import I8, I16, I32, I64, U8, U16, U32, U64, Pointer, Scalar
from kernelgrad.transforms import digit_sums, simplify

from .checking import BUFFER, function, functions_applied, module_of, observe, transformed

EDGES = (0, 1, 7, 35, 36, 1023, 2**31 - 1, -1, -36, -(2**31))
TYPES = (I32, I32, I32, U32, U32, I64, U64, I16, U8, I8, U16)
KINDS = "add sub mul div rem neg convert digits digits cell cell thread shl shr and or xor min max select bool".split()
CELLS = 16


class _Program:
    """Loops and branches around integers that are stored: sums, products, quotients, remainders, conversions, bits,
    values that loops carry and that branches choose."""

    def __init__(self, seed: int):
        self.rng, self.b = random.Random(seed), Builder()
        self.out, self.given = Value(Pointer(I32, "global"), "out"), (Value(I32, "n"), Value(I32, "m"))
        self.known = list(self.given)
        self.stored = 0

    def module(self) -> Module:
        self.statements(3)
        return module_of(function("main", (self.out, *self.given), self.b))

    def statements(self, depth: int) -> None:
        for _ in range(self.rng.randint(1, 3)):
            kinds = [self.branch, self.branch, self.loop, self.repeated, self.named, self.store]
            self.rng.choice(kinds)(depth)
        self.store(depth)

    def store(self, _: int) -> None:
        value = self.b.convert(self.integer(5), I32)
        at = self.b.constant(self.stored % CELLS, I32)
        self.stored += 1
        place = self.b.offset(self.out, at)
        self.b.store(place, self.b.apply("xor", value, self.b.load(place)))

    def named(self, _: int) -> None:
        """A value that is used several times."""
        self.known.append(self.integer(4))

    def condition(self, deep: int = 2) -> Value:
        b, rng, type = self.b, self.rng, self.rng.choice(TYPES)
        kind = rng.choice(["compare", "compare", "compare", "and", "or", "not"]) if deep else "compare"
        if kind == "not":
            return b.apply("not", self.condition(deep - 1))
        if kind != "compare":
            return b.apply(kind, self.condition(deep - 1), self.condition(deep - 1))
        other = self.few(type) if rng.random() < 0.7 else self.integer(1, type)
        sides = [self.integer(1, type), other]
        rng.shuffle(sides)
        return b.apply(rng.choice(["lt", "le", "gt", "ge", "eq", "ne"]), *sides)

    def branch(self, depth: int) -> None:
        if depth == 0:
            return
        types = [self.rng.choice(TYPES) for _ in range(self.rng.randint(0, 2))]
        cond = self.condition()
        self.known += self.b.if_(cond, *(self.inside(depth, (), types) for _ in range(2)))

    def inside(self, depth: int, given: tuple[Value, ...] = (), types: Sequence[Scalar] = ()) -> Block:
        """`types`: of its results."""
        known = len(self.known)
        self.known += given
        with self.b.region() as region:
            self.statements(depth - 1)
            results = tuple(self.integer(2, type) for type in types)
        del self.known[known:]
        return region.block(given, results)

    def loop(self, depth: int) -> None:
        if depth == 0:
            return
        type, step = self.rng.choice((I32, I32, U32, I64, I16)), self.rng.choice([1, 2, 5, -1, -3])
        if type == U32:
            step = abs(step)
        first = self.few(type)
        if self.rng.random() < 0.4:
            most = self.b.constant(self.rng.choice([7, 36]), type)
            first = self.b.apply("rem", self.integer(1, type), most)
        last = self.b.apply("add", first, self.b.constant(self.rng.randint(0, 3) * step, type))
        inits = tuple(self.integer(1) for _ in range(self.rng.randint(0, 2)))
        counter = Value(type, "i")
        types = [v.type for v in inits]
        body = self.inside(depth, (counter, *(Value(t, "c") for t in types)), types)  # type: ignore[arg-type]
        self.known += self.b.for_(first, last, inits, step, body)

    def repeated(self, depth: int) -> None:
        """A while loop of few rounds, which carries another value."""
        if depth == 0:
            return
        b, type = self.b, self.rng.choice(TYPES)
        inits = (b.constant(self.rng.randint(0, 3), I32), self.integer(1, type))
        left, carried = Value(I32, "left"), Value(type, "c")
        known = len(self.known)
        self.known.append(carried)
        with b.region() as region:
            more = b.apply("gt", left, b.constant(0, I32))
            if self.rng.random() < 0.6:
                more = b.apply("and", more, self.condition(1))
            on = self.integer(1, type)
        before = region.block((left, carried), (more, left, carried, on))
        del self.known[known:]
        args = (Value(I32, "left"), Value(type, "c"), Value(type, "on"))
        body = self.inside(depth, args, (type,))
        with b.region() as region:
            b.ops += body.ops
            fewer = b.apply("sub", args[0], b.constant(1, I32))
        self.known += b.while_(inits, before, region.block(args, (fewer, *body.results)))[1:]

    def few(self, type: Scalar) -> Value:
        return self.b.constant(self.rng.choice([0, 1, 5, 31, 36, 100]), type)

    def integer(self, deep: int, type: Scalar | None = None) -> Value:
        b, rng, type = self.b, self.rng, type or self.rng.choice(TYPES)
        if deep == 0 or rng.random() < 0.15:
            return b.convert(rng.choice(self.known), type) if rng.random() < 0.8 else self.few(type)
        kind = rng.choice(KINDS)
        if kind == "convert":
            return b.convert(self.integer(deep - 1), type)
        if kind == "bool":
            return b.convert(self.condition(1), type)
        if kind == "select":
            return b.apply("select", self.condition(1), self.integer(deep - 1, type), self.integer(deep - 1, type))
        if kind == "neg":
            return b.apply("neg", self.integer(deep - 1, type))
        if kind == "thread":
            return b.convert(b.apply("rem", b.convert(self.integer(deep - 1), U32), b.constant(64, U32)), type)
        if kind in ("shl", "shr"):
            return b.apply(kind, self.integer(deep - 1, type), b.constant(rng.choice([0, 1, 2, 5]), type))
        by = b.constant(rng.choice([2, 3, 4, 16, 32, 36]), type)
        whole = self.integer(deep - 1, type)
        if kind == "digits":
            quotient, remainder = b.apply("div", whole, by), b.apply("rem", whole, by)
            moved = b.apply("add", remainder, self.few(type)) if rng.random() < 0.5 else remainder
            return b.apply("add", b.apply("mul", quotient, by), moved)
        if kind == "cell":
            digit = b.apply("rem", self.integer(deep - 1, type), b.constant(rng.choice([2, 4, 16, 36]), type))
            return b.apply(rng.choice(["div", "rem"]), b.apply("add", b.apply("mul", whole, by), digit), by)
        if kind in ("div", "rem", "mul"):
            return b.apply(kind, whole, by)
        return b.apply(kind, whole, self.integer(deep - 1, type))


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_nothing_changes(start: int) -> None:
    fewer = 0
    for seed in range(start, start + 50):
        module = _Program(seed).module()
        before = transformed(module, "main", simplify.run)
        after = transformed(Module({"main": before}, {}, {}), "main", digit_sums.run)
        rng = random.Random(seed)
        pairs = [(n, m) for n in EDGES for m in EDGES]
        for n, m in rng.sample(pairs, 12):
            expected = observe(before, module, BUFFER, n, m, buffer=CELLS)
            assert observe(after, module, BUFFER, n, m, buffer=CELLS) == expected, (seed, n, m)
        fewer += _divisions(after) < _divisions(before)
    assert fewer > 5


def _divisions(found: Function) -> int:
    return sum(fn in ("div", "rem") for fn in functions_applied(found))


def _of_a_cell(limit: int, least: int) -> Function:
    """`cell = (i % 16 + 2) * 36 + j % 32 + q`, where `least` <= q < `limit`: where in memory it came from."""
    b, out = Builder(), Value(Pointer(I32, "global"), "out")
    i, j, q = (Value(I32, name) for name in "ijq")
    number = {n: b.constant(n, I32) for n in (0, 2, 16, 32, 36, limit, least)}
    known = [b.apply("ge", v, number[0]) for v in (i, j)]
    known += [b.apply("ge", q, number[least]), b.apply("lt", q, number[limit])]
    cond = known[0]
    for other in known[1:]:
        cond = b.apply("and", cond, other)
    with b.region() as inside:
        row = b.apply("add", b.apply("rem", i, number[16]), number[2])
        column = b.apply("add", b.apply("rem", j, number[32]), q)
        cell = b.apply("add", b.apply("mul", row, number[36]), column)
        x = b.apply("add", b.apply("mul", b.apply("div", j, number[32]), number[32]), b.apply("rem", cell, number[36]))
        y = b.apply("add", b.apply("mul", b.apply("div", i, number[16]), number[16]), b.apply("div", cell, number[36]))
        b.store(b.offset(out, number[0]), x)
        b.store(b.offset(out, number[2]), y)
    b.if_(cond, inside.block())
    return function("main", (out, i, j, q), b)


def test_the_cells_of_a_tile() -> None:
    module = module_of(_of_a_cell(5, 0))
    after = transformed(module, "main", simplify.run, digit_sums.run)
    assert _divisions(after) == 0
    for q in (-1, 0, 4, 5):
        for i, j in ((0, 0), (17, 95), (2**30, 2**30), (-1, 3)):
            assert observe(after, module, BUFFER, i, j, q) == observe(module.functions["main"], module, BUFFER, i, j, q)


@pytest.mark.parametrize(("limit", "least"), [(6, 0), (5, -1)], ids=["the next row", "the row before"])
def test_cells_of_other_rows_stay(limit: int, least: int) -> None:
    module = module_of(_of_a_cell(limit, least))
    assert _divisions(transformed(module, "main", simplify.run, digit_sums.run)) > 0


def _put_together(quotient_less: int, factor: int, moved: int) -> Function:
    """`(i / 32 - quotient_less) * 32 * factor + (i % 32 * factor + q - moved)`, where 0 <= q < 5."""
    b, out = Builder(), Value(Pointer(I32, "global"), "out")
    i, q = (Value(I32, name) for name in "iq")
    number = {n: b.constant(n, I32) for n in (0, 5, 32, 32 * factor, factor, quotient_less, moved)}
    with b.region() as inside:
        row = b.apply("sub", b.apply("div", i, number[32]), number[quotient_less])
        column = b.apply("add", b.apply("mul", b.apply("rem", i, number[32]), number[factor]), q)
        column = b.apply("sub", column, number[moved])
        b.store(b.offset(out, number[0]), b.apply("add", b.apply("mul", row, number[32 * factor]), column))
    cond = b.apply("and", b.apply("ge", q, number[0]), b.apply("lt", q, number[5]))
    b.if_(cond, inside.block())
    return function("main", (out, i, q), b)


@pytest.mark.parametrize(
    ("parts", "i", "divisions"), [((0, 1, 2), 2**31 - 1, 0), ((50_000_000, 4, 2), 1_600_000_009, 2)]
)
def test_no_signed_sum_wraps(
    parts: tuple[int, int, int], i: int, divisions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That did not before: what is largest is added last, or nothing is rewritten."""
    wrapped = list[str]()

    def apply(fn: str, args: list[Any], types: list[Any], result: Any) -> Any:
        found = interpreted(fn, args, types, result)
        if fn in ("add", "sub", "mul") and result.is_signed:
            whole = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[fn](*args)
            wrapped.extend([fn] * (whole != found))
        return found

    interpreted = ir_interpreter.apply
    monkeypatch.setattr(ir_interpreter, "apply", apply)
    module = module_of(_put_together(*parts))
    after = transformed(module, "main", simplify.run, digit_sums.run)
    for q in (0, 1):
        assert observe(after, module, BUFFER, i, q) == observe(module.functions["main"], module, BUFFER, i, q)
    assert not wrapped
    assert _divisions(after) == divisions
