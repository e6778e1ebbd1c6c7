// The SIMD-within-a-word functions (__vadd4 and friends), lane by lane.
#pragma once

// `expression` computes one lane from a and b, of type L; `bits` is the lane's width.
#define KG_SIMD2(name, bits, L, expression)                                                                            \
  inline unsigned int name(unsigned int x, unsigned int y) {                                                           \
    unsigned int all = 0;                                                                                              \
    for (int shift = 0; shift < 32; shift += bits) {                                                                   \
      int a = (L)(x >> shift), b = (L)(y >> shift);                                                                    \
      all |= ((unsigned int)(expression) & (0xffffffffu >> (32 - bits))) << shift;                                     \
    }                                                                                                                  \
    return all;                                                                                                        \
  }
#define KG_SIMD1(name, bits, L, expression)                                                                            \
  inline unsigned int name(unsigned int x) {                                                                           \
    unsigned int all = 0;                                                                                              \
    for (int shift = 0; shift < 32; shift += bits) {                                                                   \
      int a = (L)(x >> shift);                                                                                         \
      all |= ((unsigned int)(expression) & (0xffffffffu >> (32 - bits))) << shift;                                     \
    }                                                                                                                  \
    return all;                                                                                                        \
  }
#define KG_SIMD_SUM(name, bits, L)                                                                                     \
  inline unsigned int name(unsigned int x, unsigned int y) {                                                           \
    unsigned int sum = 0;                                                                                              \
    for (int shift = 0; shift < 32; shift += bits) sum += abs((int)(L)(x >> shift) - (int)(L)(y >> shift));            \
    return sum;                                                                                                        \
  }
#define KG_CLAMP(x, low, high) min(max(x, low), high)

// n lanes; S and U are their signed and unsigned types, low and high the range of S, top that of U.
#define KG_SIMD(n, bits, S, U, low, high, top)                                                                         \
  KG_SIMD2(__vadd##n, bits, U, a + b)                                                                                  \
  KG_SIMD2(__vsub##n, bits, U, a - b)                                                                                  \
  KG_SIMD2(__vaddss##n, bits, S, KG_CLAMP(a + b, low, high))                                                           \
  KG_SIMD2(__vaddus##n, bits, U, KG_CLAMP(a + b, 0, top))                                                              \
  KG_SIMD2(__vsubss##n, bits, S, KG_CLAMP(a - b, low, high))                                                           \
  KG_SIMD2(__vsubus##n, bits, U, KG_CLAMP(a - b, 0, top))                                                              \
  KG_SIMD2(__vabsdiffs##n, bits, S, abs(a - b))                                                                        \
  KG_SIMD2(__vabsdiffu##n, bits, U, abs(a - b))                                                                        \
  KG_SIMD2(__vavgs##n, bits, S, (a + b + (a + b >= 0)) >> 1)                                                           \
  KG_SIMD2(__vavgu##n, bits, U, (a + b + 1) >> 1)                                                                      \
  KG_SIMD2(__vhaddu##n, bits, U, (a + b) >> 1)                                                                         \
  KG_SIMD2(__vmaxs##n, bits, S, max(a, b))                                                                             \
  KG_SIMD2(__vmaxu##n, bits, U, max(a, b))                                                                             \
  KG_SIMD2(__vmins##n, bits, S, min(a, b))                                                                             \
  KG_SIMD2(__vminu##n, bits, U, min(a, b))                                                                             \
  KG_SIMD1(__vabs##n, bits, S, abs(a))                                                                                 \
  KG_SIMD1(__vabsss##n, bits, S, min(abs(a), high))                                                                    \
  KG_SIMD1(__vneg##n, bits, S, -a)                                                                                     \
  KG_SIMD1(__vnegss##n, bits, S, min(-a, high))                                                                        \
  KG_SIMD_SUM(__vsads##n, bits, S)                                                                                     \
  KG_SIMD_SUM(__vsadu##n, bits, U)                                                                                     \
  KG_SIMD_COMPARE(n, bits, S, U, cmp, -)                                                                               \
  KG_SIMD_COMPARE(n, bits, S, U, set, +)
// A comparison gives all ones (cmp) or one (set).
#define KG_SIMD_COMPARE(n, bits, S, U, kind, sign)                                                                     \
  KG_SIMD2(__v##kind##eq##n, bits, U, sign(a == b))                                                                    \
  KG_SIMD2(__v##kind##ne##n, bits, U, sign(a != b))                                                                    \
  KG_SIMD2(__v##kind##ges##n, bits, S, sign(a >= b))                                                                   \
  KG_SIMD2(__v##kind##geu##n, bits, U, sign(a >= b))                                                                   \
  KG_SIMD2(__v##kind##gts##n, bits, S, sign(a > b))                                                                    \
  KG_SIMD2(__v##kind##gtu##n, bits, U, sign(a > b))                                                                    \
  KG_SIMD2(__v##kind##les##n, bits, S, sign(a <= b))                                                                   \
  KG_SIMD2(__v##kind##leu##n, bits, U, sign(a <= b))                                                                   \
  KG_SIMD2(__v##kind##lts##n, bits, S, sign(a < b))                                                                    \
  KG_SIMD2(__v##kind##ltu##n, bits, U, sign(a < b))
KG_SIMD(2, 16, short, unsigned short, -32768, 32767, 65535)
KG_SIMD(4, 8, signed char, unsigned char, -128, 127, 255)
#undef KG_SIMD
#undef KG_SIMD_COMPARE
#undef KG_SIMD_SUM
#undef KG_SIMD1
#undef KG_SIMD2
#undef KG_CLAMP
