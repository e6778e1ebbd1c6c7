"""What a gradient costs before its first launch ends, against the length of the program: `python derivation.py --help`.

Each row is a process of its own with an empty cache: a kernel of so many statements (or terms, branches, ...) of one
kind is parsed, its gradient derived, the form for a small launch chosen, code emitted for the CPU and launched. Columns
are CPU seconds; `LLVM` is the helper process, which is not part of `all`. `per one` is what each statement adds, in
milliseconds, beyond a kernel that has a single one; a kind is flat where that stays the same from the shortest program
to the longest, and the line below its rows says by which factor it does not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

LENGTHS = (100, 400, 1600, 5000)
LIMIT = 600  # seconds for one row
STAGES = ("parse", "passes", "derive", "choose", "emit")
# What runs inside of which is taken off it; all that is in none of them is what chooses.
ENTRIES = {
    ("frontend.clang", "parse"): "parse",
    ("pipeline", "lower"): "parse",
    ("pipeline", "compile_kernel"): "passes",
    ("autodiff.prepare.planned", "make_planned"): "derive",
    ("autodiff.prepare.prepared", "_prepare"): "derive",
    ("autodiff.reverse", "_assembled"): "derive",
    ("pipeline", "finish_derivative"): "derive",
    ("backends.cpu.kernel", "lower"): "emit",
    ("backends.cpu.native", "compile_object"): "emit",
}


# ---- programs -----------------------------------------------------------------------------------------------------


def _joined(statement: Callable[[int], str], n: int, between: str = "") -> str:
    return between.join(statement(k) for k in range(n))


def _nested(head: Callable[[int], str], n: int) -> str:
    return _joined(head, n) + "v = v * x[i];" + "}" * n


def _callees(n: int) -> str:
    return _joined(lambda k: f"__device__ double f{k}(double v, double w) {{ return v * w + {k % 7}; }}\n", n)


PROGRAMS: dict[str, Callable[[int], str]] = {
    "statements": lambda n: _joined(lambda k: f"v = v * {1 + k % 7 * 0.001} + {k % 5 * 0.1};", n),
    "loads": lambda n: _joined(lambda k: f"v = v * (1 + 0.001 * x[i + {k % 32}]);", n),
    "different loads": lambda n: _joined(lambda k: f"v = v * (1 + 0.001 * x[i + {k}]);", n),
    "variables": lambda n: (
        _joined(lambda k: f"double a{k} = {f'a{k - 1}' if k else 'v'} * x[i + {k % 32}];", n) + f"v = a{n - 1};"
    ),
    "loops": lambda n: _joined(lambda k: f"for (int k = 0; k < 3; k++) v = v * (1 + 0.001 * x[k + {k % 32}]);", n),
    "branches": lambda n: _joined(lambda k: f"if (x[i + {k % 32}] > 0.5) v = v * x[i];", n),
    "callees": lambda n: _joined(lambda k: f"v = f{k}(v, x[i + {k % 32}]);", n),
    "stores": lambda n: _joined(lambda k: f"y[i * {n} + {k}] = v * x[i + {k % 32}];", n),
    "else ifs": lambda n: _joined(lambda k: f"if (v < {0.02 * k + 0.0271}) v = v * x[i] + {k};", n, " else "),
    "cases": lambda n: "switch (i) {" + _joined(lambda k: f"case {k}: v = x[i] * x[i + {k % 32}]; break;", n) + "}",
    "terms": lambda n: "v = " + _joined(lambda k: f"x[i] * x[i + {k % 32}]", n, " + ") + ";",
    "calls in calls": lambda n: "v = " + "sin(" * n + "x[i]" + ")" * n + ";",
    "ifs in ifs": lambda n: _nested(lambda k: f"if (v < {2 + k}) {{", n),
    "loops in loops": lambda n: _nested(lambda k: f"for (int k{k} = 0; k{k} < 1; k{k}++) {{", n),
}
SHORTER = {"loops in loops": (5, 10, 20, 40), "ifs in ifs": (50, 100, 200, 400)}  # nesting has a limit
REALISTIC = """
__device__ double norm3(double a, double b, double c) { return sqrt(a * a + b * b + c * c + 1e-9); }
__device__ double smooth(double r, double h) {
  double q = r / h;
  if (q < 1.0) return 1.0 - 1.5 * q * q + 0.75 * q * q * q;
  if (q < 2.0) { double p = 2.0 - q; return 0.25 * p * p * p; }
  return 0.0;
}
__global__ void k(double *y, const double *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double px = x[3 * i], py = x[3 * i + 1], pz = x[3 * i + 2];
  double density = 0.0, fx = 0.0, fy = 0.0, fz = 0.0;
  for (int j = 0; j < n; j++) {
    double dx = px - x[3 * j], dy = py - x[3 * j + 1], dz = pz - x[3 * j + 2];
    double r = norm3(dx, dy, dz);
    double w = smooth(r, 1.3);
    density += w;
    if (r < 2.6) {
      double push = w / r;
      fx += push * dx;
      fy += push * dy;
      fz += push * dz;
    }
  }
  double pressure = 2.5 * (density - 1.0);
  if (pressure < 0.0) pressure = 0.1 * pressure;
  double speed = norm3(fx, fy, fz);
  double drag = 0.1 * speed + 0.01 * speed * speed;
  double heat = 0.0, t = 1.0 + pressure;
  for (int step = 0; step < 4; step++) {
    double rate = exp(-t) * (1.0 + drag);
    heat += rate * 0.25;
    t = t - 0.25 * rate * t;
    if (t < 0.1) t = 0.1 + 0.01 * t;
  }
  double moved[3] = {px + 0.01 * fx, py + 0.01 * fy, pz + 0.01 * fz};
  double turned[3];
  double c = cos(drag), s = sin(drag);
  turned[0] = c * moved[0] - s * moved[1];
  turned[1] = s * moved[0] + c * moved[1];
  turned[2] = moved[2] + 0.1 * heat;
  double energy = 0.0;
  for (int a = 0; a < 3; a++) energy += turned[a] * turned[a];
  energy = 0.5 * energy + pressure * density;
  double scale = 1.0 / (1.0 + energy);
  double clipped = energy > 4.0 ? 4.0 + log(energy - 3.0) : energy;
  switch (i % 3) {
    case 0: clipped = clipped * scale; break;
    case 1: clipped = clipped + 0.5 * scale * drag; break;
    default: clipped = clipped - 0.25 * heat;
  }
  double left = i > 0 ? x[3 * i - 3] : px;
  double right = i + 1 < n ? x[3 * i + 3] : px;
  double curvature = left - 2.0 * px + right;
  double limited = curvature / (1.0 + fabs(curvature));
  y[4 * i] = clipped + 0.1 * limited;
  y[4 * i + 1] = turned[0] * scale;
  y[4 * i + 2] = turned[1] * scale;
  y[4 * i + 3] = turned[2] * scale + heat;
}
"""


def source(kind: str, n: int) -> str:
    if kind == "realistic":
        return REALISTIC
    helpers = _callees(n) if kind == "callees" else ""
    return f"""{helpers}__global__ void k(double *y, const double *x, int n) {{
  int i = threadIdx.x;
  double v = x[i];
  {PROGRAMS[kind](n)}
  y[i] = v;
}}"""


# ---- one row ------------------------------------------------------------------------------------------------------


class Stages:
    """CPU seconds of the stages, without those of the stages inside."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._now, self._since = "choose", time.process_time()

    @contextmanager
    def within(self, stage: str) -> Iterator[None]:
        before, self._now = self._switched(), stage
        yield
        self._switched()
        self._now = before

    def _switched(self) -> str:
        now = time.process_time()
        self.seconds[self._now] += now - self._since
        self._since = now
        return self._now

    def timed(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def run(*args: Any, **keywords: Any) -> Any:
            with self.within(stage):
                return function(*args, **keywords)

        return run

    def watch(self) -> None:
        """Puts itself around the entries, wherever they were imported to."""
        for (module, name), stage in ENTRIES.items():
            entry = getattr(import_module(f"kernelgrad.{module}"), name)
            timed = self.timed(entry, stage)
            for other in [m for key, m in sys.modules.items() if key.startswith("kernelgrad")]:
                if getattr(other, name, None) is entry:
                    setattr(other, name, timed)


def first_launch(text: str) -> dict[str, float]:
    """From the text to the end of the first launch of the gradient."""
    import numpy as np

    import kernelgrad as kg
    from kernelgrad.backends.cpu import native
    from kernelgrad.derivatives import gradient

    assert gradient
    stages, threads, most = Stages(), 4, 8192
    stages.watch()
    start, began = time.process_time(), time.perf_counter()
    gradient = kg.gradient(kg.compile(text)["k"], "y, x")
    y, x = np.zeros(threads * most), np.linspace(0.1, 0.9, most)
    gradient[1, threads](y, x, threads, np.ones_like(y), np.zeros_like(x))
    total, wall = time.process_time() - start, time.perf_counter() - began
    with stages.within("choose"):
        pass
    native.end()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {**stages.seconds, "all": total, "LLVM": children.ru_utime + children.ru_stime, "wall": wall}


def measured(kind: str, n: int) -> dict[str, float]:
    """In another process, with nothing cached."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "KERNELGRAD_CACHE_DIR": folder}
        command = [sys.executable, __file__, "--one", kind, str(n)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(f"{kind} of {n}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


# ---- the table ----------------------------------------------------------------------------------------------------

COLUMNS = (*STAGES, "all", "LLVM", "wall")


def show(kind: str, n: int, row: dict[str, float], each: float | None) -> None:
    seconds = " | ".join(f"{row[c]:.2f}" for c in COLUMNS)
    print(f"| {kind} | {n} | {seconds} | {'' if each is None else f'{each:.2f}'} |", flush=True)


def family(kind: str, lengths: tuple[int, ...]) -> None:
    least = measured(kind, 1)["all"]
    each = []
    for n in lengths:
        try:
            row = measured(kind, n)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"| {kind} | {n} | {error} |", flush=True)
            continue
        each.append((row["all"] - least) / n * 1e3)
        show(kind, n, row, each[-1])
    if len(each) > 1 and min(each) > 0:
        print(
            f"| {kind}: the longest costs {each[-1] / each[0]:.2f} times as much per one as the shortest |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only kinds whose name contains this")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--one", nargs=2, metavar=("KIND", "N"), help="one row, in this process, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(first_launch(source(options.one[0], int(options.one[1])))))
        return
    print(f"| kind | n | {' | '.join(COLUMNS)} | ms per one |\n|{'---|' * (len(COLUMNS) + 3)}")
    for kind in PROGRAMS:
        if options.only in kind:
            family(kind, SHORTER.get(kind, tuple(options.lengths)))
    if options.only in "realistic":
        show("realistic", 80, measured("realistic", 80), None)


if __name__ == "__main__":
    main()
