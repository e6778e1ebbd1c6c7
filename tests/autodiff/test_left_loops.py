"""Loops that are left in the middle: their counters need no tape, and tell whose an element is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import PLANS, forced
from kernelgrad.explain.counted import counts
from kernelgrad.runtime.config import make_launch

HEAD = """__global__ void k(T *out, const T *sigma, const T *rgb, int R, int S) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= R) return;
    T left = 1, c = 0;
    """
STEP = "int k = r * S + s; T a = 1 - exp(-sigma[k]); c += a * left * rgb[k]; left *= 1 - a;"
STOP = "if (left < T(0.2)) break;"
LOOPS = {
    "by its condition": f"for (int s = 0; s < S && left > T(0.2); s++) {{ {STEP} }} out[r] = c;",
    "at the end": f"for (int s = 0; s < S; s++) {{ {STEP} {STOP} }} out[r] = c;",
    "at the beginning": f"for (int s = 0; s < S; s++) {{ {STOP} {STEP} }} out[r] = c;",
    "the counter is used": f"int s; for (s = 0; s < S; s++) {{ {STEP} {STOP} }} out[r] = c * (s + T(0.5));",
    "by two steps": f"int s; for (s = 0; s < S; s += 2) {{ {STEP} {STOP} }} out[r] = c + s * c;",
    "a return": f"""for (int s = 0; s < S; s++) {{
        {STEP}
        if (left < T(0.2)) {{ out[r] = c; return; }}
    }} out[r] = 2 * c;""",
    "a while loop": f"int s = 0; while (s < S) {{ {STEP} {STOP} s++; }} out[r] = c;",
    "some are skipped": f"""for (int s = 0; s < S; s++) {{
        if (rgb[r * S + s] < T(0.3)) continue;
        {STEP} {STOP}
    }} out[r] = c;""",
    "one in another": f"""for (int n = 0; n < 2; ++n) {{
        for (int s = 0; s < S; s++) {{ {STEP} {STOP} }}
        if (c > T(0.9)) break;
    }} out[r] = c;""",
}
OUTSIDE = {  # what is read behind the row is another thread's
    "another bound": f"for (int s = 0; s < S + 1; s++) {{ {STEP} {STOP} }} out[r] = c;",
    "no bound": f"for (int s = 0; ; s++) {{ {STEP} if (left < T(0.2) || s > S) break; }} out[r] = c;",
}


def text(name: str, real: str) -> str:
    return (HEAD + {**LOOPS, **OUTSIDE}[name] + "}").replace("T(", f"{real}(").replace("T ", f"{real} ")


def arguments(rows: int, length: int, real: Any = np.float64) -> list[Any]:
    random = np.random.default_rng(3)
    return [np.zeros(rows, real), *(random.random(rows * length + 64).astype(real) for _ in range(2)), rows, length]


@pytest.mark.parametrize("name", [*LOOPS, *OUTSIDE])
def test_values(name: str) -> None:
    kernel = kg.compile(text(name, "double"))["k"]
    for length in (0, 1, 7):
        given = arguments(40, length)
        expected = [np.zeros_like(a) for a in given[1:3]]
        kg.gradient(kernel, "out, sigma, rgb")[2, 32](*given, np.ones(40), *expected)
        for plan in PLANS:
            found = [np.full_like(a, 7.0) for a in given[1:3]]
            with forced(plan):
                gradient = kg.gradient(kernel, "out, sigma, rgb", primal=False, keep="out", assign="sigma, rgb")
                gradient[2, 32](*given, np.ones(40), *found)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13, err_msg=f"{plan}, {length}")
    assert kg.check_gradient(kernel, "out, sigma, rgb", 2, 32, arguments(40, 7)).ok


@pytest.mark.parametrize("name", [*LOOPS, *OUTSIDE])
def test_plans(name: str) -> None:
    kernel = kg.compile(text(name, "float"))["k"]
    gradient = kg.gradient(kernel, "out, sigma, rgb", primal=False, keep="out", assign="sigma, rgb")
    planned = gradient.planned(make_launch(32, 256), tuple(arguments(1 << 13, 64, np.float32)), {}, on_gpu=True)
    assert (counts(planned).atomics == 0) == (name in LOOPS)
    assert "_tape_i32" not in planned.plan.steps[-1].kernel.source
