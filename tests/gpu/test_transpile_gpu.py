"""Files for plain nvcc, built and run on a GPU: host functions of gradients against launches from Python, and programs
whose derivatives became code against what they are to print."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from asking_places import PLACES
from find_nvcc import build, nvcc
from kernelgrad.transpile.derivative_file import derivative_file
from kernelgrad.transpile.host_function import Shape
from kernelgrad.transpile.program import transpiled
from programs_to_transpile import HOST_TAPES, INTEGERS, LOOPS, SHARED, STATICS, STRUCTS, TAPES
from recorded_memory import MEMORY
from transpiled_programs import PROGRAMS

pytestmark = pytest.mark.skipif(nvcc() is None or shutil.which("g++") is None, reason="nvcc is not installed")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    built = build(transpiled(kg.compile(program.text, name=f"{name}.cu")), tmp_path / name, "-arch=native")
    printed = subprocess.run([built], capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line.strip() for line in printed.splitlines()] == program.prints.splitlines()


MORE = {
    "loops": LOOPS,
    "shared": SHARED,
    "statics": STATICS,
    "structs": STRUCTS,
    "integers": INTEGERS.replace("LINE", ""),
    "tapes": TAPES,
    "tapes of the host": HOST_TAPES,
}


@pytest.mark.parametrize("name", MORE)
def test_as_on_the_cpu(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(MORE[name], name=f"{name}.cu")["main"](device="cpu")
    wanted = [float(number) for number in capsys.readouterr().out.split()]
    built = build(transpiled(kg.compile(MORE[name], name=f"{name}.cu")), tmp_path / name, "-arch=native")
    printed = subprocess.run([built], capture_output=True, text=True, check=True, timeout=60).stdout
    np.testing.assert_allclose([float(number) for number in printed.split()], wanted, rtol=1e-5)


COMPARED = {**PLACES, **MEMORY}


@pytest.mark.parametrize("name", COMPARED)
def test_against_finite_differences(name: str, tmp_path: Path) -> None:
    built = build(transpiled(kg.compile(COMPARED[name], name="compared.cu")), tmp_path / "compared", "-arch=native")
    printed = subprocess.run([built], capture_output=True, text=True, check=True, timeout=60).stdout
    pairs = [line.split() for line in printed.splitlines() if line]
    assert len(pairs) in (2, 4)
    for found, wanted in pairs:
        assert float(found) == pytest.approx(float(wanted), rel=1e-6)


KERNELS = {
    "by arithmetic": "float v = in[i]; for (int k = 0; k < m; k++) v = sinf(v) * rate; out[i] = v;",
    "counted": "float v = in[i] * m; while (v > 1) v = v * rate - 0.1f * sinf(v); out[i] = v * v;",
    "shared": """
        __shared__ float s[64]; int t = threadIdx.x;
        s[t] = in[i] * rate; __syncthreads();
        out[i] = s[t] * s[63 - t] * m;
    """,
}
CALL = """
extern "C" int call(float *out, float *in, float rate, int m, int n, float *d_out, float *d_in, float *d_rate)
{
    float *buffers[] = {out, in, d_out, d_in, d_rate}, *own[5];
    size_t sizes[] = {n * sizeof(float), n * sizeof(float), n * sizeof(float), n * sizeof(float), sizeof(float)};
    int error = 0;
    for (int k = 0; k < 5; ++k) {
        error |= cudaMalloc((void **)&own[k], sizes[k]);
        error |= cudaMemcpy(own[k], buffers[k], sizes[k], cudaMemcpyHostToDevice);
    }
    for (int turn = 0; turn < 2 && !error; ++turn) {  // the second adds to the inputs' adjoints
        error |= cudaMemcpy(own[2], d_out, sizes[2], cudaMemcpyHostToDevice);
        error |= launch_k_grad(LAUNCH 0, nullptr, own[0], own[1], rate, m, own[2], own[3], own[4]);
    }
    for (int k = 0; k < 5; ++k) {
        error |= cudaMemcpy(buffers[k], own[k], sizes[k], cudaMemcpyDeviceToHost);
        error |= cudaFree(own[k]);
    }
    return error;
}
"""


@pytest.mark.parametrize("exact", [False, True], ids=["any launch", "this shape"])
@pytest.mark.parametrize("name", KERNELS)
def test_host_function(name: str, exact: bool, tmp_path: Path) -> None:
    cupy: Any = pytest.importorskip("cupy")
    head = "__global__ void k(float *out, const float *in, float rate, int m) {\nint i = blockIdx.x * 64 + threadIdx.x;"
    gradient = kg.gradient(kg.compile(f"{head} {KERNELS[name]} }}")["k"])
    shape = Shape((4, 1, 1), (64, 1, 1)) if exact else None
    call = CALL.replace("LAUNCH", "" if exact else "dim3(4), dim3(64),")
    options = ("-arch=native", "-shared", "-Xcompiler", "-fPIC")
    library = ctypes.CDLL(str(build(derivative_file(gradient, shape) + call, tmp_path / "host", *options)))
    arrays = _arrays()
    floats = [a.ctypes.data_as(ctypes.c_void_p) for a in arrays]
    rate, m, n = ctypes.c_float(0.7), ctypes.c_int(6), ctypes.c_int(256)
    assert library.call(*floats[:2], rate, m, n, *floats[2:]) == 0
    wanted = [cupy.asarray(a) for a in _arrays()]
    for _ in range(2):
        wanted[2] = cupy.asarray(_arrays()[2])
        gradient[4, 64](wanted[0], wanted[1], np.float32(0.7), 6, *wanted[2:])
    for one, other in zip(wanted, arrays, strict=True):
        np.testing.assert_allclose(other, one.get(), rtol=1e-4, atol=1e-5)


def _arrays() -> list[np.ndarray[Any, Any]]:
    """out, in, and adjoints of these and of the number."""
    random = np.random.default_rng(5)
    x, d_out = random.uniform(0.2, 1.2, 256).astype(np.float32), random.uniform(0.5, 1.5, 256).astype(np.float32)
    return [np.zeros(256, np.float32), x, d_out, np.zeros(256, np.float32), np.zeros(1, np.float32)]


def test_deterministic_sums(tmp_path: Path) -> None:
    """The same bits twice, though many threads add to few elements."""
    text = "__global__ void k(float *y, const float *x, const int *at) { int i = blockIdx.x * 64 + threadIdx.x;"
    gradient = kg.gradient(kg.compile(text + " y[i] = x[at[i]] * x[0]; }")["k"], "y, x", deterministic=True)
    call = """
    extern "C" int call(float *x, int *at, float *d_y, float *d_x)
    {
        float *own[4];
        int *own_at, error = cudaMalloc((void **)&own_at, 1024 * 4);
        for (float *&p : own) error |= cudaMalloc((void **)&p, 1024 * 4);
        cudaMemcpy(own[1], x, 8 * 4, cudaMemcpyHostToDevice);
        cudaMemcpy(own_at, at, 1024 * 4, cudaMemcpyHostToDevice);
        cudaMemcpy(own[2], d_y, 1024 * 4, cudaMemcpyHostToDevice);
        cudaMemset(own[3], 0, 8 * 4);
        error |= launch_k_grad(dim3(16), dim3(64), 0, nullptr, own[0], own[1], own_at, own[2], own[3], 4096, 32);
        cudaMemcpy(d_x, own[3], 8 * 4, cudaMemcpyDeviceToHost);
        for (float *p : own) error |= cudaFree(p);
        return error | cudaFree(own_at) | cudaDeviceSynchronize();
    }
    """
    text = derivative_file(gradient)
    assert "size_t _d_y_bytes, size_t _d_x_bytes)" in " ".join(text.split())
    library = ctypes.CDLL(str(build(text + call, tmp_path / "sums", "-arch=native", "-shared", "-Xcompiler", "-fPIC")))
    random, found = np.random.default_rng(1), []
    x, d_y = (random.uniform(0.5, 1.5, n).astype(np.float32) for n in (8, 1024))
    at = random.integers(0, 8, 1024).astype(np.int32)
    for _ in range(2):
        d_x = np.zeros(8, np.float32)
        arrays = (a.ctypes.data_as(ctypes.c_void_p) for a in (x, at, d_y, d_x))
        assert library.call(*arrays) == 0
        found.append(d_x)
    wanted = np.bincount(at, d_y * x[0], 8) + np.eye(8)[0] * float(d_y @ x[at])
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5)
    assert found[0].tobytes() == found[1].tobytes()
