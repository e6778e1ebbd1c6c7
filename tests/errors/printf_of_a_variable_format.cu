#include <cstdio>
__global__ void k(const char* f) {
  printf(f);  // error: UnsupportedError: printf needs a string literal as its format // at: printf(f)
}
