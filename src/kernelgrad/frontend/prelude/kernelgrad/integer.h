// Integer intrinsics, and min, max and abs of integers.
#pragma once

int __popc(unsigned int x);
int __popcll(unsigned long long x);
int __clz(int x);
int __clzll(long long x);
int __ffs(int x);
int __ffsll(long long x);
unsigned int __brev(unsigned int x);
unsigned long long __brevll(unsigned long long x);
int __mul24(int x, int y);
unsigned int __umul24(unsigned int x, unsigned int y);
int __mulhi(int x, int y);
unsigned int __umulhi(unsigned int x, unsigned int y);
long long __mul64hi(long long x, long long y);
unsigned long long __umul64hi(unsigned long long x, unsigned long long y);
unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector);
unsigned int __funnelshift_l(unsigned int lo, unsigned int hi, unsigned int shift);
unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int shift);
unsigned int __funnelshift_lc(unsigned int lo, unsigned int hi, unsigned int shift);
unsigned int __funnelshift_rc(unsigned int lo, unsigned int hi, unsigned int shift);
unsigned int __sad(int x, int y, unsigned int z);
unsigned int __usad(unsigned int x, unsigned int y, unsigned int z);
int __hadd(int x, int y);
int __rhadd(int x, int y);
unsigned int __uhadd(unsigned int x, unsigned int y);
unsigned int __urhadd(unsigned int x, unsigned int y);

int __dp4a(int a, int b, int c);
unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c);
int __dp2a_lo(int a, int b, int c);
unsigned int __dp2a_lo(unsigned int a, unsigned int b, unsigned int c);
int __dp2a_hi(int a, int b, int c);
unsigned int __dp2a_hi(unsigned int a, unsigned int b, unsigned int c);

inline int __dp4a(char4 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
inline unsigned int __dp4a(uchar4 a, uchar4 b, unsigned int c) {
  return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
inline int __dp2a_lo(short2 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y; }
inline unsigned int __dp2a_lo(ushort2 a, uchar4 b, unsigned int c) { return c + a.x * b.x + a.y * b.y; }
inline int __dp2a_hi(short2 a, char4 b, int c) { return c + a.x * b.z + a.y * b.w; }
inline unsigned int __dp2a_hi(ushort2 a, uchar4 b, unsigned int c) { return c + a.x * b.z + a.y * b.w; }

inline int mulhi(int x, int y) { return __mulhi(x, y); }
inline unsigned int mulhi(unsigned int x, unsigned int y) { return __umulhi(x, y); }
inline int mul24(int x, int y) { return __mul24(x, y); }
inline unsigned int umul24(unsigned int x, unsigned int y) { return __umul24(x, y); }
inline long long mul64hi(long long x, long long y) { return __mul64hi(x, y); }
inline unsigned long long umul64hi(unsigned long long x, unsigned long long y) { return __umul64hi(x, y); }

int abs(int x);
long abs(long x);
long long abs(long long x);
long labs(long x);
long long llabs(long long x);

// Mixed signedness gives the unsigned type, as in CUDA.
#define KG_ORDER(name)                                                                                                 \
  int name(int x, int y);                                                                                              \
  unsigned int name(unsigned int x, unsigned int y);                                                                   \
  long name(long x, long y);                                                                                           \
  unsigned long name(unsigned long x, unsigned long y);                                                                \
  long long name(long long x, long long y);                                                                            \
  unsigned long long name(unsigned long long x, unsigned long long y);                                                 \
  inline unsigned int name(int x, unsigned int y) { return name((unsigned int)x, y); }                                 \
  inline unsigned int name(unsigned int x, int y) { return name(x, (unsigned int)y); }                                 \
  inline unsigned long name(long x, unsigned long y) { return name((unsigned long)x, y); }                             \
  inline unsigned long name(unsigned long x, long y) { return name(x, (unsigned long)y); }                             \
  inline unsigned long long name(long long x, unsigned long long y) { return name((unsigned long long)x, y); }         \
  inline unsigned long long name(unsigned long long x, long long y) { return name(x, (unsigned long long)y); }         \
  /* Other mixes of widths are ambiguous under nvcc; the usual arithmetic conversions are what they mean. */           \
  template <class T, class U>                                                                                          \
  inline std::enable_if_t<__kg::integral<T> && __kg::integral<U> && sizeof(T) != sizeof(U) &&                          \
                              (sizeof(T) == 8 || sizeof(U) == 8),                                                      \
                          std::common_type_t<T, U>>                                                                    \
  name(T x, U y) {                                                                                                     \
    typedef std::common_type_t<T, U> both;                                                                             \
    return name((both)x, (both)y);                                                                                     \
  }
KG_ORDER(min)
KG_ORDER(max)
#undef KG_ORDER

inline unsigned int umin(unsigned int x, unsigned int y) { return min(x, y); }
inline unsigned int umax(unsigned int x, unsigned int y) { return max(x, y); }
inline long long llmin(long long x, long long y) { return min(x, y); }
inline long long llmax(long long x, long long y) { return max(x, y); }
inline unsigned long long ullmin(unsigned long long x, unsigned long long y) { return min(x, y); }
inline unsigned long long ullmax(unsigned long long x, unsigned long long y) { return max(x, y); }

