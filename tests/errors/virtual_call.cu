struct Shape { __device__ virtual float area() const { return 0; } };
__device__ float f(const Shape& s) {
  return s.area();  // error: UnsupportedError: 'area' is virtual: not supported // at: s.area()
}
__global__ void k(float* y) { Shape s; y[0] = f(s); }
