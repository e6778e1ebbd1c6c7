#include <stdexcept>
#include "kernels.h"
template <typename T> class DeviceBuffer {
    T *p_ = nullptr; size_t n_;
public:
    explicit DeviceBuffer(size_t n) : n_(n) {
        if (cudaMalloc(&p_, n * sizeof(T)) != cudaSuccess) throw std::runtime_error("cudaMalloc"); }
    DeviceBuffer(const DeviceBuffer &) = delete;
    DeviceBuffer(DeviceBuffer &&o) : p_(o.p_), n_(o.n_) { o.p_ = nullptr; }
    ~DeviceBuffer() { if (p_) cudaFree(p_); }
    void from(const T *h) { cudaMemcpy(p_, h, n_ * sizeof(T), cudaMemcpyHostToDevice); }
    void to(T *h) const { cudaMemcpy(h, p_, n_ * sizeof(T), cudaMemcpyDeviceToHost); }
    T *get() { return p_; } const T *get() const { return p_; } size_t size() const { return n_; }
};
double run(double *x, int n) {
    DeviceBuffer<double> a(n), b(n);
    a.from(x);
    for (int t = 0; t < 3; t++) { mix<<<1, 32>>>(a.get(), b.get(), 0.3 + t, n);
        square<<<1, 32>>>(b.get(), a.get(), n); }
    double h[16]; a.to(h);
    double s = 0; for (int i = 0; i < n; i++) s += h[i];
    return s;
}
