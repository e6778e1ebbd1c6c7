template <typename T, int K> __global__ void power(const T *in, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { T v = 1;
    for (int k = 0; k < K; k++) v *= in[i]; out[i] = v + in[i]; } }
template <typename T> T *upload(const T *h, int n) { T *d; cudaMalloc(&d, n * sizeof(T));
    cudaMemcpy(d, h, n * sizeof(T), cudaMemcpyHostToDevice); return d; }
template <typename T> void download(T *h, const T *d, int n) {
    cudaMemcpy(h, d, n * sizeof(T), cudaMemcpyDeviceToHost); }
template <int K, typename T> void apply(T *a, T *b, int n) { power<T, K><<<1, 32>>>(a, b, n); }
double run(double *x, int n) {
    double *a = upload(x, n), *b = upload(x, n), h[32];
    apply<3>(a, b, n); apply<2>(b, a, n);
    download(h, a, n);
    cudaFree(a); cudaFree(b);
    double s = 0; for (int i = 0; i < n; i++) s += h[i];
    return s;
}
