__global__ void k(double* y) {
  __int128 a = 1;  // error: UnsupportedError: type '__int128' is not supported // at: a = 1
  y[0] = (double)a;
}
