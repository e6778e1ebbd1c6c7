"""Timing contenders against each other: in turns, so that a slow moment of the machine hits all alike; medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

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
