// Operators and functions on the vector types, as in the CUDA samples.
#pragma once

#pragma clang force_cuda_host_device begin

inline float lerp(float a, float b, float t) { return a + t * (b - a); }
inline float clamp(float x, float low, float high) { return fmaxf(low, fminf(x, high)); }
inline int clamp(int x, int low, int high) { return max(low, min(x, high)); }
inline unsigned int clamp(unsigned int x, unsigned int low, unsigned int high) { return max(low, min(x, high)); }

// ALL(e) is the list of e for each component: KG_EACH2(KG_PLUS) is a.x + b.x, a.y + b.y.
#define KG_EACH2(e) e(x), e(y)
#define KG_EACH3(e) e(x), e(y), e(z)
#define KG_EACH4(e) e(x), e(y), e(z), e(w)
#define KG_NEGATED(c) -a.c
#define KG_SPLAT(c) s
#define KG_VOP(V, T, ALL, op, name)                                                                                    \
  inline V operator op(V a, V b) { return {ALL(name##_VV)}; }                                                          \
  inline V operator op(V a, T b) { return {ALL(name##_VS)}; }                                                          \
  inline V operator op(T a, V b) { return {ALL(name##_SV)}; }                                                          \
  inline void operator op##=(V &a, V b) { a = a op b; }                                                                \
  inline void operator op##=(V &a, T b) { a = a op b; }
#define KG_ADD_VV(c) a.c + b.c
#define KG_ADD_VS(c) a.c + b
#define KG_ADD_SV(c) a + b.c
#define KG_SUB_VV(c) a.c - b.c
#define KG_SUB_VS(c) a.c - b
#define KG_SUB_SV(c) a - b.c
#define KG_MUL_VV(c) a.c * b.c
#define KG_MUL_VS(c) a.c * b
#define KG_MUL_SV(c) a * b.c
#define KG_DIV_VV(c) a.c / b.c
#define KG_DIV_VS(c) a.c / b
#define KG_DIV_SV(c) a / b.c
#define KG_MIN(c) min(a.c, b.c)
#define KG_MAX(c) max(a.c, b.c)
#define KG_CLAMP_V(c) clamp(a.c, low.c, high.c)
#define KG_CLAMP_S(c) clamp(a.c, low, high)
#define KG_FLOOR(c) floorf(a.c)
#define KG_FRACTION(c) a.c - floorf(a.c)
#define KG_ABS(c) abs(a.c)
#define KG_FMOD(c) fmodf(a.c, b.c)

#define KG_VECTOR_ANY(V, T, ALL)                                                                                       \
  KG_VOP(V, T, ALL, +, KG_ADD)                                                                                         \
  KG_VOP(V, T, ALL, -, KG_SUB)                                                                                         \
  KG_VOP(V, T, ALL, *, KG_MUL)                                                                                         \
  inline V make_##V(T s) { return {ALL(KG_SPLAT)}; }                                                                   \
  inline V min(V a, V b) { return {ALL(KG_MIN)}; }                                                                     \
  inline V max(V a, V b) { return {ALL(KG_MAX)}; }                                                                     \
  inline V clamp(V a, V low, V high) { return {ALL(KG_CLAMP_V)}; }                                                     \
  inline V clamp(V a, T low, T high) { return {ALL(KG_CLAMP_S)}; }
#define KG_VECTOR_SIGNED(V, T, ALL)                                                                                    \
  KG_VECTOR_ANY(V, T, ALL)                                                                                             \
  inline V operator-(V a) { return {ALL(KG_NEGATED)}; }                                                                \
  inline V abs(V a) { return {ALL(KG_ABS)}; }
#define KG_VECTOR_FLOAT(V, ALL)                                                                                        \
  KG_VECTOR_SIGNED(V, float, ALL)                                                                                      \
  KG_VOP(V, float, ALL, /, KG_DIV)                                                                                     \
  inline V fminf(V a, V b) { return min(a, b); }                                                                       \
  inline V fmaxf(V a, V b) { return max(a, b); }                                                                       \
  inline V fabs(V a) { return abs(a); }                                                                                \
  inline V floorf(V a) { return {ALL(KG_FLOOR)}; }                                                                     \
  inline V fracf(V a) { return {ALL(KG_FRACTION)}; }                                                                   \
  inline V fmodf(V a, V b) { return {ALL(KG_FMOD)}; }                                                                  \
  inline float length(V a) { return sqrtf(dot(a, a)); }                                                                \
  inline V normalize(V a) { return a * rsqrtf(dot(a, a)); }                                                            \
  inline V lerp(V a, V b, float t) { return a + t * (b - a); }                                                         \
  inline V reflect(V incident, V normal) { return incident - 2.0f * normal * dot(normal, incident); }                  \
  inline V smoothstep(V a, V b, V v) {                                                                                 \
    V y = clamp((v - a) / (b - a), 0.0f, 1.0f);                                                                        \
    return y * y * (3.0f - 2.0f * y);                                                                                  \
  }

#define KG_DOT(T, s)                                                                                                   \
  inline T dot(s##2 a, s##2 b) { return a.x * b.x + a.y * b.y; }                                                       \
  inline T dot(s##3 a, s##3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }                                           \
  inline T dot(s##4 a, s##4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
KG_DOT(float, float)
KG_DOT(int, int)
KG_DOT(unsigned int, uint)

KG_VECTOR_FLOAT(float2, KG_EACH2)
KG_VECTOR_FLOAT(float3, KG_EACH3)
KG_VECTOR_FLOAT(float4, KG_EACH4)
KG_VECTOR_SIGNED(int2, int, KG_EACH2)
KG_VECTOR_SIGNED(int3, int, KG_EACH3)
KG_VECTOR_SIGNED(int4, int, KG_EACH4)
KG_VECTOR_ANY(uint2, unsigned int, KG_EACH2)
KG_VECTOR_ANY(uint3, unsigned int, KG_EACH3)
KG_VECTOR_ANY(uint4, unsigned int, KG_EACH4)

inline float fracf(float x) { return x - floorf(x); }
inline float smoothstep(float a, float b, float x) {
  float y = clamp((x - a) / (b - a), 0.0f, 1.0f);
  return y * y * (3.0f - 2.0f * y);
}
inline float3 cross(float3 a, float3 b) {
  return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

// Conversions between lengths and element types.
inline float2 make_float2(float3 a) { return {a.x, a.y}; }
inline float2 make_float2(int2 a) { return {(float)a.x, (float)a.y}; }
inline float2 make_float2(uint2 a) { return {(float)a.x, (float)a.y}; }
inline float3 make_float3(float2 a) { return {a.x, a.y, 0.0f}; }
inline float3 make_float3(float2 a, float z) { return {a.x, a.y, z}; }
inline float3 make_float3(float4 a) { return {a.x, a.y, a.z}; }
inline float3 make_float3(int3 a) { return {(float)a.x, (float)a.y, (float)a.z}; }
inline float3 make_float3(uint3 a) { return {(float)a.x, (float)a.y, (float)a.z}; }
inline float4 make_float4(float3 a) { return {a.x, a.y, a.z, 0.0f}; }
inline float4 make_float4(float3 a, float w) { return {a.x, a.y, a.z, w}; }
inline float4 make_float4(int4 a) { return {(float)a.x, (float)a.y, (float)a.z, (float)a.w}; }
inline int2 make_int2(int3 a) { return {a.x, a.y}; }
inline int2 make_int2(float2 a) { return {(int)a.x, (int)a.y}; }
inline int3 make_int3(int2 a, int z) { return {a.x, a.y, z}; }
inline int3 make_int3(float3 a) { return {(int)a.x, (int)a.y, (int)a.z}; }
inline int3 make_int3(uint3 a) { return {(int)a.x, (int)a.y, (int)a.z}; }
inline int4 make_int4(int3 a, int w) { return {a.x, a.y, a.z, w}; }
inline int4 make_int4(float4 a) { return {(int)a.x, (int)a.y, (int)a.z, (int)a.w}; }
inline uint3 make_uint3(int3 a) { return {(unsigned int)a.x, (unsigned int)a.y, (unsigned int)a.z}; }

#pragma clang force_cuda_host_device end
