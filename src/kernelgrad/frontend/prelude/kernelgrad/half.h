// Half precision: __half is the compiler's own 16-bit float.
#pragma once

#include "half_common.h"

typedef _Float16 __half;
struct __half_raw {
  unsigned short x;
  inline operator __half() const;
};

KG_HALF_ARITHMETIC(__half)
KG_HALF_CONVERSIONS(__half, half)
KG_HALF_BITS(__half, half)
inline __half_raw::operator __half() const { return __ushort_as_half(x); }
KG_HALF_PAIR(__half, __half2)
KG_HALF_FUNCTIONS(__half, __half2)
KG_SHUFFLE(__half)
KG_PAIR_SHUFFLE(__half2)
KG_ATOMIC(atomicAdd, __half)
KG_PAIR_ATOMIC(__half2)
KG_HALF_LIMITS(__half, 6.103515625e-5f, 65504.0f, 9.765625e-4f, 5.9604644775390625e-8f, 11)

inline float __low2float(__half2 a) { return (float)a.x; }
inline float __high2float(__half2 a) { return (float)a.y; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return __half2(a.x, a.x); }
inline __half2 __high2half2(__half2 a) { return __half2(a.y, a.y); }
inline __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
inline __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
inline __half2 __lowhigh2highlow(__half2 a) { return __half2(a.y, a.x); }
inline __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
inline __half2 make_half2(__half a, __half b) { return __half2(a, b); }
inline __half2 __half2half2(__half a) { return __half2(a, a); }
inline __half2 __float2half2_rn(float a) { return __half2((__half)a, (__half)a); }
inline __half2 __floats2half2_rn(float a, float b) { return __half2((__half)a, (__half)b); }
inline __half2 __float22half2_rn(float2 a) { return __half2((__half)a.x, (__half)a.y); }
inline float2 __half22float2(__half2 a) { return {(float)a.x, (float)a.y}; }

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00u)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fffu)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bffu)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001u)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000u)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00u)
