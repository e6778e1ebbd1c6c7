#include "kernels.h"
double run(double *x, int n) {
    int count = 0; cudaGetDeviceCount(&count); if (count == 0) return 0;
    int dev; cudaGetDevice(&dev); cudaDeviceProp prop; cudaGetDeviceProperties(&prop, dev);
    int threads = prop.maxThreadsPerBlock < 64 ? prop.maxThreadsPerBlock : 64;
        if (threads > prop.warpSize) threads = prop.warpSize;
    double *a, *b; cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8);
        cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    square<<<(n + threads - 1) / threads, threads>>>(a, b, n);
    double h[32]; cudaMemcpy(h, b, n * 8, cudaMemcpyDeviceToHost); cudaFree(a); cudaFree(b);
    double s = 0; for (int i = 0; i < n; i++) s += h[i] * h[i]; return s;
}
