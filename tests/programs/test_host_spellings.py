"""Gradients of host functions in the ways that people write them: classes that own memory and launch, helpers that
allocate, double pointers, references, lambdas, templates, streams, unified and pinned memory, loops until it converges.
"""

from __future__ import annotations

from typing import Any

import pytest

import kernelgrad as kg
from host_functions import check, numbers

STEP = """
#include <vector>
#include <memory>
#include <array>
#include <string>
#include <stdexcept>
#include <cstdio>
#include <cmath>
#include <chrono>
#define CHECK(call)                                                                                    \\
  do {                                                                                                 \\
    cudaError_t e = (call);                                                                            \\
    if (e != cudaSuccess) { fprintf(stderr, "%s:%d %s\\n", __FILE__, __LINE__, cudaGetErrorString(e)); exit(1); } \\
  } while (0)
template <class T> __global__ void step(T *to, const T *from, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i] + by * from[(i + 1) % n] * from[i];
}
__global__ void scale(double *x, double by, int n) { int i = threadIdx.x; if (i < n) x[i] *= by; }
__global__ void sum_of(const double *x, double *to, int n) {
  extern __shared__ double part[];
  int i = threadIdx.x;
  part[i] = i < n ? x[i] * x[i] : 0;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s /= 2) { if (i < s) part[i] += part[i + s]; __syncthreads(); }
  if (i == 0) *to = part[0];
}
"""

CASES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "classes that own device memory": (
        """template <class T> class Buffer {
             T *data_ = nullptr; size_t size_ = 0;
            public:
             explicit Buffer(size_t n) : size_(n) { CHECK(cudaMalloc(&data_, n * sizeof(T))); }
             Buffer(size_t n, const T *host) : Buffer(n) { upload(host); }
             Buffer(const Buffer &) = delete;
             Buffer(Buffer &&o) noexcept : data_(o.data_), size_(o.size_) { o.data_ = nullptr; }
             Buffer &operator=(Buffer &&o) noexcept {
               std::swap(data_, o.data_); std::swap(size_, o.size_); return *this;
             }
             ~Buffer() { if (data_) cudaFree(data_); }
             T *get() { return data_; } const T *get() const { return data_; } size_t size() const { return size_; }
             void upload(const T *host) { CHECK(cudaMemcpy(data_, host, size_ * sizeof(T), cudaMemcpyHostToDevice)); }
             void download(T *host) const { CHECK(cudaMemcpy(host, data_, size_ * sizeof(T), cudaMemcpyDeviceToHost)); }
           };
           Buffer<double> advanced(const Buffer<double> &u, double k) {
             Buffer<double> made(u.size());
             step<<<1, 8>>>(made.get(), u.get(), k, (int)u.size());
             return made;
           }
           void run(double *x, double k, int n) {
             Buffer<double> u(n, x);
             for (int t = 0; t < 3; t++) { Buffer<double> v = advanced(u, k); u = std::move(v); }
             u.download(x);
           }""",
        "x, k",
        (numbers(5), 0.2, 5),
    ),
    "a class whose methods launch": (
        """class Solver {
             std::vector<double> host_; double *a_, *b_; int n_; double k_; cudaStream_t stream_;
            public:
             Solver(const double *x, int n, double k) : host_(x, x + n), n_(n), k_(k) {
               cudaMalloc(&a_, bytes()); cudaMalloc(&b_, bytes()); cudaStreamCreate(&stream_);
               cudaMemcpyAsync(a_, host_.data(), bytes(), cudaMemcpyHostToDevice, stream_);
             }
             ~Solver() { cudaFree(a_); cudaFree(b_); cudaStreamDestroy(stream_); }
             size_t bytes() const { return n_ * sizeof(double); }
             Solver &advance(int times) {
               for (int t = 0; t < times; ++t) {
                 step<double><<<(n_ + 3) / 4, 4, 0, stream_>>>(b_, a_, k_, n_);
                 std::swap(a_, b_);
               }
               return *this;
             }
             double energy() {
               double *d; cudaMalloc(&d, sizeof(double));
               sum_of<<<1, 8, 8 * sizeof(double), stream_>>>(a_, d, n_);
               double found; cudaMemcpyAsync(&found, d, sizeof found, cudaMemcpyDeviceToHost, stream_);
               cudaStreamSynchronize(stream_); cudaFree(d);
               return found;
             }
             void relax() { scale<<<1, 8>>>(a_, 1 / std::sqrt(energy()), n_); }
             void copy_to(double *to) { cudaMemcpy(to, a_, bytes(), cudaMemcpyDeviceToHost); }
           };
           double run(double *x, double k, int n) {
             Solver solver(x, n, k);
             solver.advance(2).advance(1).relax();
             solver.advance(1).copy_to(x);
             return solver.energy() * k;
           }""",
        "x, k",
        (numbers(5), 0.2, 5),
    ),
    "helpers that allocate, double pointers and references": (
        """void make(double **to, size_t n) { CHECK(cudaMalloc((void **)to, n * sizeof(double))); }
           double *copy_of(const double *host, size_t n) {
             double *d; make(&d, n);
             CHECK(cudaMemcpy(d, host, n * sizeof(double), cudaMemcpyHostToDevice));
             return d;
           }
           void turn(double *&a, double *&b) { double *c = a; a = b; b = c; }
           struct Fields { double *now, *next; double *all[2]; };
           void run(double *x, const double &k, int n) {
             Fields f; f.now = copy_of(x, n); make(&f.next, n); f.all[0] = f.now; f.all[1] = f.next;
             for (int t = 0; t < 3; t++) { step<<<1, n>>>(f.next, f.now, k * (t + 1), n); turn(f.now, f.next); }
             CHECK(cudaMemcpy(x, f.now, n * sizeof(double), cudaMemcpyDeviceToHost));
             for (double *p : f.all) cudaFree(p);
           }""",
        "x",
        (numbers(5), numbers(1)[:1] * 0.2, 5),
    ),
    "lambdas and templates": (
        """template <class F> void repeat(int times, F &&f) { for (int t = 0; t < times; t++) f(t); }
           template <typename T, int N> struct Chain { std::array<T *, N> d; };
           void run(double *x, double k, int n) {
             Chain<double, 3> c;
             auto bytes = n * sizeof(double);
             repeat(3, [&](int t) { cudaMalloc(&c.d[t], bytes); });
             cudaMemcpy(c.d[0], x, bytes, cudaMemcpyDefault);
             auto launch = [=, &c](int from, int to, auto by) { step<<<1, n>>>(c.d[to], c.d[from], by, n); };
             repeat(4, [&](int t) { launch(t % 3, (t + 1) % 3, k / (t + 1)); });
             cudaMemcpy(x, c.d[1], bytes, cudaMemcpyDefault);
             for (auto *p : c.d) cudaFree(p);
           }""",
        "x, k",
        (numbers(5), 0.2, 5),
    ),
    "unified and pinned memory": (
        """double run(double *x, int n) {
             double *u, *v, *pinned;
             cudaMallocManaged(&u, n * sizeof(double)); cudaMallocManaged(&v, n * sizeof(double));
             cudaMallocHost(&pinned, n * sizeof(double));
             for (int i = 0; i < n; i++) u[i] = x[i] * (i + 1);
             step<<<1, n>>>(v, u, 0.1, n);
             cudaDeviceSynchronize();
             double mean = 0;
             for (int i = 0; i < n; i++) mean += v[i] / n;
             for (int i = 0; i < n; i++) v[i] -= mean;
             step<<<1, n>>>(u, v, mean, n);
             cudaMemcpy(pinned, u, n * sizeof(double), cudaMemcpyDefault);
             cudaDeviceSynchronize();
             for (int i = 0; i < n; i++) x[i] = pinned[i] * mean;
             cudaFree(u); cudaFree(v); cudaFreeHost(pinned);
             return mean;
           }""",
        "x",
        (numbers(5), 5),
    ),
    "two streams and events": (
        """void run(double *x, double *y, int n) {
             cudaStream_t s[2]; cudaEvent_t done;
             for (auto &one : s) cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
             cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
             double *a, *b, *c; size_t bytes = n * sizeof(double);
             cudaMallocAsync(&a, bytes, s[0]); cudaMallocAsync(&b, bytes, s[1]); cudaMallocAsync(&c, bytes, s[1]);
             cudaMemcpyAsync(a, x, bytes, cudaMemcpyHostToDevice, s[0]);
             cudaMemcpyAsync(b, y, bytes, cudaMemcpyHostToDevice, s[1]);
             step<<<1, n, 0, s[0]>>>(a + 0, b, 0.5, n - 1);
             cudaEventRecord(done, s[0]);
             cudaStreamWaitEvent(s[1], done, 0);
             step<<<1, n, 0, s[1]>>>(c, a, 0.3, n);
             cudaMemcpyAsync(y, c, bytes, cudaMemcpyDeviceToHost, s[1]);
             for (auto &one : s) { cudaStreamSynchronize(one); cudaStreamDestroy(one); }
             cudaFreeAsync(a, 0); cudaFree(b); cudaFree(c); cudaEventDestroy(done);
           }""",
        "x, y",
        (numbers(5), numbers(5, seed=3), 5),
    ),
    "until it converges": (
        """double residual(double *d, double *part, int n) {
             double r; sum_of<<<1, 8, 64>>>(d, part, n);
             cudaMemcpy(&r, part, sizeof(r), cudaMemcpyDeviceToHost);
             return std::sqrt(r);
           }
           int run(double *x, double tolerance, int n) {
             double *d, *part; cudaMalloc(&d, n * sizeof(double)); cudaMalloc(&part, 8);
             cudaMemcpy(d, x, n * sizeof(double), cudaMemcpyHostToDevice);
             auto begin = std::chrono::high_resolution_clock::now();
             double error = residual(d, part, n); int turns = 0;
             while (error > tolerance && turns < 50) {
               scale<<<1, 8>>>(d, 0.9 - 0.1 * error, n);
               error = residual(d, part, n); turns++;
             }
             auto spent = std::chrono::duration<double>(std::chrono::high_resolution_clock::now() - begin).count();
             printf("%d turns, %.1f ms\\n", turns, spent * 1e3);
             cudaMemcpy(x, d, n * sizeof(double), cudaMemcpyDeviceToHost);
             cudaFree(d); cudaFree(part);
             return 0 * turns;
           }""",
        "x",
        (numbers(5), 0.3, 5),
    ),
    "rows of a vector of vectors": (
        """double run(double *x, int n) {
             std::vector<std::vector<double>> rows(3, std::vector<double>(n));
             for (int r = 0; r < 3; r++) for (int i = 0; i < n; i++) rows[r][i] = x[i] * (r + 1);
             std::vector<double *> d(3);
             for (auto &p : d) cudaMalloc(&p, n * sizeof(double));
             double total = 0;
             for (size_t r = 0; r < rows.size(); r++) {
               cudaMemcpy(d[r], rows[r].data(), n * sizeof(double), cudaMemcpyHostToDevice);
               if (r > 0) step<<<1, n>>>(d[r], d[r - 1], 0.2, n);
               cudaMemcpy(rows[r].data(), d[r], n * sizeof(double), cudaMemcpyDeviceToHost);
               for (double v : rows[r]) total += v * v;
             }
             std::unique_ptr<double[]> out(new double[n]);
             for (int i = 0; i < n; i++) out[i] = rows.back()[i] + total;
             std::copy(out.get(), out.get() + n, x);
             for (auto p : d) cudaFree(p);
             return total;
           }""",
        "x",
        (numbers(4), 4),
    ),
    "static storage and early ends": (
        """static double *workspace = nullptr; static int capacity = 0;
           double *room(int n) {
             static int grown = 0;
             if (n > capacity) {
               if (workspace) cudaFree(workspace);
               cudaMalloc(&workspace, n * sizeof(double)); capacity = n; grown++;
             }
             return workspace;
           }
           double run(double *x, double k, int n) {
             std::vector<double> kept(x, x + n);
             if (k < 0) return 0;
             double *d = room(n);
             cudaMemcpy(d, kept.data(), n * sizeof(double), cudaMemcpyHostToDevice);
             for (int t = 0;; t++) {
               std::vector<double> now(n);
               scale<<<1, n>>>(d, k, n);
               cudaMemcpy(now.data(), d, n * sizeof(double), cudaMemcpyDeviceToHost);
               if (now[0] < 0.2) { x[1] = now[1] * kept[0]; return now[2] * x[0]; }
             }
           }""",
        "x, k",
        (numbers(5), 0.6, 5),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_spelling(case: str) -> None:
    source, listed, args = CASES[case]
    check(STEP + source, "run", listed, args)


@pytest.mark.parametrize("case", ["a class whose methods launch", "until it converges"])
def test_with_a_budget(case: str) -> None:
    source, listed, args = CASES[case]
    check(STEP + source, "run", listed, args, tape_budget=1500)


MANAGED = """
struct Pair { double a, b; int n; };
__device__ __managed__ double weights[4];
__managed__ Pair pair;
static __managed__ double total;
__global__ void step(double *x) {
  int i = threadIdx.x;
  x[i] = x[i] * weights[i] * pair.a + pair.b;
  atomicAdd(&total, x[i]);
}
double run(double *x, double s) {
  double *d, kept[4], *all = weights;
  cudaMalloc(&d, 32); cudaMemcpy(d, x, 32, cudaMemcpyHostToDevice);
  for (int i = 0; i < 4; i++) all[i] = i + s;
  pair.a = s * s; pair.b = x[0]; pair.n = 3; total = 0;
  cudaMemcpyToSymbol(weights, x, 16, 16);
  for (int t = 0; t < pair.n; t++) {
    step<<<1, 4>>>(d); cudaDeviceSynchronize();
    weights[t] = weights[t] * total; pair.a += 0.1 * total;
  }
  cudaMemcpyFromSymbol(kept, weights, 32); cudaMemcpy(x, d, 32, cudaMemcpyDeviceToHost); cudaFree(d);
  return total * pair.a + kept[1];
}
"""


def test_managed_variables() -> None:
    check(MANAGED, "run", "x, s", (numbers(4), 0.7))


def test_null_for_a_parameter_written_as_an_array() -> None:
    text = """
    __global__ void k(double v[8]) { if (v) v[0] = 1; }
    int count(int n, char *words[], double rows[][4]) { k<<<1, 1>>>(0); return words == nullptr && rows == NULL; }
    int run() { return count(0, 0, 0) + count(0, NULL, nullptr); }
    """
    assert kg.compile(text)["run"](device="cpu") == 2


def test_flat_arrays_of_structs() -> None:
    text = """
    struct Point { double x, y; };
    __global__ void k(Point *p, double2 *q) { int i = threadIdx.x; q[i].x = p[i].x * p[i].y; q[i].y = p[i].x; }
    double run(Point *p, double2 *q) {
      Point *d; double2 *e; cudaMalloc(&d, 48); cudaMalloc(&e, 48);
      cudaMemcpy(d, p, 48, cudaMemcpyHostToDevice); k<<<1, 3>>>(d, e); cudaMemcpy(q, e, 48, cudaMemcpyDeviceToHost);
      return q[0].x * p[2].y;
    }
    """
    check(text, "run", "p, q", (numbers(3, 2), numbers(3, 2, seed=1)))
