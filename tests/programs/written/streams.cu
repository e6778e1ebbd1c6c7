#include "kernels.h"
double run(double *x, int n) {
    cudaStream_t s[2]; cudaEvent_t done; double *pinned, *a[2], *b[2]; int half = n / 2;
    cudaMallocHost(&pinned, n * sizeof(double)); memcpy(pinned, x, n * sizeof(double));
    cudaEventCreate(&done);
    for (int k = 0; k < 2; k++) { cudaStreamCreate(&s[k]); cudaMalloc(&a[k], half * 8);
        cudaMalloc(&b[k], half * 8); }
    for (int k = 0; k < 2; k++) {
        cudaMemcpyAsync(a[k], pinned + k * half, half * 8, cudaMemcpyHostToDevice, s[k]);
        square<<<1, 32, 0, s[k]>>>(a[k], b[k], half);
    }
    cudaEventRecord(done, s[0]); cudaStreamWaitEvent(s[1], done, 0);
    mix<<<1, 32, 0, s[1]>>>(b[0], a[1], 0.7, half);
    for (int k = 0; k < 2; k++) cudaStreamSynchronize(s[k]);
    double h[32]; cudaMemcpy(h, a[1], half * 8, cudaMemcpyDeviceToHost);
        cudaMemcpy(h + half, b[1], half * 8, cudaMemcpyDeviceToHost);
    for (int k = 0; k < 2; k++) { cudaStreamDestroy(s[k]); cudaFree(a[k]); cudaFree(b[k]); }
    cudaEventDestroy(done); cudaFreeHost(pinned);
    double r = 0; for (int i = 0; i < 2 * half; i++) r += h[i] * (1 + i); return r;
}
