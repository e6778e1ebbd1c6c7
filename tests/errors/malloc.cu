__global__ void k(int* y) {
  int* p = (int*)malloc(16);  // error: UnsupportedError: allocation on the device is not supported // at: malloc(16)
  y[0] = p[0];
}
