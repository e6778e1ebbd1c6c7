__global__ void k(int* y) {
  switch (int m = y[0]; m) { case 1: y[1] = 2; }  // error: UnsupportedError: a switch with an initialiser is not supported // at: switch (int m = y[0]; m) { case 1: y[1] = 2; }
}
