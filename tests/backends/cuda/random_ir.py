"""Random structured kernels of one thread, and an interpreter that says what they must compute.

They are about what SSA destruction can get wrong: values carried through loops in every order, branches that yield
them, loads between stores. All arithmetic is on u32, so that nothing overflows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import (
    Apply,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    If,
    Load,
    Module,
    Offset,
    Param,
    Store,
    Value,
    While,
)
from kernelgrad.ir.types import U32, Pointer

CELLS = 8
_MASK = 0xFFFFFFFF
_ARITHMETIC = ("add", "sub", "mul", "xor", "and", "or")
_COMPARISONS = ("lt", "le", "eq", "ne", "gt")
_NAMES = (None, None, None, "a", "b", "acc")


class Generator:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.builder = Builder()
        self.memory = Value(Pointer(U32, "global"), "memory")
        self.budget = 30

    def kernel(self, name: str) -> Module:
        seed = Value(U32, "seed")
        scope = [seed, self.builder.constant(3, U32)]
        self.statements(scope, 0, self.random.randint(3, 9))
        for k, value in enumerate(scope[-CELLS:]):
            self.builder.store(self.cell(self.builder.constant(k, U32)), value)
        params = (Param(self.memory, "unsigned *"), Param(seed, "unsigned"))
        return Module({name: Function(name, "kernel", params, Block((), tuple(self.builder.ops), ()))})

    # ---- pieces

    def pick(self, scope: list[Value]) -> Value:
        return self.random.choice(scope[-6:])

    def cell(self, index: Value) -> Value:
        return self.builder.offset(self.memory, self.builder.apply("and", index, self.builder.constant(CELLS - 1, U32)))

    def arithmetic(self, scope: list[Value]) -> Value:
        name = self.random.choice(_NAMES)
        return self.builder.apply(self.random.choice(_ARITHMETIC), self.pick(scope), self.pick(scope), name=name)

    def condition(self, scope: list[Value]) -> Value:
        return self.builder.apply(self.random.choice(_COMPARISONS), self.pick(scope), self.pick(scope))

    def statements(self, scope: list[Value], depth: int, count: int) -> None:
        for _ in range(count):
            self.budget -= 1
            kinds = ["op"] * 4 + ["load", "store", "select"]
            if depth < 3 and self.budget > 0:
                kinds += ["if", "for", "while"]
            getattr(self, self.random.choice(kinds))(scope, depth)

    def op(self, scope: list[Value], depth: int) -> None:
        scope.append(self.arithmetic(scope))

    def load(self, scope: list[Value], depth: int) -> None:
        scope.append(self.builder.load(self.cell(self.pick(scope)), name=self.random.choice(_NAMES)))

    def store(self, scope: list[Value], depth: int) -> None:
        self.builder.store(self.cell(self.pick(scope)), self.pick(scope))

    def select(self, scope: list[Value], depth: int) -> None:
        condition = self.condition(scope)
        scope.append(self.builder.apply("select", condition, self.pick(scope), self.pick(scope)))

    def starting(self, scope: list[Value], arg: Value) -> Value:
        """Often a value of the same name, as where a loop goes on with a variable of another."""
        same = [v for v in scope if v.name is not None and v.name == arg.name]
        return self.random.choice(same) if same and self.random.random() < 0.5 else self.pick(scope)

    def carried(self) -> list[Value]:
        return [Value(U32, self.random.choice(_NAMES)) for _ in range(self.random.randint(0, 3))]

    def yields(self, inner: list[Value], args: list[Value]) -> tuple[Value, ...]:
        """Often the arguments themselves, permuted: the swap problem."""
        return tuple(self.random.choice(args) if self.random.random() < 0.4 else self.pick(inner) for _ in args)

    def if_(self, scope: list[Value], depth: int) -> None:
        condition = self.condition(scope)
        names = [self.random.choice(_NAMES) for _ in range(self.random.randint(0, 3))]
        sides = []
        for _ in range(2):
            with self.builder.region() as region:
                inner = list(scope)
                self.statements(inner, depth + 1, self.random.randint(0, 3))
                results = tuple(self.pick(inner) for _ in names)
            sides.append(region.block((), results))
        op = If(condition, sides[0], sides[1], results=tuple(Value(U32, name) for name in names))
        scope.extend(self.builder.add(op).results)

    def for_(self, scope: list[Value], depth: int) -> None:
        counter, args = Value(U32, "i"), self.carried()
        lower, upper = (self.builder.constant(n, U32) for n in (self.random.randint(0, 1), self.random.randint(0, 4)))
        inits = tuple(self.pick(scope) for _ in args)
        with self.builder.region() as region:
            inner = [*scope, counter, *args]
            self.statements(inner, depth + 1, self.random.randint(0, 3))
            results = self.yields(inner, args)
        body = region.block((counter, *args), results)
        scope.extend(self.builder.for_(lower, upper, inits, self.random.choice((1, 2)), body))

    def while_(self, scope: list[Value], depth: int) -> None:
        """Half of them have nothing before their test, as a `for` of the source."""
        left, args, bare = Value(U32, "left"), self.carried(), self.random.random() < 0.5
        start = self.builder.constant(self.random.randint(0, 3), U32)
        with self.builder.region() as before_region:
            inner = [*scope, left, *args]
            self.statements(inner, 3, 0 if bare else self.random.randint(0, 2))
            go_on = self.builder.apply("gt", left, self.builder.constant(0, U32))
            forwarded = (left, *(args if bare else self.yields(inner, args)))
        before = before_region.block((left, *args), (go_on, *forwarded))
        body_left, body_args = Value(U32, "left"), [Value(U32, v.name) for v in args]
        with self.builder.region() as body_region:
            inner = [*scope, body_left, *body_args]
            self.statements(inner, depth + 1, self.random.randint(0, 3))
            rest = self.builder.apply("sub", body_left, self.builder.constant(1, U32), name="left")
            results = (rest, *self.yields(inner, body_args))
        body = body_region.block((body_left, *body_args), results)
        inits = (start, *(self.starting(scope, v) for v in args))
        scope.extend(self.builder.while_(inits, before, body)[1:])


setattr(Generator, "if", Generator.if_)
setattr(Generator, "for", Generator.for_)
setattr(Generator, "while", Generator.while_)

_MEANING = {
    "add": lambda a, b: (a + b) & _MASK,
    "sub": lambda a, b: (a - b) & _MASK,
    "mul": lambda a, b: (a * b) & _MASK,
    "xor": lambda a, b: a ^ b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "select": lambda c, a, b: a if c else b,
}


def interpret(module: Module, name: str, memory: list[int], seed: int) -> None:
    """Runs the kernel on `memory`, in place."""
    function = module.functions[name]
    values: dict[Value, int] = {function.params[0].value: 0, function.params[1].value: seed}
    _Interpreter(values, memory).block(function.body, ())


class _Interpreter:
    def __init__(self, values: dict[Value, int], memory: list[int]):
        self.values, self.memory = values, memory

    def many(self, values: Sequence[Value]) -> list[int]:
        return [self.values[v] for v in values]

    def block(self, block: Block, args: Sequence[int]) -> list[int]:
        self.values.update(zip(block.args, args, strict=True))
        for op in block.ops:
            results = self.op(op)
            self.values.update(zip(op.results, results, strict=True))
        return self.many(block.results)

    def op(self, op: object) -> list[int]:
        match op:
            case Constant(value):
                return [int(value)]
            case Builtin():
                return [0]
            case Apply(fn, args):
                return [int(_MEANING[fn](*self.many(args)))]
            case Offset(_, index):
                return self.many([index])
            case Load(ptr):
                return [self.memory[self.values[ptr]]]
            case Store(ptr, value):
                self.memory[self.values[ptr]] = self.values[value]
                return []
            case If(cond, then, orelse):
                return self.block(then if self.values[cond] else orelse, ())
            case For():
                return self.for_(op)
            case While(inits, before, body):
                carried = self.many(inits)
                while True:
                    go_on, *forwarded = self.block(before, carried)
                    if not go_on:
                        return forwarded
                    carried = self.block(body, forwarded)
        raise AssertionError(op)

    def for_(self, op: For) -> list[int]:
        carried = self.many(op.inits)
        for k in range(self.values[op.lower], self.values[op.upper], op.step):
            carried = self.block(op.body, [k, *carried])
        return carried
