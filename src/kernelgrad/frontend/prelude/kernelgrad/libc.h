// The C library's functions that device code may call.
#pragma once

#include "../assert.h"

void __kg_assert(bool condition, const char *message);

extern "C" {
int printf(const char *format, ...);
void *malloc(size_t bytes);
void free(void *memory);

inline void *memcpy(void *to, const void *from, size_t bytes) {
  for (size_t k = 0; k < bytes; ++k) ((unsigned char *)to)[k] = ((const unsigned char *)from)[k];
  return to;
}
inline void *memset(void *to, int value, size_t bytes) {
  for (size_t k = 0; k < bytes; ++k) ((unsigned char *)to)[k] = (unsigned char)value;
  return to;
}
}

inline void *operator new(size_t, void *place) noexcept { return place; }
inline void *operator new[](size_t, void *place) noexcept { return place; }

namespace std {
using ::free;
using ::malloc;
using ::memcpy;
using ::memset;
using ::printf;
}  // namespace std
