struct P { int a, b; };
__global__ void k(int* y) {
  P p = {1, 2};
  auto [a, b] = p;  // error: UnsupportedError: structured bindings are not supported // at: [a, b] = p
  y[0] = a + b;
}
