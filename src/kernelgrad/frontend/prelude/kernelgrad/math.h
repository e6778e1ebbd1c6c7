// The CUDA math API: sinf, sin(float), sin(double), std::sin. An integer argument counts as double, as in C++.
#pragma once

#define KG_MATH1(name)                                                                                                 \
  float name##f(float x);                                                                                              \
  float name(float x);                                                                                                 \
  double name(double x);                                                                                               \
  template <class T> inline __kg::integer_only<T> name(T x) { return name((double)x); }
KG_MATH1(sqrt)
KG_MATH1(rsqrt)
KG_MATH1(cbrt)
KG_MATH1(rcbrt)
KG_MATH1(exp)
KG_MATH1(exp2)
KG_MATH1(exp10)
KG_MATH1(expm1)
KG_MATH1(log)
KG_MATH1(log2)
KG_MATH1(log10)
KG_MATH1(log1p)
KG_MATH1(logb)
KG_MATH1(sin)
KG_MATH1(cos)
KG_MATH1(tan)
KG_MATH1(sinpi)
KG_MATH1(cospi)
KG_MATH1(tanpi)
KG_MATH1(asin)
KG_MATH1(acos)
KG_MATH1(atan)
KG_MATH1(sinh)
KG_MATH1(cosh)
KG_MATH1(tanh)
KG_MATH1(asinh)
KG_MATH1(acosh)
KG_MATH1(atanh)
KG_MATH1(erf)
KG_MATH1(erfc)
KG_MATH1(erfinv)
KG_MATH1(erfcinv)
KG_MATH1(erfcx)
KG_MATH1(normcdf)
KG_MATH1(normcdfinv)
KG_MATH1(lgamma)
KG_MATH1(tgamma)
KG_MATH1(j0)
KG_MATH1(j1)
KG_MATH1(y0)
KG_MATH1(y1)
KG_MATH1(cyl_bessel_i0)
KG_MATH1(cyl_bessel_i1)
KG_MATH1(floor)
KG_MATH1(ceil)
KG_MATH1(trunc)
KG_MATH1(round)
KG_MATH1(rint)
KG_MATH1(nearbyint)
KG_MATH1(fabs)
#undef KG_MATH1

#define KG_MATH2(name)                                                                                                 \
  float name##f(float x, float y);                                                                                     \
  float name(float x, float y);                                                                                        \
  double name(double x, double y);                                                                                     \
  template <class T, class U> inline __kg::promoted<T, U> name(T x, U y) {                                             \
    typedef __kg::promoted<T, U> both;                                                                                 \
    return name((both)x, (both)y);                                                                                     \
  }
KG_MATH2(pow)
KG_MATH2(atan2)
KG_MATH2(hypot)
KG_MATH2(rhypot)
KG_MATH2(fmod)
KG_MATH2(remainder)
KG_MATH2(copysign)
KG_MATH2(nextafter)
KG_MATH2(fdim)
KG_MATH2(fmin)
KG_MATH2(fmax)
#undef KG_MATH2

float fmaf(float x, float y, float z);
float fma(float x, float y, float z);
double fma(double x, double y, double z);
template <class T, class U, class V> inline auto fma(T x, U y, V z) -> __kg::promoted<__kg::promoted<T, U>, V> {
  typedef __kg::promoted<__kg::promoted<T, U>, V> all;
  return fma((all)x, (all)y, (all)z);
}

// Not overloaded in CUDA: the plain names are double.
float norm3df(float x, float y, float z);
double norm3d(double x, double y, double z);
float rnorm3df(float x, float y, float z);
double rnorm3d(double x, double y, double z);
float norm4df(float x, float y, float z, float w);
double norm4d(double x, double y, double z, double w);
float rnorm4df(float x, float y, float z, float w);
double rnorm4d(double x, double y, double z, double w);

float jnf(int n, float x);
float jn(int n, float x);
double jn(int n, double x);
float ynf(int n, float x);
float yn(int n, float x);
double yn(int n, double x);

float ldexpf(float x, int n);
float ldexp(float x, int n);
double ldexp(double x, int n);
float scalbnf(float x, int n);
float scalbn(float x, int n);
double scalbn(double x, int n);
int ilogbf(float x);
int ilogb(float x);
int ilogb(double x);
template <class T> inline __kg::integer_only<T> ldexp(T x, int n) { return ldexp((double)x, n); }
template <class T> inline __kg::integer_only<T> scalbn(T x, int n) { return scalbn((double)x, n); }

float __kg_powi(float x, int n);
double __kg_powi(double x, int n);
inline float powif(float x, int n) { return __kg_powi(x, n); }
inline double powi(double x, int n) { return __kg_powi(x, n); }

float __kg_frexp_mantissa(float x);
double __kg_frexp_mantissa(double x);
int __kg_frexp_exponent(float x);
int __kg_frexp_exponent(double x);

float max(float x, float y);
double max(double x, double y);
float min(float x, float y);
double min(double x, double y);
inline double max(float x, double y) { return max((double)x, y); }
inline double max(double x, float y) { return max(x, (double)y); }
inline double min(float x, double y) { return min((double)x, y); }
inline double min(double x, float y) { return min(x, (double)y); }
float abs(float x);
double abs(double x);

bool isnan(float x);
bool isnan(double x);
bool isinf(float x);
bool isinf(double x);
bool isfinite(float x);
bool isfinite(double x);
bool signbit(float x);
bool signbit(double x);
template <class T> inline std::enable_if_t<__is_integral(T), bool> isnan(T) { return false; }
template <class T> inline std::enable_if_t<__is_integral(T), bool> isinf(T) { return false; }
template <class T> inline std::enable_if_t<__is_integral(T), bool> isfinite(T) { return true; }
template <class T> inline std::enable_if_t<__is_integral(T), bool> signbit(T x) { return x < T(0); }
inline int __isnanf(float x) { return isnan(x); }
inline int __isinff(float x) { return isinf(x); }
inline int __finitef(float x) { return isfinite(x); }
inline int __signbitf(float x) { return signbit(x); }
inline int __isnan(double x) { return isnan(x); }
inline int __isinf(double x) { return isinf(x); }
inline int __finite(double x) { return isfinite(x); }
inline int __signbit(double x) { return signbit(x); }
inline int __signbitd(double x) { return signbit(x); }
inline int isinff(float x) { return isinf(x); }
inline int isnanf(float x) { return isnan(x); }
inline int finite(double x) { return isfinite(x); }
inline int finitef(float x) { return isfinite(x); }
inline bool isnormal(float x) { return isfinite(x) && fabs(x) >= 1.17549435e-38f; }
inline bool isnormal(double x) { return isfinite(x) && fabs(x) >= 2.2250738585072014e-308; }

// ---- written in terms of the above; F is float or double, s the suffix of its C name

#define KG_COMPOUND(F, s)                                                                                              \
  inline F frexp##s(F x, int *exponent) {                                                                              \
    *exponent = __kg_frexp_exponent(x);                                                                                \
    return __kg_frexp_mantissa(x);                                                                                     \
  }                                                                                                                    \
  inline F modf##s(F x, F *whole) {                                                                                    \
    F w = trunc(x);                                                                                                    \
    *whole = w;                                                                                                        \
    return copysign(isinf(x) ? F(0) : x - w, x);                                                                       \
  }                                                                                                                    \
  inline F remquo##s(F x, F y, int *quotient) {                                                                        \
    F r = remainder(x, y);                                                                                             \
    F q = rint((x - r) / y);                                                                                           \
    int low = (int)fmod(fabs(q), F(8));                                                                                \
    *quotient = q < F(0) ? -low : low;                                                                                 \
    return r;                                                                                                          \
  }                                                                                                                    \
  inline void sincos##s(F x, F *s_out, F *c_out) {                                                                     \
    *s_out = sin(x);                                                                                                   \
    *c_out = cos(x);                                                                                                   \
  }                                                                                                                    \
  inline void sincospi##s(F x, F *s_out, F *c_out) {                                                                   \
    *s_out = sinpi(x);                                                                                                 \
    *c_out = cospi(x);                                                                                                 \
  }                                                                                                                    \
  inline F scalbln##s(F x, long n) { return ldexp(x, (int)min(max(n, -100000l), 100000l)); }                           \
  inline long lrint##s(F x) { return (long)rint(x); }                                                                  \
  inline long lround##s(F x) { return (long)round(x); }                                                                \
  inline long long llrint##s(F x) { return (long long)rint(x); }                                                       \
  inline long long llround##s(F x) { return (long long)round(x); }                                                     \
  inline F norm##s(int dim, const F *a) {                                                                              \
    F sum = F(0);                                                                                                      \
    for (int k = 0; k < dim; ++k) sum += a[k] * a[k];                                                                  \
    return sqrt(sum);                                                                                                  \
  }                                                                                                                    \
  inline F rnorm##s(int dim, const F *a) {                                                                             \
    F sum = F(0);                                                                                                      \
    for (int k = 0; k < dim; ++k) sum += a[k] * a[k];                                                                  \
    return rsqrt(sum);                                                                                                 \
  }
KG_COMPOUND(float, f)
KG_COMPOUND(float, )
KG_COMPOUND(double, )
#undef KG_COMPOUND

#define KG_TO_LONG(R, name)                                                                                            \
  template <class T> inline std::enable_if_t<__is_integral(T), R> name(T x) { return name((double)x); }
KG_TO_LONG(long, lrint)
KG_TO_LONG(long, lround)
KG_TO_LONG(long long, llrint)
KG_TO_LONG(long long, llround)
KG_TO_LONG(int, ilogb)
#undef KG_TO_LONG

float __int_as_float(int x);
double __longlong_as_double(long long x);
inline float nanf(const char *) { return __int_as_float(0x7fffffff); }
inline double nan(const char *) { return __longlong_as_double(0x7fffffffffffffffll); }
inline float fdividef(float x, float y) { return x / y; }
inline double fdivide(double x, double y) { return x / y; }
inline float fdivide(float x, float y) { return x / y; }

namespace std {
using ::abs;
using ::acos;
using ::acosh;
using ::asin;
using ::asinh;
using ::atan;
using ::atan2;
using ::atanh;
using ::cbrt;
using ::ceil;
using ::copysign;
using ::cos;
using ::cosh;
using ::erf;
using ::erfc;
using ::exp;
using ::exp2;
using ::expm1;
using ::fabs;
using ::fdim;
using ::floor;
using ::fma;
using ::fmax;
using ::fmin;
using ::fmod;
using ::frexp;
using ::ilogb;
using ::isfinite;
using ::isinf;
using ::isnan;
using ::isnormal;
using ::labs;
using ::ldexp;
using ::lgamma;
using ::llabs;
using ::llrint;
using ::llround;
using ::log;
using ::log10;
using ::log1p;
using ::log2;
using ::logb;
using ::lrint;
using ::lround;
using ::modf;
using ::nan;
using ::nanf;
using ::nearbyint;
using ::nextafter;
using ::pow;
using ::remainder;
using ::remquo;
using ::rint;
using ::round;
using ::scalbln;
using ::scalbn;
using ::signbit;
using ::sin;
using ::sinh;
using ::sqrt;
using ::tan;
using ::tanh;
using ::tgamma;
using ::trunc;
// The C names, which many programs qualify although the standard has only some of them there.
using ::acosf;
using ::acoshf;
using ::asinf;
using ::asinhf;
using ::atan2f;
using ::atanf;
using ::atanhf;
using ::cbrtf;
using ::ceilf;
using ::copysignf;
using ::cosf;
using ::coshf;
using ::erfcf;
using ::erff;
using ::exp2f;
using ::expf;
using ::expm1f;
using ::fabsf;
using ::fdimf;
using ::floorf;
using ::fmaf;
using ::fmaxf;
using ::fminf;
using ::fmodf;
using ::hypotf;
using ::ldexpf;
using ::lgammaf;
using ::log10f;
using ::log1pf;
using ::log2f;
using ::logf;
using ::powf;
using ::rintf;
using ::roundf;
using ::sinf;
using ::sinhf;
using ::sqrtf;
using ::tanf;
using ::tanhf;
using ::tgammaf;
using ::truncf;
using ::hypot;
inline float hypot(float x, float y, float z) { return norm3df(x, y, z); }
inline double hypot(double x, double y, double z) { return norm3d(x, y, z); }
}  // namespace std

// ---- constants

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_huge_val()
#define HUGE_VALF __builtin_huge_valf()
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
