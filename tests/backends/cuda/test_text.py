"""What the text looks like: people read it. Each case is a source and the body that comes out."""

import textwrap

import numpy as np
import pytest
from run_text import run_emitted

import kernelgrad as kg
from kernelgrad.backends.cuda import emit, kernel_name
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Block, Function, Insert, Module, Param, Value
from kernelgrad.ir.types import F32, I8, I32, I64, U16, U32, Field, Pointer, Scalar, Struct
from kernelgrad.runtime.nvrtc import compile_only


def body(source: str, kernel: str = "k") -> str:
    text = kg.compile(textwrap.dedent(source))[kernel].source
    compile_only(text, "sm_90")
    inner = text[text.index("\n{\n") + 3 : text.rindex("}")]
    return "\n".join(line for line in textwrap.dedent(inner).splitlines() if not line.strip().startswith("//"))


CASES = {
    "index": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i];",
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i >= n) return;\ny[i] += a * x[i];",
    ),
    "accumulator": (
        "float s = 0; for (int i = 0; i < n; ++i) s += x[i] * x[i]; y[0] = s;",
        "float s = 0.0f;\nfor (int i = 0; i < n; ++i) {\n    float x_value = x[i];\n    s += x_value * x_value;\n}\n"
        "*y = s;",
    ),
    "stride": (
        "for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = a;",
        "for (int i = threadIdx.x; i < n; i += blockDim.x) {\n    y[i] = a;\n}",
    ),
    "straight_line_update": (
        "float v = x[0]; v = v * a; v = v + 1.0f; y[0] = v; y[1] = v;",
        "float v = *x;\nv *= a;\nv += 1.0f;\ny[0] = v;\ny[1] = v;",
    ),
    "swap": (
        "float p = x[0], q = x[1]; for (int i = 0; i < n; ++i) { float t = p; p = q; q = t; } y[0] = p; y[1] = q;",
        "float p = x[0];\nfloat q = x[1];\nfor (int i = 0; i < n; ++i) {\n    float next_p = q;\n    q = p;\n"
        "    p = next_p;\n}\ny[0] = p;\ny[1] = q;",
    ),
    "load_stays_before_store": (
        "float v = x[0]; y[0] = a; y[1] = v;",
        "float v = *x;\ny[0] = a;\ny[1] = v;",
    ),
    "branch_result": (
        "float v = 0; if (n > 3) { v = x[n]; y[1] = v; } y[0] = v;",
        "float v = 0.0f;\nif (n > 3) {\n    v = x[n];\n    y[1] = v;\n}\ny[0] = v;",
    ),
    "parentheses": (
        "y[0] = (a + 1.0f) * a - (a - (a - 2.0f)) / -a; y[1] = (n & 3) == 1 ? 1.0f : a;",
        "y[0] = (a + 1.0f) * a - (a - (a - 2.0f)) / -a;\ny[1] = (n & 3) == 1 ? 1.0f : a;",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_reads_like_the_source(name: str) -> None:
    source, expected = CASES[name]
    assert body(f"__global__ void k(float *y, const float *x, float a, int n) {{ {source} }}") == expected


def test_shared_memory() -> None:
    text = body("""
        __global__ void k(float *y) {
          __shared__ float tile[8][9];
          extern __shared__ float s[];
          int i = threadIdx.x, j = threadIdx.y;
          tile[j][i] = y[j * 8 + i];
          __syncthreads();
          s[i] = tile[i][j];
          __syncthreads();
          y[j * 8 + i] = s[i];
        }""")
    assert "__shared__ float tile[8][9];\nextern __shared__ __align__(16) float s[];" in text
    assert "tile[j][i] = y[j * 8 + i];\n__syncthreads();\ns[i] = tile[i][j];" in text


def test_structs() -> None:
    source = """
        struct Cell { double weight; float3 at; bool used; };
        __global__ void k(Cell *cells, const Cell *from) {
          cells[1].at.y = from->at.x;
          cells[0] = from[2];
        }"""
    text = kg.compile(source)["k"].source
    assert "struct Cell {\n    double weight;\n    float3 at;\n    bool used;\n};" in text
    assert "static_assert(sizeof(Cell) == 24" in text
    assert body(source) == "cells[1].at.y = from->at.x;\n*cells = from[2];"


def test_template_arguments_in_names() -> None:
    assert kernel_name("ns::scale<float, 4>") == "ns_scale_float_4"
    text = kg.compile("template <typename T> __global__ void scale(T *x) { *x *= 2; }")["scale<float>"].source
    assert 'extern "C" __global__ void scale_float(float *x)' in text


@pytest.mark.parametrize("name", ["norm", "expf", "free", "umax", "scale"])
def test_kernels_called_like_functions_of_cuda(name: str) -> None:
    text = kg.compile(f"__global__ void {name}(float *y) {{ y[0] = 1.0f; }}")[name].source
    assert compile_only(text, "sm_90")
    assert (kernel_name(name) == name) == (name == "scale")


def test_qualifiers() -> None:
    text = kg.compile("""
        __constant__ int table[3] = {1, 2, 3};
        __global__ void k(float *__restrict__ y, const float *__restrict__ x, volatile int *f) {
          const float *row = x + *f;
          y[0] = row[table[1]] + row[2];
        }""")["k"].source
    assert "__constant__ int table[3] = {1, 2, 3};" in text
    assert "void k(float *__restrict__ y, const float *__restrict__ x, volatile int *f)" in text
    assert "const float *row = x + *f;" in text
    compile_only(text, "sm_90")


def test_launch_bounds() -> None:
    function = Function("k", "kernel", (), Block((), (), ()), launch_bounds=(128, 2))
    assert 'extern "C" __global__ void __launch_bounds__(128, 2) k()' in emit(Module({"k": function}), "k")


def test_same_text_twice() -> None:
    source = "__global__ void k(float *y, int n) { for (int i = 0; i < n; ++i) y[i] += i; }"
    assert kg.compile(source)["k"].source == kg.compile(source)["k"].source


# ---- what the frontend does not give


def built(params: list[Value], b: Builder, *structs: Struct) -> str:
    function = Function("k", "kernel", tuple(Param(p, "") for p in params), Block((), tuple(b.ops), ()))
    text = emit(Module({"k": function}, {}, {s.name: s for s in structs}), "k")
    compile_only(text, "sm_90")
    return text


@pytest.mark.parametrize(
    ("fn", "type", "expected"),
    [
        ("add", I8, "out[1] = a + b;"),
        ("mul", U16, "out[1] = (unsigned int)a * b;"),
        ("add", I64, "out[1] = a + b;"),
    ],
)
def test_narrow_arithmetic(fn: str, type: Scalar, expected: str) -> None:
    out, a, c = Value(Pointer(type, "global"), "out"), Value(type, "a"), Value(type, "b")
    b = Builder()
    b.store(b.offset(out, b.constant(1, I32)), b.apply(fn, a, c))
    assert expected in built([out, a, c], b)


def test_narrow_results_are_cut_before_use() -> None:
    out, a = Value(Pointer(I32, "global"), "out"), Value(I8, "a")
    b = Builder()
    b.store(out, b.convert(b.apply("add", a, a), I32))
    assert "*out = (signed char)(a + a);" in built([out, a], b)


def test_shift_beyond_the_width() -> None:
    out, a, n = Value(Pointer(U32, "global"), "out"), Value(U32, "a"), Value(I32, "n")
    b = Builder()
    b.store(out, b.apply("shl", a, n))
    b.store(out, b.apply("shl", a, b.apply("and", n, b.constant(31, I32))))
    text = built([out, a, n], b)
    assert "*out = n < 32 ? a << n : 0u;" in text
    assert "*out = a << (n & 31);" in text


def test_insert_updates_in_place() -> None:
    pair = Struct("Pair", (Field("x", F32, 0), Field("y", F32, 4)), 8, 4)
    p, a = Value(Pointer(pair, "global"), "p"), Value(F32, "a")
    b = Builder()
    whole = b.load(p, name="q")
    changed = b.emit(Insert, whole, a, 1, type=pair, name="q")
    b.store(p, changed)
    assert "Pair q = *p;\n    q.y = a;\n    *p = q;" in built([p, a], b, pair)


def test_union_members_share_their_place() -> None:
    bits = Struct("Bits", (Field("tag", I32, 0), Field("f", F32, 4), Field("i", I32, 4), Field("hi", U16, 6)), 8, 4)
    p = Value(Pointer(bits, "global"), "p")
    b = Builder()
    b.store(b.member(p, 2), b.load(b.member(p, 0)))
    text = built([p], b, bits)
    assert "union {" in text
    assert "p->i = p->tag;" in text


@pytest.mark.parametrize("name", "atomicAdd sinf cosf sqrtf cos exp lane_id make_float4 threadIdx min".split())
def test_parameters_named_like_what_emitted_code_calls(name: str) -> None:
    call = {"sinf": "cosf(v)", "sqrtf": "rsqrtf(v)"}.get(name, "v * v")
    source = f"""
        __global__ void k(float *y, const float *{name}, int n) {{
          float v = {name}[n] * {name}[0];
          for (int r = 0; r < n; r++) v = {call} * {name}[r];
          y[blockIdx.x] = v;
        }}"""
    kernel = kg.compile(source)["k"]
    for text in (kernel.source, kg.gradient(kernel, f"y, {name}").source, kg.jvp(kernel, f"y, {name}").source):
        assert compile_only(text, "sm_90")


def test_inner_loop_goes_on_with_a_variable_that_is_kept() -> None:
    """`place` after the inner loop and `old` are two variables: the loop's header must not lose the copy between."""
    source = """
        __global__ void k(double *y, const double *x, int last, int step) {
          int place = 0;
          bool twice = x[0] < 0;
          for (int j = 0; x[j] < x[last]; ++j) {
            for (int u = 1; u < 3 && twice; ++u) { y[place] = x[u]; place += step; }
            int old = place;
            place = place + step;
            y[old] = x[j];
          }
        }"""
    kernel = kg.compile(source)["k"]
    x, expected, found = np.array([-3.0, -2, -1, 0]), np.zeros(20), np.zeros(20)
    kernel[1, 1](expected, x, 3, 2)
    run_emitted(kernel.source, "k", 1, 1, [found, x, np.int32(3), np.int32(2)])
    assert expected[2 * 8] == -1.0
    np.testing.assert_array_equal(found, expected)


def test_what_a_reducing_barrier_gives_is_had_before_loads_behind_it() -> None:
    """Its value is used last: it is not written there."""
    kernel = kg.compile("""__global__ void k(double *y, const double *x, int n) {
        __shared__ double b[2], s[64];
        int t = threadIdx.x;
        if (t < 2) b[t] = x[t];
        int all = __syncthreads_and(x[t] > 0) != 0;
        s[t] = x[t + n];
        double v = tanh(b[t % 2]);
        __syncthreads();
        if (all % 2 == 0) {
            __syncthreads();
            s[t] = 2 * v;
            __syncthreads();
        }
        y[t] = v * s[(t + 1) % 64];
    }""")["k"]
    for text in (kernel.source, kg.gradient(kernel, "y, x").source):
        body = text[text.index("b[t] =") :]
        assert body.index("__syncthreads_and(") < body.index("b[t % 2]")
