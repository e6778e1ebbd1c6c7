__global__ void k(float* y, cudaTextureObject_t t) {
  y[0] = tex2D<float>(t, 0.5f, 0.5f);  // error: UnsupportedError: textures are not supported // at: tex2D<float>(t, 0.5f, 0.5f)
}
