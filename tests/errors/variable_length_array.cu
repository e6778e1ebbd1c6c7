__global__ void k(int* y, int n) {
  int a[n];  // error: UnsupportedError: type 'int[n]' is not supported // at: a[n]
  a[0] = 1;
  y[0] = a[0];
}
