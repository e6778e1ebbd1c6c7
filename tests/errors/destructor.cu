struct G { int* p; __device__ G(int* q) : p(q) {} __device__ ~G() { *p = 7; } };
__global__ void k(int* y) {
  G g(y);  // error: UnsupportedError: 'G' has a destructor: not supported // at: g(y)
  y[1] = 2;
}
