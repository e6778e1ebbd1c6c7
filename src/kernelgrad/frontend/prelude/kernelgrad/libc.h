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

// Between objects of known types: in the largest words that both are made of, which may be numbers.
template <size_t align> struct __kg_word {
  typedef unsigned long long type;
};
template <> struct __kg_word<1> {
  typedef unsigned char type;
};
template <> struct __kg_word<2> {
  typedef unsigned short type;
};
template <> struct __kg_word<4> {
  typedef unsigned int type;
};
template <size_t> struct __kg_sized {
  typedef void *pointer;
};
template <class T, class U>
inline typename __kg_sized<sizeof(T) + sizeof(U)>::pointer memcpy(T *to, const U *from, size_t bytes) {
  typedef typename __kg_word<(alignof(T) < alignof(U) ? alignof(T) : alignof(U))>::type word;
  if (bytes % sizeof(word) != 0) return memcpy((void *)to, (const void *)from, bytes);
  for (size_t k = 0; k < bytes / sizeof(word); ++k) ((word *)to)[k] = ((const word *)from)[k];
  return to;
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
