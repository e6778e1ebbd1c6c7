#include <stdexcept>
#include <string>
#include "kernels.h"
static void check(cudaError_t e, const char *what) {
    if (e != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(e)); }
double run(double *x, int n) {
    if (n > 1000) throw std::invalid_argument("too many");
    double *a, *b; check(cudaMalloc(&a, n * 8), "a"); check(cudaMalloc(&b, n * 8), "b");
    check(cudaMemcpy(a, x, n * 8, cudaMemcpyHostToDevice), "copy");
    mix<<<1, 32>>>(a, b, 0.5, n); check(cudaGetLastError(), "mix");
    double h[32]; check(cudaMemcpy(h, b, n * 8, cudaMemcpyDeviceToHost), "back"); cudaFree(a); cudaFree(b);
    double s = 0; for (int i = 0; i < n; i++) s += h[i]; return s;
}
