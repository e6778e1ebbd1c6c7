#include "kernels.h"
double run(double *x, int n) {
    double *a = NULL, *b = NULL, *h = NULL, s = -1; int i;
    if (cudaMalloc((void **)&a, n * 8) != cudaSuccess) goto out;
    if (cudaMalloc((void **)&b, n * 8) != cudaSuccess) goto out;
    h = (double *)calloc(n, sizeof(double)); if (!h) goto out;
    if (cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice) != cudaSuccess) goto out;
    mix<<<1, 32>>>(a, b, 0.25, n);
    if (cudaMemcpy(h, b, n * 8, cudaMemcpyDeviceToHost) != cudaSuccess) goto out;
    for (s = 0, i = 0; i < n; i++) s += h[i];
out:
    free(h); cudaFree(a); cudaFree(b);
    return s;
}
