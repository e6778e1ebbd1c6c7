__device__ int fact(int n) {
  return n < 2 ? 1 : n * fact(n - 1);  // error: UnsupportedError: 'fact' calls itself: recursion is not supported // at: fact(n - 1)
}
__global__ void k(int* y) { y[0] = fact(y[1]); }
