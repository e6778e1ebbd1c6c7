__global__ void k(int* y) {
  y[0] = never_declared(3);  // error: ParseError: use of undeclared identifier 'never_declared' // at: never_declared(3);
}
