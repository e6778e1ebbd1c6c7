#include "kernels.h"
struct Arena { char *base; size_t used, size; double *take(int n) { double *p = (double *)(base + used);
    used += ((size_t)n * 8 + 63) & ~(size_t)63; return p; } };
double run(double *x, int n) {
    Arena arena = {nullptr, 0, 1 << 14}; cudaMalloc(&arena.base, arena.size);
    double *t[5]; for (int k = 0; k < 5; k++) t[k] = arena.take(n);
    cudaMemcpy(t[0], x, n * 8, cudaMemcpyHostToDevice);
    for (int k = 0; k + 1 < 5; k++) mix<<<1, 32>>>(t[k], t[k + 1], 0.4, n);
    double h[32]; cudaMemcpy(h, t[4], n * 8, cudaMemcpyDeviceToHost); cudaFree(arena.base);
    double s = 0; for (int i = 0; i < n; i++) s += h[i]; return s;
}
