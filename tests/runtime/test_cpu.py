"""The CPU runtime: caching, spreading blocks over cores, scratch memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from kernelgrad.backends.cpu import native
from kernelgrad.ir.parser import parse_module
from kernelgrad.runtime import cpu, workers
from kernelgrad.runtime.cpu import compile_cpu
from kernelgrad.runtime.launch import BoundArguments, LaunchConfig

DOUBLE = """
kernel @"double"(%x: ptr<f32, global> "float *") {
  %0: u32 = builtin() name="block_idx" axis=0
  %1: u32 = builtin() name="block_dim" axis=0
  %2: u32 = builtin() name="thread_idx" axis=0
  %3: u32 = apply([%0, %1]) fn="mul"
  %i: u32 = apply([%3, %2]) fn="add"
  %p: ptr<f32, global> = offset(%x, %i)
  %v: f32 = load(%p) volatile=false
  %w: f32 = apply([%v, %v]) fn="add"
  store(%p, %w) volatile=false
}
"""


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cpu, "_memory", {})
    return tmp_path


def launch(threads: int = 64, blocks: int = 2) -> None:
    x = np.arange(threads * blocks, dtype=np.float32)
    arguments = BoundArguments(struct.pack("<Q", x.ctypes.data))
    compile_cpu(parse_module(DOUBLE), "double").launch(LaunchConfig((blocks, 1, 1), (threads, 1, 1)), arguments)
    np.testing.assert_array_equal(x, 2 * np.arange(len(x)))


def entries(cache_dir: Path) -> list[Path]:
    return [path for path in cache_dir.rglob("*") if path.is_file()]


# ---- caching --------------------------------------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time LLVM compiles something."""
    seen: list[str] = []
    original = native.compile_object
    monkeypatch.setattr(native, "compile_object", lambda text: seen.append(text) or original(text))
    return seen


def test_code_comes_from_memory_then_from_disk(
    compilations: list[str], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch()
    launch()
    assert len(compilations) == 1 and len(entries(cache_dir)) == 1
    monkeypatch.setattr(cpu, "_memory", {})
    launch()
    assert len(compilations) == 1


@pytest.mark.parametrize("damage", [b"", b"\0" * 1000])
def test_a_damaged_entry_is_rebuilt(
    compilations: list[str], cache_dir: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    launch()
    (entry,) = entries(cache_dir)
    good = entry.read_bytes()
    entry.write_bytes(damage)
    monkeypatch.setattr(cpu, "_memory", {})
    launch()
    assert len(compilations) == 2 and entry.read_bytes() == good


def test_the_same_module_gives_the_same_code(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch()
    (entry,) = entries(cache_dir)
    first = entry.read_bytes()
    entry.unlink()
    monkeypatch.setattr(cpu, "_memory", {})
    launch()
    assert entry.read_bytes() == first


def test_a_few_block_shapes_get_code_of_their_own(compilations: list[str]) -> None:
    executable = compile_cpu(parse_module(DOUBLE), "double")
    for threads in range(1, 12):
        x = np.ones(threads, np.float32)
        arguments = BoundArguments(struct.pack("<Q", x.ctypes.data))
        executable.launch(LaunchConfig((1, 1, 1), (threads, 1, 1)), arguments)
        np.testing.assert_array_equal(x, 2)
    assert len(compilations) == 5  # four shapes, and one for all others


# ---- workers --------------------------------------------------------------------------------------------------------


def test_scratch_memory_belongs_to_a_thread() -> None:
    mine = workers.scratch_memory(1000)
    assert mine % 64 == 0 and workers.scratch_memory(10) == mine
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(workers.scratch_memory(1000)))
    thread.start()
    thread.join()
    assert abs(others[0] - mine) >= 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking a process with threads, which is the point
def test_launches_work_in_a_forked_child() -> None:
    launch(256, 256)
    child = os.fork()
    if child == 0:
        try:
            launch(256, 256)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# A kernel's first launches, in several threads, and forks in between.
FORKS = """
import os, threading
import numpy as np, kernelgrad as kg

kernel = kg.compile('''__global__ void k(float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i;
    for (int j = 0; j < n; j++) v = v * 0.5f + 1;
    y[i] = v;
}''')["k"]
arrays = [np.zeros(1 << 16, np.float32) for _ in range(4)]

def go(y):
    for _ in range(20):
        kernel[256, 256](y, 50)

threads = [threading.Thread(target=go, args=(y,)) for y in arrays]
for thread in threads:
    thread.start()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        y = np.zeros(1 << 16, np.float32)
        go(y)
        os._exit(0 if y.min() > 1.9 else 1)
    children.append(child)
for thread in threads:
    thread.join()
print([os.waitpid(child, 0)[1] for child in children], all((y == arrays[0]).all() for y in arrays))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_between_launches_of_other_threads(tmp_path: Path) -> None:
    environment = {**os.environ, "KERNELGRAD_CPU_THREADS": "4", "KERNELGRAD_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.stdout == "[0, 0, 0] True\n", done.stderr[-2000:]
