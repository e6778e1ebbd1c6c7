template <typename T> __device__ T f(T x) {
  return x.value();  // error: ParseError: member reference base type 'float' is not a structure or union // at: .value();
}
__global__ void k(float* y) {
  y[0] = f(1.0f);
}
