#include <stdexcept>
#include "kernels.h"
static void check(cudaError_t e) { if (e != cudaSuccess) throw std::runtime_error("cuda"); }
double run(double *x, int n) {
    double *a = nullptr, *b = nullptr, s = 0;
    try {
        check(cudaMalloc(&a, n * 8)); check(cudaMalloc(&b, n * 8));
            check(cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice));
        mix<<<1, 32>>>(a, b, 0.5, n);
        double h[32]; check(cudaMemcpy(h, b, n * 8, cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i++) s += h[i];
    } catch (const std::exception &e) { fprintf(stderr, "%s\n", e.what()); s = -1; }
    cudaFree(a); cudaFree(b); return s;
}
