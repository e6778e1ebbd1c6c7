"""Meetings must not change what a thread computes: random programs with and without barriers give the same."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cpu.plan import Mask, make_plan
from kernelgrad.errors import KernelError
from kernelgrad.ir.ops import Barrier, Value
from kernelgrad.ir.types import U32, Pointer

THREADS = 37
SEEDS = 12
_OPS = "add sub mul xor and or min max".split()


@dataclass
class Program:
    """Writes a random program; whether barriers are written too is the only difference between two runs of a seed."""

    k: Any
    choose: random.Random
    meetings: bool

    def write(self) -> None:
        k = self.k
        thread = k.b.builtin("thread_idx")
        values = [thread, k.n, k.const(3, U32), k.get(k.x, k.thread())]
        values = self.block(values, depth=3, length=6)
        for slot, value in enumerate(values[-6:]):
            k.put(k.out, k.op("add", k.op("mul", thread, k.const(6, U32)), k.const(slot, U32)), value)

    def block(self, values: list[Value], depth: int, length: int) -> list[Value]:
        """The values visible after a few more statements."""
        values = list(values)
        for _ in range(length):
            kind = self.choose.choice(["value", "value", "memory", "meet", "if", "for", "while"])
            if kind in ("if", "for", "while") and depth == 0:
                kind = "value"
            values += getattr(self, f"write_{kind}")(values, depth)
        return values

    def pick(self, values: list[Value]) -> Value:
        return self.choose.choice(values[-8:] if self.choose.random() < 0.7 else values)

    def write_value(self, values: list[Value], depth: int) -> list[Value]:
        return [self.k.op(self.choose.choice(_OPS), self.pick(values), self.pick(values))]

    def write_memory(self, values: list[Value], depth: int) -> list[Value]:
        """A cell of the thread's own."""
        cell = self.k.b.alloca(U32)
        self.k.b.store(cell, self.pick(values))
        self.write_meet(values, depth)
        return [self.k.b.load(cell)]

    def write_meet(self, values: list[Value], depth: int) -> list[Value]:
        if self.choose.random() < 0.8 and self.meetings:
            self.k.b.effect(Barrier, "warp")
        return []

    def condition(self, values: list[Value]) -> Value:
        k = self.k
        return k.op(
            "lt", k.op("and", self.pick(values), k.const(7, U32)), k.op("and", self.pick(values), k.const(7, U32))
        )

    def small(self, values: list[Value]) -> Value:
        return self.k.op("and", self.pick(values), self.k.const(3, U32))

    def write_if(self, values: list[Value], depth: int) -> list[Value]:
        k, cond = self.k, self.condition(values)
        with k.b.region() as then:
            yes = self.block(values, depth - 1, self.choose.randint(0, 3))
        with k.b.region() as orelse:
            no = self.block(values, depth - 1, self.choose.randint(0, 3))
        first, second = (self.pick(yes), self.pick(yes)), (self.pick(no), self.pick(no))
        return list(k.b.if_(cond, then.block((), first), orelse.block((), second)))

    def write_for(self, values: list[Value], depth: int) -> list[Value]:
        k, inits = self.k, (self.pick(values), self.pick(values))

        def body(i: Value, a: Value, b: Value) -> tuple[Value, ...]:
            inner = self.block([*values, i, a, b], depth - 1, self.choose.randint(1, 4))
            return self.pick([*inner, a, b]), self.pick([*inner, a, b])

        return list(k.loop(self.small(values), self.small(values), inits, body, step=self.choose.choice([1, 1, 2])))

    def write_while(self, values: list[Value], depth: int) -> list[Value]:
        """Counts down from a small number, and stops earlier if it likes."""
        k = self.k
        inits = (self.small(values), self.pick(values), self.pick(values))

        def before(left: Value, a: Value, b: Value) -> tuple[Value, ...]:
            inner = self.block([*values, a, b], 0, self.choose.randint(0, 2))
            go_on = k.op("and", k.op("gt", left, k.const(0, U32)), self.condition([*inner, *values]))
            return go_on, left, self.pick([*inner, a]), b

        def body(left: Value, a: Value, b: Value) -> tuple[Value, ...]:
            inner = self.block([*values, left, a, b], depth - 1, self.choose.randint(1, 4))
            return k.op("sub", left, k.const(1, U32)), self.pick([*inner, b]), self.pick([*inner, a])

        return list(k.repeat(inits, before, body))


def run(make: Any, seed: int, meetings: bool) -> tuple[np.ndarray, Any]:
    k = make(out=Pointer(U32, "global"), x=Pointer(U32, "global"), n=U32)
    Program(k, random.Random(seed), meetings).write()
    out = np.zeros((2, THREADS, 6), np.uint32)
    x = np.random.default_rng(seed).integers(0, 100, THREADS, np.uint32)
    for row in out:
        k.run(1, THREADS, out=row, x=x, n=5)
    np.testing.assert_array_equal(out[0], out[1])
    return out[0], k.module().functions["k"]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_meetings_change_nothing(make: Any, seed: int) -> None:
    want, plain = run(make, seed, meetings=False)
    got, _ = run(make, seed, meetings=True)
    np.testing.assert_array_equal(got, want)
    assert not make_plan(plain).phased


def test_the_programs_are_worth_running(make: Any) -> None:
    """Most of them have phases, values that outlive them, and threads that part."""
    plans = []
    for seed in range(SEEDS):
        k = make(out=Pointer(U32, "global"), x=Pointer(U32, "global"), n=U32)
        Program(k, random.Random(seed), meetings=True).write()
        plans.append(make_plan(k.module().functions["k"]))
    parted = [any(isinstance(slot, Mask) for slot in plan.slots) for plan in plans]
    kept = [sum(not isinstance(slot, Mask) for slot in plan.slots) for plan in plans]
    assert sum(parted) > SEEDS / 2 and np.median(kept) >= 3


def test_barriers_in_a_loop_that_shares_out_work_under_a_condition() -> None:
    """That all threads are in it is known where they are, whatever led there."""
    source = """__global__ void k(float *y, const float *x, const int *flag, int n) {
        __shared__ float s[8];
        int t = threadIdx.x;
        float v = 0;
        if (flag[0] > 0)
            for (int j = t; j < n; j += blockDim.x) { s[t] = x[j]; __syncthreads(); v += s[7 - t]; __syncthreads(); }
        y[t] = v;
    }"""
    kernel, x = kg.compile(source)["k"], np.arange(16, dtype=np.float32)
    for flag, expected in ((0, np.zeros(8)), (1, x[7::-1] + x[:7:-1])):
        y = np.ones(8, np.float32)
        kernel[1, 8](y, x, np.array([flag], np.int32), 16)
        np.testing.assert_array_equal(y, expected)
    with pytest.raises(KernelError, match="divergent barrier"):
        kernel[1, 8](np.ones(8, np.float32), x, np.ones(1, np.int32), 12)
