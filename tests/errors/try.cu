__global__ void k(int* y) {
  try { y[0] = 1; } catch (...) { }  // error: ParseError: cannot use 'try' in __global__ function // at: try
}
