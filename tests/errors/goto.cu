__global__ void k(int* y) {
again:
  y[1] += 1;
  if (y[1] < y[0]) goto again;  // error: UnsupportedError: goto backwards, or into a block, is not supported // at: goto again
}
