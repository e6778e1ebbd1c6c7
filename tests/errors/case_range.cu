__global__ void k(int* y) {
  switch (y[0]) { case 1 ... 3: y[1] = 2; }  // error: UnsupportedError: this case label is not supported // at: case 1 ... 3: y[1] = 2
}
