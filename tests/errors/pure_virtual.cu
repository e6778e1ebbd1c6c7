struct Shape { virtual __device__ float area() const = 0; };
__global__ void k(float* y, const Shape* s) {
  y[0] = s->area();  // error: UnsupportedError: 'area' is virtual: not supported // at: s->area()
}
