#include "kernels.h"
double run(double *x, int n) {
    double *a, *b; cudaMallocManaged(&a, n * 8); cudaMallocManaged(&b, n * 8);
    for (int i = 0; i < n; i++) a[i] = 2 * x[i];
    square<<<1, 32>>>(a, b, n); cudaDeviceSynchronize();
    double s = 0; for (int i = 0; i < n; i++) { s += b[i]; b[i] *= x[0]; }
    mix<<<1, 32>>>(b, a, s, n); cudaDeviceSynchronize();
    for (int i = 0; i < n; i++) s += a[i];
    cudaFree(a); cudaFree(b); return s;
}
