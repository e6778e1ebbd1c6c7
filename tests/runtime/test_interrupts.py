"""Ctrl-C during a launch on the CPU: it ends at the next block, on all cores, and the process goes on."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.workers import Pace, run_chunks

# Each block takes milliseconds, and all of them hours. Another thread sends the signal when the first has begun.
CODE = """
import os, signal, sys, threading, time
import numpy as np, kernelgrad as kg

module = kg.compile(r'''
__global__ void slow(volatile float *begun, float *y, int n) {
    begun[0] = 1.0f;
    float v = threadIdx.x;
    for (int k = 0; k < n; k++) v = v * 0.999f + begun[0];
    y[blockIdx.x * blockDim.x + threadIdx.x] = v + 1.0f;
}''')
kernel, threads = module["slow"], int(sys.argv[1])
begun, y = np.zeros(1, np.float32), np.zeros(1_000_000 * threads, np.float32)
kernel[2, threads](begun, y, 3)
assert (y[: 2 * threads] > 0).all()
y[:], begun[:] = 0, 0

def interrupt():
    while not begun[0]:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
blocks = 1_000_000 if threads > 1 else 10_000  # few threads are run by the caller alone
try:
    kernel[blocks, threads](begun, y, 10_000_000 // threads)
    print("not interrupted")
except KeyboardInterrupt:
    done = y.reshape(-1, threads)[:blocks].any(axis=1).sum()
    again = done == y.reshape(-1, threads)[:blocks].any(axis=1).sum()  # nobody works on
    kernel[2, threads](begun, y, 3)
    print("interrupted", done < blocks // 2, again)
"""


@pytest.mark.parametrize("cores", ["1", "2"])
@pytest.mark.parametrize("threads", ["1", "8"])
def test_a_launch_ends_at_the_next_block(threads: str, cores: str) -> None:
    environment = {**os.environ, "KERNELGRAD_CPU_THREADS": cores}
    command = [sys.executable, "-c", CODE, threads]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.stdout.split("\n")[0] == "interrupted True True", done.stderr[-2000:]


# The interrupt comes when a thread of the pool has started and `start` has not returned.
AT_START = """
import sys, threading
from kernelgrad.runtime.workers import run_chunks

start = threading.Thread.start

def interrupted(thread):
    start(thread)
    raise KeyboardInterrupt

threading.Thread.start = interrupted
try:
    run_chunks(lambda begin, end: None, 100, 8)
    print("not interrupted")
except KeyboardInterrupt:
    threading.Thread.start = start
    seen, count = [], int(sys.argv[1])
    if count:
        run_chunks(lambda begin, end: seen.extend(range(begin, end)), count, 8)
    print("interrupted", sorted(seen) == list(range(count)))
"""


@pytest.mark.parametrize("count", ["0", "100"])
def test_the_process_ends_after_an_interrupt_at_a_threads_start(count: str) -> None:
    environment = {**os.environ, "KERNELGRAD_CPU_THREADS": "2"}
    command = [sys.executable, "-c", AT_START, count]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.stdout == "interrupted True\n", done.stderr[-2000:]


def test_what_a_helping_thread_raises_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGRAD_CPU_THREADS", "4")
    caller, helped = threading.get_ident(), threading.Event()

    def run(begin: int, end: int) -> None:
        if threading.get_ident() != caller:
            helped.set()
            raise RuntimeError("of a helper")
        assert helped.wait(60)

    with pytest.raises(RuntimeError, match="of a helper"):
        run_chunks(run, 100, 8)


@pytest.mark.parametrize("count", [1, 2, 17, 1000])
@pytest.mark.parametrize("first", [1, 64, 5000])
def test_every_block_runs_once(count: int, first: int) -> None:
    seen: list[int] = []
    Pace(first).run(lambda begin, end: seen.extend(range(begin, end)), 0, count)
    assert seen == list(range(count))
    seen.clear()
    run_chunks(lambda begin, end: seen.extend(range(begin, end)), count, 8, first)
    assert sorted(seen) == list(range(count))


def test_slow_blocks_run_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("kernelgrad.runtime.workers.perf_counter", lambda: clock[0])
    sizes = []

    def run(begin: int, end: int) -> None:
        sizes.append(end - begin)
        clock[0] += (end - begin) * (0.0001 if begin < 1000 else 1.0)

    Pace(1).run(run, 0, 2000)
    assert sizes[:3] == [1, 16, 256]
    assert sizes[-5:] == [1] * 5
    assert sum(sizes) == 2000


def test_sums_of_many_pieces_are_right() -> None:
    text = """__global__ void k(const float *x, float *s, int n, int m) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        for (int j = 0; j < m; j++) if (i < n) atomicAdd(s + j, x[i]);
    }"""
    kernel = kg.compile(text)["k"]
    x, s = np.ones(200_000, np.float32), np.zeros(4, np.float32)
    kernel[-(-x.size // 64), 64](x, s, x.size, 4)
    assert (s == 200_000).all()
