__global__ void k(int* y) {
  Matrix m;  // error: ParseError: unknown type name 'Matrix' // at: Matrix
  y[0] = m.x;
}
