texture<float, 2> tex;
__global__ void k(float* y) {
  y[0] = tex2D(tex, 0.5f, 0.5f);  // error: UnsupportedError: textures are not supported // at: tex2D(tex, 0.5f, 0.5f)
}
