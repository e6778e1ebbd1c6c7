"""Many generated kernels: `python -m tests.generated --count 5000 --seed 1`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

from every_plan import PLANS

from .checking import FAILURES, WAYS, Outcome, check, fails_alike
from .cooperating import random_cooperating
from .generator import random_program
from .processes import spread
from .program import Program, reduced

KINDS = ("plain", "cooperating")
# Kind, seed, size, whether it also runs under the check mode, and on the GPU, how many plans.
Task = tuple[str, int, int, bool, bool, int]


def main() -> int:
    options = _options()
    counts: Counter[tuple[str, str]] = Counter()
    differences = 0
    started = time.monotonic()
    kinds = KINDS if options.kind == "all" else (options.kind,)
    numbered = ((kinds[k % len(kinds)], options.seed + k // len(kinds)) for k in count())
    possible: Iterator[Task] = (
        (kind, seed, options.size, seed % options.watch == 0, options.gpu, options.plans) for kind, seed in numbered
    )
    tasks = islice((t for t in possible if options.feature in (None, *_program(t).features)), options.count)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELGRAD_CACHE_DIR"] = folder
        for done, (task, answer) in enumerate(spread(_outcome, tasks, options.jobs, options.each), 1):
            outcome: Outcome = answer or Outcome("wrong", "the process crashed or did not end")
            counts[outcome.kind, outcome.summary] += 1
            differences += outcome.differences
            if outcome.kind in FAILURES:
                _report(task, outcome, options.reduce)
            if done % 100 == 0:
                print(f"{done} kernels, {time.monotonic() - started:.0f} s: {_totals(counts)}", flush=True)
    _summarize(counts, differences, time.monotonic() - started)
    return int(any(kind in FAILURES for kind, _ in counts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all", help="what threads do: each its own, or more")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--seed", type=int, default=1, help="of each kind's first kernel; each further one has the next"
    )
    parser.add_argument("--feature", help="only kernels that have it, like `equal`: numbers at which there are ties")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--each", type=int, default=1, metavar="N", help="kernels a process does")
    parser.add_argument("--plans", type=int, default=1, metavar="N", help="plans that each kernel gets in turn")
    parser.add_argument("--gpu", action="store_true", help="also on the GPU; cupy is needed")
    parser.add_argument("--size", type=int, default=14, help="of a cooperating kernel: about so many statements")
    parser.add_argument("--watch", type=int, default=2, metavar="N", help="every n-th also under the check mode")
    parser.add_argument("--reduce", type=int, default=120, metavar="SECONDS", help="to make each failure smaller")
    return parser.parse_args()


def _program(task: Task) -> Program:
    kind, seed, size, *_ = task
    return random_cooperating(seed, size) if kind == "cooperating" else random_program(seed)


def _outcome(task: Task) -> Outcome:
    _, seed, _, watched, gpu, plans = task
    return check(_program(task), watched, _way(seed), gpu, _plans(seed, plans))


def _way(seed: int) -> str:
    return ("joint", *WAYS)[seed % (1 + len(WAYS))]


def _plans(seed: int, number: int) -> list[str]:
    names = list(PLANS)
    return [names[(seed * number + k) % len(names)] for k in range(number)]


def _report(task: Task, outcome: Outcome, seconds: int) -> None:
    kind, seed, _, _, gpu, plans = task
    watched = "check mode" in outcome.summary
    program = _program(task)
    if outcome.kind == "wrong" and seconds:
        program = reduced(
            program, lambda p: fails_alike(outcome, p, watched, _way(seed), gpu, _plans(seed, plans)), seconds
        )
    print(f"---- {outcome.kind.upper()}, {kind} {seed}: {outcome.detail[:2000]}\n\n{program.describe()}\n", flush=True)


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
