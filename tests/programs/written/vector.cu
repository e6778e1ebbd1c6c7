#include <vector>
#include <algorithm>
#include <numeric>
#include "kernels.h"
double run(double *x, int n) {
    std::vector<double> in(x, x + n), out(n, 0.0);
    double *a, *b; cudaMalloc(&a, in.size() * sizeof(double)); cudaMalloc(&b, out.size() * sizeof(double));
    cudaMemcpy(a, in.data(), in.size() * sizeof(double), cudaMemcpyHostToDevice);
    mix<<<1, 8>>>(a, b, in[2], n);
    cudaMemcpy(out.data(), b, out.size() * sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(a); cudaFree(b);
    double s = std::accumulate(out.begin(), out.end(), 0.0);
    for (double v : out) s += v * v;
    for (auto it = in.begin(); it != in.end(); ++it) s *= 1.0 + 0.01 * *it;
    return s;
}
