__device__ int f(int a, int b) { return a + b; }
__global__ void k(int* y) {
  y[0] = f(1);  // error: ParseError: no matching function for call to 'f' // at: f(1);
}
