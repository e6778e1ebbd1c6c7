__global__ void k(int* y) {
  int d[4] = {[2] = 7};  // error: UnsupportedError: elements of an array cannot be named by their index // at: [2] = 7
  y[0] = d[2];
}
