struct A { int a; };
struct B : A { virtual __device__ int f() { return a; } };
__global__ void k(int* y) {
  B b;  // error: UnsupportedError: the base class 'A' is not supported: virtual bases and functions // at: b;
  y[0] = b.a;
}
