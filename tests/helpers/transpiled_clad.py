"""Programs that ask for derivatives as Clad has it: `clad::gradient(f)`, by a header of its name."""

CLAD = r"""#include "clad/Differentiator/Differentiator.h"
#include <cstdio>

__device__ double fn(double *a, double b) { return *a * *a * b; }
__device__ double cube(double x) { return x * x * x; }

__global__ void compute(double *a, double *d_a, double *d_b, double *slope) {
    auto fn_grad = clad::gradient(fn, "a, b");
    fn_grad.execute(a, 2.0, d_a, d_b);
    slope[threadIdx.x] = clad::differentiate(cube, "x").execute(threadIdx.x + 1.0);
}

int main() {
    double host[6] = {3, 0, 0}, *m;
    cudaMalloc(&m, sizeof host);
    cudaMemcpy(m, host, sizeof host, cudaMemcpyHostToDevice);
    compute<<<1, 3>>>(m, m + 1, m + 2, m + 3);
    cudaMemcpy(host, m, sizeof host, cudaMemcpyDeviceToHost);
    for (double v : host) printf("%.2f ", v);
    printf("\n");
}
"""

KERNELS = r"""#include "clad/Differentiator/Differentiator.h"
#include <cstdio>
#include <vector>

__device__ float step(float v, float val) { return sinf(v) * val; }

__global__ void scale(float *out, const float *in, float val, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = in[i];
    for (int k = 0; k < n; k++) v = step(v, val);
    out[i] = v;
}

__global__ void settle(double *out, const double *in) {
    double v = in[threadIdx.x];
    while (v < 5) v = v * v;
    out[threadIdx.x] = v;
}

int main() {
    const int n = 5;
    std::vector<float> h(4 * n + 1);
    for (int i = 0; i < n; i++) { h[n + i] = 0.1f * i + 0.3f; h[2 * n + i] = 1; }
    float *b;
    cudaMalloc(&b, h.size() * sizeof(float));
    cudaMemcpy(b, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    auto grad = clad::gradient(scale, "out, in, val");
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    int threads = h.size() > 4 ? 8 : 16;
    grad.execute_kernel(dim3(1), dim3(threads), 0, stream, b, b + n, 1.25f, n, b + 2 * n, b + 3 * n, b + 4 * n);
    cudaStreamSynchronize(stream);
    cudaMemcpy(h.data(), b, h.size() * sizeof(float), cudaMemcpyDeviceToHost);
    for (int k : {0, 5, 10, 15, 19, 20}) printf("%.4f ", h[k]);
    printf("\n");

    double s[12] = {0, 0, 0, 1.5, 2, 9, 1, 1, 1}, *m;
    cudaMalloc(&m, sizeof s);
    cudaMemcpy(m, s, sizeof s, cudaMemcpyHostToDevice);
    auto settled = clad::gradient(settle);
    settled.execute_kernel(dim3(1), dim3(3), m, m + 3, m + 6, m + 9);
    cudaMemcpy(s, m, sizeof s, cudaMemcpyDeviceToHost);
    for (double v : s) printf("%.4f ", v);
    printf("\n");
    settled.execute(m, m + 3, m + 6, m + 9);
}
"""

VARIABLES = r"""#include "clad/Differentiator/Differentiator.h"
#include <cstdio>
template <typename... A> __device__ void __enzyme_autodiff(A...);

struct Pair { double x, y; };
__constant__ double W[2] = {3, 4};
__device__ double G[2] = {5, 6};

namespace inner {
__device__ void area(const Pair *p, double *out) { *out = p->x * p->y * W[1] * G[1]; }
}
__device__ void square(const double &a, double &b) { b = a * a; }
__global__ void scale(double *out, const double *in) { out[threadIdx.x] = in[threadIdx.x] * W[threadIdx.x] * G[1]; }

// Asks for both.
__global__ void k(Pair *p, Pair *d_p, double *out, double *d_out) {
    __enzyme_autodiff(inner::area, p, d_p, out, d_out);
    double d = 0, value, seed = 1;
    auto g = clad::gradient(square);
    g.execute(p->x, value, &d, &seed);
    *d_out = d;
}

int main() {
    double h[10] = {1.5, 2.5, 0, 0, 0, 1, 0, 0, 1, 1}, *m;
    cudaMalloc(&m, sizeof h);
    cudaMemcpy(m, h, sizeof h, cudaMemcpyHostToDevice);
    k<<<1, 1>>>((Pair *)m, (Pair *)(m + 2), m + 4, m + 5);
    auto g = clad::gradient(scale, "out, in");
    g.execute_kernel(dim3(1), dim3(2), m + 6, m, m + 8, m + 2);
    cudaMemcpy(h, m, sizeof h, cudaMemcpyDeviceToHost);
    for (double v : h) printf("%.2f ", v);
    printf("\n");
}
"""

CONTRACTION = r"""#include "clad/Differentiator/Differentiator.h"
#include <cstdio>
typedef unsigned long long int size_type;
__global__ void contract(float *C, const float *A, const float *B, const size_type *dims) {
    size_type i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= dims[0] * dims[2]) return;
    float sum = 0;
    for (size_type k = 0; k < dims[1]; k++) sum += A[i / dims[2] * dims[1] + k] * B[k * dims[2] + i % dims[2]];
    C[i] = sum;
}
void product(float *C, const float *A, const float *B, size_type n, size_type m, size_type l) {
    float *d_A = nullptr, *d_B = nullptr, *d_C = nullptr;
    cudaMalloc(&d_A, n * m * sizeof(float));
    cudaMalloc(&d_B, m * l * sizeof(float));
    cudaMalloc(&d_C, n * l * sizeof(float));
    cudaMemcpy(d_A, A, n * m * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(d_B, B, m * l * sizeof(float), cudaMemcpyHostToDevice);
    const size_type dims[3] = {n, m, l};
    size_type *d_dims = nullptr;
    cudaMalloc(&d_dims, sizeof dims);
    cudaMemcpy(d_dims, dims, sizeof dims, cudaMemcpyHostToDevice);
    contract<<<1, 64>>>(d_C, d_A, d_B, d_dims);
    cudaMemcpy(C, d_C, n * l * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(d_A);
    cudaFree(d_B);
    cudaFree(d_C);
    cudaFree(d_dims);
}
int main() {
    float A[2][3] = {{1, 2, 3}, {4, 5, 6}}, B[3][2] = {{1, 2}, {3, 4}, {5, 6}}, C[2][2] = {};
    float dA[2][3] = {}, dB[3][2] = {}, dC[2][2] = {{1, 1}, {1, 1}};
    auto grad = clad::gradient(product, "C, A, B");
    grad.execute(&C[0][0], &A[0][0], &B[0][0], 2, 3, 2, &dC[0][0], &dA[0][0], &dB[0][0]);
    for (auto &row : C) printf("%.0f %.0f ", row[0], row[1]);
    for (auto &row : dA) printf("%.0f %.0f %.0f ", row[0], row[1], row[2]);
    for (auto &row : dB) printf("%.0f %.0f ", row[0], row[1]);
    for (auto &row : dC) printf("%.0f %.0f ", row[0], row[1]);
    printf("\n");
}
"""

TEMPLATES = r"""#include "clad/Differentiator/Differentiator.h"
#include <cstdio>
#include <cmath>
template <typename... A> __device__ void __enzyme_autodiff(A...);
__device__ int enzyme_dup;
template <typename T> __device__ void f(const T *x, T *y) { *y = *x * *x * sin(*x); }
template <typename T, int N> __device__ T g(T x, T y) { T s = 0; for (int i = 0; i < N; i++) s += x * y * y; return s; }
template <typename T, int N = 1>
__global__ void grad(T *x, T *dx, T *y, T *dy) {
    __enzyme_autodiff(f<T>, enzyme_dup, x, dx, enzyme_dup, y, dy);
    auto of_g = clad::gradient(g<T, N>);
    of_g.execute(*x, T(3), x + 4, x + 5);
}
template <int N> __global__ void square(double *o, const double *i) { o[threadIdx.x] = i[threadIdx.x] * i[0] * N; }
template <int N> void host(double *m) {
    auto by = clad::gradient(square<N>, "o, i");
    by.execute_kernel(1, 2, m, m + 2, m + 4, m + 6);
}
struct Method {
    double *dy;
    __device__ void run(double *x, double *dx, double *y) const {
        __enzyme_autodiff(f<double>, enzyme_dup, x, dx, enzyme_dup, y, dy);
    }
};
__global__ void called(double *x) { Method{x + 3}.run(x, x + 1, x + 2); }
template <typename T> void show(const T *m) {
    T h[8];
    cudaMemcpy(h, m, sizeof h, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 8; i++) printf("%.4f ", h[i]);
    printf("\n");
}
int main() {
    double h[8] = {2, 0, 0, 1, 0, 0, 0, 0}, of_host[8] = {0, 0, 3, 4, 1, 1, 0, 0}, *m;
    float s[8] = {2, 0, 0, 1, 0, 0, 0, 0}, *n;
    cudaMalloc(&m, sizeof h);
    cudaMalloc(&n, sizeof s);
    cudaMemcpy(m, h, sizeof h, cudaMemcpyHostToDevice);
    grad<double, 2><<<1, 1>>>(m, m + 1, m + 2, m + 3);
    show(m);
    cudaMemcpy(m, h, sizeof h, cudaMemcpyHostToDevice);
    grad<double><<<1, 1>>>(m, m + 1, m + 2, m + 3);
    show(m);
    cudaMemcpy(n, s, sizeof s, cudaMemcpyHostToDevice);
    grad<float, 3><<<1, 1>>>(n, n + 1, n + 2, n + 3);
    show(n);
    cudaMemcpy(m, of_host, sizeof h, cudaMemcpyHostToDevice);
    host<2>(m);
    show(m);
    cudaMemcpy(m, of_host, sizeof h, cudaMemcpyHostToDevice);
    host<5>(m);
    show(m);
    cudaMemcpy(m, h, sizeof h, cudaMemcpyHostToDevice);
    called<<<1, 1>>>(m);
    show(m);
}
"""

MACROS = r"""#include "clad/Differentiator/Differentiator.h"
#include <cstdio>
template <typename... A> void __enzyme_autodiff(A...);
int enzyme_dup;
#define INNER(...) __enzyme_autodiff(__VA_ARGS__)
#define CALL(fn, a, b) do { \
    INNER(fn, enzyme_dup, &a, &d_ ## a, enzyme_dup, &b, &d_ ## b); \
  } while (0)
#define OUTER(fn, a, da, b, db) INNER(fn, enzyme_dup, a, da, enzyme_dup, b, db)
#define GRADIENT clad::gradient(h)
void f(double *x, double *y) { *y = *x * *x; }
double h(double x, double y) { return x * x * y; }
int main() {
    double x = 3, d_x = 0, y = 0, d_y = 1, a = 0, b = 0, z = 0, d_z = 1;
    OUTER(f, &x, &d_x,
          &y, &d_y);
    CALL(f, y, z);
    auto g = GRADIENT;
    g.execute(2, 5, &a, &b);
    auto by_x = clad::gradient(h, "x");
    by_x.execute(2, 5, &a);
    printf("%g %g %g %g %g %g %g\n", d_x, y, d_y, z, d_z, a, b);
}
"""

STRUCTS = r"""#include "clad/Differentiator/Differentiator.h"
#include <cstdio>
template <typename... A> __host__ __device__ void __enzyme_autodiff(A...);
__device__ int enzyme_dup, enzyme_const;
struct Point { double a, b; int n; };
struct Sizes { int n, stride; };
__device__ void f(const Point *p, double *y) { *y = p->a * p->a * p->b * p->n; }
__device__ void g(Point p, const double *x, double *y) { *y = p.a * *x * *x + p.n; }
__global__ void in_device(Point *p, double *m, Point c) {
    __enzyme_autodiff(f, enzyme_dup, p, p + 1, enzyme_dup, m, m + 1);
    __enzyme_autodiff(g, enzyme_const, c, enzyme_dup, m + 2, m + 3, enzyme_dup, m + 4, m + 5);
}
__global__ void scaled(double *out, const double *in, Point s) { out[threadIdx.x] = in[threadIdx.x] * in[0] * s.a; }
template <typename T, int M> __global__ void spread(T *y, const T *x, Sizes s) {
    if (threadIdx.x < s.n) y[threadIdx.x * s.stride] = x[threadIdx.x] * x[threadIdx.x] * M;
}
__host__ __device__ double twice(double x) { return x * x; }
namespace clad { namespace custom_derivatives {
__host__ __device__ void twice_pullback(double x, double d_y, double *d_x) { *d_x += 7 * d_y * x; }
} }
double own(double x) { return twice(x) * 3; }
void run(double *x, double *y, int n) {
    double *a, *b;
    cudaMalloc(&a, n * 8);
    cudaMalloc(&b, 2 * n * 8);
    cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    Sizes s = {n, 2};
    spread<double, 3><<<1, n>>>(b, a, s);
    s.n = 1;
    spread<double, 5><<<1, n>>>(b, a, s);
    cudaMemcpy(y, b, 2 * n * 8, cudaMemcpyDeviceToHost);
    cudaFree(a);
    cudaFree(b);
}
int main() {
    Point h[2] = {{2, 3, 4}, {0, 0, 0}}, *p;
    double y[10] = {0, 1, 3, 0, 0, 1, 1, 1, 0, 0}, *m;
    cudaMalloc(&p, sizeof h);
    cudaMalloc(&m, sizeof y);
    cudaMemcpy(p, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemcpy(m, y, sizeof y, cudaMemcpyHostToDevice);
    in_device<<<1, 1>>>(p, m, h[0]);
    auto by = clad::gradient(scaled, "out, in");
    by.execute_kernel(dim3(1), dim3(2), m, m + 2, h[0], m + 6, m + 8);
    cudaMemcpy(h, p, sizeof h, cudaMemcpyDeviceToHost);
    cudaMemcpy(y, m, sizeof y, cudaMemcpyDeviceToHost);
    printf("%g %g | ", h[1].a, h[1].b);
    for (double v : y) printf("%g ", v);
    double x[3] = {1, 2, 3}, dx[3] = {}, z[6], dz[6] = {1, 1, 1, 1, 1, 1}, d = 0;
    clad::gradient(run, "x, y").execute(x, z, 3, dx, dz);
    clad::gradient(own).execute(2, &d);
    printf("| %g %g %g %g %g %g %g\n", dx[0], dx[1], dx[2], z[0], z[2], z[4], d);
}
"""
