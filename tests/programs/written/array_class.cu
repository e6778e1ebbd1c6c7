#include <array>
#include <utility>
#include "kernels.h"
double run(double *x, int n) {
    std::array<double *, 2> buf; for (auto &p : buf) cudaMalloc(&p, n * sizeof(double));
    cudaMemcpy(buf[0], x, n * 8, cudaMemcpyHostToDevice);
    int cur = 0; for (int k = 0; k < 4; k++, cur ^= 1) mix<<<1, 32>>>(buf[cur], buf[1 - cur], 0.2, n);
    std::array<double, 6> h{}; cudaMemcpy(h.data(), buf[cur], n * 8, cudaMemcpyDeviceToHost);
    for (auto p : buf) cudaFree(p);
    double s = 0;
        for (std::size_t i = 0; i < h.size(); ++i) s += std::max(h[i], 0.1) * std::min<double>(i, 3);
        return s + h[0];
}
