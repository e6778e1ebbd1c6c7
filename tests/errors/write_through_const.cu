__global__ void k(const float* y) {
  y[0] = 1;  // error: ParseError: read-only variable is not assignable // at: =
}
