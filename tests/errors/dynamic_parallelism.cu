__global__ void child(int* y) { y[0] = 1; }
__global__ void k(int* y) {
  child<<<1, 1>>>(y);  // error: UnsupportedError: a kernel launch inside a kernel (dynamic parallelism) is not supported // at: child<<<1, 1>>>(y)
}
