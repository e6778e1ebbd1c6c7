#include "kernels.h"
static double *scratch(int n) { static double *p = nullptr; static int have = 0; if (have < n) {
    if (p) cudaFree(p); cudaMalloc(&p, n * sizeof(double)); have = n; } return p; }
double run(double *x, int n) {
    static int calls = 0; static double last[8];
    calls++;
    double *w = scratch(n), *a; cudaMalloc(&a, n * 8);
    cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    square<<<1, 32>>>(a, w, n); mix<<<1, 32>>>(w, a, 2.0, n);
    cudaMemcpy(last, a, n * 8, cudaMemcpyDeviceToHost); cudaFree(a);
    double s = 0; for (int i = 0; i < n; i++) s += last[i] * last[0]; return s;
}
