// The math functions, conversions and half types of cuda_emulation.h.
#pragma once

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// ---- 16-bit floats --------------------------------------------------------------------------------------------------

template <typename Tag>
struct SmallFloat {
    typename Tag::raw bits;
    SmallFloat() = default;
    template <typename T>
    SmallFloat(T value) : bits(Tag::from((float)value)) {}
    template <typename T>
    explicit operator T() const { return (T)Tag::to(bits); }
    friend SmallFloat operator+(SmallFloat a, SmallFloat b) { return (float)a + (float)b; }
    friend SmallFloat operator-(SmallFloat a, SmallFloat b) { return (float)a - (float)b; }
    friend SmallFloat operator*(SmallFloat a, SmallFloat b) { return (float)a * (float)b; }
    friend SmallFloat operator/(SmallFloat a, SmallFloat b) { return (float)a / (float)b; }
    friend SmallFloat operator-(SmallFloat a) { return -(float)a; }
    SmallFloat &operator+=(SmallFloat b) { return *this = *this + b; }
    SmallFloat &operator-=(SmallFloat b) { return *this = *this - b; }
    SmallFloat &operator*=(SmallFloat b) { return *this = *this * b; }
    SmallFloat &operator/=(SmallFloat b) { return *this = *this / b; }
    friend bool operator<(SmallFloat a, SmallFloat b) { return (float)a < (float)b; }
    friend bool operator>(SmallFloat a, SmallFloat b) { return (float)a > (float)b; }
    friend bool operator<=(SmallFloat a, SmallFloat b) { return (float)a <= (float)b; }
    friend bool operator>=(SmallFloat a, SmallFloat b) { return (float)a >= (float)b; }
    friend bool operator==(SmallFloat a, SmallFloat b) { return (float)a == (float)b; }
    friend bool operator!=(SmallFloat a, SmallFloat b) { return (float)a != (float)b; }
};

struct HalfTag {
    using raw = _Float16;
    static raw from(float x) { return (raw)x; }
    static float to(raw x) { return (float)x; }
};
struct BrainTag {
    using raw = unsigned short;
    static raw from(float x)
    {
        unsigned int u = emulation::bits<unsigned int>(x);
        if (x != x) return 0x7fff;
        return (raw)((u + 0x7fff + (u >> 16 & 1)) >> 16); // to nearest, ties to even
    }
    static float to(raw x) { return emulation::bits<float>((unsigned int)x << 16); }
};
using __half = SmallFloat<HalfTag>;
using __nv_bfloat16 = SmallFloat<BrainTag>;

struct alignas(4) __half2 {
    __half x, y;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
using half2 = __half2;

template <typename T>
SmallFloat<T> __habs(SmallFloat<T> x) { return std::fabs((float)x); }
template <typename T>
SmallFloat<T> __hmin(SmallFloat<T> a, SmallFloat<T> b) { return std::fmin((float)a, (float)b); }
template <typename T>
SmallFloat<T> __hmax(SmallFloat<T> a, SmallFloat<T> b) { return std::fmax((float)a, (float)b); }
template <typename T>
SmallFloat<T> __hadd_rn(SmallFloat<T> a, SmallFloat<T> b) { return a + b; }
template <typename T>
SmallFloat<T> __hsub_rn(SmallFloat<T> a, SmallFloat<T> b) { return a - b; }
template <typename T>
SmallFloat<T> __hmul_rn(SmallFloat<T> a, SmallFloat<T> b) { return a * b; }
template <typename T>
SmallFloat<T> __hfma(SmallFloat<T> a, SmallFloat<T> b, SmallFloat<T> c) { return (double)a * (double)b + (double)c; }

// ---- integers -------------------------------------------------------------------------------------------------------

#define EMULATE_MINMAX(type)                                                                    \
    inline type min(type a, type b) { return b < a ? b : a; }                                   \
    inline type max(type a, type b) { return a < b ? b : a; }
EMULATE_MINMAX(int)
EMULATE_MINMAX(unsigned int)
EMULATE_MINMAX(long long)
EMULATE_MINMAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned int)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x)
{
    unsigned long long r = 0;
    for (int k = 0; k < 64; ++k) r |= (x >> k & 1) << (63 - k);
    return r;
}
inline unsigned int __brev(unsigned int x) { return (unsigned int)(__brevll(x) >> 32); }
inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned int)(((unsigned long long)a * b) >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline int __mul24(int a, int b) { return (int)((unsigned int)(a << 8 >> 8) * (unsigned int)(b << 8 >> 8)); }
inline unsigned int __umul24(unsigned int a, unsigned int b) { return (a & 0xffffff) * (b & 0xffffff); }
inline unsigned int __funnelshift_l(unsigned int lo, unsigned int hi, unsigned int s)
{
    return (unsigned int)((((unsigned long long)hi << 32 | lo) << (s & 31)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int s)
{
    return (unsigned int)(((unsigned long long)hi << 32 | lo) >> (s & 31));
}
inline unsigned int __funnelshift_lc(unsigned int lo, unsigned int hi, unsigned int s)
{
    return s >= 32 ? lo : __funnelshift_l(lo, hi, s);
}
inline unsigned int __funnelshift_rc(unsigned int lo, unsigned int hi, unsigned int s)
{
    return s >= 32 ? hi : __funnelshift_r(lo, hi, s);
}
inline unsigned int __sad(int a, int b, unsigned int c) { return (unsigned int)llabs((long long)a - b) + c; }
inline unsigned int __usad(unsigned int a, unsigned int b, unsigned int c) { return (a < b ? b - a : a - b) + c; }
inline int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
inline int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
inline unsigned int __uhadd(unsigned int a, unsigned int b) { return (unsigned int)(((unsigned long long)a + b) >> 1); }
inline unsigned int __urhadd(unsigned int a, unsigned int b)
{
    return (unsigned int)(((unsigned long long)a + b + 1) >> 1);
}
template <typename T, typename Byte>
T emulate_dot4(T a, T b, T c)
{
    for (int k = 0; k < 4; ++k) c += (T)(Byte)(a >> 8 * k) * (T)(Byte)(b >> 8 * k);
    return c;
}
template <typename T, typename Short, typename Byte>
T emulate_dot2(T a, T b, T c, int first)
{
    for (int k = 0; k < 2; ++k) c += (T)(Short)(a >> 16 * k) * (T)(Byte)(b >> 8 * (first + k));
    return c;
}
inline int __dp4a(int a, int b, int c) { return emulate_dot4<int, signed char>(a, b, c); }
inline unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c)
{
    return emulate_dot4<unsigned int, unsigned char>(a, b, c);
}
inline int __dp2a_lo(int a, int b, int c) { return emulate_dot2<int, short, signed char>(a, b, c, 0); }
inline int __dp2a_hi(int a, int b, int c) { return emulate_dot2<int, short, signed char>(a, b, c, 2); }
inline unsigned int __dp2a_lo(unsigned int a, unsigned int b, unsigned int c)
{
    return emulate_dot2<unsigned int, unsigned short, unsigned char>(a, b, c, 0);
}
inline unsigned int __dp2a_hi(unsigned int a, unsigned int b, unsigned int c)
{
    return emulate_dot2<unsigned int, unsigned short, unsigned char>(a, b, c, 2);
}
inline unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int selector)
{
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned int r = 0;
    for (int k = 0; k < 4; ++k) r |= (unsigned int)(both >> (selector >> 4 * k & 7) * 8 & 0xff) << 8 * k;
    return r;
}

// ---- bit patterns ---------------------------------------------------------------------------------------------------

#define EMULATE_BITS(name, to, from)                                                            \
    inline to name(from x) { return emulation::bits<to>(x); }
EMULATE_BITS(__float_as_int, int, float)
EMULATE_BITS(__int_as_float, float, int)
EMULATE_BITS(__float_as_uint, unsigned int, float)
EMULATE_BITS(__uint_as_float, float, unsigned int)
EMULATE_BITS(__double_as_longlong, long long, double)
EMULATE_BITS(__longlong_as_double, double, long long)
EMULATE_BITS(__half_as_ushort, unsigned short, __half)
EMULATE_BITS(__ushort_as_half, __half, unsigned short)
EMULATE_BITS(__bfloat16_as_ushort, unsigned short, __nv_bfloat16)
EMULATE_BITS(__ushort_as_bfloat16, __nv_bfloat16, unsigned short)

// ---- floating point -------------------------------------------------------------------------------------------------

#define EMULATE_MATH(name, expression)                                                          \
    inline double name(double x) { return expression; }                                         \
    inline float name##f(float x) { return (float)name((double)x); }
EMULATE_MATH(rsqrt, 1.0 / std::sqrt(x))
EMULATE_MATH(rcbrt, 1.0 / std::cbrt(x))
EMULATE_MATH(sinpi, std::sin(3.14159265358979323846 * std::fmod(x, 2.0)))
EMULATE_MATH(cospi, std::cos(3.14159265358979323846 * std::fmod(x, 2.0)))
EMULATE_MATH(erfcx, std::exp(x *x) * std::erfc(x))
EMULATE_MATH(normcdf, 0.5 * std::erfc(-x * 0.70710678118654752440))
EMULATE_MATH(cyl_bessel_i0, std::cyl_bessel_i(0.0, x))
EMULATE_MATH(cyl_bessel_i1, std::cyl_bessel_i(1.0, x))

inline double rhypot(double x, double y) { return 1.0 / std::hypot(x, y); }
inline float rhypotf(float x, float y) { return (float)rhypot(x, y); }
inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
inline float norm3df(float x, float y, float z) { return (float)norm3d(x, y, z); }
inline double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
inline float rnorm3df(float x, float y, float z) { return (float)rnorm3d(x, y, z); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fdividef(float x, float y) { return x / y; }

#define EMULATE_FAST(name) inline float __##name##f(float x) { return ::name##f(x); }
EMULATE_FAST(sin)
EMULATE_FAST(cos)
EMULATE_FAST(tan)
EMULATE_FAST(exp)
EMULATE_FAST(log)
EMULATE_FAST(tanh)
inline float __log2f_fast(float x) { return log2f(x); }
#define __log2f __log2f_fast
inline float __powf_fast(float x, float y) { return powf(x, y); }
#define __powf __powf_fast

// Not inlined: the compiler would merge the same operation under two modes.
template <typename Operation>
__attribute__((noinline)) auto emulate_rounding(int mode, Operation operation)
{
    int before = std::fegetround();
    std::fesetround(mode);
    volatile auto result = operation();
    std::fesetround(before);
    return (decltype(operation()))result;
}
// Inlined, two calls with one set of arguments but two modes would share a result.
#define EMULATE_APART __attribute__((noinline)) inline
#define EMULATE_OPERATION(name, type, suffix, mode, operation)                                                 \
    EMULATE_APART type __##name##_##suffix(volatile type a, volatile type b)                                          \
    {                                                                                                          \
        return emulate_rounding(mode, [&]() -> type { return a operation b; });                                \
    }
#define EMULATE_UNARY(name, type, suffix, mode, expression)                                                    \
    EMULATE_APART type __##name##_##suffix(volatile type a)                                                           \
    {                                                                                                          \
        return emulate_rounding(mode, [&]() -> type { return expression; });                                   \
    }
#define EMULATE_ROUNDED(suffix, mode)                                                                          \
    EMULATE_OPERATION(fadd, float, suffix, mode, +)                                                            \
    EMULATE_OPERATION(fsub, float, suffix, mode, -)                                                            \
    EMULATE_OPERATION(fmul, float, suffix, mode, *)                                                            \
    EMULATE_OPERATION(fdiv, float, suffix, mode, /)                                                            \
    EMULATE_OPERATION(dadd, double, suffix, mode, +)                                                           \
    EMULATE_OPERATION(dsub, double, suffix, mode, -)                                                           \
    EMULATE_OPERATION(dmul, double, suffix, mode, *)                                                           \
    EMULATE_OPERATION(ddiv, double, suffix, mode, /)                                                           \
    EMULATE_UNARY(fsqrt, float, suffix, mode, std::sqrt((float)a))                                             \
    EMULATE_UNARY(dsqrt, double, suffix, mode, std::sqrt((double)a))                                           \
    EMULATE_UNARY(double2float_from, double, suffix, mode, (double)(float)a)                                   \
    inline float __double2float_##suffix(double x) { return (float)__double2float_from_##suffix(x); }          \
    EMULATE_TO_FLOAT(int2float, int, float, suffix, mode)                                                      \
    EMULATE_TO_FLOAT(uint2float, unsigned int, float, suffix, mode)                                            \
    EMULATE_TO_FLOAT(ll2float, long long, float, suffix, mode)                                                 \
    EMULATE_TO_FLOAT(ull2float, unsigned long long, float, suffix, mode)                                       \
    EMULATE_TO_FLOAT(ll2double, long long, double, suffix, mode)                                               \
    EMULATE_TO_FLOAT(ull2double, unsigned long long, double, suffix, mode)
#define EMULATE_TO_FLOAT(name, from, to, suffix, mode)                                                         \
    EMULATE_APART to __##name##_##suffix(volatile from x)                                                             \
    {                                                                                                          \
        return emulate_rounding(mode, [&]() -> to { return (to)x; });                                          \
    }
EMULATE_ROUNDED(rn, FE_TONEAREST)
EMULATE_ROUNDED(rd, FE_DOWNWARD)
EMULATE_ROUNDED(ru, FE_UPWARD)
EMULATE_ROUNDED(rz, FE_TOWARDZERO)
#define EMULATE_RECIPROCAL_AND_FMA(suffix, mode)                                                               \
    inline float __frcp_##suffix(float x) { return __fdiv_##suffix(1.0f, x); }                                 \
    inline double __drcp_##suffix(double x) { return __ddiv_##suffix(1.0, x); }                                \
    EMULATE_APART float __fmaf_##suffix(float a, float b, float c)                                                    \
    {                                                                                                          \
        return emulate_rounding(mode, [&]() -> float { return std::fma(a, b, c); });                           \
    }                                                                                                          \
    EMULATE_APART double __fma_##suffix(double a, double b, double c)                                                 \
    {                                                                                                          \
        return emulate_rounding(mode, [&]() -> double { return std::fma(a, b, c); });                          \
    }
EMULATE_RECIPROCAL_AND_FMA(rn, FE_TONEAREST)
EMULATE_RECIPROCAL_AND_FMA(rd, FE_DOWNWARD)
EMULATE_RECIPROCAL_AND_FMA(ru, FE_UPWARD)
EMULATE_RECIPROCAL_AND_FMA(rz, FE_TOWARDZERO)

#define EMULATE_TO_INTEGER(suffix, function)                                                                   \
    inline int __float2int_##suffix(float x) { return (int)function(x); }                                      \
    inline unsigned int __float2uint_##suffix(float x) { return (unsigned int)function(x); }                   \
    inline long long __float2ll_##suffix(float x) { return (long long)function(x); }                           \
    inline unsigned long long __float2ull_##suffix(float x) { return (unsigned long long)function(x); }        \
    inline int __double2int_##suffix(double x) { return (int)function(x); }                                    \
    inline unsigned int __double2uint_##suffix(double x) { return (unsigned int)function(x); }                 \
    inline long long __double2ll_##suffix(double x) { return (long long)function(x); }                         \
    inline unsigned long long __double2ull_##suffix(double x) { return (unsigned long long)function(x); }      \
    inline __half __float2half_##suffix(float x) { return __half(x); }
EMULATE_TO_INTEGER(rn, std::nearbyint)
EMULATE_TO_INTEGER(rd, std::floor)
EMULATE_TO_INTEGER(ru, std::ceil)
EMULATE_TO_INTEGER(rz, std::trunc)
