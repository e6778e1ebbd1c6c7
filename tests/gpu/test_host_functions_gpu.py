"""Host functions on a GPU: the same results and adjoints as on the CPU, from NumPy and CuPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = r"""
#include <vector>
#include <cstdio>
__constant__ double w[2];
__device__ double total;
__global__ void step(double *v, const double *u, double k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  v[i] = i == 0 || i == n - 1 ? u[i] : u[i] + k * (u[i - 1] - 2 * u[i] + u[i + 1]) * u[i];
}
__global__ void weigh(double *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= w[0] + w[1] * x[i];
  if (i == 0) total = x[0] * x[0];
}
void turns(double *a, double *b, double k, int n, int times) {
  for (int t = 0; t < times; t++) { step<<<(n + 31) / 32, 32>>>(b, a, k, n); step<<<(n + 31) / 32, 32>>>(a, b, k, n); }
}
double program(double *u, double k, int n, int steps) {
  double *d[2];
  size_t bytes = n * sizeof(double);
  for (int i = 0; i < 2; i++) cudaMalloc(&d[i], bytes);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaMemcpyAsync(d[0], u, bytes, cudaMemcpyHostToDevice, stream);
  int src = 0;
  for (int t = 0; t < steps; t++) {
    step<<<(n + 31) / 32, 32, 0, stream>>>(d[1 - src], d[src], k / 2, n);
    src = 1 - src;
  }
  std::vector<double> back(n);
  cudaMemcpyAsync(back.data(), d[src], bytes, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  double sum = 0, own[2], read;
  for (int i = 0; i < n; i++) sum += back[i];
  own[0] = sum / n; own[1] = k;
  cudaMemcpyToSymbol(w, own, sizeof(own));
  cudaMemset(d[1 - src], 0, bytes);
  weigh<<<(n + 31) / 32, 32>>>(d[src], n);
  cudaMemcpyFromSymbol(&read, total, sizeof(double));
  cudaMemcpy(u, d[src], bytes, cudaMemcpyDeviceToHost);
  for (int i = 0; i < 2; i++) cudaFree(d[i]);
  cudaStreamDestroy(stream);
  return read * sum;
}
int main() {
  double u[8];
  for (int i = 0; i < 8; i++) u[i] = 1 + 0.1 * i;
  printf("%.6f\n", program(u, 0.3, 8, 4));
  return 0;
}
"""
N = 100


@pytest.fixture(scope="module")
def module() -> Any:
    return kg.compile(SOURCE)


def numbers(seed: int) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 1.5, N)


def test_program(module: Any) -> None:
    values = {}
    for device in ("cpu", "cuda"):
        u = numbers(0)
        values[device] = module["program"](u, 0.2, N, 7, device=device), u
    assert values["cuda"][0] == pytest.approx(values["cpu"][0], rel=1e-12)
    assert np.allclose(values["cuda"][1], values["cpu"][1], rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"tape_budget": "10 kB"}])
def test_gradient_of_a_program(module: Any, options: dict[str, Any]) -> None:
    g, found = kg.gradient(module["program"], "u, k", **options), {}
    for device in ("cpu", "cuda"):
        u, d_u, d_k = numbers(0), numbers(1), np.zeros(1)
        value = g.execute(u, 0.2, N, 7, d_u, d_k, device=device)
        found[device] = np.concatenate([[value], u, d_u, d_k])
    assert np.allclose(found["cuda"], found["cpu"], rtol=1e-10)


def test_numpy_arrays_that_kernels_get(module: Any) -> None:
    """Their memory is brought to the GPU and back."""
    g, found = kg.gradient(module["turns"], "a, b, k"), {}
    for device in ("cpu", "cuda"):
        a, b, d_a, d_b, d_k = numbers(0), numbers(1), numbers(2), numbers(3), np.zeros(1)
        module["turns"](a, b, 0.1, N, 2, device=device)
        g.execute(a, b, 0.1, N, 3, d_a, d_b, d_k, device=device)
        found[device] = np.concatenate([a, b, d_a, d_b, d_k])
    assert np.allclose(found["cuda"], found["cpu"], rtol=1e-10)


def test_cupy_arrays(module: Any) -> None:
    cupy = pytest.importorskip("cupy")
    a, b, d_a, d_b, d_k = (cupy.asarray(numbers(k)) for k in range(5))
    d_k = np.zeros(1)
    g = kg.gradient(module["turns"], "a, b, k")
    g.execute(a, b, 0.1, N, 3, d_a, d_b, d_k)
    host = [numbers(k) for k in range(4)]
    own = np.zeros(1)
    g.execute(host[0], host[1], 0.1, N, 3, host[2], host[3], own, device="cpu")
    for mine, theirs in zip((a, b, d_a, d_b), host, strict=True):
        assert np.allclose(cupy.asnumpy(mine), theirs, rtol=1e-10)
    assert d_k == pytest.approx(own)


def test_main_on_the_gpu_if_there_is_one(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert module["main"]() == 0
    on_gpu = capsys.readouterr().out
    assert module["main"](device="cpu") == 0
    assert capsys.readouterr().out == on_gpu


def test_a_wrong_copy_is_told(module: Any) -> None:
    body = "float *d; cudaMalloc(&d, 8);\ncudaMemcpy(d, x, 16, cudaMemcpyHostToDevice);"
    wrong = kg.compile("void run(float *x) { " + body + " }")
    with pytest.raises(kg.ProgramError, match="out of bounds") as caught:
        wrong["run"](np.ones(4, np.float32), device="cuda")
    assert caught.value.span.line == 2
