"""Includes, macros, defines; host code that must not matter."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import I32, Theme, floats, zeros

theme = Theme()


@theme.case(
    """
    #include <cuda_runtime.h>
    #include <stdio.h>
    #include <cmath>
    #include <cstdint>
    #include <algorithm>
    #include "device_launch_parameters.h"
    #include <boost/program_options.hpp>
    #include "my_missing_header.h"
    #include <vector>

    template <typename T> void check(T result, const char* file, int line) {
      if (result) { fprintf(stderr, "CUDA error %d at %s:%d\\n", (int)result, file, line); exit(1); }
    }
    #define CHECK(x) check((x), __FILE__, __LINE__)

    __global__ void k(float* y, const float* x, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = x[i] + 1;
    }

    class App : public missing::Base {
      boost::shared_ptr<Thing> thing;
      std::unordered_map<std::string, UnknownType> map_;
     public:
      int run(QWidget* parent) { return thing->frobnicate(parent); }
    };

    int main(int argc, char** argv) {
      std::vector<float> h(100);
      float *a, *b;
      CHECK(cudaMalloc(&a, 100 * sizeof(float)));
      CHECK(cudaMalloc((void**)&b, 100 * sizeof(float)));
      k<<<4, 32>>>(a, b, 100);
      k<<<dim3(4), dim3(32), 0, some_stream>>>(a, b, 100);
      cv::Mat image = cv::imread(argv[1]);
      thrust::device_vector<int> v(10);
      cublasHandle_t handle; cublasCreate(&handle);
      auto t = std::chrono::high_resolution_clock::now();
      printf("%f\\n", h[0]);
      return undefined_thing(argc);
    }
    """,
    zeros(40),
    floats(40),
    40,
    grid=2,
)
def unknown_host_code(y: Any, x: Any, n: int) -> Any:
    return x + 1


@theme.case(
    """
    #define BLOCK 8
    #define SQR(x) ((x) * (x))
    #define IDX(r, c) ((r) * BLOCK + (c))
    #define FOR(i, n) for (int i = 0; i < (n); ++i)
    #define CAT_(a, b) a##b
    #define CAT(a, b) CAT_(a, b)
    #define MAX3(a, b, c) max(a, max(b, c))
    #define DEFINE(name, op) __device__ int name(int a, int b) { return a op b; }
    DEFINE(plus, +)
    DEFINE(times, *)
    #ifdef __CUDA_ARCH__
    #define WHERE 1
    #else
    #define WHERE 1
    #endif
    __global__ void k(int* y) {
      int value1 = 5;
      FOR(i, 2) { FOR(j, 2) y[IDX(0, 2 * i + j)] = SQR(i + j); }
      y[4] = CAT(value, 1); y[5] = MAX3(3, 9, 4); y[6] = plus(2, 3) * times(4, 5); y[7] = WHERE + __LINE__ * 0;
    }
    """,
    zeros(8, I32),
    block=1,
)
def macros(y: Any) -> Any:
    return np.array([0, 1, 1, 4, 5, 9, 100, 1])


@theme.case(
    """
    #if N > 3 && defined(FAST)
    typedef float real;
    #else
    typedef double real;
    #endif
    __global__ void k(real* y) { for (int i = 0; i < N; ++i) y[i] = i * SCALE; }
    """,
    zeros(5),
    block=1,
    options={"defines": {"N": 5, "FAST": 1, "SCALE": 1.5}},
)
def defines(y: Any) -> Any:
    return np.arange(5) * 1.5


@theme.case(
    """
    template <typename T> __device__ T unused(T x) { return x.does_not_exist(); }
    __device__ float broken(float x) { return undeclared_function(x); }
    __global__ void other(float* y) { y[0] = broken(1.0f) + missing_variable; }
    __global__ void k(float* y) { y[threadIdx.x] = threadIdx.x * 2; }
    """,
    zeros(4),
    block=4,
)
def errors_elsewhere_do_not_matter(y: Any) -> Any:
    return np.arange(4) * 2


@theme.case(
    """
    #ifdef __cplusplus
    extern "C" {
    #endif
    __global__ void k(float* y, float a) {
      /* a comment */ int i = threadIdx.x; // another
      y[i] = a \\
             * i;
    }
    #ifdef __cplusplus
    }
    #endif
    """,
    zeros(4),
    2.0,
    block=4,
)
def c_linkage_block(y: Any, a: float) -> Any:
    return 2 * np.arange(4)


@theme.case(
    """
    #include <cuda_runtime.h>
    #include <thrust/device_vector.h>
    #include <cub/cub.cuh>
    using namespace std;
    using std::min;
    #define gpuErrchk(ans) { gpuAssert((ans), __FILE__, __LINE__); }
    inline void gpuAssert(cudaError_t code, const char *file, int line, bool abort = true) {
      if (code != cudaSuccess) fprintf(stderr, "GPUassert: %s\\n", cudaGetErrorString(code));
    }
    static const int kThreads = 8;
    __host__ __device__ inline int div_up(int a, int b) { return (a + b - 1) / b; }
    __global__ void k(int *y, int n) { y[threadIdx.x] = div_up(n, kThreads) + min((int)threadIdx.x, 3) + max(1, 2); }
    void launch(int* d, int n) { gpuErrchk(cudaDeviceSynchronize()); k<<<div_up(n, kThreads), kThreads>>>(d, n); }
    """,
    zeros(8, I32),
    20,
    block=8,
)
def usual_file(y: Any, n: int) -> Any:
    return 3 + np.minimum(np.arange(8), 3) + 2


@theme.case(
    """
    #include <limits>
    #include <cfloat>
    #include <climits>
    #include <utility>
    template <typename T> __device__ T lowest() { return std::numeric_limits<T>::lowest(); }
    __global__ void k(double* y) {
      y[0] = lowest<float>(); y[1] = std::numeric_limits<int>::max(); y[2] = FLT_MIN;
      y[3] = LLONG_MAX == 9223372036854775807LL;
      int a = 1, b = 2; std::swap(a, b); y[4] = a * 10 + b;
      y[5] = std::numeric_limits<double>::epsilon(); y[6] = CHAR_BIT;
      y[7] = std::numeric_limits<float>::infinity() > 1e30f;
    }
    """,
    zeros(8, np.float64),
    block=1,
)
def standard_headers(y: Any) -> Any:
    f = np.finfo(np.float32)
    return np.array([f.min, 2**31 - 1, f.tiny, 1, 21, np.finfo(np.float64).eps, 8, 1])
