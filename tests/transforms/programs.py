"""Random structured programs as the frontend would emit them: every local an alloca, calls, references, flags."""

from __future__ import annotations

import random

from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Block, Call, Function, Module, Param, Print, Value
from kernelgrad.ir.types import BOOL, F32, I32, I64, Array, Field, Pointer, Struct, Type

ARRAY = Array(I32, 4)
RECORD = Struct(
    "Record", (Field("a", I32, 0), Field("b", F32, 4), Field("c", Array(I32, 3), 8), Field("d", I32, 20)), 24, 4
)
PUN = Struct("Pun", (Field("f", F32, 0), Field("u", I32, 0)), 4, 4)
CLOSURE = Struct("Closure", (Field("count", Pointer(I32), 0), Field("sum", Pointer(F32), 8)), 16, 8)
BUFFER = 8  # elements of the buffer the program writes


def program(seed: int) -> Module:
    return _Program(random.Random(seed)).module()


class _Program:
    def __init__(self, rng: random.Random):
        self.rng = rng
        self.b = Builder()
        self.functions: dict[str, Function] = {}
        self.scopes: list[list[Value]] = [[]]
        self.names = 0
        self.budget = 40
        self.buffer = Value(Pointer(I32, "global"), "out")

    def module(self) -> Module:
        self.bump()
        self.mix()
        n, x = Value(I32, "n"), Value(F32, "x")
        params = (Param(self.buffer, "int *"), Param(n, "int"), Param(x, "float"))
        self.b = Builder()
        self.scopes = [[]]
        self.declare(I32, n)
        self.declare(F32, x)
        self.declare(I32)
        self.declare(BOOL)
        self.declare(BOOL)
        self.declare(ARRAY)
        self.declare(RECORD)
        self.statements(self.rng.randint(3, 8), 0)
        results = (self.read(I32), self.read(F32), self.b.load(self.pick(RECORD)))
        body = Block((), tuple(self.b.ops), results)
        self.functions["main"] = Function("main", "device", params, body)
        return Module(self.functions, {}, {s.name: s for s in (RECORD, PUN, CLOSURE)})

    # ---- helper functions of the module

    def bump(self) -> None:
        """void bump(Closure &c, int by) { if (by > 1) { *c.count += by; } *c.sum += 1; }"""
        b, c, by = Builder(), Value(Pointer(CLOSURE), "c"), Value(I32, "by")
        by_var = b.alloca(I32, "by")
        b.store(by_var, by)
        self_var = b.alloca(Pointer(CLOSURE), "c")
        b.store(self_var, c)
        with b.region() as then:
            count = b.load(b.member(b.load(self_var), 0))
            b.store(count, b.apply("add", b.load(count), b.load(by_var)))
        b.if_(b.apply("gt", b.load(by_var), b.constant(1, I32)), then.block())
        total = b.load(b.member(b.load(self_var), 1))
        b.store(total, b.apply("add", b.load(total), b.constant(1.0, F32)))
        params = (Param(c, "Closure &"), Param(by, "int"))
        self.functions["bump"] = Function("bump", "device", params, Block((), tuple(b.ops), ()))

    def mix(self) -> None:
        """Record mix(Record r, int k) { r.a += k; if (k > 3) return r; r.c[k & 1] = r.d; return r; }"""
        b, r, k = Builder(), Value(RECORD, "r"), Value(I32, "k")
        var, returned, result = b.alloca(RECORD, "r"), b.alloca(BOOL, "returned"), b.alloca(RECORD, "result")
        b.store(var, r)
        b.store(returned, b.constant(False, BOOL))
        b.store(b.member(var, 0), b.apply("add", b.load(b.member(var, 0)), k))
        with b.region() as then:
            b.store(result, b.load(var))
            b.store(returned, b.constant(True, BOOL))
        b.if_(b.apply("gt", k, b.constant(3, I32)), then.block())
        with b.region() as rest:
            at = b.apply("and", k, b.constant(1, I32))
            b.store(b.offset(b.decay(b.member(var, 2)), at), b.load(b.member(var, 3)))
            b.store(result, b.load(var))
        b.if_(b.apply("not", b.load(returned)), rest.block())
        params = (Param(r, "Record"), Param(k, "int"))
        body = Block((), tuple(b.ops), (b.load(result),))
        self.functions["mix"] = Function("mix", "device", params, Block((), tuple(b.ops), body.results))

    # ---- variables

    def declare(self, type: Type, value: Value | None = None) -> Value:
        self.names += 1
        name = value.name if value is not None and value.name else f"v{self.names}"
        if value is None:
            value = self.initial(type)
        var = self.b.alloca(type, name)
        self.b.store(var, value)
        self.scopes[-1].append(var)
        return var

    def initial(self, type: Type) -> Value:
        if isinstance(type, Array):
            return self.b.aggregate(type, tuple(self.initial(type.element) for _ in range(type.count)))
        if isinstance(type, Struct):
            return self.b.aggregate(type, tuple(self.initial(f.type) for f in type.fields))
        if type == F32:
            return self.b.constant(self.rng.choice([0.0, 1.5, -2.0]), F32)
        if type == BOOL:
            return self.b.apply("gt", self.read(I32), self.b.constant(self.rng.randint(-2, 4), I32))
        return self.b.constant(self.rng.randint(-3, 5), type)

    def pick(self, type: Type) -> Value:
        found = [v for scope in self.scopes for v in scope if v.type == Pointer(type, "local")]
        return self.rng.choice(found)

    def place(self, type: Type) -> Value:
        """The address of something of the type: a variable, a member, an element."""
        b, kind = self.b, self.rng.randint(0, 9)
        if type == F32:
            return b.member(self.pick(RECORD), 1) if kind < 3 else self.pick(F32)
        if kind < 2:
            return b.member(self.pick(RECORD), self.rng.choice([0, 3]))
        if kind < 4:
            return b.offset(b.decay(self.pick(ARRAY)), self.index(3))
        if kind < 5:
            return b.offset(b.decay(b.member(self.pick(RECORD), 2)), self.index(1))
        if kind < 6:
            return b.offset(b.cast_pointer(self.buffer, Pointer(I32)), self.index(BUFFER - 1))
        if kind < 7:
            return b.cast_pointer(self.pick(I32), Pointer(I32))
        return self.either(I32) if kind < 8 else self.pick(I32)

    def either(self, type: Type) -> Value:
        """`c ? a : b`, as an object."""
        cond = self.b.load(self.pick(I32))
        truth = self.b.apply("gt", cond, self.b.constant(1, I32))
        return self.b.if_(truth, Block((), (), (self.pick(type),)), Block((), (), (self.pick(type),)))[0]

    def punned(self) -> Value:
        """The bits of a float, by way of a union."""
        var = self.b.alloca(PUN, "pun")
        self.b.store(var, self.b.undef(PUN))
        self.b.store(self.b.member(var, 0), self.read(F32))
        return self.b.load(self.b.member(var, 1))

    def index(self, mask: int) -> Value:
        if self.rng.random() < 0.5:
            return self.b.constant(self.rng.randint(0, mask), I64)
        return self.b.apply("and", self.read(I32), self.b.constant(mask, I32))

    def read(self, type: Type) -> Value:
        return self.b.load(self.pick(type))

    # ---- expressions

    def integer(self, depth: int = 0) -> Value:
        b, kind = self.b, self.rng.randint(0, 11)
        if depth > 2 or kind < 3:
            return b.load(self.place(I32)) if kind else b.constant(self.rng.randint(-9, 9), I32)
        if kind < 8:
            fn = self.rng.choice("add sub mul and or xor min max shl shr".split())
            return b.apply(fn, self.integer(depth + 1), self.integer(depth + 1))
        if kind == 8:
            return b.apply("div", self.integer(depth + 1), b.apply("or", self.integer(depth + 1), b.constant(1, I32)))
        if kind == 9:
            return b.convert(self.real(depth + 1), I32)
        if kind == 10:
            return b.convert(b.convert(self.integer(depth + 1), I64), I32) if depth else self.punned()
        return b.apply("select", self.truth(depth + 1), self.integer(depth + 1), self.integer(depth + 1))

    def real(self, depth: int = 0) -> Value:
        b, kind = self.b, self.rng.randint(0, 7)
        if depth > 2 or kind < 3:
            return b.load(self.place(F32)) if kind else b.constant(self.rng.choice([0.0, 1.0, 0.5]), F32)
        if kind < 6:
            return b.apply(self.rng.choice("add sub mul".split()), self.real(depth + 1), self.real(depth + 1))
        return b.convert(self.integer(depth + 1), F32)

    def truth(self, depth: int = 0) -> Value:
        b, kind = self.b, self.rng.randint(0, 9)
        if kind < 3:
            return self.read(BOOL)
        if depth > 2 or kind < 5:
            fn = self.rng.choice("lt le gt ge eq ne".split())
            return b.apply(fn, self.integer(depth + 1), self.integer(depth + 1))
        if kind == 5:
            return b.apply("not", self.truth(depth + 1))
        if kind == 6:
            return b.apply("lt", self.real(depth + 1), self.real(depth + 1))
        return self.short_circuit(depth)

    def short_circuit(self, depth: int) -> Value:
        """`a && b` and `a || b`."""
        b, is_and = self.b, self.rng.random() < 0.5
        left = self.truth(depth + 1)
        with b.region() as lazy:
            right = self.truth(depth + 1)
        with b.region() as known:
            constant = b.constant(not is_and, BOOL)
        sides = [lazy.block((), (right,)), known.block((), (constant,))]
        return b.if_(left, *(sides if is_and else reversed(sides)))[0]

    # ---- statements

    def statements(self, count: int, depth: int) -> None:
        for _ in range(count):
            self.budget -= 1
            if self.budget > 0:
                kinds = [self.assign] * 6 + [self.local, self.copy, self.choose, self.call, self.bump_call, self.output]
                kinds += [self.branch] * 3 + [self.loop] * 3 + [self.until] if depth < 3 else []
                self.rng.choice(kinds)(depth)

    def nested(self, depth: int) -> None:
        self.scopes.append([])
        self.statements(self.rng.randint(1, 4), depth + 1)
        self.scopes.pop()

    def assign(self, depth: int) -> None:
        kind = self.rng.randint(0, 4)
        if kind == 0:
            self.b.store(self.pick(BOOL), self.truth())
        elif kind == 1:
            self.b.store(self.place(F32), self.real())
        else:
            self.b.store(self.place(I32), self.integer())

    def local(self, depth: int) -> None:
        self.declare(self.rng.choice([I32, F32, ARRAY, RECORD]))

    def copy(self, depth: int) -> None:
        type = self.rng.choice([ARRAY, RECORD])
        source = self.either(type) if self.rng.random() < 0.4 else self.pick(type)
        self.b.store(self.pick(type), self.b.load(source))

    def choose(self, depth: int) -> None:
        """`r = c ? a : b` with structs as values."""
        b = self.b
        with b.region() as then:
            self.output(depth)
            left = b.load(self.pick(RECORD))
        with b.region() as orelse:
            right = b.load(self.pick(RECORD))
        (chosen,) = b.if_(self.truth(), then.block((), (left,)), orelse.block((), (right,)))
        b.store(self.pick(RECORD), chosen)

    def until(self, depth: int) -> None:
        """`do { ... } while (++i < count && ...)`: everything happens before the test."""
        b = self.b
        counter = self.declare(I32, b.constant(0, I32))
        self.scopes[-1].pop()
        with b.region() as before:
            self.scopes.append([])
            self.declare(I32, b.load(counter))
            self.statements(self.rng.randint(1, 3), depth + 1)
            b.store(counter, b.apply("add", b.load(counter), b.constant(1, I32)))
            cond = b.apply("lt", b.load(counter), b.constant(self.rng.randint(0, 3), I32))
            if self.rng.random() < 0.3:
                cond = b.apply("and", cond, self.truth())
            self.scopes.pop()
        with b.region() as body:
            if self.rng.random() < 0.3:
                self.nested(depth)
        b.while_((), before.block((), (cond,)), body.block())

    def call(self, depth: int) -> None:
        record = self.b.emit(Call, "mix", (self.b.load(self.pick(RECORD)), self.integer()), type=RECORD)
        self.b.store(self.pick(RECORD), record)

    def bump_call(self, depth: int) -> None:
        b = self.b
        closure = b.alloca(CLOSURE, "closure")
        b.store(b.member(closure, 0), b.cast_pointer(self.pick(I32), Pointer(I32)))
        b.store(b.member(closure, 1), b.cast_pointer(self.pick(F32), Pointer(F32)))
        b.effect(Call, "bump", (b.cast_pointer(closure, Pointer(CLOSURE)), self.integer()))

    def output(self, depth: int) -> None:
        if self.rng.random() < 0.5:
            self.b.effect(Print, "%d", (self.integer(),))
        else:
            self.b.store(self.b.offset(self.buffer, self.index(BUFFER - 1)), self.integer())

    def branch(self, depth: int) -> None:
        b, cond = self.b, self.truth()
        with b.region() as then:
            self.nested(depth)
        with b.region() as orelse:
            if self.rng.random() < 0.6:
                self.nested(depth)
        b.if_(cond, then.block(), orelse.block())

    def loop(self, depth: int) -> None:
        """A counting loop, upwards or downwards, at times with a flag that ends it early."""
        b, rng = self.b, self.rng
        up = rng.random() < 0.7
        step, count = rng.choice([1, 1, 1, 2, 3]), rng.randint(0, 5)
        fn = rng.choice(["lt", "le"] if up else ["gt", "ge"])
        if step == 1 and rng.random() < 0.2:
            fn = "ne"
        first, last = (0, count) if up else (count, 0)
        bound = b.constant(last, I32)
        if fn in ("lt", "le") and rng.random() < 0.4:
            bound = b.apply("min", self.read(I32), bound)
        counter = self.declare(I32, b.constant(first, I32))
        self.scopes[-1].pop()  # only read inside
        stop = b.alloca(BOOL, "stop") if rng.random() < 0.3 else None
        if stop is not None:
            b.store(stop, b.constant(False, BOOL))
        with b.region() as before:
            cond = b.apply(fn, b.load(counter), bound)
            if stop is not None:
                cond = b.apply("and", cond, b.apply("not", b.load(stop)))
        with b.region() as body:
            self.scopes.append([])
            self.declare(I32, b.load(counter))
            self.statements(rng.randint(1, 4), depth + 1)
            if stop is not None:
                b.store(stop, self.truth())
            self.scopes.pop()
            b.store(counter, b.apply("add" if up else "sub", b.load(counter), b.constant(step, I32)))
        b.while_((), before.block((), (cond,)), body.block())
        if rng.random() < 0.4:
            b.store(self.pick(I32), b.load(counter))
