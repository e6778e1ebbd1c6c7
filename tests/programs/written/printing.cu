#include <iostream>
#include "kernels.h"
double run(double *x, int n) {
    double *a, *b; cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8);
        cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    double h[32], s = 0;
    for (int t = 0; t < 2; t++) {
        mix<<<1, 32>>>(a, b, 1.0, n);
        cudaMemcpy(h, b, n * 8, cudaMemcpyDeviceToHost);
        for (int i = 0; i < n; i++) { fprintf(stderr, "step %d out[%d] = %g\n", t, i, h[i]); s += h[i]; }
        fprintf(stderr, "sum %g %s\n", s, t ? "last" : "first");
        std::cerr << "step " << t << ": " << s << std::endl;
        cudaMemcpy(a, b, n * 8, cudaMemcpyDeviceToDevice); fflush(stderr);
    }
    cudaFree(a); cudaFree(b); return s;
}
