// Approximate functions, and arithmetic with a rounding mode.
#pragma once

float __sinf(float x);
float __cosf(float x);
float __tanf(float x);
float __expf(float x);
float __exp10f(float x);
float __logf(float x);
float __log2f(float x);
float __log10f(float x);
float __tanhf(float x);
float __powf(float x, float y);
float __fdividef(float x, float y);
float __saturatef(float x);
inline void __sincosf(float x, float *s, float *c) {
  *s = __sinf(x);
  *c = __cosf(x);
}
float __frsqrt_rn(float x);

#define KG_ROUNDED(F, p, mode)                                                                                         \
  F __##p##add_##mode(F x, F y);                                                                                       \
  F __##p##sub_##mode(F x, F y);                                                                                       \
  F __##p##mul_##mode(F x, F y);                                                                                       \
  F __##p##div_##mode(F x, F y);                                                                                       \
  F __##p##sqrt_##mode(F x);                                                                                           \
  F __##p##rcp_##mode(F x);
KG_ROUNDED(float, f, rn)
KG_ROUNDED(float, f, rd)
KG_ROUNDED(float, f, ru)
KG_ROUNDED(float, f, rz)
KG_ROUNDED(double, d, rn)
KG_ROUNDED(double, d, rd)
KG_ROUNDED(double, d, ru)
KG_ROUNDED(double, d, rz)
#undef KG_ROUNDED

#define KG_ROUNDED_FMA(mode)                                                                                           \
  float __fmaf_##mode(float x, float y, float z);                                                                      \
  float __fmaf_ieee_##mode(float x, float y, float z);                                                                 \
  double __fma_##mode(double x, double y, double z);
KG_ROUNDED_FMA(rn)
KG_ROUNDED_FMA(rd)
KG_ROUNDED_FMA(ru)
KG_ROUNDED_FMA(rz)
#undef KG_ROUNDED_FMA
