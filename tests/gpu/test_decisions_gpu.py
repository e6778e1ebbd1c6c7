"""Decisions on a GPU are the kernel's own wherever they are computed again (rule 27)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from decision_cases import BLOCK, BODIES, GRID, LISTED, assert_same, data, kernel

cupy = pytest.importorskip("cupy")

WAYS: dict[str, dict[str, Any]] = {
    "joint": {},
    "reverse": {"primal": False},
    "deterministic": {"deterministic": True},
    "checkpoints": {"tape_budget": 12000},
}


def _arguments(type: str) -> list[Any]:
    return [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in data(type).args]


def _adjoints(gradient: Any, type: str, at: Any) -> list[Any]:
    args, seed = _arguments(type), cupy.asarray(data(type).seed)
    args[4] = at.copy()
    found = [cupy.zeros_like(args[1]), cupy.zeros_like(args[2])]
    if isinstance(gradient, tuple):
        forward, reverse = gradient
        reverse[GRID, BLOCK](forward[GRID, BLOCK](*args), *args, seed, *found)
    else:
        gradient[GRID, BLOCK](*args, seed, *found)
    return [cupy.asnumpy(a) for a in found]


@pytest.mark.parametrize("type", ["float", "double"])
@pytest.mark.parametrize("name", BODIES)
def test_decisions_of_the_kernel(name: str, type: str) -> None:
    told = _arguments(type)
    kernel(name, type, "RECORD")[GRID, BLOCK](*told)
    wanted = _adjoints(kg.gradient(kernel(name, type, "REPLAY"), LISTED), type, told[4])
    for form in ("PLAIN", "RECORD"):
        compiled = kernel(name, type, form)
        for way, settings in WAYS.items():
            if (way, name) != ("reverse", "in place"):
                assert_same(_adjoints(kg.gradient(compiled, LISTED, **settings), type, told[4]), wanted, type)
        assert_same(_adjoints(kg.split(compiled, LISTED), type, told[4]), wanted, type)


FUNCTIONS = ["1 + expf(x[i]) > c[i]", "1 + __logf(x[i]) > c[i]", "0.5f * tanhf(x[i]) + 0.5f > c[i]"]
FUNCTIONS += ["1 + __expf(-x[i]) > c[i]", "powf(x[i], 1.5f) - 1 > c[i]", "1 + __fdividef(x[i], 3) > c[i]"]


@pytest.mark.parametrize("condition", FUNCTIONS)
def test_functions_that_end_with_a_product(condition: str) -> None:
    """Each threshold is what the kernel itself has for its left side: nothing is above its own."""
    left = condition.removesuffix(" > c[i]")
    source = f"""__global__ void sides(float *c, const float *x) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float v = {left};
        c[i] = v > 1e30f ? 0 : v;
    }}
    __global__ void k(float *y, const float *x, const float *c, const float *w) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        for (int k = 0; k < 2; k++) y[i] = {condition} ? w[i] * w[i] : 3 * w[i];
    }}"""
    module, n = kg.compile(source), 1 << 14
    x = cupy.random.default_rng(1).uniform(0.25, 4.0, n, dtype=np.float32)
    y, c, w, d_w, d_y = (cupy.full(n, v, np.float32) for v in (0, 0, 2, 0, 1))
    module["sides"][n // 128, 128](c, x)
    kg.gradient(module["k"], "y, w")[n // 128, 128](y, x, c, w, d_y, d_w)
    np.testing.assert_array_equal(cupy.asnumpy(d_w), 3)


@pytest.mark.parametrize("type", ["float", "double"])
def test_sines_alone_have_the_bits_of_sines_with_cosines(type: str) -> None:
    """A kernel that decides by a sine has a gradient that computes the cosine with it."""
    source = f"""__global__ void apart({type} *s, {type} *c, const {type} *x, int which) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (which == 0) s[i] = sin(x[i]); else c[i] = cos(x[i]);
    }}
    __global__ void both({type} *s, {type} *c, const {type} *x, int which) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        {type} v = x[i], sine = sin(v), cosine = cos(v);
        s[i] = sine;
        c[i] = cosine;
    }}"""
    module, n, dtype = kg.compile(source), 1 << 20, {"float": np.float32, "double": np.float64}[type]
    assert "sincos" in module["both"].source and "sincos" not in module["apart"].source
    x = cupy.random.default_rng(3).uniform(-300, 300, n).astype(dtype)
    one, other = (tuple(cupy.zeros(n, dtype) for _ in range(2)) for _ in range(2))
    for which in range(2):
        module["apart"][n // 256, 256](*one, x, which)
    module["both"][n // 256, 256](*other, x, 0)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(a), cupy.asnumpy(b))
