// What __half and __nv_bfloat16 have in common, as macros over the scalar type H and its pair H2.
// Arithmetic is the compiler's own, rounded to H after each operation; functions go through float.
#pragma once

#define KG_HALF_ARITHMETIC(H)                                                                                          \
  inline H __hadd(H a, H b) { return a + b; }                                                                          \
  inline H __hsub(H a, H b) { return a - b; }                                                                          \
  inline H __hmul(H a, H b) { return a * b; }                                                                          \
  inline H __hdiv(H a, H b) { return a / b; }                                                                          \
  H __hadd_rn(H a, H b);                                                                                               \
  H __hsub_rn(H a, H b);                                                                                               \
  H __hmul_rn(H a, H b);                                                                                               \
  inline H __hneg(H a) { return -a; }                                                                                  \
  H __habs(H a);                                                                                                       \
  H __hfma(H a, H b, H c);                                                                                             \
  H __hmax(H a, H b);                                                                                                  \
  H __hmin(H a, H b);                                                                                                  \
  inline H __kg_saturate(H a) { return (H)__saturatef((float)a); }                                                     \
  inline H __hadd_sat(H a, H b) { return __kg_saturate(__hadd(a, b)); }                                                \
  inline H __hsub_sat(H a, H b) { return __kg_saturate(__hsub(a, b)); }                                                \
  inline H __hmul_sat(H a, H b) { return __kg_saturate(__hmul(a, b)); }                                                \
  inline H __hfma_sat(H a, H b, H c) { return __kg_saturate(__hfma(a, b, c)); }                                        \
  inline H __hfma_relu(H a, H b, H c) { return __hmax(__hfma(a, b, c), (H)0.0f); }                                     \
  inline bool __heq(H a, H b) { return a == b; }                                                                       \
  inline bool __hne(H a, H b) { return a < b || a > b; }                                                               \
  inline bool __hlt(H a, H b) { return a < b; }                                                                        \
  inline bool __hle(H a, H b) { return a <= b; }                                                                       \
  inline bool __hgt(H a, H b) { return a > b; }                                                                        \
  inline bool __hge(H a, H b) { return a >= b; }                                                                       \
  inline bool __hequ(H a, H b) { return !(a < b || a > b); }                                                           \
  inline bool __hneu(H a, H b) { return a != b; }                                                                      \
  inline bool __hltu(H a, H b) { return !(a >= b); }                                                                   \
  inline bool __hleu(H a, H b) { return !(a > b); }                                                                    \
  inline bool __hgtu(H a, H b) { return !(a <= b); }                                                                   \
  inline bool __hgeu(H a, H b) { return !(a < b); }                                                                    \
  inline bool __hisnan(H a) { return a != a; }                                                                         \
  inline int __hisinf(H a) { return isinf((float)a) ? (a > (H)0.0f ? 1 : -1) : 0; }

// hsin, ...: one-argument functions under the names of CUDA; h2sin and friends work on both parts of a pair.
#define KG_HALF_FUNCTION(H, H2, name, function)                                                                        \
  inline H h##name(H a) { return (H)function((float)a); }                                                              \
  inline H2 h2##name(H2 a) { return H2(h##name(a.x), h##name(a.y)); }
#define KG_HALF_FUNCTIONS(H, H2)                                                                                       \
  KG_HALF_FUNCTION(H, H2, sin, sinf)                                                                                   \
  KG_HALF_FUNCTION(H, H2, cos, cosf)                                                                                   \
  KG_HALF_FUNCTION(H, H2, tanh, tanhf)                                                                                 \
  KG_HALF_FUNCTION(H, H2, exp, expf)                                                                                   \
  KG_HALF_FUNCTION(H, H2, exp2, exp2f)                                                                                 \
  KG_HALF_FUNCTION(H, H2, exp10, exp10f)                                                                               \
  KG_HALF_FUNCTION(H, H2, log, logf)                                                                                   \
  KG_HALF_FUNCTION(H, H2, log2, log2f)                                                                                 \
  KG_HALF_FUNCTION(H, H2, log10, log10f)                                                                               \
  KG_HALF_FUNCTION(H, H2, sqrt, sqrtf)                                                                                 \
  KG_HALF_FUNCTION(H, H2, rsqrt, rsqrtf)                                                                               \
  KG_HALF_FUNCTION(H, H2, rcp, 1.0f /)                                                                                 \
  KG_HALF_FUNCTION(H, H2, floor, floorf)                                                                               \
  KG_HALF_FUNCTION(H, H2, ceil, ceilf)                                                                                 \
  KG_HALF_FUNCTION(H, H2, trunc, truncf)                                                                               \
  KG_HALF_FUNCTION(H, H2, rint, rintf)

// `h` stands in the names of conversions: half or bfloat16.
#define KG_HALF_CONVERSIONS(H, h)                                                                                      \
  inline H __float2##h(float x) { return (H)x; }                                                                       \
  inline H __float2##h##_rn(float x) { return (H)x; }                                                                  \
  H __float2##h##_rd(float x);                                                                                         \
  H __float2##h##_ru(float x);                                                                                         \
  H __float2##h##_rz(float x);                                                                                         \
  inline H __double2##h(double x) { return (H)x; }                                                                     \
  inline float __##h##2float(H x) { return (float)x; }                                                                 \
  KG_HALF_CONVERT_INTEGER(H, h, int, int)                                                                              \
  KG_HALF_CONVERT_INTEGER(H, h, uint, unsigned int)                                                                    \
  KG_HALF_CONVERT_INTEGER(H, h, ll, long long)                                                                         \
  KG_HALF_CONVERT_INTEGER(H, h, ull, unsigned long long)                                                               \
  KG_HALF_CONVERT_SHORT(H, h, short, short, int)                                                                       \
  KG_HALF_CONVERT_SHORT(H, h, ushort, unsigned short, uint)                                                            \
  inline signed char __##h##2char_rz(H x) { return (signed char)max(min((float)x, 127.0f), -128.0f); }                 \
  inline unsigned char __##h##2uchar_rz(H x) { return (unsigned char)max(min((float)x, 255.0f), 0.0f); }
#define KG_HALF_CONVERT_INTEGER(H, h, i, T)                                                                            \
  inline T __##h##2##i##_rn(H x) { return __float2##i##_rn((float)x); }                                                \
  inline T __##h##2##i##_rd(H x) { return __float2##i##_rd((float)x); }                                                \
  inline T __##h##2##i##_ru(H x) { return __float2##i##_ru((float)x); }                                                \
  inline T __##h##2##i##_rz(H x) { return __float2##i##_rz((float)x); }                                                \
  inline H __##i##2##h##_rn(T x) { return (H)x; }                                                                      \
  H __##i##2##h##_rd(T x);                                                                                             \
  H __##i##2##h##_ru(T x);                                                                                             \
  H __##i##2##h##_rz(T x);
#define KG_HALF_CONVERT_SHORT(H, h, i, T, wide)                                                                        \
  inline T __##h##2##i##_rn(H x) { return (T)__kg_clamp_##i(__float2##wide##_rn((float)x)); }                          \
  inline T __##h##2##i##_rd(H x) { return (T)__kg_clamp_##i(__float2##wide##_rd((float)x)); }                          \
  inline T __##h##2##i##_ru(H x) { return (T)__kg_clamp_##i(__float2##wide##_ru((float)x)); }                          \
  inline T __##h##2##i##_rz(H x) { return (T)__kg_clamp_##i(__float2##wide##_rz((float)x)); }                          \
  inline H __##i##2##h##_rn(T x) { return (H)x; }
inline int __kg_clamp_short(int x) { return min(max(x, -32768), 32767); }
inline unsigned int __kg_clamp_ushort(unsigned int x) { return min(x, 65535u); }

#define KG_HALF_BITS(H, h)                                                                                             \
  H __short_as_##h(short x);                                                                                           \
  H __ushort_as_##h(unsigned short x);                                                                                 \
  short __##h##_as_short(H x);                                                                                         \
  unsigned short __##h##_as_ushort(H x);

#define KG_HALF_PAIR(H, H2)                                                                                            \
  struct __align__(4) H2 {                                                                                             \
    H x, y;                                                                                                            \
    H2() = default;                                                                                                    \
    constexpr H2(H a, H b) : x(a), y(b) {}                                                                             \
  };                                                                                                                   \
  inline H2 operator+(H2 a, H2 b) { return H2(a.x + b.x, a.y + b.y); }                                                 \
  inline H2 operator-(H2 a, H2 b) { return H2(a.x - b.x, a.y - b.y); }                                                 \
  inline H2 operator*(H2 a, H2 b) { return H2(a.x * b.x, a.y * b.y); }                                                 \
  inline H2 operator/(H2 a, H2 b) { return H2(a.x / b.x, a.y / b.y); }                                                 \
  inline H2 operator+(H2 a) { return a; }                                                                              \
  inline H2 operator-(H2 a) { return H2(-a.x, -a.y); }                                                                 \
  inline H2 &operator+=(H2 &a, H2 b) { return a = a + b; }                                                             \
  inline H2 &operator-=(H2 &a, H2 b) { return a = a - b; }                                                             \
  inline H2 &operator*=(H2 &a, H2 b) { return a = a * b; }                                                             \
  inline H2 &operator/=(H2 &a, H2 b) { return a = a / b; }                                                             \
  inline bool operator==(H2 a, H2 b) { return a.x == b.x && a.y == b.y; }                                              \
  inline bool operator!=(H2 a, H2 b) { return !(a == b); }                                                             \
  inline H2 __hneg2(H2 a) { return -a; }                                                                               \
  inline H2 __habs2(H2 a) { return H2(__habs(a.x), __habs(a.y)); }                                                     \
  inline H2 __hfma2(H2 a, H2 b, H2 c) { return H2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }                     \
  inline H2 __hfma2_sat(H2 a, H2 b, H2 c) { return H2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); }         \
  inline H2 __hfma2_relu(H2 a, H2 b, H2 c) { return H2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); }      \
  inline H2 __hcmadd(H2 a, H2 b, H2 c) {                                                                               \
    H re = __hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), im = __hfma(a.y, b.x, __hfma(a.x, b.y, c.y));                     \
    return H2(re, im);                                                                                                 \
  }                                                                                                                    \
  KG_PAIRWISE(H2, __hadd2, __hadd)                                                                                     \
  KG_PAIRWISE(H2, __hsub2, __hsub)                                                                                     \
  KG_PAIRWISE(H2, __hmul2, __hmul)                                                                                     \
  KG_PAIRWISE(H2, __h2div, __hdiv)                                                                                     \
  KG_PAIRWISE(H2, __hadd2_rn, __hadd_rn)                                                                               \
  KG_PAIRWISE(H2, __hsub2_rn, __hsub_rn)                                                                               \
  KG_PAIRWISE(H2, __hmul2_rn, __hmul_rn)                                                                               \
  KG_PAIRWISE(H2, __hadd2_sat, __hadd_sat)                                                                             \
  KG_PAIRWISE(H2, __hsub2_sat, __hsub_sat)                                                                             \
  KG_PAIRWISE(H2, __hmul2_sat, __hmul_sat)                                                                             \
  KG_PAIRWISE(H2, __hmax2, __hmax)                                                                                     \
  KG_PAIRWISE(H2, __hmin2, __hmin)                                                                                     \
  KG_PAIR_COMPARE(H, H2, eq)                                                                                           \
  KG_PAIR_COMPARE(H, H2, ne)                                                                                           \
  KG_PAIR_COMPARE(H, H2, lt)                                                                                           \
  KG_PAIR_COMPARE(H, H2, le)                                                                                           \
  KG_PAIR_COMPARE(H, H2, gt)                                                                                           \
  KG_PAIR_COMPARE(H, H2, ge)                                                                                           \
  inline H2 __hisnan2(H2 a) { return H2((H)__hisnan(a.x), (H)__hisnan(a.y)); }
#define KG_PAIRWISE(H2, name, function)                                                                                \
  inline H2 name(H2 a, H2 b) { return H2(function(a.x, b.x), function(a.y, b.y)); }
#define KG_PAIR_COMPARE(H, H2, name)                                                                                   \
  inline H2 __h##name##2(H2 a, H2 b) { return H2((H)__h##name(a.x, b.x), (H)__h##name(a.y, b.y)); }                    \
  inline bool __hb##name##2(H2 a, H2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }

#define KG_PAIR_SHUFFLE(H2)                                                                                            \
  inline H2 __shfl_sync(unsigned int mask, H2 v, int lane, int width = 32) {                                           \
    return H2(__shfl_sync(mask, v.x, lane, width), __shfl_sync(mask, v.y, lane, width));                               \
  }                                                                                                                    \
  inline H2 __shfl_up_sync(unsigned int mask, H2 v, unsigned int delta, int width = 32) {                              \
    return H2(__shfl_up_sync(mask, v.x, delta, width), __shfl_up_sync(mask, v.y, delta, width));                       \
  }                                                                                                                    \
  inline H2 __shfl_down_sync(unsigned int mask, H2 v, unsigned int delta, int width = 32) {                            \
    return H2(__shfl_down_sync(mask, v.x, delta, width), __shfl_down_sync(mask, v.y, delta, width));                   \
  }                                                                                                                    \
  inline H2 __shfl_xor_sync(unsigned int mask, H2 v, int lane_mask, int width = 32) {                                  \
    return H2(__shfl_xor_sync(mask, v.x, lane_mask, width), __shfl_xor_sync(mask, v.y, lane_mask, width));             \
  }
// Atomic for each part only, as CUDA has it.
#define KG_PAIR_ATOMIC(H2)                                                                                             \
  inline H2 atomicAdd(H2 *p, H2 v) { return H2(atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)); }

#define KG_HALF_LIMITS(H, lowest_normal, largest, step, smallest, digits_)                                             \
  template <> struct std::numeric_limits<H> : std::__kg_limits<H, true> {                                              \
    static constexpr int digits = digits_;                                                                             \
    static constexpr H min() noexcept { return (H)lowest_normal; }                                                     \
    static constexpr H max() noexcept { return (H)largest; }                                                           \
    static constexpr H lowest() noexcept { return (H) - largest; }                                                     \
    static constexpr H epsilon() noexcept { return (H)step; }                                                          \
    static constexpr H denorm_min() noexcept { return (H)smallest; }                                                   \
    static constexpr H infinity() noexcept { return (H)__builtin_inff(); }                                             \
    static constexpr H quiet_NaN() noexcept { return (H)__builtin_nanf(""); }                                          \
  };
