"""Programs that ask for derivatives as Clad's users do: by integers, through handles, with structs by value."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg

# Programs of a type N: by integers they have the derivatives that they have by doubles.
INTEGERS = r"""
__global__ void scaled(N *out, const N *in, N by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += by * in[i] * in[i];
}
__global__ void blurred(N *to, const N *from, int n) {
    __shared__ N tile[8];
    int i = threadIdx.x;
    if (i < n) tile[i] = from[i];
    __syncthreads();
    if (i < n) to[i] = tile[i] * tile[(i + 1) % n] - 2 * tile[(i + n - 1) % n];
}
__global__ void total(N *to, const N *from, int n) { if (threadIdx.x < n) atomicAdd(to, from[threadIdx.x]); }
__global__ void own(N *to, const N *from, int n) {
    N kept[3];
    for (int k = 0; k < 3; k++) kept[k] = from[k] * from[(k + 1) % n];
    const N *one = from, *other = to;
    N sum = 0;
    for (int k = 0; k < n; k++) {
        sum += one[k] * kept[k % 3];
        const N *swapped = one;
        one = other;
        other = swapped;
    }
    to[0] = sum;
}
void launched(N *out, N *in, int n) {
    N *d_out, *d_in;
    cudaMalloc(&d_out, n * sizeof(N));
    cudaMalloc(&d_in, n * sizeof(N));
    cudaMemcpy(d_out, out, n * sizeof(N), cudaMemcpyHostToDevice);
    cudaMemcpy(d_in, in, n * sizeof(N), cudaMemcpyHostToDevice);
    scaled<<<1, 8>>>(d_out, d_in, 3, n);
    blurred<<<1, 8>>>(d_in, d_out, n);
    scaled<<<1, 8>>>(d_out, d_in, 1, n);
    cudaMemcpy(out, d_out, n * sizeof(N), cudaMemcpyDeviceToHost);
    cudaFree(d_out);
    cudaFree(d_in);
}
void direct(N *out, N *in, int n) {
    scaled<<<1, 8>>>(out, in, 2, n);
    scaled<<<1, 8>>>(in, out, 1, n);
}
void in_turn(N *out, N *in, int n) {
    N *a, *b, *sum, host[1];
    cudaMalloc(&a, n * sizeof(N));
    cudaMalloc(&b, n * sizeof(N));
    cudaMalloc(&sum, sizeof(N));
    cudaMemset(sum, 0, sizeof(N));
    cudaMemcpy(a, in, n * sizeof(N), cudaMemcpyHostToDevice);
    for (int k = 0; k < 2; k++) {
        blurred<<<1, 8>>>(b, a, n);
        N *swapped = a;
        a = b;
        b = swapped;
    }
    total<<<1, 8>>>(sum, a, n);
    cudaMemcpy(host, sum, sizeof(N), cudaMemcpyDeviceToHost);
    out[0] = host[0] * in[1] - host[0] + 2;
    out[2] = -host[0];
}
N on_the_host(N *out, N *in, int n) {
    cudaDeviceSynchronize();
    N sum = 1;
    for (int i = 0; i < n; i++) {
        sum += in[i] * in[i];
        out[i] = sum * out[i];
    }
    N first = in[0], *made = new N[n];
    for (int i = 0; i < n; i++) made[i] = in[i] * first;
    memmove(made + 1, made, (n - 1) * sizeof(N));
    memcpy(out, made, 2 * sizeof(N));
    delete[] made;
    return sum * first - out[1];
}
void with_numbers(N *out, N *in, int n) {
    N *d; cudaMalloc(&d, n * sizeof(N));
    cudaMemset(d, 0, n * sizeof(N));
    N *x; cudaMalloc(&x, n * sizeof(N));
    cudaMemcpy(x, in, n * sizeof(N), cudaMemcpyHostToDevice);
    scaled<<<1, 8>>>(d, x, in[1] - 4, n);
    own<<<1, 1>>>(x, d, n);
    cudaMemcpy(out + 1, x, (n - 1) * sizeof(N), cudaMemcpyDeviceToHost);
}
"""


def integer_gradient(name: str, type: str, dtype: Any, device: str) -> tuple[Any, ...]:
    """The value of one of these functions, and all arrays after its gradient."""
    text = INTEGERS.replace("N ", f"{type} ").replace("(N)", f"({type})").replace("N[", f"{type}[")
    out, source = np.array([1, -2, 3, 1, 2], dtype), np.array([2, 1, -1, 3, 1], dtype)
    d_out, d_source = np.array([1, 2, -1, 1, 3], dtype), np.array([5, 0, 0, 0, 1], dtype)
    run = kg.compile("#include <string.h>\n" + text)[name]
    value = kg.gradient(run, "out, in").execute(out, source, 5, d_out, d_source, device=device)
    return value, out.tolist(), source.tolist(), d_out.tolist(), d_source.tolist()


PASSED = r"""
#include <utility>
double squared(double x, double y) { return x * x * y; }
double cubed(double x, double y) { return x * x * x * y; }
__global__ void doubled(double *to, double *from) { to[threadIdx.x] += 2 * from[threadIdx.x] * from[threadIdx.x]; }
double launched(double x, double y) {
    double *d, *e, h[2] = {x, y};
    cudaMalloc(&d, 16);
    cudaMalloc(&e, 16);
    cudaMemset(e, 0, 16);
    cudaMemcpy(d, h, 16, cudaMemcpyHostToDevice);
    doubled<<<1, 2>>>(e, d);
    cudaMemcpy(h, e, 16, cudaMemcpyDeviceToHost);
    cudaFree(d);
    cudaFree(e);
    return h[0] * h[1];
}
template <class D> void executed(const D &derivative, double x, double y, double *d_x, double *d_y) {
    derivative.execute(x, y, d_x, d_y);
}
template <class D, class... A> void shown(D derivative, A &&...values) {
    double d_x = 0, d_y = 0;
    executed(derivative, std::forward<A>(values)..., &d_x, &d_y);
    printf("%g %g\n", d_x, d_y);
}
template <class D, class... A> double slope(D derivative, A... values) { return derivative.execute(values...); }
template <class D> void launch(D derivative, double *a, double *b, double *da, double *db) {
    derivative.execute_kernel(dim3(1), dim3(2), a, b, da, db);
}
int main() {
    auto of_squared = clad::gradient(squared), of_cubed = clad::gradient(cubed);
    shown(of_squared, 2.0, 5.0);
    shown(of_cubed, 2.0, 5.0);
    shown(clad::gradient(launched), 3.0, 2.0);
    auto by_x = clad::differentiate(squared, "x"), by_y = clad::differentiate(squared, 1);
    printf("%g %g\n", slope(by_x, 2.0, 5.0), slope(by_y, 2.0, 5.0));
    printf("%g\n", slope(clad::differentiate(launched, "x"), 3.0, 2.0));
    double a[2] = {0, 0}, b[2] = {1, 3}, da[2] = {1, 1}, db[2] = {0, 0}, *on[4], *h[4] = {a, b, da, db};
    for (int k = 0; k < 4; k++) {
        cudaMalloc(&on[k], 16);
        cudaMemcpy(on[k], h[k], 16, cudaMemcpyHostToDevice);
    }
    auto twice = [&](auto derivative, double x) { return 2 * derivative.execute(x, 5.0); };
    printf("%g %g\n", twice(by_x, 2.0), twice(by_y, 2.0));
    launch(clad::gradient(doubled), on[0], on[1], on[2], on[3]);
    cudaMemcpy(db, on[3], 16, cudaMemcpyDeviceToHost);
    printf("%g %g\n", db[0], db[1]);
}
"""
PASSED_TOLD = ["20 4", "60 8", "96 144", "20 4", "96", "40 8", "4 12"]

STRUCTS = r"""
struct Inner { float scale; int count; double bias[2]; };
struct Affine { double a; Inner inner; double *x; };
struct Numbers { double a, b; int n; };
__host__ __device__ double value(double x, Numbers f) { return f.a * x * x + f.b * f.n; }
__global__ void each(double *y, const double *x, Numbers f) { y[threadIdx.x] = value(x[threadIdx.x], f); }
void launched(double *y, double *x, Numbers f) {
    double *d, *e;
    cudaMalloc(&d, 24);
    cudaMalloc(&e, 24);
    cudaMemcpy(d, x, 24, cudaMemcpyHostToDevice);
    each<<<1, 3>>>(e, d, f);
    cudaMemcpy(y, e, 24, cudaMemcpyDeviceToHost);
    cudaFree(d);
    cudaFree(e);
}
double nested(double t, Affine f) {
    cudaDeviceSynchronize();
    return f.a * t * f.x[1] + f.inner.scale * f.inner.bias[1] * f.inner.count;
}
int main() {
    double x[3] = {1, 2, 3}, y[3], d_x[3] = {0, 0, 0}, d_y[3] = {1, 1, 1}, d_t = 0;
    Numbers f = {2, 3, 4}, d_f = {1, 0, 9};
    auto g = clad::gradient(launched);
    g.execute(y, x, f, d_y, d_x, &d_f);
    printf("%g, %g %g %g, %g %g %d\n", y[2], d_x[0], d_x[1], d_x[2], d_f.a, d_f.b, d_f.n);
    auto h = clad::gradient(value);
    Numbers d_v = {0, 0, 0};
    h.execute(3, f, &d_t, &d_v);
    printf("%g, %g %g\n", d_t, d_v.a, d_v.b);
    double *on[4], *from[4] = {y, x, d_x, d_x};
    for (int k = 0; k < 4; k++) { cudaMalloc(&on[k], 24); cudaMemcpy(on[k], from[k], 24, cudaMemcpyHostToDevice); }
    auto k = clad::gradient(each, "y, f");
    Numbers d_k = {0, 0, 0}, *d_k_there;
    cudaMalloc(&d_k_there, sizeof(Numbers));
    cudaMemcpy(d_k_there, &d_k, sizeof(Numbers), cudaMemcpyHostToDevice);
    k.execute_kernel(1, 3, on[0], on[1], f, on[2], d_k_there);
    cudaMemcpy(&d_k, d_k_there, sizeof(Numbers), cudaMemcpyDeviceToHost);
    printf("%g %g\n", d_k.a, d_k.b);
    double d_xs[3] = {0, 0, 0};
    Affine a = {2, {0.5f, 3, {1, 4}}, x}, d_a = {0, {0, 0, {0, 0}}, d_xs};
    auto of_nested = clad::gradient(nested);
    of_nested.execute(5, a, &d_t, &d_a);
    printf("%g, %g %g %g %g %g\n", d_t, d_a.a, d_a.inner.scale, d_a.inner.bias[0], d_a.inner.bias[1], d_xs[1]);
}
"""
STRUCTS_TOLD = ["30, 4 8 12, 15 12 9", "12, 9 4", "144 96", "16, 10 12 0 1.5 10"]
