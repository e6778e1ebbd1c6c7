__global__ void k(int* y) {
  delete[] y;  // error: UnsupportedError: allocation on the device is not supported // at: delete[] y
}
