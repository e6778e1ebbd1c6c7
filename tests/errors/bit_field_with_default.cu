struct F { unsigned a : 3 = 2; };  // error: UnsupportedError: a bit-field with a default value is not supported // at: a : 3 = 2
__global__ void k(int* y) {
  F f;
  y[0] = f.a;
}
