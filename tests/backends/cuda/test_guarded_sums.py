"""Sums under one guard stand in one branch, and are what they were."""

from __future__ import annotations

import random

import pytest

import kernelgrad as kg
from ir_interpreter import Machine
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Apply, Function, If, Value
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import F32, F64
from kernelgrad.schedule import guarded_sums
from kernelgrad.transforms import unmask

from ...transforms.checking import count, function, functions_applied, module_of, transformed

NUMBERS = (0.0, -0.0, 1.5, -2.0, 3.0, float("inf"), float("nan"))


def _program(seed: int) -> Function:
    """Sums of three guards and two types that go on from one another, with other uses of them in between."""
    rng, b = random.Random(seed), Builder()
    given = tuple(Value(rng.choice((F32, F64)), f"a{k}") for k in range(6))
    known, masked = list(given), list[Value]()
    guards = given[:3]

    def pick(type: object) -> Value:
        return b.convert(rng.choice(known), type)  # type: ignore[arg-type]

    def statements(number: int, deep: int) -> None:
        for _ in range(number):
            type = rng.choice((F32, F32, F64))
            kind = rng.random()
            if kind < 0.7:
                value = b.apply("mul", pick(type), pick(type)) if rng.random() < 0.8 else pick(type)
                masked.append(b.apply("masked", value, rng.choice(guards)))
                other = pick(type)
                pair = (other, masked[-1]) if rng.random() < 0.5 else (masked[-1], other)
                known.append(b.apply("add", *pair))
                if rng.random() < 0.1:
                    known.append(masked[-1])
            elif kind < 0.85 or deep == 0:
                known.append(b.apply("mul", pick(type), pick(type)))
            else:
                before = len(known)
                with b.region() as inside:
                    statements(rng.randint(1, 12), deep - 1)
                    result = pick(F32)
                del known[before:]
                with b.region() as otherwise:
                    instead = pick(F32)
                cond = b.apply("lt", pick(F32), pick(F32))
                known.extend(b.if_(cond, inside.block(results=(result,)), otherwise.block(results=(instead,))))

    statements(rng.randint(5, 40), 2)
    return function("main", given, b, *known[-12:])


@pytest.mark.parametrize("start", [0, 100, 200])
def test_nothing_changes(start: int) -> None:
    branches = 0
    for seed in range(start, start + 100):
        before = _program(seed)
        module, rng = module_of(before), random.Random(seed)
        after = transformed(module, "main", guarded_sums.run)
        branches += count(after, If) - count(before, If)
        tested = [transformed(module_of(f), "main", unmask.run) for f in (before, after)]
        for _ in range(6):
            args = [rng.choice(NUMBERS) for _ in range(6)]
            one, other = ([v + 0.0 for v in Machine(module).run(f, *args)] for f in tested)
            assert repr(one) == repr(other), (seed, args)
    assert branches > 10


LAYER = """__global__ void k(float *y, const float *x, const float *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v[8], out = 0;
    for (int k = 0; k < 8; k++) v[k] = x[i * 8 + k];
    for (int j = 0; j < 8; j++) {
        float s = 0;
        for (int k = 0; k < 8; k++) s += w[j * 8 + k] * v[k];
        out += tanhf(s);
    }
    y[i] = out;
}"""


def test_a_layer_has_one_branch_for_its_inputs() -> None:
    gradient = kg.gradient(kg.compile(LAYER)["k"], "y, x", primal=False, keep="y", assign="x")
    kernel = gradient.variant().kernels[-1]
    function = kernel.cuda_module.functions[kernel.name]
    branches = [op for op in walk(function.body) if isinstance(op, If) and len(op.results) == 8]
    sums = [[op.fn for op in one.then.ops if isinstance(op, Apply)] for one in branches]
    assert ["mul", "add"] * 8 in sums
    assert "masked" not in functions_applied(function)
