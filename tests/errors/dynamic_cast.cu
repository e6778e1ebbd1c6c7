struct A { virtual __device__ ~A() {} int a; }; struct B : A { int b; };
__global__ void k(int* y, A* a) {
  B* b = dynamic_cast<B*>(a);  // error: UnsupportedError: dynamic_cast is not supported // at: dynamic_cast<B*>(a)
  y[0] = b->b;
}
