"""Programs that ask for derivatives, to be transpiled: what loops in device code keep, static variables, structs of
pointers, memory that is passed twice, integers, tapes of any size."""

LOOPS = r"""
#include <stdio.h>
#include "clad/Differentiator/Differentiator.h"
template <typename... A> __device__ void __enzyme_autodiff(A...);

// More than what a thread has room for at first, and not the same for all of them.
__device__ void steps(double *x, const double *w, int n) {
    for (int k = 0; k < n; k++) *x = sin(*x) + *w * *x;
}
__device__ void halves(float *x, int n) {
    while (*x > 0.01f && n-- > 0) *x *= 0.9f * *x;
}
__device__ double power(double x, int n) {
    double y = 1;
    for (int k = 0; k < n; k++) y = sin(y * x) + y * 0.5;
    return y;
}
__device__ void both(double *x, double *d, const double *w, double *dw, int n) {
    __enzyme_autodiff(steps, x, d, w, dw, n);
    for (int k = 0; k < 2; k++) __enzyme_autodiff(steps, x, d, w, dw, 2);
}
__global__ void run(double *x, double *d, const double *w, double *dw, float *s, float *ds, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    both(x + i, d + i, w, dw, n * i);
    __enzyme_autodiff(halves, s + i, ds + i, 5);
    x[i] += 1;
}
__global__ void powers(double *x, double *d, int n) {
    auto g = clad::gradient(power, "x");
    g.execute(x[threadIdx.x], n, &d[threadIdx.x]);
}
int calls = 0;
int count() { return ++calls, 60; }

int main() {
    double x[4] = {0.1, 0.2, 0.3, 0.4}, d[4] = {1, 1, 1, 1}, w = 0.1, dw = 0, *X, *D, *W, *DW;
    float s[4] = {0.5f, 0.8f, 0.9f, 0.001f}, *S, *DS;
    cudaMalloc(&X, 32); cudaMalloc(&D, 32); cudaMalloc(&W, 8); cudaMalloc(&DW, 8); cudaMalloc(&S, 16);
    cudaMalloc(&DS, 16);
    cudaMemcpy(X, x, 32, cudaMemcpyHostToDevice); cudaMemcpy(D, d, 32, cudaMemcpyHostToDevice);
    cudaMemcpy(W, &w, 8, cudaMemcpyHostToDevice); cudaMemcpy(DW, &dw, 8, cudaMemcpyHostToDevice);
    cudaMemcpy(S, s, 16, cudaMemcpyHostToDevice);
    float ones[4] = {1, 1, 1, 1};
    cudaMemcpy(DS, ones, 16, cudaMemcpyHostToDevice);
    run<<<2, 2>>>(X, D, W, DW, S, DS, count());
    cudaMemcpy(x, X, 32, cudaMemcpyDeviceToHost); cudaMemcpy(d, D, 32, cudaMemcpyDeviceToHost);
    cudaMemcpy(&dw, DW, 8, cudaMemcpyDeviceToHost); cudaMemcpy(ones, DS, 16, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 4; i++) printf("%.9g %.9g %.5g\n", x[i], d[i], ones[i]);
    printf("%.9g %d\n", dw, calls);
    cudaMemset(D, 0, 32);
    dim3 block(4);
    powers<<<1, block, 0, 0>>>(X, D, 40);
    cudaMemcpy(d, D, 32, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 4; i++) printf("%.9g\n", d[i]);
}
"""
STATICS = r"""
#include <stdio.h>
template <typename... A> void __enzyme_autodiff(A...);
__global__ void scaled(double *y, const double *x, double a) { y[threadIdx.x] += a * x[threadIdx.x] * x[threadIdx.x]; }
static double weight() {
    static const double weights[3] = {1, 0.5, 0.25};
    static int calls = 0;
    return weights[calls++ % 3];
}
double sum = 1;
void run(double *out, double *x, int n) {
    static double *memory = nullptr;
    static double total[2] = {3};
    if (memory == nullptr) cudaMalloc(&memory, n * sizeof(double));
    double *y;
    cudaMalloc(&y, n * sizeof(double));
    cudaMemcpy(memory, x, n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemset(y, 0, n * sizeof(double));
    for (int k = 0; k < 2; k++) scaled<<<1, n>>>(y, memory, weight());
    cudaMemcpy(out, y, n * sizeof(double), cudaMemcpyDeviceToHost);
    total[0] += out[0];
    total[1] = total[0] * x[1];
    out[1] += total[1];
    memory = nullptr;
    cudaFree(y);
}
int main() {
    for (int k = 0; k < 2; k++) {
        double x[2] = {3, 4}, out[2] = {}, d_x[2] = {}, d_out[2] = {1, 1};
        __enzyme_autodiff(run, out, d_out, x, d_x, 2);
        printf("%g %g %g %g %g\n", out[0], out[1], d_x[0], d_x[1], weight());
    }
}
"""
STRUCTS = r"""
#include <stdio.h>
#include <string.h>
template <typename... A> void __enzyme_autodiff(A...);
struct Pair { double *u, *v; };
struct Fields { Pair of; const int *at; int n; };
__global__ void step(Fields f, double k) {
    int i = threadIdx.x;
    if (i < f.n) f.of.v[i] = f.of.u[i] + k * f.of.u[f.at[i]] * f.of.u[i];
}
__global__ void in_place(Pair p, int by, int n) { if (threadIdx.x < n) p.u[threadIdx.x] *= by * p.u[threadIdx.x]; }
void run(double *out, double *x, int n) {
    Fields f;
    int at[4] = {1, 2, 3, 0}, *device;
    cudaMalloc(&f.of.u, n * 8); cudaMalloc(&f.of.v, n * 8); cudaMalloc(&device, sizeof at);
    cudaMemcpy(f.of.u, x, n * 8, cudaMemcpyHostToDevice);
    cudaMemcpy(device, at, sizeof at, cudaMemcpyHostToDevice);
    f.at = device;
    f.n = n;
    for (int t = 0; t < 3; t++) {
        step<<<1, 4>>>(f, 0.1 * x[t]);
        double *other = f.of.u;
        f.of.u = f.of.v;
        f.of.v = other;
        in_place<<<1, 4>>>(f.of, 2, n);
    }
    double moved[5];
    cudaMemcpy(moved, f.of.u, n * 8, cudaMemcpyDeviceToHost);
    memmove(moved + 1, moved, n * 8);
    memmove(moved, moved + 2, 2 * 8);
    memcpy(out, moved, n * 8);
    cudaFree(f.of.u); cudaFree(f.of.v); cudaFree(device);
}
int main() {
    double x[4] = {0.3, 0.4, 0.5, 0.6}, out[4], d_x[4] = {}, d_out[4] = {1, 2, -1, 0.5};
    __enzyme_autodiff(run, out, d_out, x, d_x, 4);
    for (int i = 0; i < 4; i++) printf("%.10g %.10g %.10g\n", out[i], d_out[i], d_x[i]);
}
"""
SHARED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
template <typename... A> void __enzyme_autodiff(A...);
__global__ void square(double *y, const double *x, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];
}
void run(double *out, double *x, int n) {
    double *a;
    cudaMalloc(&a, 2 * n * 8);
    cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    int device = 0;
    cudaGetDevice(&device);
    for (int k = 0; k < 2; k++) square<<<1, 4>>>(a, a, n);
    struct { double *x, *y; } both = {a, a + n};
    square<<<1, 4>>>(a + n, a, n);
    if (strcmp("\"yes\" (1)", n > 2 ? "\"yes\" (1)" : "no") != 0 || atoi("3") != n || device < 0) exit(1);
    square<<<1, 4>>>(both.y, both.y, n);
    square<<<1, 4>>>(a, a + n, n);
    cudaMemcpy(out, a, n * 8, cudaMemcpyDeviceToHost);
    cudaFree(a);
}
int main() {
    double x[3] = {1.5, -1, 1.25}, out[3], d_x[3] = {}, d_out[3] = {1, 2, -1};
    __enzyme_autodiff(run, out, d_out, x, d_x, 3);
    for (int i = 0; i < 3; i++) printf("%.10g %.10g %.10g\n", out[i], d_out[i], d_x[i]);
}
"""
INTEGERS = r"""
#include "clad/Differentiator/Differentiator.h"
#include <stdio.h>
#include <string.h>
__global__ void scaled(int *to, const int *from, int by, int n) {
    int i = threadIdx.x;
    if (i < n) to[i] = to[i] * from[i] + by * from[(i + 1) % n];
}
__global__ void picked(int *to, const int *from, const int *at, int n) {
    if (threadIdx.x < n) to[threadIdx.x] = from[at[threadIdx.x]] * from[0];
}
__global__ void counted(int *to, int n) { if (threadIdx.x < n) to[threadIdx.x] = n - 1 - threadIdx.x; }
void run(int *out, int *in, int n) {
    int *a, *b, *at, tmp[8];
    cudaMalloc(&a, n * sizeof(int)); cudaMalloc(&b, 2 * n * sizeof(int)); cudaMalloc(&at, n * sizeof(int));
    cudaMemcpy(a, out, n * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(b + n, in, n * sizeof(int), cudaMemcpyHostToDevice);
    counted<<<1, 8>>>(at, n);
    for (int k = 0; k < 2; k++) scaled<<<1, 8>>>(a, b + n, 3 - k, n);
    picked<<<1, 8>>>(b, a, at, n);
    cudaMemcpy(tmp, b, n * sizeof(int), cudaMemcpyDeviceToHost);
    memmove(tmp + 1, tmp, (n - 1) * sizeof(int));
    memcpy(out, tmp, n * sizeof(int));
    int count;
    cudaMemcpy(&count, at, sizeof(int), cudaMemcpyDeviceToHost);
    if (count > 100) out[0] = 7;
    LINE
    cudaFree(a); cudaFree(b); cudaFree(at);
}
int main() {
    int out[4] = {1, 2, 1, 3}, in[4] = {2, 3, 1, 2}, d_out[4] = {1, 1, 2, 1}, d_in[4] = {};
    clad::gradient(run, "out, in").execute(out, in, 4, d_out, d_in);
    for (int i = 0; i < 4; i++) printf("%d %d %d %d\n", out[i], in[i], d_out[i], d_in[i]);
}
"""
TAPES = r"""
#include <cstdio>
#include <cmath>
extern int enzyme_const;
template <typename... Args> __device__ void *__enzyme_augmentfwd(Args...);
template <typename... Args> __device__ double __enzyme_reverse(Args...);
__device__ double chain(double x, const double *w, int n) {
    for (int k = 0; k < n; k++) x = sin(x) * w[0];
    return x;
}
__device__ double square(double x, const double *w, int n) { return n * w[0] * sin(x) * exp(x * x); }
__device__ void *made(double x, double *w, double *dw, int n) { return __enzyme_augmentfwd(chain, x, w, dw, n); }
__global__ void forward(const double *x, double *w, double *dw, void **tape, const int *n) {
    int i = threadIdx.x;
    tape[i] = made(x[i], w, dw, n[i]);
}
__global__ void backward(const double *x, double *w, double *dw, void **tape, const int *n, double *dx, double seed) {
    int i = threadIdx.x;
    dx[i] = __enzyme_reverse(chain, x[i], w, dw, n[i], seed, tape[i]);
}
__global__ void both(const double *x, double *w, double *dw, void **tape, int n, double *dx, int *visits) {
    int i = threadIdx.x;
    atomicAdd(visits, 1);
    for (int k = 0; k < n; k++) tape[i * n + k] = made(x[i] + k, w, dw, k);
    for (int k = 0; k < n; k++) dx[i] += __enzyme_reverse(chain, x[i] + k, w, dw, k, 1.0, tape[i * n + k]);
    for (int k = 0; k < n; k++) tape[i * n + k] = __enzyme_augmentfwd(square, x[i], w, dw, k);
    for (int k = 0; k < n; k++) dx[i] += __enzyme_reverse(square, x[i], w, dw, k, 1.0, tape[i * n + k]);
}
int main() {
    const int count = 4, steps = 40;
    double *x, *w, *dw, *dx;
    void **tape;
    int *n;
    cudaMallocManaged(&x, count * sizeof(double));
    cudaMallocManaged(&dx, count * sizeof(double));
    cudaMallocManaged(&w, sizeof(double));
    cudaMallocManaged(&dw, sizeof(double));
    cudaMallocManaged(&tape, count * steps * sizeof(void *));
    cudaMallocManaged(&n, count * sizeof(int));
    w[0] = 1.2;
    dw[0] = 0;
    int lengths[count] = {0, 3, 7, 300};
    for (int i = 0; i < count; i++) { x[i] = 0.1 + 0.25 * i; n[i] = lengths[i]; dx[i] = 0; }
    forward<<<1, count>>>(x, w, dw, tape, n);
    cudaDeviceSynchronize();
    w[0] = 50;
    backward<<<1, count>>>(x, w, dw, tape, n, dx, 2.0);
    cudaDeviceSynchronize();
    for (int i = 0; i < count; i++) { printf("%.9g ", dx[i]); dx[i] = 0; }
    printf("%.9g\n", dw[0]);
    w[0] = 1.2;
    dw[0] = 0;
    n[0] = 3, n[1] = 5, n[2] = 0, n[3] = 0;
    forward<<<1, 2>>>(x, w, dw, tape, n);
    for (int k = 0; k < 3; k++) backward<<<1, 1>>>(x, w, dw, tape, n, dx, 1.0);
    backward<<<1, 1>>>(x + 1, w, dw, tape + 1, n + 1, dx + 1, 1.0);
    cudaDeviceSynchronize();
    printf("%.9g %.9g %.9g\n", dx[0], dx[1], dw[0]);
    dx[0] = dx[1] = dw[0] = 0;
    n[0] = 0;
    both<<<1, count>>>(x, w, dw, tape, steps, dx, n);
    cudaDeviceSynchronize();
    for (int i = 0; i < count; i++) printf("%.9g ", dx[i]);
    printf("%.9g %d\n", dw[0], n[0]);
}
"""
HOST_TAPES = r"""
#include <cstdio>
#include <cmath>
template <typename... Args> void *__enzyme_augmentfwd(Args...);
template <typename... Args> double __enzyme_reverse(Args...);
double chain(double x, const double *w, int n) {
    for (int k = 0; k < n; k++) x = k % 3 == 2 ? sin(x) * w[0] : x + 0.1f * x * x;
    return x;
}
int main() {
    double w = 1.2, dw = 0;
    void *tapes[5];
    for (int k = 0; k < 5; k++) tapes[k] = __enzyme_augmentfwd(chain, 0.3 * k, &w, &dw, 40 * k);
    w = 70;
    for (int k = 0; k < 5; k++) {
        double dx = __enzyme_reverse(chain, 0.3 * k, &w, &dw, 40 * k, 2.0, tapes[k]);
        printf("%.9g %.9g\n", dx, dw);
    }
}
"""
