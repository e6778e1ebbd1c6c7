struct F { unsigned a : 4, b : 4; };
__global__ void k(int* y) {
  F f = {1u, 2u};
  (y[0] ? f.a : f.b) = 3;  // error: UnsupportedError: a choice between bit-fields is not supported // at: y[0] ? f.a : f.b
  y[1] = f.a;
}
