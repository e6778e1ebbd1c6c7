"""Timing contenders against each other: in turns, so that a slow moment of the machine hits all alike; medians. On a
GPU by events, behind a delay in which the host enqueues the work: the host's part of a launch is not measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

DELAY = """
extern "C" __global__ void delay(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {}
}
"""
DELAY_CYCLES = 6_000_000  # some milliseconds

Run = Callable[[], float]  # does the work once and gives the seconds it took


def wall(work: Callable[[], object]) -> Run:
    def run() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return run


def compare(contenders: Mapping[str, Run], seconds: float) -> dict[str, float]:
    """The median time of each, from at least 5 rounds and for about that many seconds in all."""
    for run in contenders.values():
        run()  # compile, fill caches, start threads
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    stop = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or (time.perf_counter() < stop and rounds < 200):
        for name, run in contenders.items():
            samples[name].append(run())
        rounds += 1
    return {name: statistics.median(times) for name, times in samples.items()}


def device_milliseconds(work: Callable[[], object]) -> float:
    """Of work that CuPy's current stream is given, between two events."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    cupy.cuda.Device().synchronize()
    _delay()((1,), (1,), (np.int64(DELAY_CYCLES),))
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end))


@cache
def _delay() -> Any:
    import cupy

    return cupy.RawKernel(DELAY, "delay")
