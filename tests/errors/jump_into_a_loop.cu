__global__ void k(int* y, int n) {
  switch (n) { case 0: do { y[0]++;
  case 1: y[1]++; } while (--n > 0); }  // error: UnsupportedError: this statement (case_stmt) is not supported // at: case 1: y[1]++
}
