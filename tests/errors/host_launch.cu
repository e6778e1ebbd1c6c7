__global__ void child(int* y) { y[0] = 1; }
void k(int* y) {
  child<<<1, 1>>>(y);  // error: UnsupportedError: a host function that launches kernels is not supported // at: child<<<1, 1>>>(y)
}
