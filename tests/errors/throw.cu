__global__ void k(int* y) {
  if (y[0]) throw 1;  // error: ParseError: cannot use 'throw' in __global__ function // at: throw
}
