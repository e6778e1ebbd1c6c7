"""Kernels whose reverse has all that it needs in scope: the planner would find nothing to keep or to run again."""

from __future__ import annotations

import pytest

import kernelgrad as kg
from kernelgrad.autodiff.saving.plan import make_plan
from kernelgrad.autodiff.saving.planner import smallest_plan

HEAD = "__global__ void k(float *y, const float *x, float a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;"
BODIES = {
    "straight": "y[i] = a * x[i] + y[i];",
    "guarded": "if (i < n) y[i] = expf(a * x[i]) * x[i + 1];",
    "two sides": "if (i < n) { y[i] = x[i] * x[i]; } else { y[i] = a / x[i]; }",
    "guards in guards": "if (i < n) { float v = x[i]; if (v > 0) y[i] = sqrtf(v) * a; }",
    "maxima": "y[i] = fmaxf(x[i], a) * fminf(x[i + 1], x[i]);",
    "shared": "__shared__ float t[64]; t[threadIdx.x] = x[i]; __syncthreads(); y[i] = t[63 - threadIdx.x] * a;",
    "array": "float t[2] = {x[i], a}; y[i] = t[n & 1] * t[0];",
}


@pytest.mark.parametrize("name", BODIES)
def test_the_planner_finds_nothing_to_do(name: str) -> None:
    prepared = kg.gradient(kg.compile(f"{HEAD} {BODIES[name]} }}")["k"]).variant().derivative.prepared
    assert all(place.in_scope for place in prepared.structure.places.values())
    short, full = make_plan(prepared.task), smallest_plan(prepared.task)
    assert short.reversed_ops == full.reversed_ops
    for plan in (short, full):
        kept = (plan.taped, plan.exported, plan.counts, plan.rerun, plan.counted_again, plan.inductions)
        assert not any((*kept, plan.needed, plan.refilled, plan.numbers, plan.choices, plan.lost))
        assert plan.is_sound


def test_values_of_loops_are_planned() -> None:
    loop = "float s = 1; for (int j = 0; j < n; ++j) s *= x[j]; y[i] = s;"
    prepared = kg.gradient(kg.compile(f"{HEAD} {loop} }}")["k"]).variant().derivative.prepared
    assert any(prepared.plan.taped.values())
