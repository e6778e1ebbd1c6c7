"""How fast kernels run, and how soon: `make bench`, or `python benchmarks/primal.py --help`.

CPU: kernelgrad against the same loops in C (g++ -O3 -march=native), and Numba and Warp where they are installed; once
on one core, once on all. GPU: kernelgrad against the original source compiled by NVRTC. All contenders of a row take
turns in one process, and the table shows medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import c_loops  # noqa: E402
import gpu  # noqa: E402
import others  # noqa: E402
from cases import Case, cases  # noqa: E402
from timing import compare, wall  # noqa: E402

THREADS_VARIABLE = "KERNELGRAD_CPU_THREADS"

Row = dict[str, Any]


def main() -> None:
    options = parse_options()
    if options.part:
        print(json.dumps(PARTS[options.part](options)))
        return
    cores = len(os.sched_getaffinity(0))
    report: dict[str, Any] = {
        "start": start_times(options),
        "cpu, 1 core": child("cpu", options, threads=1),
        f"cpu, {cores} cores": child("cpu", options, threads=cores) if cores > 1 else [],
        "gpu": child("gpu", options) if gpu.available() else [],
    }
    print(json.dumps(report, indent=2) if options.json else tables(report))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the problems, e.g. 0.01 for a quick look")
    parser.add_argument("--seconds", type=float, default=3.0, help="time to spend on each row")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- one part in a process of its own: the number of threads is fixed when a process starts --------------------------


def child(part: str, options: argparse.Namespace, threads: int | None = None) -> list[Row]:
    counts = {name: str(threads) for name in (THREADS_VARIABLE, "OMP_NUM_THREADS", "NUMBA_NUM_THREADS") if threads}
    counts["OMP_WAIT_POLICY"] = "passive"  # else OpenMP's threads spin on their cores during the next contender's turn
    command = [sys.executable, __file__, "--part", part, f"--scale={options.scale}", f"--seconds={options.seconds}"]
    done = subprocess.run(
        [*command, f"--only={options.only}"],
        env={**os.environ, **counts},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows: list[Row] = json.loads(done.stdout)
    return rows


def chosen(options: argparse.Namespace) -> list[Case]:
    return [case for case in cases(options.scale) if options.only in case.name]


def run_cpu(options: argparse.Namespace) -> list[Row]:
    threads = int(os.environ.get(THREADS_VARIABLE, "1"))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # nobody gets more cores than the row says
    return [cpu_row(case, threads, options.seconds) for case in chosen(options)]


def cpu_row(case: Case, threads: int, seconds: float) -> Row:
    import kernelgrad as kg

    launch = kg.compile(case.source)[case.kernel][case.grid, case.block]
    result, *inputs = case.arrays()
    contenders = {"kernelgrad": wall(lambda: launch(result, *inputs, *case.scalars))}
    expected = np.zeros_like(result)
    if c_loops.available():
        contenders["C"] = wall(c_loops.work(case, (expected, *inputs), openmp=threads > 1))
    scratch = np.zeros_like(result)
    for name, work in others.contenders(case, (scratch, *inputs), threads).items():
        contenders[name] = wall(work)
    times = compare(contenders, seconds)
    check(case, result, expected, "C" in times)
    return {"case": case.name, **times}


def run_gpu(options: argparse.Namespace) -> list[Row]:
    bench = gpu.Bench()
    return [gpu_row(bench, case, options.seconds) for case in chosen(options)]


def gpu_row(bench: gpu.Bench, case: Case, seconds: float) -> Row:
    import kernelgrad as kg

    host = case.arrays()
    arrays = tuple(gpu.DeviceArray(a) for a in host)
    contenders = bench.contenders(case, kg.compile(case.source)[case.kernel], arrays)
    answers = []
    for run in contenders.values():
        run()
        answers.append(arrays[0].get())
    times = compare(contenders, seconds)
    check(case, *answers, known=True)
    for array in arrays:
        array.free()
    return {"case": case.name, **times}


def check(case: Case, result: Any, expected: Any, known: bool) -> None:
    """A fast wrong answer is worth nothing."""
    if known and not np.allclose(result, expected, rtol=1e-4, atol=1e-4):
        raise SystemExit(f"{case.name}: kernelgrad's answer differs from the reference")


PARTS = {"cpu": run_cpu, "gpu": run_gpu}


# ---- how soon a kernel runs ------------------------------------------------------------------------------------------

IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
FIRST_RUN = """
import time, numpy as np, kernelgrad as kg
x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
start = time.perf_counter()
source = "__global__ void saxpy(float *y, const float *x, float a, int n)"
source += "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }"
kernel = kg.compile(source)["saxpy"]
kernel[4, 256](y, x, 2.0, 1000)
print(time.perf_counter() - start)
"""
LAUNCHES = (
    FIRST_RUN
    + """
start = time.perf_counter()
for _ in range(1000): kernel[1, 32](y, x, 2.0, 32)
print((time.perf_counter() - start) / 1000)
"""
)


def start_times(options: argparse.Namespace) -> list[Row]:
    repeats = 5 if options.seconds >= 1 else 2
    numpy, ours = (statistics.median(python(IMPORT.format(m)) for _ in range(repeats)) for m in ("numpy", "kernelgrad"))
    cold = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(python(FIRST_RUN, cache))
    with tempfile.TemporaryDirectory() as cache:
        cached = [python(FIRST_RUN, cache) for _ in range(repeats + 1)][1:]
        launch = python(LAUNCHES, cache)
    return [
        {"case": "import numpy", "seconds": numpy},
        {"case": "import kernelgrad", "seconds": ours},
        {"case": "first CPU run of saxpy, cold", "seconds": statistics.median(cold)},
        {"case": "first CPU run of saxpy, from the cache", "seconds": statistics.median(cached)},
        {"case": "one more CPU launch of saxpy", "seconds": launch},
    ]


def python(code: str, cache: str | None = None) -> float:
    environment = {**os.environ, **({"KERNELGRAD_CACHE_DIR": cache} if cache else {})}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


# ---- tables ----------------------------------------------------------------------------------------------------------


def tables(report: dict[str, list[Row]]) -> str:
    return "\n\n".join(table(title, rows) for title, rows in report.items() if rows)


def table(title: str, rows: list[Row]) -> str:
    """Milliseconds; and kernelgrad's time as a multiple of each other contender's."""
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "case"))
    rivals = [name for name in columns if name not in ("kernelgrad", "seconds")]
    head = ["case", *("ms" if c == "seconds" else f"{c}, ms" for c in columns), *(f"vs {r}" for r in rivals)]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        times = [f"{row[c] * 1e3:.3f}" if c in row else "" for c in columns]
        ratios = [f"{row['kernelgrad'] / row[r]:.2f}x" if r in row else "" for r in rivals]
        lines.append([row["case"], *times, *ratios])
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    body = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines]
    return "\n".join([f"### {title}", "", *body])


if __name__ == "__main__":
    main()
