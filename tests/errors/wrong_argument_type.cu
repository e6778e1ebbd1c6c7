__device__ int f(int* p) { return *p; }
__global__ void k(float* y) {
  y[0] = f(y);  // error: ParseError: no matching function for call to 'f' // at: f(y);
}
