// Complex numbers in C style, on float2 and double2.
#pragma once

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

#pragma clang force_cuda_host_device begin

#define KG_COMPLEX(F, C, s)                                                                                            \
  inline F cuCreal##s(C a) { return a.x; }                                                                             \
  inline F cuCimag##s(C a) { return a.y; }                                                                             \
  inline C cuConj##s(C a) { return {a.x, -a.y}; }                                                                      \
  inline C cuCadd##s(C a, C b) { return {a.x + b.x, a.y + b.y}; }                                                      \
  inline C cuCsub##s(C a, C b) { return {a.x - b.x, a.y - b.y}; }                                                      \
  inline C cuCmul##s(C a, C b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }                              \
  inline C cuCdiv##s(C a, C b) {                                                                                       \
    F scale = F(1) / (b.x * b.x + b.y * b.y);                                                                          \
    return {(a.x * b.x + a.y * b.y) * scale, (a.y * b.x - a.x * b.y) * scale};                                         \
  }                                                                                                                    \
  inline F cuCabs##s(C a) { return hypot(a.x, a.y); }                                                                  \
  inline C cuCfma##s(C a, C b, C c) {                                                                                  \
    return {fma(a.x, b.x, fma(-a.y, b.y, c.x)), fma(a.x, b.y, fma(a.y, b.x, c.y))};                                    \
  }
KG_COMPLEX(float, cuFloatComplex, f)
KG_COMPLEX(double, cuDoubleComplex, )
#undef KG_COMPLEX

inline cuFloatComplex make_cuFloatComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex make_cuDoubleComplex(double x, double y) { return {x, y}; }
inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {a.x, a.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return {(float)a.x, (float)a.y}; }

#pragma clang force_cuda_host_device end
