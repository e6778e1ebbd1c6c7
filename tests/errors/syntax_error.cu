__global__ void k(int* y) {
  y[0] = 1 +;  // error: ParseError: expected expression // at: ;
}
