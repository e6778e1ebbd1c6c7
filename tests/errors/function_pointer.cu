__device__ int f(int x) { return x; }
__global__ void k(int* y) {
  int (*p)(int) = f;  // error: UnsupportedError: a pointer to a function is not supported // at: f;
  y[0] = p(3);
}
