"""Host functions whose memory is the caller's, in rows, printed, or timed: transpiled. Each program prints what the
gradient gives along a direction, and what finite differences do."""

from __future__ import annotations

_HEAD = r"""#include <cmath>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <vector>
template <typename R = void, typename... A> R __enzyme_autodiff(A...);
int enzyme_dup, enzyme_const, enzyme_out;
__global__ void product(const double *a, const double *b, double *c, int n) {
    int i = threadIdx.x;
    if (i < n) c[i] = a[i] * b[i];
}
"""
_MAIN = r"""
int main() {
    const double start[6] = {0.5, 0.9, 1.3, 0.7, 1.1, 0.3}, along[6] = {1, -0.5, 0.25, 2, 0.75, -1.5};
    double x[6], w[6] = {1, 2, 3, 4, 5, 6}, d[6], found = 0;
    for (int i = 0; i < 6; i++) { x[i] = start[i]; d[i] = 1 + 0.1 * i; }
    __enzyme_autodiff<double>((void *)run, enzyme_dup, x, d, enzyme_const, w, enzyme_const, 6);
    double end = x[0] + 2 * x[5];
    for (int i = 0; i < 6; i++) found += along[i] * d[i];
    auto at = [&](double h) {
        for (int i = 0; i < 6; i++) { x[i] = start[i] + h * along[i]; w[i] = i + 1; }
        double sum = run(x, w, 6);
        for (int i = 0; i < 6; i++) sum += (1 + 0.1 * i) * x[i];
        return sum;
    };
    printf("\n%.9g %.9g\n", found, (at(1e-5) - at(-1e-5)) / 2e-5);
    at(0);
    printf("%.9g %.9g\n", end, x[0] + 2 * x[5]);
}
"""


def _program(text: str) -> str:
    return _HEAD + text + _MAIN


MEMORY = {
    "of the caller's, without an adjoint": _program(
        """
double run(double *x, const double *w, int n) {
    double *a, *b, *c;
    std::vector<double> h(n);
    cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8); cudaMalloc(&c, n * 8);
    for (int i = 0; i < n; i++) h[i] = x[i] * w[i];
    cudaMemcpy(a, h.data(), n * 8, cudaMemcpyHostToDevice);
    cudaMemcpy(b, w, n * 8, cudaMemcpyHostToDevice);
    product<<<1, 32>>>(a, b, c, n);
    cudaMemcpy(h.data(), c, n * 8, cudaMemcpyDeviceToHost);
    double sum = w[1] * x[0];
    for (int i = 0; i < n; i++) sum += h[i] * h[i] * w[i];
    cudaFree(a); cudaFree(b); cudaFree(c);
    return sum;
}
"""
    ),
    "of the caller's, in place": _program(
        """
double run(double *x, const double *w, int n) {
    double *a, *c, sum = 0;
    cudaMalloc(&a, n * 8); cudaMalloc(&c, n * 8);
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < n; i++) { x[i] = sin(x[i]) + 0.1 * x[(i + 1) % n]; if (i == 2) x[i] *= x[0] + k; }
        cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
        product<<<1, 32>>>(a, a, c, n);
        cudaMemcpy(x, c, n * 8, cudaMemcpyDeviceToHost);
        sum += x[0] * w[round];
    }
    for (int i = n - 1; i >= 0; i -= 2) x[i] *= x[i] + 1;
    cudaFree(a); cudaFree(c);
    return sum;
}
"""
    ),
    "several places of one, in loops": _program(
        """
double run(double *x, const double *w, int n) {
    double *a, *h = new double[n], s = 0.4;
    cudaMalloc(&a, n * 8);
    for (int i = 0; i < n; i++) h[i] = x[i] * w[i];
    for (int k = 0; k < 3; k++) { h[3] = h[1] * s + x[k]; s = sin(h[n - 1] * h[3]); h[1] = 0.5 * s + h[0]; }
    cudaMemcpy(a, h, n * 8, cudaMemcpyHostToDevice);
    product<<<1, 32>>>(a, a, a, n);
    cudaMemcpy(h, a, n * 8, cudaMemcpyDeviceToHost);
    for (int k = 0; k < n; k++) s += h[k] * h[2];
    delete[] h;
    cudaFree(a);
    return s;
}
"""
    ),
    "behind pointers to structs": _program(
        """
struct Pair { double a, b; };
__global__ void turn(Pair *y, const Pair *x) { y[threadIdx.x] = {x[threadIdx.x].b * x[threadIdx.x].a, x->a}; }
__global__ void turn_back(const Pair *x, Pair *d_y, Pair *d_x) {
    Pair v = x[threadIdx.x], d = d_y[threadIdx.x];
    atomicAdd(&d_x[threadIdx.x].a, v.b * d.a);
    d_x[threadIdx.x].b += v.a * d.a;
    atomicAdd(&d_x->a, d.b);
    d_y[threadIdx.x] = {0, 0};
}
void again(Pair *y, Pair *x) { turn<<<1, 3>>>(y, x); }
void *forward(Pair *y, Pair *, Pair *x, Pair *) { turn<<<1, 3>>>(y, x); return nullptr; }
void reverse(Pair *, Pair *d_y, Pair *x, Pair *d_x, void *) { turn_back<<<1, 3>>>(x, d_y, d_x); }
void *__enzyme_register_gradient_again[3] = {(void *)again, (void *)forward, (void *)reverse};
double run(double *x, const double *, int n) {
    Pair *a, *b;
    cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8);
    cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    turn<<<1, 3>>>(b, a);
    again(a, b);
    turn<<<1, 3>>>(b, a);
    cudaMemcpy(x, b, n * 8, cudaMemcpyDeviceToHost);
    cudaFree(a); cudaFree(b);
    return x[1] * x[4];
}
"""
    ),
    "as a pass of the program's own left it": _program(
        """
__global__ void decay(double *x) { x[threadIdx.x] = exp(-x[threadIdx.x]); }
__global__ void back(const double *x, double *d) { d[threadIdx.x] *= -x[threadIdx.x]; }
void decays(double *x) { decay<<<1, 6>>>(x); }
void *forward(double *x, double *) { decay<<<1, 6>>>(x); return nullptr; }
void reverse(double *x, double *d, void *) { back<<<1, 6>>>(x, d); }
void *__enzyme_register_gradient_decays[3] = {(void *)decays, (void *)forward, (void *)reverse};
double run(double *x, const double *w, int n) {
    double *a, *b;
    cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8);
    cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    for (int k = 0; k < 2; k++) { product<<<1, 32>>>(a, a, b, n); decays(a); product<<<1, 32>>>(b, a, a, n); }
    cudaMemcpy(x, a, n * 8, cudaMemcpyDeviceToHost);
    cudaFree(a); cudaFree(b);
    return x[0] * w[1];
}
"""
    ),
    "in rows": _program(
        """
__global__ void turn(double *a, size_t pitch, int width) {
    double *row = (double *)((char *)a + blockIdx.x * pitch);
    int i = threadIdx.x;
    if (i < width) row[i] = row[i] * row[i] * (blockIdx.x + 1);
}
double run(double *x, const double *w, int n) {
    double *a;
    size_t pitch, row = n / 2 * sizeof(double);
    cudaMallocPitch(&a, &pitch, row, 2);
    cudaMemset2D(a, pitch, 0, row, 2);
    cudaMemcpy2D(a, pitch, x, row, row, 2, cudaMemcpyHostToDevice);
    turn<<<2, 8>>>(a, pitch, n / 2);
    cudaMemcpy2D(a + pitch / 8, pitch, a, pitch, row - 8, 1, cudaMemcpyDeviceToDevice);
    turn<<<2, 8>>>(a, pitch, n / 2);
    cudaMemcpy2DAsync(x, row, a, pitch, row, 2, cudaMemcpyDeviceToHost, 0);
    cudaDeviceSynchronize();
    cudaFree(a);
    return x[1] * x[n - 1];
}
"""
    ),
    "printed and timed": _program(
        """
double run(double *x, const double *w, int n) {
    cudaEvent_t from, to;
    double *a;
    float time;
    cudaEventCreate(&from); cudaEventCreate(&to);
    cudaMalloc(&a, n * 8);
    std::cerr << "of " << n << " numbers" << std::endl;
    cudaEventRecord(from);
    cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    product<<<1, 32>>>(a, a, a, n);
    cudaMemcpy(x, a, n * 8, cudaMemcpyDeviceToHost);
    cudaEventRecord(to);
    cudaEventSynchronize(to);
    cudaEventElapsedTime(&time, from, to);
    std::cerr << std::fixed << std::setprecision(3) << std::setw(9) << x[0] << ',' << (time < 0) << "\\n" << std::flush;
    cudaEventDestroy(from); cudaEventDestroy(to);
    cudaFree(a);
    return time < 0 ? 0 : x[0] * x[1];
}
"""
    ),
}
