__global__ void k(int* y, size_t a) {
  int* p = (int*)a;  // error: UnsupportedError: an integer cannot be turned into a pointer // at: (int*)a
  y[0] = *p;
}
