#include <vector>
#include "kernels.h"
class Solver {
    double *u_, *v_; int n_; std::vector<double> history_;
public:
    Solver(const std::vector<double> &u0) : n_((int)u0.size()) { cudaMalloc(&u_, n_ * 8);
        cudaMalloc(&v_, n_ * 8); cudaMemcpy(u_, u0.data(), n_ * 8, cudaMemcpyHostToDevice); }
    ~Solver() { cudaFree(u_); cudaFree(v_); }
    void step(double w) { mix<<<(n_ + 31) / 32, 32>>>(u_, v_, w, n_); std::swap(u_, v_);
        history_.push_back(energy()); }
    double energy() const { std::vector<double> h(n_);
        cudaMemcpy(h.data(), u_, n_ * 8, cudaMemcpyDeviceToHost); double s = 0; for (double e : h) s += e * e;
        return s; }
    double mean() const { double s = 0; for (size_t i = 0; i < history_.size(); i++) s += history_[i];
        return s / history_.size(); }
};
double run(double *x, int n) { Solver s(std::vector<double>(x, x + n));
    for (int k = 0; k < 3; k++) s.step(0.3); return s.mean(); }
