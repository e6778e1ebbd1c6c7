__global__ void k(int* y) {
  __shared__ int s = 3;  // error: ParseError: initialization is not supported for __shared__ variables. // at: s
  y[0] = s;
}
