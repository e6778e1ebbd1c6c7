struct R { int* b; int* e; __device__ int* begin() { return b; } __device__ int* end() { return e; } };
__global__ void k(int* y) {
  R r = {y, y + 3};
  for (int v : r) y[v] = 1;  // error: UnsupportedError: a range-based for over something other than an array is not supported // at: for (int v : r) y[v] = 1
}
