#include <vector>
struct V { double x, y; int k; }; struct Params { V v; double w[3]; int n; };
__global__ void affine(const double *in, double *out, Params p) {
    int i = threadIdx.x;
    if (i < p.n) out[i] = p.v.x * in[i] * in[i] + p.v.y * p.w[i % 3];
}
static V make(double a, double b) { V v = {a * b, b, 2}; return v; }
double run(double *x, int n) {
    Params p; p.v = make(x[0], x[1]); p.n = n; for (int i = 0; i < 3; i++) p.w[i] = x[i] * x[5];
    double *a, *b; cudaMalloc(&a, n * 8); cudaMalloc(&b, n * 8); cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice);
    Params q = p; q.v.x += 1;
    for (int t = 0; t < 3; t++) { affine<<<1, 32>>>(a, b, t ? q : p); q.v.y *= 1.5; double *s = a; a = b; b = s; }
    V last = q.v; std::vector<V> all(2); all[1] = last; all[0] = make(x[3], 2);
    double h[32]; cudaMemcpy(h, a, n * 8, cudaMemcpyDeviceToHost); cudaFree(a); cudaFree(b);
    double s = 0; for (int i = 0; i < n; i++) s += h[i] * all[i % 2].x * all[1].k; return s + last.y;
}
