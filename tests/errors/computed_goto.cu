__global__ void k(int* y) {
  void* p = &&here;  // error: UnsupportedError: labels and goto are not supported // at: &&here
  goto *p;
here:
  y[0] = 1;
}
