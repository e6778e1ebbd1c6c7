__constant__ double c[4]; __device__ double acc[8];
__global__ void poly(const double *in, int n) { int i = threadIdx.x;
    if (i < n) acc[i] = c[0] + in[i] * (c[1] + in[i] * (c[2] + c[3] * in[i])); }
double run(double *x, int n) {
    double *a, h[4] = {1, x[0], x[1] * x[2], 0.5}, out[8];
    cudaMalloc(&a, n * 8); cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(c, h, sizeof h);
    poly<<<1, 32>>>(a, n);
    cudaMemcpyFromSymbol(out, acc, n * sizeof(double)); cudaFree(a);
    double s = 0; for (int i = 0; i < n; i++) s += out[i]; return s;
}
