"""What people read in emitted text: names, what is reversed and why, loops as the source has them, parameters."""

from __future__ import annotations

import re
import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.ir import serial
from kernelgrad.ir.layout import param_layout
from kernelgrad.ir.parser import parse_module
from kernelgrad.ir.printer import print_module
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.cuda import compile_only
from kernelgrad.runtime.launch import LaunchConfig

from ...emulation.run_text import run_packed

START = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
STRIDED = """
__global__ void strided(float *y, const float *x, int n, int step, int t) {
    float s = 0;
    for (int k = threadIdx.x; k < n; k += step) s += x[k] * x[k];
    y[threadIdx.x] = s + t;
}"""
HALVED = """
__global__ void halved(float *y, const float *x, int width) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t] * x[t];
    __syncthreads();
    for (int d = width / 2; d > 0; d HALVE) {
        if (t < d) s[t] += s[t + d] * s[t];
        __syncthreads();
    }
    y[t] = s[t];
}"""
DOUBLED = """
__global__ void doubled(float *y, const float *x, int end) {
    int t = threadIdx.x;
    float v = x[t];
    for (int d = 1; d < end; d *= 2) v = v * x[t ^ d] + d;
    y[t] = v;
}"""
SHIFTED_OUT = """
__global__ void shifted_out(float *y, const float *x, int n) {
    int t = threadIdx.x, k = 0;
    float v = x[t];
    for (unsigned d = 1; d < 0xfffffff0u && k < 5 * n; d <<= 1, ++k) v = v * x[(t ^ d) & 7] * 0.8f + (d ? 0.1f : 0.2f);
    y[t] = v;
}"""
OWN_FLAG = """
__global__ void own_flag(float *y, const float *x, int c, int d) {
    int t = threadIdx.x, i = c + 1, s = d;
    float v = x[t];
    bool go = d + 1 < 5;
    while (go) { v *= x[s & 7]; i += 3; s = c; go = i < 5; }
    y[t] = v;
}"""
LOOPS = """
__global__ void loops(float *y, const float *x, int n, int step) {
    int i = threadIdx.x, k = 0;
    float v = x[i], s = 0;
    while (v > 0.3f && k < n) { v *= 0.7f * x[k]; ++k; }
    for (unsigned j = i; j < (unsigned)n; j += blockDim.x) s += x[j] * v;
    for (int a = 0, b = n; a < b; a += 2, b -= step) s += x[a] * x[b];
    for (long long j = n; j > 0; j -= step)
        for (long long m = j; m < n; m += step) s += sinf(x[j]) * x[m];
    for (int j = 1; j < 100; j *= 4) { s += x[j % 8] * s; if (s > 3.0f) break; }
    k = 0;
    do { s = s * 0.5f + x[k]; k += step; } while (k < n);
    for (int j = n; j != 0; j /= 2) s += x[j] * x[i];
    y[i] = s;
}"""
TAPED = """
__global__ void taped(double *y, const double *x, int n) {
    double v = x[threadIdx.x];
    for (int k = 0; k < n; ++k) v = sin(v) * x[threadIdx.x];
    y[threadIdx.x] = v;
}"""


def gradient(source: str, name: str, listed: str = "y, x", **options: Any) -> Any:
    return kg.gradient(kg.compile(source, name=f"{name}.cu")[name], listed, **options)


def body(text: str) -> str:
    return text[text.index('extern "C"') :]


def line_of(source: str, words: str) -> int:
    return next(k for k, line in enumerate(source.splitlines(), 1) if words in line)


# ---- names


def test_temporaries_leave_the_sources_names_alone() -> None:
    """`t`, `k` and `threads` are the source's; what is computed before them gets other names."""
    source = """
    __global__ void taken(float *y, const float *x, int n) {
        int row = (threadIdx.x + 3) % n;
        for (int t = 0; t < n; t += 16)
            for (int k = 0; k < 4; ++k) {
                float threads = x[row * n + t + k];
                atomicAdd(&y[row], threads * threads);
            }
    }"""
    text = body(gradient(source, "taken").source)
    assert set(re.findall(r"(\w+) t = ", text)) == {"int"}
    assert set(re.findall(r"(\w+) k = ", text)) == {"int"}
    assert set(re.findall(r"(\w+) threads = ", text)) == {"float"}
    assert "int t = " in text.partition("// reverse of")[2]  # the reverse has them too


def test_the_loop_has_the_name_and_what_it_starts_with_another() -> None:
    text = body(gradient(STRIDED, "strided").source)
    assert "for (int k = k_start; k < n; k += step) {" in text
    assert "int k = k_start + (int)trip * step;" in text


def test_subscripts_have_no_casts_that_change_nothing() -> None:
    """Where a thread takes what another one has: its index stands for a counter of another type."""
    source = """__global__ void tiles(const float *A, const float *B, float *C, int n) {
        __shared__ float As[16][16], Bs[16][16];
        int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
        float sum = 0;
        for (int t = 0; t < n; t += 16) {
            As[threadIdx.y][threadIdx.x] = A[row * n + t + threadIdx.x];
            Bs[threadIdx.y][threadIdx.x] = B[(t + threadIdx.y) * n + col];
            __syncthreads();
            for (int j = 0; j < 16; ++j) sum += As[threadIdx.y][j] * Bs[j][threadIdx.x];
            __syncthreads();
        }
        C[row * n + col] = sum;
    }"""
    arrays = [np.ones(32 * 32, np.float32) for _ in range(3)]
    text = gradient(source, "tiles", "A, B, C").source_for((2, 2), (16, 16), *arrays, 32, on_gpu=True)
    assert "As[other][threadIdx.y]" in text and not re.findall(r"\[\(int\)[\w.]+\]", text), text


# ---- what is reversed, and why


def test_pieces_say_what_they_reverse() -> None:
    text = gradient(STRIDED, "strided").source
    for words in ("for (int k", "y[threadIdx.x] ="):
        assert text.count(f"// reverse of strided.cu:{line_of(STRIDED, words)}\n") == 1, text
    assert "reverse" not in kg.compile(STRIDED)["strided"].source


@pytest.mark.parametrize(
    ("update", "options", "why"),
    [
        ("y[i] = x[i] * x[i];", {}, "only this thread touches the element"),
        ("y[i] = x[i / 2] * x[i / 2];", {}, "atomic: other threads may read the element too"),
        ("y[i] = x[i] * x[i];", {}, "consumed: the element was overwritten"),
        ("y[0] = x[i];", {}, "consumed, by one of the threads that may have stored the element"),
        ("y[i] = x[i / 2];", {"deterministic": True}, "logged, to be added in a fixed order"),
        ("y[i] = x[j[i]];", {"assume": kg.assume(unique="j")}, "only this thread touches the element, since"),
    ],
)
def test_updates_say_why(update: str, options: dict[str, Any], why: str) -> None:
    source = f"__global__ void k(float *y, const float *x, const int *j, int n) {{ {START} if (i < n) {{ {update} }} }}"
    assert why in gradient(source, "k", **options).source


def test_a_number_says_why() -> None:
    source = f"__global__ void k(float *y, const float *x, float a) {{ {START} y[i] = a * x[i]; }}"
    assert "every thread has a part of it: one addition for each block" in gradient(source, "k", "y, a").source


def test_reasons_are_given_once() -> None:
    source = f"__global__ void k(float *y, const float *x) {{ {START} y[i] = x[i] + x[i + 1] * x[i + 2]; }}"
    text = gradient(source, "k").source
    assert body(text).count("atomicAdd") == 3
    assert text.count("other threads may read the element too") == 1


def test_spans_keep_what_they_are_for_in_text_and_in_the_cache() -> None:
    module = gradient(STRIDED, "strided").variant().kernels[0].module
    text = print_module(module)
    assert "reverse why" in text
    assert print_module(parse_module(text)) == text
    assert print_module(serial.load(serial.dump(module))) == text


# ---- loops


@pytest.mark.parametrize(
    "source", [STRIDED, HALVED.replace("HALVE", "/= 2"), HALVED.replace("HALVE", ">>= 1"), DOUBLED]
)
def test_loops_are_tested_at_the_top(source: str) -> None:
    name = re.search(r"void (\w+)", source)[1]  # type: ignore[index]
    text = body(gradient(source, name).source)
    assert "while" not in text
    assert "go" not in text


@pytest.mark.parametrize("halve", ["/= 2", ">>= 1", ">>= 3", "/= 4"])
def test_halves_are_shifts(halve: str) -> None:
    text = body(gradient(HALVED.replace("HALVE", halve), "halved").source)
    assert re.search(r"int d = d_start >> (\(int\)trip|trip|[\w()* ]*);", text), text
    assert "?" not in re.search(r"int d = .*", text)[0]  # type: ignore[index]


def test_doubles_are_shifts() -> None:
    assert "int d = 1 << trip;" in body(gradient(DOUBLED, "doubled").source)


def test_a_number_that_may_be_negative_is_divided() -> None:
    """Rounded towards zero, which a shift is not."""
    source = """__global__ void k(float *y, const float *x, int d, int n) {
        float v = x[threadIdx.x];
        for (int j = 0; j < n; ++j) { v *= x[threadIdx.x] * d; d /= 2; }
        y[threadIdx.x] = v;
    }"""
    assert ">>" not in body(gradient(source, "k").source)


def test_loops_of_one_trip_are_none() -> None:
    source = """__global__ void k(float *y, const float *x, const float *w) {
        float s = 0;
        for (int r = 0; r < 9; ++r) s += w[r] * x[threadIdx.x + r];
        y[threadIdx.x] = s;
    }"""
    text = body(gradient(source, "k", "y, x, w").source)
    assert "_parts[8]" in text
    assert "-= 8" not in text


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("n", [0, 1, 8])
@pytest.mark.parametrize(
    "source",
    [STRIDED, HALVED.replace("HALVE", "/= 2"), HALVED.replace("HALVE", ">>= 1"), DOUBLED, SHIFTED_OUT, OWN_FLAG, LOOPS],
)
def test_the_text_does_what_the_cpu_does(source: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel alone is run, so its sums must not be left in doubles of the launch.
    monkeypatch.setattr("kernelgrad.autodiff.prepare.double_cells.MOST_ADDITIONS", 1 << 62)
    name = re.search(r"void (\w+)", source)[1]  # type: ignore[index]
    found = gradient(source, name)
    random, threads = np.random.default_rng(3), 8
    rest = {
        "strided": (n, 4, 1),
        "halved": (n,),
        "doubled": (n,),
        "shifted_out": (n,),
        "own_flag": (n, 4 - n),
        "loops": (n, 3),
    }[name]
    given = [random.uniform(0.5, 1.5, 64).astype(np.float32) for _ in range(4)]
    native, emulated = ([a.copy() for a in given] for _ in range(2))
    found[1, threads](native[0], native[1], *rest, native[2], native[3])
    launch = make_launch(1, threads)
    passed = (emulated[0], emulated[1], *rest, emulated[2], emulated[3])
    ((kernel, bound, *_),), _, own = found._prepare(launch, passed, {}, single=True)
    module = kernel.cuda_module
    packed = kernel._with_variables(module, bound, LaunchConfig(launch.grid, launch.block), None, own.supplied).packed
    offsets, _ = param_layout(module.functions[kernel.name])
    run_packed(kernel.source, kernel_name(kernel.name), 1, threads, packed, offsets)
    for want, got in zip(native, emulated, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


# ---- parameters


@pytest.mark.parametrize(
    ("source", "name", "options", "lines"),
    [
        (
            TAPED,
            "taped",
            {},
            [
                r"_tape_f64: _capacity_f64 \* \(threads of the grid\) elements, not cleared",
                r"_capacity_f64: max\(n, 0\), and at least 1",
            ],
        ),
        (TAPED.replace("k < n;", "v < 0.5;"), "taped", {}, [r"_segments_f64: for each block", r"trips of the loop at"]),
        (
            f"__global__ void k(float *y, const float *x, int n) {{ {START} if (i < n) y[i] = x[i / 2]; }}",
            "k",
            {"deterministic": True},
            [r"_log_places_f32: .* elements, zeroed", r"_log_f32: as many elements as _log_places_f32, not cleared"],
        ),
        (
            f"__global__ void k(float *y, const float *x, float *b) {{ {START} b[i] = x[i]; y[i] = b[i] * b[i]; }}",
            "k",
            {},
            [],
        ),
    ],
)
def test_extra_parameters_are_told(source: str, name: str, options: dict[str, Any], lines: list[str]) -> None:
    text = gradient(source, name, **options).source
    head = text[: text.index('extern "C"')].replace("\n//     ", " ")
    for line in lines:
        assert re.search(rf"^//   (.*){line}", head, re.MULTILINE), head
    named = re.findall(r"(\w+)[,)]", re.search(r'extern "C"[^{]*', text)[0])  # type: ignore[index]
    told = re.findall(r"^//   (\w+):", head, re.MULTILINE)
    extra = [n for n in named if n.startswith("_") and n not in ("_d_y", "_d_x")]
    assert told == extra


# ---- one file

BODIES = """
struct Body { float x, v; int fixed; };
__constant__ float weights[3] = {1, 2, 3};
template <typename T> __device__ T block_sum(T v) { return v * v; }
__global__ void moved(Body *b, const float *x, float dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { b[i].x += block_sum(b[i].v) * dt * weights[0] * x[i / 2]; }
}
__global__ void summed(float *y, const Body *b, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(y, b[i].x * b[i].v * a * weights[1]);
}"""


def test_texts_in_one_file() -> None:
    """Of two gradients and a kernel."""
    module = kg.compile(BODIES, name="bodies.cu")
    moved, summed = kg.gradient(module["moved"], "b, x, dt"), kg.gradient(module["summed"], "y, b, a")
    parts = [moved.source, summed.source, module["moved"].source]
    assert all("namespace kg" in part for part in parts)
    assert compile_only("\n".join(parts), "sm_90")
    assert compile_only("\n".join(reversed(parts)), "sm_90")


def test_a_text_and_its_source_in_one_file() -> None:
    """The source has a struct and a function of the same names."""
    source = BODIES.replace("__constant__ float weights[3] = {1, 2, 3};", "")
    source = source.replace("weights[0]", "dt").replace("weights[1]", "a")
    found = kg.gradient(kg.compile(source, name="bodies.cu")["moved"], "b, x, dt")
    assert "kg::block_sum" in found.source
    assert compile_only(f"{source}\n{found.source}", "sm_90")


@pytest.mark.parametrize("loops", ["K N", "K M", "K N J M", "J M K N", "K N K2 N", "K N J P"])
def test_the_capacity_that_is_told_is_what_a_launch_needs(loops: str) -> None:
    """For one loop, two that are nested, and steps; the inner one is run again, so that it counts once."""
    heads = {"N": "0; # < n; ++#", "M": "m; # > 0; # -= 3", "P": "n; # < 2 * n + m; #++"}
    words = loops.split()
    nest = " ".join(
        f"for (int {k} = {heads[end].replace('#', k)})" for k, end in zip(words[::2], words[1::2], strict=True)
    )
    source = f"""__global__ void k(double *y, const double *x, int n, int m) {{
        double v = x[threadIdx.x];
        {nest} v = sin(v) * x[threadIdx.x];
        y[threadIdx.x] = v;
    }}"""
    found = gradient(source, "k")
    text = re.search(r"_capacity_f64: (.*), and at least 1", found.source)[1]  # type: ignore[index]
    for n, m in ((0, 0), (1, 1), (4, 7), (5, 9)):
        told = eval(text.replace("/", "//"), {"n": n, "m": m, "max": max})
        args = np.zeros(8), np.zeros(8), n, m
        assert found.tape_bytes(2, 4, *args) == 8 * max(1, told) * 8, text


def test_chains_of_branches_are_not_nested() -> None:
    """One level for all cases."""
    cases = "".join(f"case {k}: y[i] = x[i] * {k + 2}; y[i + n] = x[i]; break; " for k in range(40))
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x, int n) {{
        int i = threadIdx.x;
        switch (i) {{ {cases} default: y[i] = x[i]; }}
    }}""")["k"]
    text = kg.gradient(kernel, "y, x").source
    assert "} else if (i == 39) {" in text
    assert max(len(line) - len(line.lstrip()) for line in text[text.index("k_grad(") :].splitlines()) <= 12
