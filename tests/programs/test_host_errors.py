"""What host functions do wrong, told at their line; memory is freed whatever happens."""

from __future__ import annotations

import gc
import re
import weakref

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime import scratch

KERNEL = """
__global__ void add(float *y, const float *x) { y[threadIdx.x] += x[threadIdx.x]; }
"""

CASES = {
    "copies to bytes 0 to 16 of memory of 12 bytes, allocated in line 4: out of bounds": """
        float *d; cudaMalloc(&d, 12);
        cudaMemcpy(d, x, 4 * sizeof(float), cudaMemcpyHostToDevice);  // here""",
    "copies to memory that was freed in line 5": """
        float *d; cudaMalloc(&d, 16);
        cudaFree(d);
        cudaMemcpy(d, x, 16, cudaMemcpyHostToDevice);  // here""",
    "frees memory that was freed": """
        float *d; cudaMalloc(&d, 16); cudaFree(d);
        cudaFree(d);  // here""",
    "frees the inside of memory of 16 bytes": """
        float *h = (float *)malloc(16);
        free(h + 1);  // here""",
    "not allocated to be freed so": """
        float *d; cudaMalloc(&d, 16);
        free(d);  // here""",
    "reads device memory, which the host cannot": """
        float *d; cudaMalloc(&d, 16);
        x[0] = d[1];  // here""",
    "writes a null pointer": """
        float *p = nullptr;
        *p = x[0];  // here""",
    "writes bytes 16 to 20 of an argument of 16 bytes: out of bounds": """
        x[4] = 1;  // here""",
    "passes the host's memory to a kernel": """
        float *h = new float[4];
        add<<<1, 4>>>(h, x);  // here""",
    "the direction of the copy says device": """
        float *d, h[4]; cudaMalloc(&d, 16);
        cudaMemcpy(h, d, 16, cudaMemcpyHostToDevice);  // here""",
    "the x extent is at most 1024": """
        add<<<1, 2048>>>(x, x);  // here""",
    "the program called exit(4)": """
        if (n > 1) exit(4);  // here""",
    "an integer is divided by zero": """
        x[0] = 1 / (n - 4);  // here""",
    "memcpy between places that overlap": """
        memcpy(x, x + 1, 8);  // here""",
    "there is no memory for 18446744073709551612 bytes": """
        float *d;
        cudaMalloc(&d, (n - 5) * sizeof(float));  // here""",
    "an event that was not recorded": """
        cudaEvent_t a; cudaEventCreate(&a); float ms;
        cudaEventElapsedTime(&ms, a, a);  // here""",
}


@pytest.mark.parametrize("told", CASES)
def test_told_at_its_line(told: str) -> None:
    source = KERNEL + "void run(float *x, int n) { cudaDeviceSynchronize();" + CASES[told] + "\n}\n"
    line = next(k for k, text in enumerate(source.splitlines(), 1) if text.endswith("// here"))
    with pytest.raises(kg.ProgramError, match=re.escape(told)) as caught:
        kg.compile(source)["run"](np.ones(4, np.float32), 4, device="cpu")
    assert caught.value.span.line == line


REFUSED = {
    "'fact' calls itself: recursion": "int fact(int n) { return n < 2 ? 1 : n * fact(n - 1); }  // here\n"
    "int run(int n) { cudaDeviceSynchronize(); return fact(n); }",
    "CUDA graphs are not supported": "int run(int n) { cudaGraph_t g; cudaStream_t s; cudaStreamCreate(&s);\n"
    "cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);  // here\nreturn 0; }",
    "threads of the host are not supported": "#include <thread>\n"
    "int run(int n) { cudaDeviceSynchronize();\nstd::thread t([] {});  // here\nt.join(); return 0; }",
    "std::function is not supported: use auto": "#include <functional>\n"
    "int run(int n) { cudaDeviceSynchronize();\nstd::function<int(int)> f = [](int k) { return k; };  // here\n"
    "return f(n); }",
    "MPI is not supported": 'extern "C" int MPI_Barrier(int);\n'
    "int run(int n) { cudaDeviceSynchronize();\nMPI_Barrier(n);  // here\nreturn 0; }",
    "'cublasDdot' has no body here": 'extern "C" int cublasDdot(double *x);\n'
    "int run(double *x) { cudaDeviceSynchronize();\nreturn cublasDdot(x);  // here\n}",
    "'value' is virtual": "struct A { virtual int value() { cudaDeviceSynchronize(); return 1; } };\n"
    "int run(A *a) { cudaDeviceSynchronize();\nreturn a->value();  // here\n}",
    "call through a function pointer": "typedef void (*f)();\n"
    "int run(f g) { cudaDeviceSynchronize();\ng();  // here\n}",
}


@pytest.mark.parametrize("told", REFUSED)
def test_refused_at_its_line(told: str) -> None:
    source = REFUSED[told]
    line = next(k for k, text in enumerate(source.splitlines(), 1) if text.endswith("// here"))
    with pytest.raises(kg.UnsupportedError, match=re.escape(told)) as caught:
        kg.compile(source)["run"]
    assert caught.value.span.line == line


THROWS = """
#include <stdexcept>
struct Error { int code; };
__global__ void scale(double *x, double by) { x[threadIdx.x] *= by * by; }
double checked(double by) {
  if (by < 0) throw std::runtime_error("negative");
  if (by > 9) throw Error{1};
  return by;
}
double run(double *x, double by, int n) {
  double *d = nullptr, sum = 0;
  if (cudaMalloc(&d, n * sizeof(double)) != cudaSuccess) throw Error{2};
  try {
    cudaMemcpy(d, x, n * sizeof(double), cudaMemcpyHostToDevice);
    scale<<<1, n>>>(d, checked(by));
    cudaMemcpy(x, d, n * sizeof(double), cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) sum += x[i];
    if (n == 1) return -sum;
  } catch (const std::exception &e) {
    return 0;
  } catch (...) {
    throw;
  }
  cudaFree(d);
  return sum;
}"""


def test_exceptions_that_nothing_throws() -> None:
    """Programs are what they are without; what is thrown ends them at its line, though something would catch it."""
    run = kg.compile(THROWS)["run"]
    x, d_x, d_by = np.array([1.0, 2.0]), np.zeros(2), np.zeros(1)
    assert run(x.copy(), 3.0, 2, device="cpu") == 27 and run(x[:1].copy(), 3.0, 1, device="cpu") == -9
    kg.gradient(run).execute(x, 3.0, 2, d_x, d_by, device="cpu")
    assert d_x.tolist() == [9, 9] and d_by[0] == 18
    for by, line, told in ((-1.0, 6, "throws an exception: negative"), (10.0, 7, "throws an exception")):
        with pytest.raises(kg.ProgramError, match=told) as caught:
            run(x, by, 2, device="cpu")
        assert caught.value.span.line == line


def test_memory_is_freed_where_a_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[scratch.Scratch]] = []

    class Counted(scratch.Scratch):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            made.append(weakref.ref(self))

    monkeypatch.setattr("kernelgrad.programs.memory.Scratch", Counted)
    source = "int run(int n) { int *a, *b; cudaMalloc(&a, 4 * n); cudaMalloc(&b, 4 * n); exit(n); }"
    function = kg.compile(source)["run"]
    with pytest.raises(kg.ProgramError, match=re.escape("exit(5)")):
        function(5, device="cpu")
    gc.collect()
    assert len(made) >= 2 and not [ref for ref in made if ref() is not None]


ENDS = """
__global__ void add(float *y, const float *x) { y[threadIdx.x] += x[threadIdx.x]; }
static int calls = 0;
int run(float *x, int how) {
  calls++;
  float *d; cudaMalloc(&d, 16);
  cudaMemcpy(d, x, 16, cudaMemcpyHostToDevice);
  add<<<1, 4>>>(d, d);
  if (how == 1) exit(0);
  if (how == 2) cudaMemcpy(d, x, 17, cudaMemcpyHostToDevice);
  if (how == 3) { int bits = *(int *)x; return bits; }
  cudaFree(d);
  return calls;
}"""


def test_memory_is_freed_on_every_path_out() -> None:
    """And static storage stays what it is."""
    module, x = kg.compile(ENDS), np.ones(4, np.float32)
    run, g = module["run"], kg.gradient(module["run"])

    def left() -> int:
        return sum(a.kind != "static" for a in run.state.memory(None))

    assert run(x, 0, device="cpu") == 1 and left() == 0
    assert run(x, 1, device="cpu") == 0 and left() == 0
    with pytest.raises(kg.KernelGradError):
        run(x, 2, device="cpu")
    assert left() == 0
    with pytest.raises(kg.UnsupportedError, match="bits of a floating-point number"):
        g.execute(x, 3, np.ones(4, np.float32), device="cpu")
    assert left() == 0
    assert g.execute(x, 0, np.ones(4, np.float32), device="cpu") == 5 and left() == 0
