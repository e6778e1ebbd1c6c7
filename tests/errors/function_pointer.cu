__device__ int f(int x) { return x; }
__device__ int g(int x) { return 2 * x; }
__global__ void k(int* y) {
  int (*p)(int) = y[0] ? f : g;  // error: UnsupportedError: a pointer to a function is not supported // at: y[0] ? f : g
  y[0] = p(3);
}
