__global__ void blur(const double *in, double *out, size_t pitch, int w, int h) {
    int c = threadIdx.x, r = threadIdx.y; if (c >= w || r >= h) return;
    const double *row = (const double *)((const char *)in + r * pitch);
    double *o = (double *)((char *)out + r * pitch);
    o[c] = row[c] * row[(c + 1) % w] + row[c];
}
double run(double *x, int n) {
    int w = n / 2, h = 2; double *a, *b; size_t pa, pb;
    cudaMallocPitch(&a, &pa, w * sizeof(double), h); cudaMallocPitch(&b, &pb, w * sizeof(double), h);
    cudaMemcpy2D(a, pa, x, w * sizeof(double), w * sizeof(double), h, cudaMemcpyHostToDevice);
    for (int t = 0; t < 2; t++) { blur<<<1, dim3(8, 4)>>>(a, b, pa, w, h);
        cudaMemcpy2D(a, pa, b, pb, w * sizeof(double), h, cudaMemcpyDeviceToDevice); }
    double out[64];
        cudaMemcpy2D(out, w * sizeof(double), a, pa, w * sizeof(double), h, cudaMemcpyDeviceToHost);
    double s = 0; for (int i = 0; i < n; i++) s += out[i] * (i + 1);
    cudaFree(a); cudaFree(b);
    return s;
}
