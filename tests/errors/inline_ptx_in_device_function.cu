__device__ unsigned lane() {
  unsigned r;
  asm("mov.u32 %0, %laneid;" : "=r"(r));  // error: UnsupportedError: inline PTX is not supported // at: asm("mov.u32 %0, %laneid;" : "=r"(r))
  return r;
}
__global__ void k(unsigned* y) { y[0] = lane(); }
