"""Host functions run as they are: memory, copies, launches, the C and C++ library, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SQUARE = r"""
#define CHECK(call)                                                                                    \
  do {                                                                                                 \
    cudaError_t status = (call);                                                                       \
    if (status != cudaSuccess) { fprintf(stderr, "failed: %s\n", cudaGetErrorString(status)); exit(1); } \
  } while (0)
__global__ void square(float *y, const float *x, float scale, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scale * x[i] * x[i];
}
"""


def run(source: str, name: str, *args: Any) -> Any:
    return kg.compile(source)[name](*args, device="cpu")


def test_allocation_copies_and_launches() -> None:
    source = (
        SQUARE
        + r"""
    void squares(float *y, const float *x, size_t n) {
      float *in = nullptr, *out;
      CHECK(cudaMalloc((void **)&in, n * sizeof(float)));
      CHECK(cudaMalloc(&out, n * sizeof(float)));
      CHECK(cudaMemcpy(in, x, n * sizeof(float), cudaMemcpyHostToDevice));
      dim3 block(4), grid((n + block.x - 1) / block.x);
      cudaStream_t stream;
      cudaStreamCreate(&stream);
      square<<<grid, block, 0, stream>>>(out, in, 2.0f, n);
      CHECK(cudaGetLastError());
      CHECK(cudaMemcpyAsync(y, out, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      cudaStreamDestroy(stream);
      cudaFree(in);
      cudaFree(out);
    }"""
    )
    x, y = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    run(source, "squares", y, x, 10)
    assert y.tolist() == (2 * x * x).tolist()


def test_two_arrays_in_turn() -> None:
    source = """
    __global__ void add(const double *from, double *to) { to[threadIdx.x] += 0.5 * from[threadIdx.x]; }
    void wrapped(const double *from, double *to, int n) { add<<<1, n>>>(from, to); }
    void turns(int times, double *a, double *b, int n) {
      for (unsigned k = 0; k < times / 2; k++) { wrapped(a, b, n); wrapped(b, a, n); }
    }"""
    a, b = np.ones(4), np.arange(4.0)
    run(source, "turns", 4, a, b, 4)
    x, y = np.ones(4), np.arange(4.0)
    for _ in range(2):
        y += 0.5 * x
        x += 0.5 * y
    assert a.tolist() == x.tolist() and b.tolist() == y.tolist()


@pytest.mark.parametrize(("words", "code"), [((), 0), (("1",), 7), (("1", "2"), 0), (("1", "2", "3"), 8)])
def test_main_gives_zero_where_it_ends(words: tuple[str, ...], code: int) -> None:
    """Also where all that it returns elsewhere is one and the same."""
    source = """
    #include <stdio.h>
    int main(int argc, char **argv) {
        if (argc == 2) { printf("two"); return 7; }
        for (int i = 0; i < argc; i++) if (i == 3) return 8;
    }"""
    assert kg.compile(source)["main"](*words, device="cpu") == code
    once = "int main(int argc, char **argv) { if (argc > 1) { return 7; } }"
    assert kg.compile(once)["main"](*words, device="cpu") == (7 if words else 0)


def test_main_prints(capsys: pytest.CaptureFixture[str]) -> None:
    source = (
        SQUARE
        + r"""
    #include <iostream>
    #include <iomanip>
    int main(int argc, char **argv) {
      int n = argc > 1 ? atoi(argv[1]) : 2;
      float *x;
      cudaMallocManaged(&x, n * sizeof(float));
      for (int i = 0; i < n; i++) x[i] = i + 1;
      square<<<1, n>>>(x, x, 1, n);
      cudaDeviceSynchronize();
      printf("%s: %5.2f|%-4d|%u%%\n", "last", x[n - 1], n, 7u);
      std::cout << "first " << x[0] << ' ' << true << std::endl;
      cudaFree(x);
      return 3;
    }"""
    )
    module = kg.compile(source)
    assert module["main"](device="cpu") == 3
    assert module["main"]("4", device="cpu") == 3
    told = "last:  4.00|2   |7%\nfirst 1 1\nlast: 16.00|4   |7%\nfirst 1 1\n"
    assert capsys.readouterr().out == told


def test_variables_with_static_storage_keep_their_values() -> None:
    source = """
    int calls = 3;
    static double *kept = nullptr;
    __global__ void fill(double *x, double value) { x[threadIdx.x] = value; }
    void start(int n) { cudaMalloc(&kept, n * sizeof(double)); fill<<<1, n>>>(kept, 1.5); }
    int next() { static int own = 10; own += 1; calls += 1; return own + calls; }
    void fetch(double *to, int n) { cudaMemcpy(to, kept, n * sizeof(double), cudaMemcpyDeviceToHost); cudaFree(kept); }
    """
    module, x = kg.compile(source), np.zeros(3)
    assert [module["next"](device="cpu") for _ in range(2)] == [15, 17]
    module["start"](3, device="cpu")
    module["fetch"](x, 3, device="cpu")
    assert x.tolist() == [1.5, 1.5, 1.5]


def test_device_variables() -> None:
    source = """
    __constant__ float weights[3];
    __device__ float sums[2];
    __global__ void weigh(float *x) { x[threadIdx.x] *= weights[threadIdx.x]; sums[1] = 7; }
    void run(float *x) {
      float w[4] = {9, 2, 3, 4}, *d, back[2];
      cudaMemcpyToSymbol(weights, w + 1, 3 * sizeof(float));
      cudaMalloc(&d, 3 * sizeof(float));
      cudaMemcpy(d, x, 3 * sizeof(float), cudaMemcpyHostToDevice);
      weigh<<<1, 3>>>(d);
      cudaMemcpy(x, d, 3 * sizeof(float), cudaMemcpyDeviceToHost);
      cudaMemcpyFromSymbol(back, sums, sizeof(back));
      x[0] += back[1];
      cudaFree(d);
    }"""
    x = np.ones(3, np.float32)
    run(source, "run", x)
    assert x.tolist() == [9, 3, 4]


def test_containers() -> None:
    source = """
    #include <vector>
    #include <memory>
    #include <numeric>
    #include <algorithm>
    #include <chrono>
    __global__ void twice(double *x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
    std::vector<double> made(int n) { std::vector<double> v; for (int k = 0; k < n; k++) v.push_back(k); return v; }
    double run(int n, double *out) {
      auto start = std::chrono::steady_clock::now();
      std::vector<double> v = made(n), w(v);
      auto raw = std::make_unique<double[]>(n);
      double *d;
      cudaMalloc(&d, n * sizeof(double));
      cudaMemcpy(d, v.data(), v.size() * sizeof(double), cudaMemcpyHostToDevice);
      twice<<<1, 32>>>(d, n);
      cudaMemcpy(raw.get(), d, n * sizeof(double), cudaMemcpyDeviceToHost);
      std::copy(raw.get(), raw.get() + n, out);
      cudaFree(d);
      w.resize(n + 1, 100);
      double sum = 0;
      for (auto x : w) sum += x;
      std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      return sum + std::accumulate(v.begin(), v.end(), 0.0) + std::max(0.0, -passed.count());
    }"""
    out = np.zeros(5)
    assert run(source, "run", 5, out) == 120
    assert out.tolist() == [0, 2, 4, 6, 8]


def test_memory_of_the_host() -> None:
    source = """
    struct Pair { int first; float second; };
    float run(int n, float *out) {
      float *a = (float *)malloc(n * sizeof(float)), *b = new float[n](), **rows = new float *[2];
      Pair *pair = new Pair{3, 4.5f};
      for (int k = 0; k < n; k++) a[k] = k * 0.5f;
      rows[0] = a; rows[1] = b;
      memcpy(b + 1, a, (n - 1) * sizeof(float));
      float sum = 0;
      for (int r = 0; r < 2; r++) for (int k = 0; k < n; k++) sum += rows[r][k] * (r + 1);
      memset(out, 0, n * sizeof(float));
      out[1] = b[2] + pair->second + pair->first;
      free(a); delete[] b; delete[] rows; delete pair;
      return sum;
    }"""
    out = np.ones(4, np.float32)
    assert run(source, "run", 4, out) == 3.0 + 2 * 1.5
    assert out.tolist() == [0, 8.0, 0, 0]


def test_two_dimensions_and_pitches() -> None:
    source = """
    __global__ void add(char *x, size_t pitch) { ((float *)(x + threadIdx.y * pitch))[threadIdx.x] += 1; }
    void run(float *x, int width, int height) {
      char *d; size_t pitch;
      cudaMallocPitch(&d, &pitch, width * sizeof(float), height);
      cudaMemcpy2D(d, pitch, x, width * sizeof(float), width * sizeof(float), height, cudaMemcpyHostToDevice);
      add<<<1, dim3(width, height)>>>(d, pitch);
      cudaMemcpy2D(x, width * sizeof(float), d, pitch, width * sizeof(float), height, cudaMemcpyDeviceToHost);
      cudaFree(d);
    }"""
    x = np.arange(6, dtype=np.float32)
    run(source, "run", x, 3, 2)
    assert x.tolist() == [1, 2, 3, 4, 5, 6]


def test_templates_and_events() -> None:
    source = """
    template <typename T> __global__ void scale(T *x, T by) { x[threadIdx.x] *= by; }
    template <typename T> void launch(T *x, int n, T by) { scale<T><<<1, n>>>(x, by); }
    float run(double *x, int n) {
      cudaEvent_t start, stop;
      cudaEventCreate(&start); cudaEventCreate(&stop);
      cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);
      cudaEventRecord(start);
      launch(x, n, 3.0);
      cudaEventRecord(stop); cudaEventSynchronize(stop);
      float ms = -1; cudaEventElapsedTime(&ms, start, stop);
      return ms >= 0 ? p.warpSize : ms;
    }"""
    x = np.ones(2)
    assert run(source, "run", x, 2) == 32
    assert x.tolist() == [3, 3]


def test_arguments_are_checked() -> None:
    module = kg.compile(SQUARE + "void run(float *x, int n) { square<<<1, n>>>(x, x, 1, n); }")
    f, x = module["run"], np.ones(3, np.float32)
    with pytest.raises(kg.ArgumentError, match="takes 2 arguments, got 1"):
        f(x)
    with pytest.raises(kg.ArgumentError, match="wants an array of float32, got float64"):
        f(np.ones(3), 3)
    with pytest.raises(kg.ArgumentError, match="does not fit i32"):
        f(x, 1 << 40)
    with pytest.raises(kg.LaunchError, match="is not a kernel"):
        f[1, 1]
    with pytest.raises(kg.ArgumentError, match="'cpu' or 'cuda'"):
        f(x, 3, device="gpu")
