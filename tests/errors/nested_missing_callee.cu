__device__ int helper(int x);
__device__ int middle(int x) { return helper(x) + 1; }  // error: UnsupportedError: 'helper' has no body here and is not a function kernelgrad knows // at: helper(x)
__global__ void k(int* y) {
  y[0] = middle(3);
}
