__global__ void k(int* y) {
  y[0] = __isGlobal(y);  // error: UnsupportedError: the address space of a pointer cannot be asked for // at: __isGlobal(y)
}
