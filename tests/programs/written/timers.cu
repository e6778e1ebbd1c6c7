#include <chrono>
#include <iostream>
#include "kernels.h"
double run(double *x, int n) {
    cudaEvent_t t0, t1; cudaEventCreate(&t0); cudaEventCreate(&t1);
    auto begin = std::chrono::high_resolution_clock::now();
    double *a, *b; cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8);
        cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    cudaEventRecord(t0); square<<<1, 32>>>(a, b, n); cudaEventRecord(t1); cudaEventSynchronize(t1);
    float ms = 0; cudaEventElapsedTime(&ms, t0, t1);
    double h[32]; cudaMemcpy(h, b, n * 8, cudaMemcpyDeviceToHost);
    auto end = std::chrono::high_resolution_clock::now(); std::chrono::duration<double> took = end - begin;
    std::cerr << ms << " ms, " << took.count() << " s, "
              << std::chrono::duration_cast<std::chrono::microseconds>(end - begin).count() << "\n";
    double s = 0; for (int i = 0; i < n; i++) s += h[i] * h[i]; cudaFree(a); cudaFree(b); return s;
}
