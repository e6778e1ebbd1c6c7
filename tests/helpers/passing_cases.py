"""Kernels whose threads pass each other values through global memory, across barriers: `k(y, u, f, n)`, one block.

`passed`: the parameters that values or adjoints go through, or that must not be printed `__restrict__` for another
reason; `kept`: those that must, since loads wait for it. What a mode has no code for is asked for in vain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgrad as kg

BLOCK, STEPS = 32, 4
OPTIONS: dict[str, dict[str, Any]] = {"J": {}, "R": {"primal": False}, "deterministic": {"deterministic": True}}


@dataclass(frozen=True)
class Passing:
    body: str
    passed: tuple[str, ...] = ("u", "_d_u")
    kept: tuple[str, ...] = ("f",)
    before: str = ""
    params: str = "double *y, double *u, const double *f, int n"
    listed: str = "y, u, f"
    modes: tuple[str, ...] = ("J", "split")

    @property
    def source(self) -> str:
        return f"{self.before}\n__global__ void k({self.params}) {{ int t = threadIdx.x;\n{self.body}\n}}"


_STEP = """double a = t > 0 ? u[t - 1] : 0, b = t + 1 < blockDim.x ? u[t + 1] : 0;
    __syncthreads(); u[t] = 0.5 * (a * b + f[t] * u[t]); __syncthreads();"""

IN_MEMORY = "__threadfence_block();"  # what a loop stores is not held in a register
_LONG = "((((((((((%s + 1) * 2 - 1) * 2 - 1) * 2 - 1) * 2 - 1) * 2 - 1) * 2 - 1) * 2 - 1) * 2 - 1) * 2 - 1)"

CASES = {
    "a loop": Passing(f"for (int s = 0; s < n; s++) {{ {_STEP} }} y[t] = u[t];"),
    "while": Passing(f"int s = 0; while (s * s < n) {{ {_STEP} s++; }} y[t] = u[t];"),
    "straight code": Passing(
        "u[t] = f[t] * f[t]; __syncthreads(); y[t] = u[(t + 1) % 32] * u[t] + f[t];", listed="y, f"
    ),
    "twice": Passing("""u[t] = f[t] * f[t]; __syncthreads(); double a = u[(t + 1) % 32]; __syncthreads();
        u[t] = a * u[t]; __syncthreads(); y[t] = u[31 - t] * a;"""),
    "device functions": Passing(
        """for (int s = 0; s < n; s++) { double v = right(u, t) * f[t]; __syncthreads(); put(u + t, v + left(u, t));
        __syncthreads(); } y[t] = u[t];""",
        before="""__device__ double right(const double *p, int t) { return p[(t + 1) % 32]; }
        __device__ double left(const double *p, int t) { double v = p[t]; __syncthreads(); return v; }
        __device__ void put(double *p, double v) { *p = 0.5 * v; }""",
    ),
    "restrict by the user": Passing(
        f"for (int s = 0; s < n; s++) {{ {_STEP} }} y[t] = u[t];",
        params="double *__restrict__ y, double *__restrict__ u, const double *__restrict__ f, int n",
    ),
    "const cast away": Passing(
        f"double *w = (double *)u; for (int s = 0; s < n; s++) {{ {_STEP.replace('u[t] =', 'w[t] =')} }} y[t] = u[t];",
        params="double *y, const double *__restrict__ u, const double *f, int n",
    ),
    "swapped": Passing(
        """double *from = u, *to = y; for (int s = 0; s < n; s++) {
        to[t] = from[(t + 1) % 32] * f[t] + from[t]; __syncthreads(); double *p = from; from = to; to = p; }""",
        passed=("u", "y", "_d_u", "_d_y"),
        modes=("J",),
    ),
    "sums": Passing("""u[t] = 0; __syncthreads(); atomicAdd(&u[t / 4], f[t] * f[t]); __syncthreads();
        y[t] = u[t / 4] * u[t / 4];"""),
    "a warp": Passing("""for (int s = 0; s < n; s++) { double v = u[(t + 1) % 32]; __syncwarp();
        u[t] = 0.5 * v * f[t] + u[t]; __syncwarp(); } y[t] = u[t];"""),
    "scratch that is not listed": Passing(
        "for (int s = 0; s < n; s++) { u[t] = f[(t + s) % 32] * f[t]; __syncthreads(); y[t] += u[31 - t]; "
        "__syncthreads(); }",
        listed="y, f",
        modes=("J", "split", "R"),
    ),
    "sums alone": Passing(
        """for (int s = 0; s < n; s++) { u[t] = f[t] + s; __syncthreads(); y[t] += u[(t + 1) % 32] + u[31 - t];
        __syncthreads(); }""",
        passed=("_d_u",),
        modes=("J", "split", "R"),
    ),
    "logs of shared memory": Passing(
        """__shared__ double s[32]; double v = 0; for (int j = 0; j < n; j++) { s[t] = f[t] * u[t]; __syncthreads();
        for (int k = 0; k < 3; k++) v += s[(t + k * k) % 32] * s[t / 2]; __syncthreads(); } y[t] = v;""",
        passed=("_log_places_s_f64", "_log_s_f64", "_log_filled_s_f64"),
        kept=("f", "u", "y", "_d_y", "_d_u", "_d_f"),
        modes=("deterministic", "J", "R"),
    ),
    "nothing passed": Passing(
        """__shared__ double s[32]; int i = blockIdx.x * 32 + t; s[t] = f[i] * u[i]; __syncthreads();
        u[i] = s[31 - t] * u[i]; __syncthreads(); if (t == 0) y[blockIdx.x] = s[0] * s[1];""",
        passed=(),
        kept=("f", "u", "y", "_d_y", "_d_u", "_d_f"),
    ),
    "one thread reads": Passing("""u[t] = f[t] * f[t]; __syncthreads();
        if (t == 0) { double s = 0; for (int k = 0; k < 32; k++) s += u[k] * u[k]; y[0] = s; }"""),
    "shared memory besides": Passing("""__shared__ double s[32]; for (int k = 0; k < n; k++) {
        s[t] = u[31 - t] * f[t]; __syncthreads(); u[t] = s[(t + 1) % 32] * s[t] + u[t]; __syncthreads(); }
        y[t] = u[t];"""),
    # Not passed on: f is only read, but at places that compilers make one with those of u, which is written.
    "a choice of loads": Passing(
        "for (int s = 0; s < n; s++) { double v = t % 3 ? f[31 - t] : u[t];"
        f" u[t] = sin(v + 0.5 * s); {IN_MEMORY} }} y[t] = u[t];",
        passed=("f",),
        kept=("u", "_d_u"),
    ),
    "two sides of a branch": Passing(
        f"""for (int s = 0; s < n; s++) {{ double v; if (t % 3) v = 2 * f[t] + 1; else v = 2 * u[t] + 1;
        u[t] = sin(v); {IN_MEMORY} }} y[t] = u[t];""",
        passed=("f",),
        kept=("u", "_d_u"),
    ),
    "an early return": Passing(
        "u[t] = f[t] * f[t]; __syncthreads(); if (t % 3) { y[t] = f[31 - t]; return; } y[t] = u[31 - t];",
        passed=("f", "u"),
        kept=(),
        listed="y, f",
        modes=("J",),
    ),
    "overwritten by a choice": Passing(
        "for (int s = 0; s < n; s++) { double v = f[t]; if (t % 3) v = u[t];"
        f" u[t] = sin(v); {IN_MEMORY} }} y[t] = u[t];",
        passed=("f",),
        kept=("u", "_d_u"),
    ),
    "a pointer that is chosen": Passing(
        "const double *p = t % 3 ? f : u; for (int s = 0; s < n; s++) u[t] = sin(p[t] + s); y[t] = u[t];",
        passed=("f", "u"),
        kept=(),
        modes=("J",),
    ),
    "choices in a row": Passing(
        f"""for (int s = 0; s < n; s++) {{ double v = t % 3 ? f[t] : f[31 - t]; if ((t + s) % 5 == 0) v = u[t];
        u[t] = sin(v + s); {IN_MEMORY} }} y[t] = u[t];""",
        passed=("f",),
        kept=("u", "_d_u"),
    ),
    "operations in a row": Passing(
        f"""for (int s = 0; s < n; s++) {{ double v = {_LONG % "f[t]"}; if ((t + s) % 3) v = {_LONG % "u[t]"};
        u[t] = sin(v / 512); {IN_MEMORY} }} y[t] = u[t];""",
        passed=("f",),
        kept=("u",),
        modes=("J",),
    ),
    "carried by a loop": Passing(
        """u[t] = f[t] * f[t]; __syncthreads(); double v = f[t]; for (int s = 0; s < n; s++) { y[t] += v * v;
        v = s % 3 ? u[31 - t] : u[s]; }""",
        passed=("f", "u"),
        kept=(),
        listed="y, f",
        modes=("J",),
    ),
    "copied": Passing(
        "u[t] = 3 * f[t]; __syncthreads(); double v = f[31 - t]; if (n > 3) v = u[31 - t]; y[t] = v;",
        passed=("f", "u", "y"),
        kept=(),
        listed="u, f",
        modes=("J",),
    ),
    "one of both": Passing(
        "for (int s = 0; s < n; s++) u[t] = sin(f[t] * u[t]); y[t] = u[t];", passed=(), kept=("u", "f", "_d_u", "_d_f")
    ),
}


def arguments(case: Passing) -> tuple[list[Any], list[Any]]:
    """The kernel's own, and the adjoints of the listed parameters."""
    random = np.random.default_rng(4)
    own = [random.random(BLOCK) for _ in "yuf"]
    return [*own, STEPS], [random.standard_normal(BLOCK) for _ in case.listed.split(",")]


def text(case: Passing, mode: str) -> str:
    """The gradient's kernels."""
    kernel = kg.compile(case.source)["k"]
    if mode == "split":
        return "\n".join(part.source for part in kg.split(kernel, case.listed))
    return str(kg.gradient(kernel, case.listed, **OPTIONS[mode]).source)


def run(case: Passing, mode: str, to: Any = lambda array: array, back: Any = lambda array: array) -> list[Any]:
    """Everything that a gradient leaves. `to`, `back`: how arrays get to where it runs, and back."""
    kernel = kg.compile(case.source)["k"]
    (*arrays, n), adjoints = arguments(case)
    own, given = [to(a) for a in arrays], [to(a) for a in adjoints]
    if mode == "split":
        forward, reverse = kg.split(kernel, case.listed)
        reverse[1, BLOCK](forward[1, BLOCK](*own, n), *own, n, *given)
    else:
        kg.gradient(kernel, case.listed, **OPTIONS[mode])[1, BLOCK](*own, n, *given)
    return [back(a) for a in (*own, *given)]
