__global__ void k(int* y) {
  y[0] = 1;
again:  // error: UnsupportedError: labels and goto are not supported // at: again:
  y[1] = 2;
}
