__global__ void k(int* y) {
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(y[0]));  // error: UnsupportedError: inline PTX is not supported // at: asm volatile("mov.u32 %0, %%laneid;" : "=r"(y[0]))
}
