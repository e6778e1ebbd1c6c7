// Atomic functions: for the types CUDA has them, with block and system scope.
#pragma once

#define KG_ATOMIC(name, T)                                                                                             \
  T name(T *address, T value);                                                                                         \
  T name##_block(T *address, T value);                                                                                 \
  T name##_system(T *address, T value);
#define KG_ATOMIC_CAS(T)                                                                                               \
  T atomicCAS(T *address, T expected, T desired);                                                                      \
  T atomicCAS_block(T *address, T expected, T desired);                                                                \
  T atomicCAS_system(T *address, T expected, T desired);
#define KG_ATOMIC32(name) KG_ATOMIC(name, int) KG_ATOMIC(name, unsigned int)

KG_ATOMIC32(atomicAdd)
KG_ATOMIC(atomicAdd, unsigned long long)
KG_ATOMIC(atomicAdd, float)
KG_ATOMIC(atomicAdd, double)
KG_ATOMIC32(atomicSub)
KG_ATOMIC32(atomicExch)
KG_ATOMIC(atomicExch, unsigned long long)
KG_ATOMIC(atomicExch, float)
KG_ATOMIC32(atomicMin)
KG_ATOMIC(atomicMin, long long)
KG_ATOMIC(atomicMin, unsigned long long)
KG_ATOMIC32(atomicMax)
KG_ATOMIC(atomicMax, long long)
KG_ATOMIC(atomicMax, unsigned long long)
KG_ATOMIC(atomicInc, unsigned int)
KG_ATOMIC(atomicDec, unsigned int)
KG_ATOMIC32(atomicAnd)
KG_ATOMIC(atomicAnd, unsigned long long)
KG_ATOMIC32(atomicOr)
KG_ATOMIC(atomicOr, unsigned long long)
KG_ATOMIC32(atomicXor)
KG_ATOMIC(atomicXor, unsigned long long)
KG_ATOMIC_CAS(int)
KG_ATOMIC_CAS(unsigned int)
KG_ATOMIC_CAS(unsigned long long)
KG_ATOMIC_CAS(unsigned short)

// CUDA promises atomicity for each component only.
#define KG_ATOMIC_VECTOR(name)                                                                                         \
  inline float2 name(float2 *p, float2 v) { return {name(&p->x, v.x), name(&p->y, v.y)}; }                             \
  inline float4 name(float4 *p, float4 v) {                                                                            \
    return {name(&p->x, v.x), name(&p->y, v.y), name(&p->z, v.z), name(&p->w, v.w)};                                   \
  }
KG_ATOMIC_VECTOR(atomicAdd)
KG_ATOMIC_VECTOR(atomicAdd_block)
KG_ATOMIC_VECTOR(atomicAdd_system)
#undef KG_ATOMIC_VECTOR
