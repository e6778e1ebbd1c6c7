"""Programs that ask for derivatives in their source, each with what it prints once these are code."""

from __future__ import annotations

from dataclasses import dataclass

from transpiled_clad import CLAD, CONTRACTION, KERNELS, MACROS, STRUCTS, TEMPLATES, VARIABLES


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

_ROWS = r"""#include <cstdio>
template <typename... A> __device__ void __enzyme_autodiff(A...);
__device__ int enzyme_dup, enzyme_const;
__device__ void energy(const float *x, float *out, int n) {
    float sum = 0;
    for (int k = 0; k < n; k++) sum += x[k] * x[k];
    *out = sum;
}
__global__ void rows(const float *x, float *d_x, float *out, float *d_out, int n) {
    int i = threadIdx.x;
    __enzyme_autodiff(energy, enzyme_dup, x + i * n, d_x + i * n, enzyme_dup, out + i, d_out + i, enzyme_const, n);
}
int main() {
    const int n = 9, m = 32;
    static float h[2][m * n], o[2][m], *x, *d_x, *out, *d_out;
    for (int k = 0; k < m * n; k++) h[0][k] = 0.25f * (k % 7);
    for (int k = 0; k < m; k++) o[1][k] = 1;
    cudaMalloc((void **)&x, sizeof h[0]);
    cudaMalloc((void **)&d_x, sizeof h[0]);
    cudaMalloc((void **)&out, sizeof o[0]);
    cudaMalloc((void **)&d_out, sizeof o[0]);
    cudaMemcpy(x, h[0], sizeof h[0], cudaMemcpyHostToDevice);
    cudaMemcpy(d_x, h[1], sizeof h[0], cudaMemcpyHostToDevice);
    cudaMemcpy(d_out, o[1], sizeof o[0], cudaMemcpyHostToDevice);
    rows<<<1, m>>>(x, d_x, out, d_out, n);
    cudaMemcpy(h[1], d_x, sizeof h[0], cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int k = 0; k < m * n; k++) wrong += h[1][k] != 2 * h[0][k];
    printf("%d\n", wrong);
}
"""

_LAUNCHES = r"""#include <cstdio>
#include <cstdlib>
#include <cmath>
template <typename... A> void __enzyme_autodiff(A...);
int enzyme_dup, enzyme_const, enzyme_out;
__global__ void collide(float *src, float *dst, float rate) {
    size_t idx = threadIdx.x;
    if (idx < 100) dst[idx] += rate * src[idx] * src[idx] - 3 * src[idx];
}
void kern(float *src, float *dst, float rate) { collide<<<1, 100>>>(src, dst, rate); }
void iter(int steps, float *src, float *dst, float *rate) {
    for (unsigned int i = 0; i < steps / 2; i++) {
        kern(src, dst, rate[0] * i);
        kern(dst, src, *rate);
    }
}
double energy(const double *x, int n, double scale) {
    double *d, *h = (double *)malloc(n * sizeof(double)), sum = 0;
    cudaMalloc((void **)&d, n * sizeof(double));
    cudaMemcpy(d, x, n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(h, d, n * sizeof(double), cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) sum += h[i] * h[i] * scale;
    while (sum > 10) { cudaMemset(d, 0, 8); sum = sqrt(sum) * scale; }
    cudaFree(d);
    free(h);
    return sum * sum;
}
template <typename R, typename... A> R __enzyme_autodiff(A...);
void grad_iter(int steps, float *src, float *dsrc, float *dst, float *ddst, float *rate, float *drate) {
    __enzyme_autodiff(iter, enzyme_const, steps, src, dsrc, dst, ddst, rate, drate);
}
int main() {
    float h[400], rate = 0.5f, d_rate = 0;
    for (int i = 0; i < 100; i++) { h[i] = 0.1f + 0.001f * i; h[100 + i] = 0; h[200 + i] = 0.3f; h[300 + i] = 1; }
    float *s, *ds, *t, *dt;
    cudaMalloc(&s, 400); cudaMalloc(&ds, 400); cudaMalloc(&t, 400); cudaMalloc(&dt, 400);
    cudaMemcpy(s, h, 400, cudaMemcpyHostToDevice);
    cudaMemcpy(ds, h + 100, 400, cudaMemcpyHostToDevice);
    cudaMemcpy(t, h + 200, 400, cudaMemcpyHostToDevice);
    cudaMemcpy(dt, h + 300, 400, cudaMemcpyHostToDevice);
    grad_iter(4, s, ds, t, dt, &rate, &d_rate);
    cudaMemcpy(h, s, 400, cudaMemcpyDeviceToHost);
    cudaMemcpy(h + 100, ds, 400, cudaMemcpyDeviceToHost);
    cudaMemcpy(h + 200, t, 400, cudaMemcpyDeviceToHost);
    cudaMemcpy(h + 300, dt, 400, cudaMemcpyDeviceToHost);
    for (int k = 0; k < 400; k += 99) printf("%.4f ", h[k]);
    printf("%.3f\n", d_rate);
    double x[3] = {1, 2, 3}, dx[3] = {};
    double d_scale = __enzyme_autodiff<double>(energy, enzyme_dup, x, dx, enzyme_const, 3, enzyme_out, 2.0);
    printf("%.4f %.4f %.4f %.4f\n", dx[0], dx[1], dx[2], d_scale);
}
"""

_PASSES = r"""#include <cstdio>
__device__ void collide_body(float *src, float *dst) {
    size_t idx = threadIdx.x;
    if (idx < 100) dst[idx] += src[idx] * src[idx] - 3 * src[idx];
}
__global__ void collide(float *src, float *dst) { collide_body(src, dst); }
__attribute__((noinline)) void kern(float *src, float *dst) { collide<<<1, 100>>>(src, dst); }
void iter(int steps, float *src, float *dst) {
    for (unsigned int i = 0; i < steps / 2; i++) {
        kern(src, dst);
        kern(dst, src);
    }
}
template <typename... Args> void __enzyme_autodiff(Args...);
void grad_iter(int steps, float *src, float *dsrc, float *dst, float *ddst) {
    __enzyme_autodiff(iter, steps, src, dsrc, dst, ddst);
}
template <typename R, typename... Args> __device__ R __enzyme_augmentfwd(Args...);
template <typename... Args> __device__ void __enzyme_reverse(Args...);
__device__ int enzyme_allocated;
__global__ void aug_collide(float *src, float *dsrc, float *dst, float *ddst, float *tape) {
    size_t idx = threadIdx.x;
    tape[idx] = __enzyme_augmentfwd<float>((void *)collide_body, enzyme_allocated, sizeof(float), src, dsrc, dst, ddst);
}
__global__ void rev_collide(float *src, float *dsrc, float *dst, float *ddst, float *tape) {
    size_t idx = threadIdx.x;
    __enzyme_reverse((void *)collide_body, enzyme_allocated, sizeof(float), src, dsrc, dst, ddst, tape[idx]);
}
void *aug_kern(float *src, float *dsrc, float *dst, float *ddst) {
    float *tape;
    cudaMalloc(&tape, sizeof(float) * 100);
    aug_collide<<<1, 100>>>(src, dsrc, dst, ddst, tape);
    return (void *)tape;
}
void rev_kern(float *src, float *dsrc, float *dst, float *ddst, void *tape) {
    rev_collide<<<1, 100>>>(src, dsrc, dst, ddst, (float *)tape);
    cudaFree(tape);
}
void *__enzyme_register_gradient_kern[3] = {(void *)kern, (void *)aug_kern, (void *)rev_kern};
int main() {
    float h[400], *p[4];
    for (int i = 0; i < 100; i++) { h[i] = 0.1f + 0.001f * i; h[100 + i] = 0; h[200 + i] = 0.3f; h[300 + i] = 1; }
    for (int k = 0; k < 4; k++) {
        cudaMalloc(&p[k], 400);
        cudaMemcpy(p[k], h + 100 * k, 400, cudaMemcpyHostToDevice);
    }
    grad_iter(4, p[0], p[1], p[2], p[3]);
    for (int k = 0; k < 4; k++) cudaMemcpy(h + 100 * k, p[k], 400, cudaMemcpyDeviceToHost);
    for (int k = 0; k < 400; k += 57) printf("%.4f ", h[k]);
    printf("\n");
}
"""

_LOOPS = r"""#include <cstdio>
#include <cmath>
#include <cstdlib>
template <typename R = void, typename... A> R __enzyme_autodiff(A...);
int enzyme_const, enzyme_dup, enzyme_out;
double mixed(double x, const int *kind, int n) {
    double v = x;
    for (int i = 0; i < n; i++) {
        if (kind[i] == 0) v = sin(v) + x;
        else if (kind[i] == 1) { while (v > 0.5) { v *= 0.6; if (v > 2) v = v * 0.5 + 0.1 * x; } }
        else { double a[3] = {v, x, v * x}; v = a[i % 3] * a[(i + 1) % 3] + 0.1; }
    }
    return v;
}
double sum(const double *x, double a, int n) {
    double s = a;
    for (int i = 0; i < n && s < 100; i++) { if (x[i] < 0) continue; s = s * x[i] + sqrt(s); }
    return s;
}
__global__ void square(double *y, const double *x) { y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }
void run(double *x, double *y, int n, int m) {
    double *d, *e, *h = (double *)malloc(n * 8);
    cudaMalloc(&d, n * 8);
    cudaMalloc(&e, n * 8);
    for (int i = 0; i < n; i++) { double v = x[i]; for (int k = 0; k < m; k++) v = sin(v) * x[i]; h[i] = v; }
    cudaMemcpy(d, h, n * 8, cudaMemcpyHostToDevice);
    square<<<1, n>>>(e, d);
    cudaMemcpy(h, e, n * 8, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) { double v = h[i]; while (v < 10) v = v * 1.5 + x[i]; y[i] = v * v; }
    free(h);
    cudaFree(d);
    cudaFree(e);
}
int main() {
    int kind[7] = {0, 2, 1, 0, 2, 2, 1};
    for (int k = 1; k < 5; k++)
        printf("%.5f ", __enzyme_autodiff<double>(mixed, enzyme_out, 0.5 * k, enzyme_const, kind, enzyme_const, 7));
    double x[5] = {1.5, -1, 2, 0.7, 3}, dx[5] = {}, y[5], dy[5] = {1, 1, 1, 1, 1};
    double da = __enzyme_autodiff<double>(sum, enzyme_dup, x, dx, enzyme_out, 1.0, enzyme_const, 5);
    double db = __enzyme_autodiff<double>(sum, enzyme_const, x, enzyme_out, 1.0, enzyme_const, 5);
    printf("%.5f %.5f\n", da, db);
    for (double &d : dx) { printf("%.5f ", d); d = 0; }
    x[1] = 1;
    __enzyme_autodiff(run, x, dx, y, dy, enzyme_const, 3, enzyme_const, 5);
    for (int i = 0; i < 3; i++) printf("%.5f %.5f %.5f ", dx[i], y[i], dy[i]);
    printf("\n");
}
"""

_VARIABLES_OF_PROGRAMS = r"""#include <cstdio>
template <typename... A> void __enzyme_autodiff(A...);
__constant__ double w[4];
__device__ double kept[4];
__constant__ int shift;
double factor = 2, offsets[4] = {1, 2, 3, 4};
__global__ void first(double *y, const double *x, int pitch) {
    int i = threadIdx.x;
    y[i] = w[i] * x[i / 2 * pitch + (i + shift) % 2] * w[0];
    kept[i] = y[i] * x[0];
}
__global__ void second(double *y, double f) { y[threadIdx.x] *= kept[threadIdx.x] * f; }
void run(double *x, double *weights, double *out) {
    double *d, *y, all[4];
    int one = 1;
    cudaMalloc(&d, 64);
    cudaMallocManaged(&y, 32);
    for (int i = 0; i < 4; i++) offsets[i] = offsets[i] * weights[i];
    cudaMemcpy2D(d, 32, x, 16, 16, 2, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(w, offsets, 16);
    cudaMemcpyToSymbol(w, weights + 2, 16, 16);
    cudaMemcpyToSymbol(shift, &one, sizeof(int));
    first<<<1, 4>>>(y, d, 4);
    second<<<1, 4>>>(y, factor);
    cudaDeviceSynchronize();
    cudaMemcpyFromSymbol(all, kept, 16, 16);
    for (int i = 0; i < 4; i++) out[i] = y[i] * (i < 2 ? all[i] : x[i]);
    cudaFree(d);
    cudaFree(y);
}
int main() {
    double x[4] = {1, 2, 3, 4}, dx[4] = {}, v[4] = {0.5, 1.5, 2.5, 3.5}, dv[4] = {}, o[4] = {}, d_o[4] = {1, 2, 3, 4};
    __enzyme_autodiff(run, x, dx, v, dv, o, d_o);
    for (int i = 0; i < 4; i++) printf("%.3f %.3f %.3f %.3f %.3f ", dx[i], dv[i], o[i], d_o[i], offsets[i]);
    printf("\n");
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
        CLAD,
        "3.00 36.00 27.00 3.00 12.00 27.00",
        ("fn_grad.execute(a, 2.0, d_a, d_b);",),
        ("= clad::gradient(", '#include "clad'),
    ),
    "kernels": Program(
        KERNELS,
        "0.7547 0.3000 0.0000 1.6676 0.2838 11.8863\n"
        "5.0625 16.0000 9.0000 1.5000 2.0000 9.0000 0.0000 0.0000 0.0000 13.5000 32.0000 1.0000\n"
        "Use execute_kernel() for global CUDA kernels",
        ("auto grad = scale_gradient{};", "const dim3 block(3, 1, 1);"),
    ),
    "halves": Program(_HALVES, "-2 -2 0 4 -1 1 3 5 1 1 1 1\n1.126838 0.615595 0.615595 0.000000"),
    "variables": Program(VARIABLES, "1.50 2.50 78.00 60.00 90.00 3.00 27.00 60.00 0.00 0.00"),
    "host": Program(_HOST, "1.400000 1.960000 2.800000 0.000000\n34.680000"),
    "tapes": Program(
        _TAPES,
        "0.000876 0.039750 0.393846 1.296343 0.017023 0.470617 2.646987 4.066262"
        " 0.000876 0.039750 0.393846 1.296343\n5",
        ("tapes[2 * i + 1] = made(kg_tapes.at(32), x, y, i);", "reverse<<<2, 2>>>(m, m + 8, m + 4, m + 12, tapes);"),
    ),
    "rows": Program(_ROWS, "0"),
    "contraction": Program(
        CONTRACTION,
        "22 28 49 64 3 7 11 3 7 11 5 5 7 7 9 9 0 0 0 0",
        ("1u, 1u, 1u, 64u, 1u, 1u, 0ULL, d_C, d_A, d_B, d_dims);",),
    ),
    "launches": Program(_LAUNCHES, "1.0285 14.9730 -23.4231 -3.0094 7.2424 39.990\n3.0237 6.0474 9.0711 74.0810"),
    "passes": Program(_PASSES, "0.6944 8.0862 -27.3765 -17.4640 -0.9614 -2.1060 7.6115 4.2515"),
    "templates": Program(
        TEMPLATES,
        "2.0000 1.9726 3.6372 0.0000 18.0000 24.0000 0.0000 0.0000\n"
        "2.0000 1.9726 3.6372 0.0000 9.0000 12.0000 0.0000 0.0000\n"
        "2.0000 1.9726 3.6372 0.0000 27.0000 36.0000 0.0000 0.0000\n"
        "18.0000 24.0000 3.0000 4.0000 0.0000 0.0000 20.0000 6.0000\n"
        "45.0000 60.0000 3.0000 4.0000 0.0000 0.0000 50.0000 15.0000\n"
        "2.0000 1.9726 3.6372 0.0000 0.0000 0.0000 0.0000 0.0000",
    ),
    "macros": Program(MACROS, "6 9 18 81 0 40 4", ("#define GRADIENT clad::gradient(h)",)),
    "structs": Program(STRUCTS, "48 16 | 18 72 3 12 22 0 0 0 36 6 | 10 12 18 5 12 27 42"),
    "loops": Program(
        _LOOPS,
        "0.53808 2.18707 1.65623 1.28680 13.21079 13.21079\n"
        "6.60539 0.00000 7.12947 20.97212 7.17217 472.37180 215.38789 0.00000 1063.63416 249.81967 0.00000"
        " 153.30739 168.58061 0.00000",
    ),
    "program variables": Program(
        _VARIABLES_OF_PROGRAMS,
        "1526.000 5636.500 2.500 0.000 0.500 2.500 63.000 23.625 0.000 3.000"
        " 753.750 361.000 150.000 0.000 7.500 446.125 517.500 220.500 0.000 14.000",
    ),
}
