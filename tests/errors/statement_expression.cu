__global__ void k(int* y) {
  y[0] = ({ if (y[1]) return; 2; });  // error: UnsupportedError: a statement expression that is left by a jump is not supported // at: ({ if (y[1]) return; 2; })
}
