__managed__ double weights[6]; __managed__ double sum;
__global__ void weigh(const double *in, int n) { int i = threadIdx.x;
    if (i < n) atomicAdd(&sum, weights[i] * in[i] * in[i]); }
double run(double *x, int n) {
    double *a; cudaMalloc(&a, n * 8); cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    for (int i = 0; i < n; i++) weights[i] = x[n - 1 - i] + i;
    sum = 0;
    weigh<<<1, 32>>>(a, n); cudaDeviceSynchronize();
    cudaFree(a); return sum * sum;
}
