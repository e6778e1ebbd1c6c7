// CUDA's vector types, dim3, and the make_ functions. Alignments are those of CUDA on a 64-bit system.
#pragma once

#define KG_VECTOR(prefix, T, align2, align4)                                                                           \
  struct prefix##1 {                                                                                                   \
    T x;                                                                                                               \
  };                                                                                                                   \
  struct __align__(align2) prefix##2 {                                                                                 \
    T x, y;                                                                                                            \
  };                                                                                                                   \
  struct prefix##3 {                                                                                                   \
    T x, y, z;                                                                                                         \
  };                                                                                                                   \
  struct __align__(align4) prefix##4 {                                                                                 \
    T x, y, z, w;                                                                                                      \
  };                                                                                                                   \
  inline constexpr prefix##1 make_##prefix##1(T x) { return {x}; }                                                     \
  inline constexpr prefix##2 make_##prefix##2(T x, T y) { return {x, y}; }                                             \
  inline constexpr prefix##3 make_##prefix##3(T x, T y, T z) { return {x, y, z}; }                                     \
  inline constexpr prefix##4 make_##prefix##4(T x, T y, T z, T w) { return {x, y, z, w}; }

KG_VECTOR(char, signed char, 2, 4)
KG_VECTOR(uchar, unsigned char, 2, 4)
KG_VECTOR(short, short, 4, 8)
KG_VECTOR(ushort, unsigned short, 4, 8)
KG_VECTOR(int, int, 8, 16)
KG_VECTOR(uint, unsigned int, 8, 16)
KG_VECTOR(long, long, 16, 16)
KG_VECTOR(ulong, unsigned long, 16, 16)
KG_VECTOR(longlong, long long, 16, 16)
KG_VECTOR(ulonglong, unsigned long long, 16, 16)
KG_VECTOR(float, float, 8, 16)
KG_VECTOR(double, double, 16, 16)
#undef KG_VECTOR

// The 256-bit types under their CUDA 13 names: the suffix says the alignment.
#define KG_WIDE(prefix, T)                                                                                             \
  typedef prefix##4 prefix##4_16a;                                                                                     \
  struct __align__(32) prefix##4_32a {                                                                                 \
    T x, y, z, w;                                                                                                      \
  };                                                                                                                   \
  inline constexpr prefix##4_16a make_##prefix##4_16a(T x, T y, T z, T w) { return {x, y, z, w}; }                     \
  inline constexpr prefix##4_32a make_##prefix##4_32a(T x, T y, T z, T w) { return {x, y, z, w}; }
KG_WIDE(long, long)
KG_WIDE(ulong, unsigned long)
KG_WIDE(longlong, long long)
KG_WIDE(ulonglong, unsigned long long)
KG_WIDE(double, double)
#undef KG_WIDE

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
