struct Params { double a, b; int n; };
__global__ void affine(const double *in, double *out, Params p) { int i = threadIdx.x;
    if (i < p.n) out[i] = p.a * in[i] * in[i] + p.b; }
double run(double *x, int n) {
    Params p; p.a = x[0] * 2; p.b = x[1]; p.n = n;
    double *a, *b; cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8);
        cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    affine<<<1, 32>>>(a, b, p);
    double h[32]; cudaMemcpy(h, b, n * 8, cudaMemcpyDeviceToHost); cudaFree(a); cudaFree(b);
    double s = 0; for (int i = 0; i < n; i++) s += h[i] * (i + p.a); return s;
}
