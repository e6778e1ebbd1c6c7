struct S { int a, b; };
__global__ void k(int* y, S* s) {
  int S::*m = &S::b;  // error: UnsupportedError: type 'int S::*' is not supported // at: m = &S::b
  y[0] = s->*m;
}
