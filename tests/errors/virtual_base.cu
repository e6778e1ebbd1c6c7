struct A { int a; }; struct B : virtual A { int b; };
__global__ void k(int* y) {
  B b;  // error: UnsupportedError: the base class 'A' is not supported: virtual bases and functions // at: b;
  y[0] = b.b;
}
