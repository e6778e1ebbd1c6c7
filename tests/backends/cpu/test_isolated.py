"""LLVM runs in a process of its own: the user's survives its aborts (Note [Isolation])."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cpu import codegen, native
from kernelgrad.backends.cpu.codegen import Effort
from kernelgrad.errors import InternalError

# Threads that are on hand a mask on, negated and with one that is loop-invariant: LLVM's cost models disagree where the
# computer has AVX-512 and the count is 3.
MASKS = """
define void @kg.entry(ptr noalias %active, ptr noalias %loaded, ptr noalias %p, ptr noalias %q, ptr noalias %both,
                      ptr noalias %bit, ptr noalias %negated, ptr noalias %sums, i64 %row, i32 %a, i32 %b) {
entry:
  %added = add nsw i32 %a, %b
  %invariant = icmp sgt i32 %added, 7
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %latch ]
  %at = add nuw nsw i64 %i, %row
  %active.at = getelementptr inbounds i8, ptr %active, i64 %at
  %active.byte = load i8, ptr %active.at
  %on = trunc i8 %active.byte to i1
  br i1 %on, label %then, label %latch
then:
  %p.at = getelementptr i64, ptr %p, i64 %at
  %p.value = load i64, ptr %p.at
  %q.at = getelementptr i64, ptr %q, i64 %at
  %q.value = load i64, ptr %q.at
  %loaded.at = getelementptr i8, ptr %loaded, i64 %at
  %byte = load i8, ptr %loaded.at
  %mask = trunc i8 %byte to i1
  %sum = add nsw i64 %p.value, %q.value
  %not = xor i1 %mask, true
  %and = select i1 %not, i1 %invariant, i1 false
  %and.byte = zext i1 %and to i8
  %not.int = zext i1 %not to i32
  %both.at = getelementptr i8, ptr %both, i64 %at
  store i8 %and.byte, ptr %both.at
  %bit.at = getelementptr i8, ptr %bit, i64 %at
  %bit.value = and i8 %byte, 1
  store i8 %bit.value, ptr %bit.at
  %negated.at = getelementptr i32, ptr %negated, i64 %at
  store i32 %not.int, ptr %negated.at
  %sums.at = getelementptr i64, ptr %sums, i64 %at
  store i64 %sum, ptr %sums.at
  br label %latch
latch:
  %next = add nuw nsw i64 %i, 1
  %done = icmp eq i64 %next, COUNT
  br i1 %done, label %exit, label %loop, !llvm.loop !0
exit:
  ret void
}
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.unroll.disable"}
"""

ADDS_ONE = """
define i32 @kg.entry(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}
"""

NO_INSTRUCTION = 'module asm "this is no instruction"\n' + ADDS_ONE  # LLVM ends the process

ABORTS_WHEN_VECTORISING = """
original = object_code
def object_code(text, effort):
    if effort is Effort.ALL:
        os.abort()
    return original(text, effort)
"""


@pytest.fixture(autouse=True)
def fresh_helper() -> Iterator[None]:
    native.end()
    yield
    native.end()


def helper_pid() -> int:
    assert native._State.helper is not None
    return native._State.helper.process.pid


@pytest.mark.parametrize("count", [2, 3, 5, 8, 31])
@pytest.mark.parametrize("a", [0, 9])
def test_masks_come_out_right(count: int, a: int) -> None:
    code = native.LoadedCode(native.compile_object(MASKS.replace("COUNT", str(count))), native.ENTRY)
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 8, ctypes.c_int64, ctypes.c_int, ctypes.c_int)(code.address)
    at = np.arange(count)
    active, loaded = (at % 3 != 1).astype(np.int8), (at % 2).astype(np.int8)
    both, bit, negated, sums = (np.full(count, -1, type) for type in (np.int8, np.int8, np.int32, np.int64))
    arrays = [active, loaded, at, 10 * at, both, bit, negated, sums]
    entry(*(array.ctypes.data for array in arrays), 0, a, 0)
    for got, want in ((both, (loaded == 0) & (a > 7)), (bit, loaded), (negated, loaded == 0), (sums, 11 * at)):
        np.testing.assert_array_equal(got, np.where(active, want, -1))


def test_one_helper_makes_all_code_outside_of_this_process() -> None:
    assert native.compile_object(ADDS_ONE) == codegen.object_code(ADDS_ONE)
    pid = helper_pid()
    native.compile_object(MASKS.replace("COUNT", "100"))
    assert helper_pid() == pid != os.getpid()


def test_code_without_vectorisers_takes_the_place_of_an_abort(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "aborting.py"
    text = Path(codegen.__file__).read_text()
    script.write_text(text.replace("\nif __name__", ABORTS_WHEN_VECTORISING + "\nif __name__"))
    monkeypatch.setattr(codegen, "__file__", str(script))
    masks = MASKS.replace("COUNT", "1024")
    assert native.compile_object(masks) == codegen.object_code(masks, Effort.SCALAR)


def test_code_without_optimisation_is_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, made = set(), []
    for wanted in ("0", "1"):
        monkeypatch.setenv("KERNELGRAD_CPU_OPTIMISE", wanted)
        made.append(native.compile_object(ADDS_ONE))
        ids.add(native.target_id())
    assert made == [codegen.object_code(ADDS_ONE, effort) for effort in (Effort.NONE, Effort.ALL)]
    assert len(set(made)) == len(ids) == 2


def test_a_helper_that_was_killed_while_it_waited_is_replaced() -> None:
    masks = MASKS.replace("COUNT", "1024")
    native.compile_object(ADDS_ONE)
    assert native._State.helper is not None
    killed = native._State.helper.process
    killed.kill()
    killed.wait()
    assert native.compile_object(masks) == codegen.object_code(masks) != codegen.object_code(masks, Effort.SCALAR)


def test_two_aborts_are_an_error_and_the_next_kernel_compiles() -> None:
    with pytest.raises(InternalError, match="LLVM aborted"):
        native.compile_object(NO_INSTRUCTION)
    assert native.compile_object(ADDS_ONE) == codegen.object_code(ADDS_ONE)


def test_invalid_ir_is_an_error_and_the_helper_stays() -> None:
    native.compile_object(ADDS_ONE)
    pid = helper_pid()
    with pytest.raises(InternalError, match="invalid LLVM IR"):
        native.compile_object("define nothing")
    native.compile_object(ADDS_ONE)
    assert helper_pid() == pid


def test_an_interrupt_ends_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(pipe: object) -> tuple[bytes, bytes]:
        raise KeyboardInterrupt

    native.compile_object(ADDS_ONE)
    with monkeypatch.context() as patch:
        patch.setattr(codegen, "hear", interrupted)
        with pytest.raises(KeyboardInterrupt):
            native.compile_object(MASKS.replace("COUNT", "100"))
    assert native.compile_object(ADDS_ONE) == codegen.object_code(ADDS_ONE)


def test_without_an_interpreter_to_start_code_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native._State, "available", True)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert native.compile_object(ADDS_ONE) == codegen.object_code(ADDS_ONE)
    assert native._State.helper is None and not native._State.available


SOURCE = """
extern "C" __global__ void k(double *y, int *c, const double *x, const int *idx, double a, int n, int m) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int i = row * (gridDim.x * blockDim.x) + blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int j = 0;
    do {
        int steps = 0;
        while (steps++ < 2 && !(x[i] > a)) {
            if (x[i] < 0.5 * a || (idx[i] != m && a < 1.0)) return;
            c[i] = m / 3 % 6;
        }
        y[i] += x[i] * x[i];
    } while (++j < 4 && n % 5 >= m);
}
"""


def test_gradient_of_loops_with_returns_in_small_blocks() -> None:
    gradient = kg.gradient(kg.compile(SOURCE)["k"], "y, x")
    n = 12
    x, d_x = np.linspace(0.6, 1.7, n), np.zeros(n)
    gradient[(1, 2), (3, 4)](
        np.zeros(n), np.zeros(n, np.int32), x, np.ones(n, np.int32), 1.0, n, 1, d_y := np.ones(n), d_x
    )
    np.testing.assert_allclose(d_x, 4 * 2 * x)
    np.testing.assert_array_equal(d_y, 1)
