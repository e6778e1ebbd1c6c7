__device__ int later(int x);
__global__ void k(int* y) {
  y[0] = later(3);  // error: UnsupportedError: 'later' has no body here and is not a function kernelgrad knows // at: later(3)
}
