"""Gathers beside outputs that the kernel reads before it stores them: values, and where there must be none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.runtime.config import make_launch

N, WIDE, BLOCK = 150, 20, 32
I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
INSIDE = f"{I} if (i > 0 && i < n - 1)"

# The body of `k(T *v, const T *u, const T *w, int n)`, in which u is gathered.
GATHERED = {
    "added to": f"{INSIDE} v[i] += u[i - 1] + u[i + 1];",
    "leapfrog": f"{INSIDE} v[i] = 2 * u[i] - v[i] + w[i] * (u[i - 1] - 2 * u[i] + u[i + 1]);",
    "times itself": f"{INSIDE} v[i] = v[i] * v[i] * (u[i - 1] + u[i + 1]);",
    "read twice": f"{INSIDE} {{ T a = v[i], b = v[i] * u[i + 1]; v[i] = a * b + u[i - 1]; }}",
    "stored in a branch": f"{I} if (i < n - 1) {{ T a = v[i]; if (w[i] > 0) v[i] = a * u[i] + u[i + 1]; }}",
    "sum": f"{I} if (i < n - 1) {{ v[i] = 0; for (int k = 0; k < 2; ++k) v[i] += u[i + k]; }}",
    "two elements": f"{I} if (i < n / 2 - 1) {{ v[2 * i] += u[i] * u[i + 1]; v[2 * i + 1] -= u[i + 1]; }}",
}
OTHERS = {
    "swapped": f"{I} if (i < n / 2 - 1) {{ T a = v[2 * i]; v[2 * i] = v[2 * i + 1] * u[i];"
    " v[2 * i + 1] = a * u[i + 1]; }",
    "before a barrier": f"{I} int t = threadIdx.x; __shared__ T s[{BLOCK}]; s[t] = i < n ? v[i] : 0; __syncthreads();"
    f" if (i < n - 1) v[i] = s[{BLOCK} - 1 - t] * u[i] + u[i + 1];",
}
NOT = {
    "read after": f"{INSIDE} {{ v[i] = u[i - 1] + u[i + 1]; v[i] = v[i] * u[i]; }}",
    "read at the end": f"{I} if (i < n - 1) {{ v[i] = u[i] * u[i + 1]; if (v[i] > 0) v[n + i] = v[i] * u[i]; }}",
    "loop": f"{I} for (int k = 0; k < 3; ++k) if (i < n - 1) v[i] = v[i] * u[i] + u[i + 1];",
    "guarded in a loop": f"{I} for (int k = 0; k < 3; ++k) if (i < n - 1) {{ T a = v[i];"
    " if (k == 1) v[i] = a * u[i + 1]; else v[n + 3 * i + k] = a * u[i]; }",
    "behind a barrier": f"{I} int t = threadIdx.x; if (i < n) v[i] = u[i] * v[i]; __syncthreads();"
    f" if (i < n - 1 && t < {BLOCK} - 1) v[n + i] = v[i + 1] * u[i + 1];",
}


def compiled(body: str) -> Any:
    return kernel_of(f"typedef double T; __global__ void k(T *v, const T *u, const T *w, int n) {{ {body} }}")


def numbers() -> tuple[Any, ...]:
    rng = np.random.default_rng(4)
    v, u, w, *adjoints = (rng.uniform(-1, 1, 5 * N) for _ in range(6))
    return v, u, w, N, *adjoints


def launched(gradient: Any, values: tuple[Any, ...]) -> list[Any]:
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in values]
    gradient[-(-N // BLOCK), BLOCK](*copies)
    return copies


@pytest.mark.parametrize("options", [{}, {"assign": "u"}, {"may_alias": True}], ids=str)
@pytest.mark.parametrize("name", [*GATHERED, *OTHERS, *NOT])
def test_values(name: str, options: dict[str, Any]) -> None:
    kernel, values = compiled((GATHERED | OTHERS | NOT)[name]), numbers()
    got = launched(kg.gradient(kernel, "v, u, w", **options), values)
    base = [0 if "u" in options.get("assign", ()) else values[5], values[6]]
    forward, rng = kg.jvp(kernel, "v, u, w"), np.random.default_rng(9)
    for _ in range(3):
        tangents = [rng.uniform(-1, 1, 5 * N) for _ in range(3)]
        t_v, t_u, t_w = (t.copy() for t in tangents)
        forward[-(-N // BLOCK), BLOCK](*(np.copy(a) for a in values[:3]), N, t_v, t_u, t_w)
        found = [got[4], got[5] - base[0], got[6] - base[1]]
        np.testing.assert_allclose(sum(map(np.dot, found, tangents)), t_v @ values[4], rtol=1e-10)


@pytest.mark.parametrize("primal", [True, False])
@pytest.mark.parametrize("name", [*GATHERED, *NOT])
def test_is_gathered(name: str, primal: bool) -> None:
    kernel, values = compiled((GATHERED | NOT)[name]), numbers()
    if not primal and name in NOT:
        return
    gradient = kg.gradient(kernel, "v, u, w", primal=primal, assign="u")
    plan = gradient.planned(make_launch(1 << 12, BLOCK), values, {}, on_gpu=True).plan
    assert any("gather_u" in step.kernel.name for step in plan.steps) == (name in GATHERED)
