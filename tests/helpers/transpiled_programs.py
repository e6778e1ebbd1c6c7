"""Programs that ask for derivatives in their source, each with what it prints once these are code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """`prints`: lines of numbers, or of words. `contains`, `lacks`: what the transpiled text has, and has not."""

    text: str
    prints: str
    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


_SQUARE = r"""#include <stdio.h>

void __device__ square(double *in, double *out) {
    out[0] = in[0] * in[0];
}

typedef void (*f_ptr)(double *, double *);

extern void __device__ __enzyme_autodiff(f_ptr,
    int, double *, double *,
    int, double *, double *
);

int __device__ enzyme_dup;

void __global__ square_grad(double *x, double *d_x, double *y, double *d_y) {

    __enzyme_autodiff(square,
        enzyme_dup, x, d_x,
        enzyme_dup, y, d_y);   /* the comment   stays */

}

int main() {
    double host[4] = {1.4, 0.0, 0.0, 1.0}, *m; // x, d_x, y, d_y
    cudaMalloc(&m, sizeof host);
    cudaMemcpy(m, host, sizeof host, cudaMemcpyHostToDevice);
    square_grad<<<1,1>>>(m, m + 1, m + 2, m + 3);
    cudaMemcpy(host, m, sizeof host, cudaMemcpyDeviceToHost);
    for (double v : host) printf("%f ", v);
    printf("\n");
}
"""

_RETURNED = r"""#include <cstdio>
#include <cmath>
template <typename R = void, typename... A> __device__ R __enzyme_autodiff(A...);
template <typename R, typename... A> __device__ R __enzyme_fwddiff(A...);
__device__ int enzyme_out, enzyme_const, enzyme_dup;

struct Two { double a, b; };
__device__ double f(double x, double y, int n) { return n * x * x * y; }
__device__ float wave(const float *w, float t) {
    float s = t;
    for (int k = 0; k < 5; k++) s = sinf(s * w[0]) + w[1];
    return s;
}

__global__ void k(const double *x, double *out, const float *w, float *d_w, float *d_t) {
    int i = threadIdx.x;
    Two d = __enzyme_autodiff<Two>((void *)f, enzyme_out, x[i], enzyme_out, x[i] + 1, enzyme_const, 3);
    out[3 * i] = d.a;
    out[3 * i + 1] = __enzyme_autodiff<double>(f, enzyme_const, x[i], d.b, 3);
    out[3 * i + 2] = __enzyme_fwddiff<double>(f, enzyme_dup, x[i], 2.0, enzyme_const, 1.0, 1);
    float own[2] = {0, 0};
    d_t[i] = __enzyme_autodiff<float>(wave, w, own, 0.5f);    // adjoints in the thread's own memory
    __enzyme_autodiff<float>(wave, w, d_w, 0.5f);             // and in that of all
    if (i == 0) { d_t[2] = own[0]; d_t[3] = own[1]; }
}

int main() {
    double h[8] = {2, 3}, *m;
    float hf[8] = {1.2f, 0.3f}, *g;
    cudaMalloc(&m, sizeof h);
    cudaMalloc(&g, sizeof hf);
    cudaMemcpy(m, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemcpy(g, hf, sizeof hf, cudaMemcpyHostToDevice);
    k<<<1, 2>>>(m, m + 2, g, g + 2, g + 4);
    cudaMemcpy(h, m, sizeof h, cudaMemcpyDeviceToHost);
    cudaMemcpy(hf, g, sizeof hf, cudaMemcpyDeviceToHost);
    for (double v : h) printf("%.4f ", v);
    printf("\n%.4f %.4f %.4f %.4f %.4f %.4f\n", hf[2], hf[3], hf[4], hf[5], hf[6], hf[7]);
}
"""

_CLAD = r"""#include "clad/Differentiator/Differentiator.h"
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

_KERNELS = r"""#include "clad/Differentiator/Differentiator.h"
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

_HOST = r"""#include <stdio.h>

void foo(double *x_in, double *x_out) { x_out[0] = x_in[0] * x_in[0]; }
double power(double x, int n) {
    double p = 1;
    for (int k = 0; k < 3; k++) p *= x + n;
    return p;
}

int enzyme_dup, enzyme_out, enzyme_const;
typedef void (*f_ptr)(double *, double *);
extern void __enzyme_autodiff(f_ptr, int, double *, double *, int, double *, double *);
template <typename... A> double __enzyme_autodiff(A...);

int main() {
    double x = 1.4, d_x = 0.0, y, d_y = 1.0;
    __enzyme_autodiff(foo, enzyme_dup, &x, &d_x, enzyme_dup, &y, &d_y);
    printf("%f %f %f %f\n", x, y, d_x, d_y);
    double slope = __enzyme_autodiff((void *)power, enzyme_out, x, enzyme_const, 2);
    printf("%f\n", slope);
}
"""

_HALVES = r"""#include <cstdio>
template <typename R = void *, typename... A> __device__ R __enzyme_augmentfwd(A...);
template <typename... A> __device__ void __enzyme_reverse(A...);
__device__ int enzyme_dup, enzyme_const, enzyme_allocated;
struct Tape { double kept[2]; };

__device__ void collide(float *src, float *dst, int idx) {
    dst[idx] += src[idx] * src[idx] - 3 * src[idx];
}
__device__ void product(const double *a, double *out) { *out = sin(a[0]) * exp(a[1]); }

__global__ void forward(float *src, float *dst, void **tapes, double *a, double *out, Tape *kept) {
    int i = threadIdx.x;
    tapes[i] = __enzyme_augmentfwd(collide, enzyme_dup, src, src, enzyme_dup, dst, dst, enzyme_const, i);
    if (i > 0) return;
    *kept = __enzyme_augmentfwd<Tape>(product, enzyme_allocated, sizeof(Tape), enzyme_dup, a, a, enzyme_dup, out, out);
}
__global__ void reverse(float *src, float *d_src, float *dst, float *d_dst, void **tapes, double *a, double *d_a,
                        double *out, double *d_out, Tape *kept) {
    int i = threadIdx.x;
    __enzyme_reverse(collide, enzyme_dup, src, d_src, enzyme_dup, dst, d_dst, enzyme_const, i, tapes[i]);
    if (i > 0) return;
    __enzyme_reverse(product, enzyme_allocated, sizeof(Tape), enzyme_dup, a, d_a, enzyme_dup, out, d_out, *kept);
}

int main() {
    float h[16] = {1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, *m; // src, dst, d_src, d_dst
    double hd[6] = {0.5, 0.25, 0, 0, 0, 1}, *d;                         // a, d_a, out, d_out
    void **tapes;
    Tape *kept;
    cudaMalloc(&m, sizeof h);
    cudaMalloc(&d, sizeof hd);
    cudaMalloc(&tapes, 4 * sizeof(void *));
    cudaMalloc(&kept, sizeof(Tape));
    cudaMemcpy(m, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemcpy(d, hd, sizeof hd, cudaMemcpyHostToDevice);
    forward<<<1, 4>>>(m, m + 4, tapes, d, d + 4, kept);
    cudaMemset(m, 0, 4 * sizeof(float)); // what the reverse needs is on the tape
    cudaMemset(d, 0, 2 * sizeof(double));
    reverse<<<1, 4>>>(m, m + 8, m + 4, m + 12, tapes, d, d + 2, d + 4, d + 5, kept);
    cudaMemcpy(h, m, sizeof h, cudaMemcpyDeviceToHost);
    cudaMemcpy(hd, d, sizeof hd, cudaMemcpyDeviceToHost);
    for (int k = 4; k < 16; k++) printf("%.0f ", h[k]);
    printf("\n%.6f %.6f %.6f %.6f\n", hd[2], hd[3], hd[4], hd[5]);
}
"""

_VARIABLES = r"""#include "clad/Differentiator/Differentiator.h"
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

_TAPES = r"""#include <cstdio>
template <typename R = void *, typename... A> __device__ R __enzyme_augmentfwd(A...);
template <typename... A> __device__ void __enzyme_reverse(A...);
__device__ int enzyme_dup, enzyme_const;

__global__ void forward(double *x, double *y, void **tapes);
__device__ void body(double *x, double *y, int i) {
    double v = x[i];
    for (int k = 0; k < 4; k++) v = sin(v) * x[i];
    y[i] = v * y[i];
}
__device__ void *made(double *x, double *y, int i) {
    return __enzyme_augmentfwd(body, enzyme_dup, x, x, enzyme_dup, y, y, enzyme_const, i);
}
__global__ void forward(double *x, double *y, void **tapes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tapes[2 * i] = made(x, y, i);
    tapes[2 * i + 1] = made(x, y, i);
}
__global__ void reverse(double *x, double *d_x, double *y, double *d_y, void **tapes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __enzyme_reverse(body, enzyme_dup, x, d_x, enzyme_dup, y, d_y, enzyme_const, i, tapes[2 * i + 1]);
    __enzyme_reverse(body, enzyme_dup, x, d_x, enzyme_dup, y, d_y, enzyme_const, i, tapes[2 * i]);
}
static int halves(int &n) { return n++ / 2; }
int main() {
    double h[16] = {0.5, 0.75, 1, 1.25, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}, *m; // x, y, d_x, d_y
    void **tapes;
    cudaMalloc(&m, sizeof h);
    cudaMalloc(&tapes, 8 * sizeof(void *));
    cudaMemcpy(m, h, sizeof h, cudaMemcpyHostToDevice);
    int n = 4;
    forward<<<halves(n), 2>>>(m, m + 4, tapes);
    cudaMemset(m, 0, 4 * sizeof(double));
    reverse<<<2, 2>>>(m, m + 8, m + 4, m + 12, tapes);
    cudaMemcpy(h, m, sizeof h, cudaMemcpyDeviceToHost);
    for (int k = 4; k < 16; k++) printf("%.6f ", h[k]);
    printf("\n%d\n", n);
}
"""

PROGRAMS = {
    "square": Program(
        _SQUARE,
        "1.400000 2.800000 1.960000 0.000000",
        (
            "kg::square_grad(x, y, d_x, d_y);   /* the comment   stays */",
            "    square_grad<<<1,1>>>(m, m + 1, m + 2, m + 3);",
        ),
    ),
    "returned": Program(
        _RETURNED,
        "2.0000 3.0000 36.0000 12.0000 8.0000 72.0000 27.0000 12.0000\n0.0308 2.0285 0.0001 0.0001 0.0154 1.0142",
        lacks=("__enzyme_autodiff<Two>((void",),
    ),
    "clad": Program(
        _CLAD,
        "3.00 36.00 27.00 3.00 12.00 27.00",
        ("fn_grad.execute(a, 2.0, d_a, d_b);",),
        ("= clad::gradient(", '#include "clad'),
    ),
    "kernels": Program(
        _KERNELS,
        "0.7547 0.3000 0.0000 1.6676 0.2838 11.8863\n"
        "5.0625 16.0000 9.0000 1.5000 2.0000 9.0000 0.0000 0.0000 0.0000 13.5000 32.0000 1.0000\n"
        "Use execute_kernel() for global CUDA kernels",
        ("auto grad = scale_gradient{};", "const dim3 block(3, 1, 1);"),
    ),
    "halves": Program(_HALVES, "-2 -2 0 4 -1 1 3 5 1 1 1 1\n1.126838 0.615595 0.615595 0.000000"),
    "variables": Program(_VARIABLES, "1.50 2.50 78.00 60.00 90.00 3.00 27.00 60.00 0.00 0.00"),
    "host": Program(_HOST, "1.400000 1.960000 2.800000 0.000000\n34.680000"),
    "tapes": Program(
        _TAPES,
        "0.000876 0.039750 0.393846 1.296343 0.017023 0.470617 2.646987 4.066262"
        " 0.000876 0.039750 0.393846 1.296343\n5",
        ("tapes[2 * i + 1] = made(kg_tapes.at(32), x, y, i);", "reverse<<<2, 2>>>(m, m + 8, m + 4, m + 12, tapes);"),
    ),
}
