// <climits>, <cfloat>, <limits>.
#pragma once

#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-LONG_MAX - 1l)
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-LLONG_MAX - 1ll)
#define ULLONG_MAX 18446744073709551615ull
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define UINT32_MAX UINT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT64_MAX ULONG_MAX
#define SIZE_MAX ULONG_MAX
#define INTPTR_MAX LONG_MAX
#define UINTPTR_MAX ULONG_MAX
#define PTRDIFF_MAX LONG_MAX
#define INT8_C(x) x
#define INT16_C(x) x
#define UINT8_C(x) x
#define UINT16_C(x) x
#define INT64_C(x) x##l
#define UINT64_C(x) x##ul
#define INT32_C(x) x
#define UINT32_C(x) x##u
#define MAXFLOAT FLT_MAX

#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define FLT_MIN_10_EXP (-37)
#define FLT_MAX_10_EXP 38
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_TRUE_MIN 1.401298464e-45f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_DECIMAL_DIG 9
#define DBL_MANT_DIG 53
#define DBL_DIG 15
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define DBL_MIN_10_EXP (-307)
#define DBL_MAX_10_EXP 308
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_TRUE_MIN 4.9406564584124654e-324
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_DECIMAL_DIG 17
#define LDBL_MAX DBL_MAX
#define LDBL_MIN DBL_MIN
#define LDBL_EPSILON DBL_EPSILON

namespace std {

enum float_round_style { round_indeterminate = -1, round_toward_zero, round_to_nearest };
enum float_denorm_style { denorm_indeterminate = -1, denorm_absent, denorm_present };

template <class T> struct numeric_limits {
  static constexpr bool is_specialized = false;
};

template <class T, bool is_float> struct __kg_limits {
  static constexpr bool is_specialized = true, is_bounded = true;
  static constexpr bool is_integer = !is_float, is_exact = !is_float, is_iec559 = is_float;
  static constexpr bool is_signed = is_float || __is_signed(T), is_modulo = !is_float && !is_signed;
  static constexpr bool has_infinity = is_float, has_quiet_NaN = is_float, has_signaling_NaN = is_float;
  static constexpr float_denorm_style has_denorm = is_float ? denorm_present : denorm_absent;
  static constexpr float_round_style round_style = is_float ? round_to_nearest : round_toward_zero;
  static constexpr int radix = 2;
};

#define KG_INTEGER(T, low, high)                                                                                       \
  template <> struct numeric_limits<T> : __kg_limits<T, false> {                                                       \
    static constexpr int digits = __is_same(T, bool) ? 1 : sizeof(T) * 8 - __is_signed(T), digits10 = digits * 3 / 10; \
    static constexpr T min() noexcept { return low; }                                                                  \
    static constexpr T lowest() noexcept { return low; }                                                               \
    static constexpr T max() noexcept { return high; }                                                                 \
    static constexpr T epsilon() noexcept { return 0; }                                                                \
    static constexpr T infinity() noexcept { return 0; }                                                               \
    static constexpr T quiet_NaN() noexcept { return 0; }                                                              \
  };
KG_INTEGER(bool, false, true)
KG_INTEGER(char, CHAR_MIN, CHAR_MAX)
KG_INTEGER(signed char, SCHAR_MIN, SCHAR_MAX)
KG_INTEGER(unsigned char, 0, UCHAR_MAX)
KG_INTEGER(short, SHRT_MIN, SHRT_MAX)
KG_INTEGER(unsigned short, 0, USHRT_MAX)
KG_INTEGER(int, INT_MIN, INT_MAX)
KG_INTEGER(unsigned int, 0, UINT_MAX)
KG_INTEGER(long, LONG_MIN, LONG_MAX)
KG_INTEGER(unsigned long, 0, ULONG_MAX)
KG_INTEGER(long long, LLONG_MIN, LLONG_MAX)
KG_INTEGER(unsigned long long, 0, ULLONG_MAX)
#undef KG_INTEGER

#define KG_FLOAT(T, P, s)                                                                                              \
  template <> struct numeric_limits<T> : __kg_limits<T, true> {                                                        \
    static constexpr int digits = P##_MANT_DIG, digits10 = P##_DIG, max_digits10 = P##_DECIMAL_DIG;                    \
    static constexpr int min_exponent = P##_MIN_EXP, max_exponent = P##_MAX_EXP;                                       \
    static constexpr int min_exponent10 = P##_MIN_10_EXP, max_exponent10 = P##_MAX_10_EXP;                             \
    static constexpr T min() noexcept { return P##_MIN; }                                                              \
    static constexpr T lowest() noexcept { return -P##_MAX; }                                                          \
    static constexpr T max() noexcept { return P##_MAX; }                                                              \
    static constexpr T epsilon() noexcept { return P##_EPSILON; }                                                      \
    static constexpr T round_error() noexcept { return T(0.5); }                                                       \
    static constexpr T denorm_min() noexcept { return P##_TRUE_MIN; }                                                  \
    static constexpr T infinity() noexcept { return __builtin_inf##s(); }                                              \
    static constexpr T quiet_NaN() noexcept { return __builtin_nan##s(""); }                                           \
    static constexpr T signaling_NaN() noexcept { return __builtin_nan##s(""); }                                       \
  };
KG_FLOAT(float, FLT, f)
KG_FLOAT(double, DBL, )
#undef KG_FLOAT

template <class T> struct numeric_limits<const T> : numeric_limits<T> {};
template <class T> struct numeric_limits<volatile T> : numeric_limits<T> {};
template <class T> struct numeric_limits<const volatile T> : numeric_limits<T> {};

}  // namespace std
