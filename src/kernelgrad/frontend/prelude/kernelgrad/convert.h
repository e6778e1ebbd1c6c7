// Conversions with a rounding mode, and reinterpretations of bits.
#pragma once

#define KG_CONVERT(mode)                                                                                               \
  int __float2int_##mode(float x);                                                                                     \
  unsigned int __float2uint_##mode(float x);                                                                           \
  long long __float2ll_##mode(float x);                                                                                \
  unsigned long long __float2ull_##mode(float x);                                                                      \
  int __double2int_##mode(double x);                                                                                   \
  unsigned int __double2uint_##mode(double x);                                                                         \
  long long __double2ll_##mode(double x);                                                                              \
  unsigned long long __double2ull_##mode(double x);                                                                    \
  float __double2float_##mode(double x);                                                                               \
  float __int2float_##mode(int x);                                                                                     \
  float __uint2float_##mode(unsigned int x);                                                                           \
  float __ll2float_##mode(long long x);                                                                                \
  float __ull2float_##mode(unsigned long long x);                                                                      \
  double __ll2double_##mode(long long x);                                                                              \
  double __ull2double_##mode(unsigned long long x);
KG_CONVERT(rn)
KG_CONVERT(rd)
KG_CONVERT(ru)
KG_CONVERT(rz)
#undef KG_CONVERT
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned int x) { return x; }

int __float_as_int(float x);
unsigned int __float_as_uint(float x);
float __int_as_float(int x);
float __uint_as_float(unsigned int x);
long long __double_as_longlong(double x);
double __longlong_as_double(long long x);
inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int hi, int lo) {
  return __longlong_as_double((long long)(((unsigned long long)(unsigned int)hi << 32) | (unsigned int)lo));
}
inline int float_as_int(float x) { return __float_as_int(x); }
inline float int_as_float(int x) { return __int_as_float(x); }
inline unsigned int float_as_uint(float x) { return __float_as_uint(x); }
inline float uint_as_float(unsigned int x) { return __uint_as_float(x); }
