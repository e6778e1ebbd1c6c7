"""Many generated kernels: `python -m tests.generated --count 5000 --seed 1`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter

from .checking import WAYS, Outcome, check, fails_alike
from .generator import random_program
from .processes import spread
from .program import reduced

WATCHED = 3  # every third kernel also runs under the check mode


def main() -> int:
    options = _options()
    counts: Counter[tuple[str, str]] = Counter()
    differences = 0
    started = time.monotonic()
    seeds = range(options.seed, options.seed + options.count)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELGRAD_CACHE_DIR"] = folder
        for done, (seed, answer) in enumerate(spread(_outcome, seeds, options.jobs), 1):
            outcome: Outcome = answer or Outcome("wrong", "the process crashed or did not end")
            counts[outcome.kind, outcome.summary] += 1
            differences += outcome.differences
            if outcome.kind == "wrong":
                _report(seed, outcome, options.reduce)
            if done % 100 == 0:
                print(f"{done} kernels, {time.monotonic() - started:.0f} s: {_totals(counts)}", flush=True)
    _summarize(counts, differences, time.monotonic() - started)
    return int(any(kind == "wrong" for kind, _ in counts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first kernel; each further one has the next")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--reduce", type=int, default=120, metavar="SECONDS", help="to make each failure smaller")
    return parser.parse_args()


def _outcome(seed: int) -> Outcome:
    return check(random_program(seed), seed % WATCHED == 0, _way(seed))


def _way(seed: int) -> str:
    return ("joint", *WAYS)[seed % (1 + len(WAYS))]


def _report(seed: int, outcome: Outcome, seconds: int) -> None:
    watched = outcome.summary.startswith("check mode")
    program = reduced(random_program(seed), lambda p: fails_alike(outcome, p, watched, _way(seed)), seconds)
    print(f"---- WRONG, seed {seed}: {outcome.detail[:2000]}\n\n{program.describe()}\n", flush=True)


def _totals(counts: Counter[tuple[str, str]]) -> str:
    kinds: Counter[str] = Counter()
    for (kind, _), number in counts.items():
        kinds[kind] += number
    return ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())


def _summarize(counts: Counter[tuple[str, str]], differences: int, seconds: float) -> None:
    print(f"{sum(counts.values())} kernels in {seconds:.0f} s: {_totals(counts)}")
    print(f"finite differences agreed with forward mode, for every parameter, in {differences}")
    for (kind, reason), number in counts.most_common():
        if reason:
            print(f"{number:6} {kind}: {reason[:150]}")


if __name__ == "__main__":
    sys.exit(main())
