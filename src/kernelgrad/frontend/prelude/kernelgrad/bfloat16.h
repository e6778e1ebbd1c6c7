// bfloat16: __nv_bfloat16 is the compiler's own type.
#pragma once

#include "half_common.h"

typedef __bf16 __nv_bfloat16;
struct __nv_bfloat16_raw {
  unsigned short x;
};

KG_HALF_ARITHMETIC(__nv_bfloat16)
KG_HALF_CONVERSIONS(__nv_bfloat16, bfloat16)
KG_HALF_BITS(__nv_bfloat16, bfloat16)
KG_HALF_PAIR(__nv_bfloat16, __nv_bfloat162)
KG_HALF_FUNCTIONS(__nv_bfloat16, __nv_bfloat162)
KG_SHUFFLE(__nv_bfloat16)
KG_PAIR_SHUFFLE(__nv_bfloat162)
KG_ATOMIC(atomicAdd, __nv_bfloat16)
KG_PAIR_ATOMIC(__nv_bfloat162)
KG_HALF_LIMITS(__nv_bfloat16, 1.17549435e-38f, 3.3895313892515355e38f, 7.8125e-3f, 9.18354962e-41f, 8)

inline float __low2float(__nv_bfloat162 a) { return (float)a.x; }
inline float __high2float(__nv_bfloat162 a) { return (float)a.y; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.x, a.x); }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.y, a.y); }
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.x, b.x); }
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.y, b.y); }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return __nv_bfloat162(a.y, a.x); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return __nv_bfloat162(a, a); }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return __nv_bfloat162((__nv_bfloat16)a, (__nv_bfloat16)a); }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return __nv_bfloat162((__nv_bfloat16)a, (__nv_bfloat16)b);
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return __floats2bfloat162_rn(a.x, a.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {(float)a.x, (float)a.y}; }

#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80u)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fffu)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000u)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80u)
