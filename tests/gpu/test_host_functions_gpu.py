"""Host functions on a GPU: the same results and adjoints as on the CPU, from NumPy and CuPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import UnsupportedError

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


OWNERS = r"""
#include <memory>
#include <string>
#include <vector>
__constant__ double factor;
template <class T> __global__ void step(T *to, const T *from, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i] + by * factor * from[(i + 1) % n] * from[i];
}
__global__ void sum_of(const double *x, double *to, int n) {
  extern __shared__ double part[];
  int i = threadIdx.x;
  part[i] = i < n ? x[i] * x[i] : 0;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s /= 2) { if (i < s) part[i] += part[i + s]; __syncthreads(); }
  if (i == 0) *to = part[0];
}
template <class T> class Buffer {
  T *data_ = nullptr; size_t size_ = 0;
 public:
  explicit Buffer(size_t n) : size_(n) { cudaMalloc(&data_, n * sizeof(T)); }
  Buffer(size_t n, const T *host) : Buffer(n) { cudaMemcpy(data_, host, n * sizeof(T), cudaMemcpyHostToDevice); }
  Buffer(const Buffer &) = delete;
  Buffer(Buffer &&o) noexcept : data_(o.data_), size_(o.size_) { o.data_ = nullptr; }
  Buffer &operator=(Buffer &&o) noexcept { std::swap(data_, o.data_); std::swap(size_, o.size_); return *this; }
  ~Buffer() { if (data_) cudaFree(data_); }
  T *get() const { return data_; } size_t size() const { return size_; }
};
double energy(const Buffer<double> &u, cudaStream_t stream) {
  Buffer<double> total(1);
  sum_of<<<1, 128, 128 * sizeof(double), stream>>>(u.get(), total.get(), (int)u.size());
  double found;
  cudaMemcpyAsync(&found, total.get(), sizeof found, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  return found;
}
double owners(double *x, double k, int n) {
  cudaStream_t stream; cudaStreamCreate(&stream);
  cudaMemcpyToSymbol(factor, &k, sizeof k);
  Buffer<double> u(n, x), v(n);
  double by = k;
  for (int t = 0; t < 4; t++) {
    step<<<(n + 31) / 32, 32, 0, stream>>>(v.get(), u.get(), by / 2, n);
    by = by * k + 0.01;
    std::swap(u, v);
  }
  double error = energy(u, stream);
  int turns = 0;
  while (error > 20 && turns < 8) {
    step<<<(n + 31) / 32, 32, 0, stream>>>(v.get(), u.get(), -0.001 * error, n);
    u = std::move(v);
    v = Buffer<double>(n);
    error = energy(u, stream);
    turns++;
  }
  auto host = std::make_unique<double[]>(n);
  cudaMemcpy(host.get(), u.get(), n * sizeof(double), cudaMemcpyDeviceToHost);
  std::vector<double> scaled(host.get(), host.get() + n);
  for (auto &value : scaled) value *= by;
  std::copy(scaled.begin(), scaled.end(), x);
  cudaStreamDestroy(stream);
  return error;
}
"""
THRUST = r"""
#include <thrust/device_vector.h>
#include <thrust/inner_product.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
struct Saxpy { double a; __host__ __device__ double operator()(double x, double y) const { return a * x * y + y; } };
struct Square { __host__ __device__ double operator()(double x) const { return x * x; } };
double owners(double *x, double k, int n) {
  thrust::device_vector<double> d(x, x + n), e(n, 0.5);
  thrust::transform(d.begin(), d.end(), e.begin(), e.begin(), Saxpy{k});
  thrust::sort_by_key(d.begin(), d.end(), e.begin());
  thrust::inclusive_scan(e.begin(), e.end(), d.begin());
  double sum = thrust::transform_reduce(d.begin(), d.end(), Square(), 0.0, thrust::plus<double>());
  e[1] = sum * 0.01;
  thrust::copy(e.begin(), e.end(), x);
  return thrust::inner_product(d.begin(), d.end(), e.begin(), 1.0);
}
"""


@pytest.mark.parametrize("source", [OWNERS, THRUST], ids=["owners", "thrust"])
@pytest.mark.parametrize("options", [{}, {"tape_budget": "40 kB"}])
def test_objects_and_thrust(source: str, options: dict[str, Any]) -> None:
    function, found = kg.compile(source)["owners"], {}
    g = kg.gradient(function, "x, k", **options)
    for device in ("cpu", "cuda"):
        x, d_x, d_k, y = numbers(0), numbers(1), np.zeros(1), numbers(0)
        value = function(y, 0.2, N, device=device)
        again = g.execute(x, 0.2, N, d_x, d_k, device=device)
        assert again == pytest.approx(value, rel=1e-12) and np.allclose(x, y, rtol=1e-12)
        found[device] = np.concatenate([[value], x, d_x, d_k])
    assert np.allclose(found["cuda"], found["cpu"], rtol=1e-9)
    assert [a for a in function.state.memory(0) if a.kind not in ("static", "argument")] == []


LATE = """
__global__ void step(double *to, const double *from, double by) { int i = threadIdx.x; to[i] = from[i] * by; }
void run(double *a, double *b, double k) {
  double by = k;
  for (int t = 0; t < 20; t++) { step<<<1, 100>>>(b, a, by / 2); by = by * k + 0.9; step<<<1, 100>>>(a, b, by); }
}"""


def test_adjoints_of_numbers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launch of the reverse waits for the GPU."""
    from kernelgrad.host.shadow_memory import NumberSlots

    reads: list[int] = []
    values = NumberSlots.values
    monkeypatch.setattr(NumberSlots, "values", lambda self: (reads.append(self.device), values(self))[1])
    g, found = kg.gradient(kg.compile(LATE)["run"], "a, b, k"), {}
    for device in ("cpu", "cuda"):
        d_a, d_b, d_k = numbers(2), numbers(3), np.zeros(1)
        reads.clear()
        g.execute(numbers(0), numbers(1), 0.3, d_a, d_b, d_k, device=device)
        found[device] = np.concatenate([d_a, d_b, d_k])
    assert np.allclose(found["cuda"], found["cpu"], rtol=1e-10)
    assert reads.count(0) == 1


LISTS = """
__global__ void choose(double **list, double *x, int n) { int i = threadIdx.x; list[i] = x + n - 1 - i; }
__global__ void sum(double *y, double **list, int n) { for (int i = 0; i < n; i++) y[0] += (i + 1) * list[i][0]; }
double run(double *u, int n, int ours) {
  double *x, *y, **list, result;
  cudaMalloc(&x, n * sizeof(double)); cudaMalloc(&y, sizeof(double)); cudaMemset(y, 0, sizeof(double));
  cudaMemcpy(x, u, n * sizeof(double), cudaMemcpyHostToDevice);
  cudaMallocManaged(&list, n * sizeof(double *));
  choose<<<1, n>>>(list, x, n);
  if (ours) for (int i = 0; i < n; i++) cudaMallocManaged(&list[i], 8);
  sum<<<1, 1>>>(y, list, n);
  cudaMemcpy(&result, y, sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(x); cudaFree(y); cudaFree(list);
  return result;
}"""


def test_managed_memory_that_holds_pointers() -> None:
    run, u = kg.compile(LISTS, name="lists.cu")["run"], np.arange(1.0, 5.0)
    assert run(u, 4, 0, device="cuda") == run(u, 4, 0, device="cpu") == 4 + 6 + 6 + 4
    with pytest.raises(UnsupportedError, match=r"(?s)lists.cu:11:3.*holds pointers to such"):
        run(u, 4, 1, device="cuda")
