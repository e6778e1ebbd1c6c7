#include "kernels.h"
double run(double *x, int n) {
    double *a, *b; cudaMallocManaged(&a, n * 8); cudaMalloc(&b, n * 8);
    for (int i = 0; i < n; i++) a[i] = 2 * x[i];
    square<<<1, 32>>>(a, b, n); mix<<<1, 32>>>(b, a, 0.5, n); cudaDeviceSynchronize();
    double s = 0; for (int i = 0; i < n; i++) s += a[i] * (i + 1);
    cudaFree(a); cudaFree(b); return s;
}
