__global__ void k(int* y) {
  if (y[0]) goto inside;  // error: UnsupportedError: goto backwards, or into a block, is not supported // at: goto inside
  if (y[1]) {
  inside:
    y[2] = 1;
  }
}
