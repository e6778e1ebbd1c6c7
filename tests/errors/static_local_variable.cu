__global__ void k(int* y) {
  static int counter = 0;  // error: UnsupportedError: 'counter' is a static variable of a device function // at: counter = 0
  y[0] = counter++;
}
