__global__ void k(float* y, cudaSurfaceObject_t s) {
  surf2Dwrite(1.0f, s, 0, 0);  // error: UnsupportedError: surfaces are not supported // at: surf2Dwrite(1.0f, s, 0, 0)
}
