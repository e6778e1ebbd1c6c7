"""First use from several threads, with interrupts, and forks while another thread compiles: each in a process of its
own, with an empty cache, and with a time limit that only a hang reaches."""

import os
import re
import subprocess
import sys
from pathlib import Path

_SECONDS = 240
_SETUP = """
import os, signal, sys, threading
import numpy as np
import kernelgrad as kg

def use(factor):
    text = "__global__ void k(float *y, const float *x, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x;" \\
           " if (i < n) y[i] = {}.0f * x[i] * x[i]; }}"
    kernel = kg.compile(text.format(factor))["k"]
    x, y, d_x, d_y = (np.full(40_000, v, np.float32) for v in (3, 0, 0, 1))
    kernel[157, 256](y, x, x.size)
    assert (y == 9 * factor).all(), y
    gradient = kg.gradient(kernel, "y, x")
    gradient[157, 256](y, x, x.size, d_y, d_x)
    assert (d_x == 6 * factor).all(), d_x
    return kernel
"""


def run(code: str, cache: Path) -> str:
    environment = {**os.environ, "KERNELGRAD_CACHE_DIR": str(cache), "KERNELGRAD_CPU_THREADS": "2"}
    environment["KERNELGRAD_CPU_OPTIMISE"] = "0"  # how fast the machine code is does not matter here
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _SETUP + code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_several_threads_use_it_first(tmp_path: Path) -> None:
    code = """
start, failed = threading.Barrier(6), []
def work(number):
    start.wait()
    try:
        use(1 + number % 3)
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
print(failed)
"""
    assert run(code, tmp_path).strip() == "[]"


# Interrupted at that call of our own code; the number of calls where it is not. In a callback of libclang Python cannot
# raise.
_FIRST_USE = """
import clang.cindex
def first_use(at):
    calls = 0
    def profile(frame, event, argument):
        nonlocal calls
        name = frame.f_code.co_filename
        if event != "call" or not ("kernelgrad" in name or "cindex" in name):
            return
        calls += 1
        if calls == at:
            while frame is not None:
                if frame.f_code.co_name == "visitor":
                    return
                frame = frame.f_back
            sys.setprofile(None)
            raise KeyboardInterrupt
    sys.setprofile(profile)
    try:
        use(2)
    finally:
        sys.setprofile(None)
    return calls
"""
# What the function returns, as a small number, in a child.
_FORKED = """
def forked(function):
    sys.stdout.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, str(function()).encode())
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    data = os.read(reader, 99)
    assert os.waitpid(pid, 0)[1] == 0
    return int(data)
"""


def test_an_interrupt_at_any_call_of_the_first_use_leaves_it_usable(tmp_path: Path) -> None:
    """The first child counts the calls; the others are interrupted at one of them each, and then use it again."""
    code = """
def child(at):
    '''Whether it was interrupted.'''
    try:
        return first_use(at) and 0
    except KeyboardInterrupt:
        use(2)
        return 1

total = forked(lambda: first_use(-1))
early = [1, 25, 60, 120, 250]
print(sum(forked(lambda: child(at)) for at in (*early, *range(400, total, total // 7))), total)
"""
    interrupted, total = map(int, run(_FIRST_USE + _FORKED + code, tmp_path).split())
    assert interrupted >= 6
    assert total > 1000


def test_children_compile_and_launch_while_another_thread_of_the_parent_compiles(tmp_path: Path) -> None:
    """Also with what the parent had compiled; and with workers of its own, as a loader of data has."""
    code = """
import multiprocessing

ready, done = threading.Event(), threading.Event()
def compile_on():
    number = 0
    while not done.is_set():
        use(number % 50 + 4)
        number += 1
        ready.set()
kernel = None
threads = [threading.Thread(target=compile_on) for _ in range(2)]
[t.start() for t in threads]
ready.wait()
kernel = use(3)
def work(number):
    signal.alarm(100)  # a hang ends with the signal
    x, y = np.full(40_000, number, np.float32), np.zeros(40_000, np.float32)
    kernel[157, 256](y, x, x.size)
    assert (y == 3 * number * number).all()
    use(100 + number)
    return number
pids = []
for number in range(5):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work(number) == number else 2
        finally:
            os._exit(code)
    pids.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in pids]
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(codes, pool.map(work, range(4)))
done.set()
[t.join() for t in threads]
"""
    assert run(code, tmp_path).strip() == "[0, 0, 0, 0, 0] [0, 1, 2, 3]"


def test_a_lock_that_the_forking_thread_holds_stays_its_own() -> None:
    from kernelgrad.locks import COMPILING, make_lock

    lock = make_lock()
    with lock, COMPILING:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if lock._is_owned() and COMPILING._is_owned() else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert lock._is_owned() and COMPILING._is_owned()
    assert not lock._is_owned() and not COMPILING._is_owned()


def test_no_lock_that_a_child_would_find_closed() -> None:
    """Locks come from `locks.make_lock`, and cached properties from there too: functools' have one before 3.12."""
    package = Path(__file__).parents[2] / "src" / "kernelgrad"
    texts = {f: f.read_text() for f in package.rglob("*.py") if f.name not in ("locks.py", "workers.py")}
    assert [f for f, text in texts.items() if "threading.Lock(" in text or "threading.RLock(" in text] == []
    assert [f for f, text in texts.items() if re.search("^from functools import.*cached_property", text, re.M)] == []
