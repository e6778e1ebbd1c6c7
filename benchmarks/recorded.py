"""What it costs to record a loop of launches and to reverse it, with all of its tape and with a tenth of it:
`python benchmarks/host.py --recorded`. A nonlinear heat equation; microseconds a launch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgrad as kg

SOURCE = r"""
__global__ void heat(float *v, const float *u, const float *kappa, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = u[i] + dt * kappa[i] * u[i] * (u[i - 1] - 2 * u[i] + u[i + 1]);
}
"""
SIZES = ((256, 1000), (20_000, 1000), (500_000, 200))


class Loop:
    def __init__(self, n: int, steps: int):
        self.n, self.steps = n, steps
        self._launch = kg.compile(SOURCE)["heat"][(n + 255) // 256, 256]
        self._u = np.random.default_rng(0).random(n, np.float32)
        self._kappa = np.ones(n, np.float32)

    def run(self, u: Any = None, v: Any = None) -> Any:
        u, v = (self._u.copy(), np.zeros_like(self._u)) if u is None else (u, v)
        for _ in range(self.steps):
            self._launch(v, u, self._kappa, self.n, 0.1)
            u, v = v, u
        return u

    def times(self, budget: int | None) -> tuple[float, float, int]:
        """Of the recording and of the reverse, and the most bytes that were saved at a time."""
        start = time.perf_counter()
        with kg.record(tape_budget=budget) as tape:
            u = self.run()
        middle = time.perf_counter()
        tape.backward(u, np.ones_like(u))
        return middle - start, time.perf_counter() - middle, tape.store.peak

    def replayed(self) -> tuple[float, float]:
        """Of a call of the program, and of its gradient."""
        u0, v = self._u.copy(), np.zeros_like(self._u)
        with kg.record() as tape:
            u = self.run(u0, v)
        p = tape.program((u0, self._kappa), (u,))
        g = kg.gradient(p)
        seed = np.ones_like(u)
        return _best(lambda: p(u0, self._kappa)), _best(lambda: g(u0, self._kappa, seed))

    def plain(self) -> float:
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start


def _best(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    print(
        "| elements | steps | plain us | recorded us | reversed us | a tenth of the tape: recorded | reversed | ratio"
        " | as a program | its gradient |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for n, steps in SIZES:
        loop = Loop(n, steps)
        loop.times(None)
        plain = min(loop.plain() for _ in range(3))
        full = min((loop.times(None) for _ in range(3)), key=lambda t: t[0] + t[1])
        tenth = min((loop.times(full[2] // 10) for _ in range(3)), key=lambda t: t[0] + t[1])
        each = [t / steps * 1e6 for t in (plain, *full[:2], *tenth[:2])]
        ratio = sum(tenth[:2]) / sum(full[:2])
        again = " | ".join(f"{t / steps * 1e6:.1f}" for t in loop.replayed())
        print(f"| {n:,} | {steps:,} | {' | '.join(f'{t:.1f}' for t in each)} | {ratio:.2f} | {again} |", flush=True)
