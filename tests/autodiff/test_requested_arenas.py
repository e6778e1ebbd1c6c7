"""Augmented passes in kernels whose tapes have no constant size or number: in an arena that launches provide."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import kernelgrad as kg
from arena_cases import AROUND, CASES, CHAIN, ENDS, LEAVING, by_w, by_x, ends_by_what_reverses_give
from in_source_cases import BODY, POINTER
from kernelgrad.errors import KernelGradError
from kernelgrad.ir.parser import parse_module
from kernelgrad.ir.printer import print_module
from kernelgrad.runtime.tapes import ArenaMemory


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    CASES[name](np)


@pytest.mark.parametrize("name", ENDS)
def test_ends(name: str) -> None:
    ends_by_what_reverses_give(np, name)


@pytest.mark.parametrize("name", [*ENDS, "locked"])
def test_nvrtc_compiles(name: str) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(kg.compile(LEAVING)[name].source, "sm_90")


def test_a_derivative_in_which_threads_meet_beside_one_that_grows() -> None:
    text = (
        LEAVING
        + r"""
    __device__ void neighbours(const double *x, double *y) {
        __shared__ double s[64];
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x] * s[63 - threadIdx.x];
    }
    __global__ void beside(double *x, double *dx, double *y, double *dy, int n) {
        y[threadIdx.x] = slope(x[threadIdx.x], n);
        __enzyme_autodiff(neighbours, x, dx, y, dy);
    }
    """
    )
    with pytest.raises(KernelGradError, match="threads meet in this derivative") as caught:
        kg.compile(text)["beside"]
    line = text[: text.index("__enzyme_autodiff(neighbours")].count("\n") + 1
    assert f":{line}:" in str(caught.value)


def test_trip_counts_of_threads() -> None:
    module = kg.compile(CHAIN)
    x, w, dw, dx = np.linspace(0.1, 0.9, 4), np.array([1.2]), np.zeros(1), np.zeros(4)
    tape, n = np.zeros(4, np.uint64), np.array([0, 3, 7, 300], np.int32)
    module["forward"][1, 4](x, w, dw, tape, n)
    w[:] = 50
    module["backward"][1, 4](x, w, dw, tape, n, dx, 2.0)
    np.testing.assert_allclose(dx, [2 * by_x(a, 1.2, k) for a, k in zip(x, n, strict=True)], rtol=1e-12)
    np.testing.assert_allclose(dw, 2 * sum(by_w(a, 1.2, k) for a, k in zip(x, n, strict=True)), rtol=1e-12)


def test_tapes_made_in_a_loop_and_used_in_the_same_kernel() -> None:
    module, n = kg.compile(CHAIN), 40
    x, w, dw, dx = np.linspace(0.1, 0.9, 4), np.array([1.2]), np.zeros(1), np.zeros(4)
    module["both"][1, 4](x, w, dw, np.zeros(4 * n, np.uint64), n, dx)
    np.testing.assert_allclose(dx, [sum(by_x(a + k, 1.2, k) for k in range(n)) for a in x], rtol=1e-10)
    np.testing.assert_allclose(dw, sum(by_w(a + k, 1.2, k) for a in x for k in range(n)), rtol=1e-10)


def test_variables_of_a_launch_that_is_made_again() -> None:
    module, n = kg.compile(CHAIN), 40
    x, w, count = np.linspace(0.1, 0.9, 4), np.array([1.2]), np.zeros(1, np.int32)
    module["both"][1, 4](x, w, np.zeros(1), np.zeros(4 * n, np.uint64), n, np.zeros(4))
    module["visited"][1, 1](count)
    assert count[0] == 4


def test_tapes_that_a_launch_uses_are_counted_off_once() -> None:
    """That launch needs more room for those it makes, and is made again."""
    module = kg.compile(CHAIN)
    x, w, dw, dx = np.linspace(0.1, 0.9, 2), np.array([1.2]), np.zeros(1), np.zeros(2)
    many, two = np.zeros(4, np.uint64), np.full(4, 2, np.int32)
    module["forward"][1, 4](np.linspace(0.1, 0.9, 4), w, dw, many, two)
    module["handed_on"][1, 2](x, w, dw, many, np.zeros(2, np.uint64), 200, dx)
    more = np.zeros(4, np.uint64)
    module["forward"][1, 4](x.repeat(2), w, dw, more, two)
    assert not set(map(int, more)) & set(map(int, many))


def test_a_tape_that_is_used_twice_is_counted_off_once() -> None:
    """The memory of the launch is not used again before its other tape is used."""
    module, n = kg.compile(CHAIN), np.array([3, 5], np.int32)
    x, w, dw, dx, tape = np.array([0.3, 0.7]), np.array([1.2]), np.zeros(1), np.zeros(1), np.zeros(2, np.uint64)
    module["forward"][1, 2](x, w, dw, tape, n)
    for _ in range(2):
        module["backward"][1, 1](x[:1], w, dw, tape[:1], n[:1], dx, 1.0)
        np.testing.assert_allclose(dx, by_x(0.3, 1.2, 3), rtol=1e-12)
    module["forward"][1, 2](x + 1, w, dw, np.zeros(2, np.uint64), n)
    module["backward"][1, 1](x[1:], w, dw, tape[1:], n[1:], dx, 1.0)
    np.testing.assert_allclose(dx, by_x(0.7, 1.2, 5), rtol=1e-12)


def test_tapes_outlive_the_module_that_made_them() -> None:
    x, w, dw, dx, tape = np.linspace(0.1, 0.9, 4), np.array([1.2]), np.zeros(1), np.zeros(4), np.zeros(4, np.uint64)
    n = np.full(4, 300, np.int32)
    kg.compile(CHAIN + "// first")["forward"][1, 4](x, w, dw, tape, n)
    gc.collect()
    others = [np.full(4000, 7.7) for _ in range(100)]
    kg.compile(CHAIN + "// second")["backward"][1, 4](x, w, dw, tape, n, dx, 1.0)
    assert len(others) == 100
    np.testing.assert_allclose(dx, [by_x(a, 1.2, 300) for a in x], rtol=1e-12)


def test_memory_of_used_tapes_is_given_back() -> None:
    module = kg.compile(CHAIN + "// of many sizes")
    for count in range(1, 20):
        x, n, tape = np.linspace(0.1, 0.9, count), np.full(count, 3, np.int32), np.zeros(count, np.uint64)
        w, dw, dx = np.array([1.2]), np.zeros(1), np.zeros(count)
        module["forward"][1, count](x, w, dw, tape, n)
        module["backward"][1, count](x, w, dw, tape, n, dx, 1.0)
    (arena,) = module["forward"]._growing
    assert isinstance(arena, ArenaMemory)
    assert sum(map(len, arena.memory._given.values())) == 1


def test_tapes_of_a_constant_size_in_a_loop() -> None:
    text = (BODY + POINTER).replace("tape[idx] = __enz", "for (int k = 0; k < 50; k++) tape[idx * 50 + k] = __enz")
    text = text.replace("__enzyme_reverse", "for (int k = 49; k >= 0; k--) __enzyme_reverse", 2)
    text = text.replace("for (int k = 49; k >= 0; k--) __enzyme_reverse", "__enzyme_reverse", 1)
    module = kg.compile(text.replace("tape[idx])", "tape[idx * 50 + k])"))
    src, dst = np.linspace(0, 1, 10, dtype=np.float32), np.zeros(10, np.float32)
    dsrc, ddst, tape = np.zeros(10, np.float32), np.ones(10, np.float32), np.zeros(500, np.uint64)
    module["aug_collide"][1, 10](src, dsrc, dst, ddst, tape)
    was, src[:] = src.copy(), 7
    module["rev_collide"][1, 10](src, dsrc, dst, ddst, tape)
    np.testing.assert_allclose(dsrc, 50 * (2 * was - 3), rtol=1e-5)


def test_the_text_says_what_launches_pass() -> None:
    kernel = kg.compile(CHAIN)["forward"]
    assert "// _arena: 256 bytes of zeros, then _arena_room for each thread" in kernel.source
    assert print_module(parse_module(kernel.ir)) == kernel.ir


@pytest.mark.parametrize(
    ("old", "new", "problem", "line"),
    [
        ("chain, x[i], w, dw, n[i]);\n}\n__global__ void backward", "chain, enzyme_allocated, 64, x[i], w, dw, n[i]);"
         "\n}\n__global__ void backward", "no constant size", 13),
        ("x = sin(x) * w[0];\n", "{ x = sin(x) * w[0]; __syncthreads(); }\n", "threads meet in it", 13),
        ("tape[i] = __enzyme_augmentfwd(chain, x[i], w, dw, n[i]);", "tape[i] = __enzyme_augmentfwd(chain, x[i], w, dw,"
         " n[i]); *(double *)tape[1] = 1.0;", "writes through pointers that memory holds", 11),
    ],
)  # fmt: skip
def test_refused_at_the_line(old: str, new: str, problem: str, line: int) -> None:
    text = CHAIN.replace(old, new)
    if "enzyme_allocated" in new:
        text = text.replace("__device__ void *__enz", "__device__ Tape __enz").replace("void **tape", "Tape *tape")
        text = text.replace("extern int", "struct Tape { double values[8]; }; extern int")
    with pytest.raises(KernelGradError, match=problem) as caught:
        kg.compile(text)["forward"]
    assert f":{line}:" in str(caught.value)


def test_a_program_that_passes_the_middle_of_its_memory() -> None:
    out = np.zeros(18)
    kg.compile(AROUND)["run"](out, 16, device="cpu")
    np.testing.assert_array_equal(out, [1, *[0] * 16, 1])
