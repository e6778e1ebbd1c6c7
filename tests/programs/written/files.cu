#include "kernels.h"
double run(double *x, int n) {
    char name[512]; sprintf(name, "FOLDER/weights_%d.txt", n);
    FILE *f = fopen(name, "w"); if (!f) { perror("fopen"); return 0; }
    for (int i = 0; i < n; i++) fprintf(f, "%d\n", i + 1);
    fclose(f);
    int w[32]; f = fopen(name, "r"); for (int i = 0; i < n; i++) if (fscanf(f, "%d", &w[i]) != 1) w[i] = 0;
        fclose(f);
    double *a, *b; cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8);
        cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    square<<<1, 32>>>(a, b, n);
    double h[32]; cudaMemcpy(h, b, n * 8, cudaMemcpyDeviceToHost); cudaFree(a); cudaFree(b);
    double s = 0; for (int i = 0; i < n; i++) s += w[i] * h[i];
    remove(name);
    return s;
}
