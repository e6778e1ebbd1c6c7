#include "kernels.h"
double run(double *x, int n) {
    double *a, *b; cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8);
    auto step = [&](double w) { mix<<<1, 32>>>(a, b, w, n); double *t = a; a = b; b = t; };
    cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    for (int k = 0; k < 4; k++) step(0.2 * k + x[0]);
    double h[32]; cudaMemcpy(h, a, n * 8, cudaMemcpyDeviceToHost);
    auto sum = [n](const double *p) { double s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; };
    double r = sum(h); cudaFree(a); cudaFree(b);
    return r * r;
}
