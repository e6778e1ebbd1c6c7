void k(int* y) {
  int* p = new int[4];  // error: UnsupportedError: allocation in a host function is not supported // at: new int[4]
  y[0] = p[0];
}
