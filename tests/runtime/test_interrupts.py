"""Ctrl-C during a launch on the CPU: it ends at the next block, on all cores, and the process goes on."""

import os
import subprocess
import sys
import threading
from time import sleep

import numpy as np
import pytest

import kernelgrad as kg
from blocks_in_python import run_blocks
from kernelgrad.runtime import check

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


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_a_check_whose_log_cannot_grow_ends(failure: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kg.compile("__global__ void k(float *y, int n) { for (int i = 0; i < n; i++) y[i % 7] += 1.0f; }")["k"]
    y, plain = np.zeros(7, np.float32), np.empty

    def fail(shape: int, dtype: object) -> np.ndarray:
        if shape > check._FIRST_CAPACITY:
            raise failure
        return plain(shape, dtype)

    monkeypatch.setattr(check.np, "empty", fail)
    with pytest.raises(failure):
        kernel.check(1, 1, y, 3 * check._FIRST_CAPACITY)
    monkeypatch.undo()
    assert kernel.check(1, 1, y, 100).ok


@pytest.mark.parametrize("count", [1, 2, 17, 1000])
@pytest.mark.parametrize("first", [1, 64, 5000])
@pytest.mark.parametrize("helpers", [0, 1, 5])
def test_every_block_runs_once(count: int, first: int, helpers: int) -> None:
    seen: list[int] = []
    run_blocks(lambda begin, end: seen.extend(range(begin, end)), count, helpers, first)
    assert sorted(seen) == list(range(count))


def test_pieces_of_slow_blocks_are_short() -> None:
    """In one of some attempts no other process took so much time that quick blocks were slow too."""
    expected = [1, 4, 16, 64, 16, 4, *[1] * 5]
    assert any(_pieces() == expected for _ in range(8))


def _pieces() -> list[int]:
    sizes: list[int] = []

    def run(begin: int, end: int) -> None:
        sizes.append(end - begin)
        sleep(0 if begin < 21 else 0.015 * (end - begin))

    run_blocks(run, 110, helpers=0, chunk=110)
    assert sum(sizes) == 110
    return sizes


def test_launches_of_several_threads_share_the_pool() -> None:
    counts = [0] * 8

    def launch(k: int) -> None:
        def run(begin: int, end: int) -> None:
            counts[k] += end - begin  # one thread at a time runs Python

        for _ in range(20):
            run_blocks(run, 50, helpers=3)

    threads = [threading.Thread(target=launch, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1000] * 8


def test_helpers_run_at_the_same_time_as_the_caller() -> None:
    met = threading.Barrier(3)
    run_blocks(lambda begin, end: met.wait(30), 3, helpers=2)
    assert met.n_waiting == 0


def test_sums_of_many_pieces_are_right() -> None:
    text = """__global__ void k(const float *x, float *s, int n, int m) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        for (int j = 0; j < m; j++) if (i < n) atomicAdd(s + j, x[i]);
    }"""
    kernel = kg.compile(text)["k"]
    x, s = np.ones(200_000, np.float32), np.zeros(4, np.float32)
    kernel[-(-x.size // 64), 64](x, s, x.size, 4)
    assert (s == 200_000).all()
