// cuRAND's device API: declared so that a use is understood, and refused.
#pragma once

#pragma clang force_cuda_host_device begin

struct curandStateXORWOW {
  unsigned int d, v[5];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t, curandState_t, curandState;
struct curandStatePhilox4_32_10 {
  uint4 ctr, output;
  uint2 key;
  unsigned int STATE;
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;
struct curandStateMRG32k3a {
  unsigned int s1[3], s2[3];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStateMRG32k3a curandStateMRG32k3a_t;

#define KG_CURAND(State)                                                                                               \
  void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset, State *state);     \
  void skipahead(unsigned long long n, State *state);                                                                  \
  unsigned int curand(State *state);                                                                                   \
  float curand_uniform(State *state);                                                                                  \
  double curand_uniform_double(State *state);                                                                          \
  float curand_normal(State *state);                                                                                   \
  double curand_normal_double(State *state);                                                                           \
  float2 curand_normal2(State *state);                                                                                 \
  float curand_log_normal(State *state, float mean, float deviation);                                                  \
  unsigned int curand_poisson(State *state, double lambda);
KG_CURAND(curandStateXORWOW)
KG_CURAND(curandStatePhilox4_32_10)
KG_CURAND(curandStateMRG32k3a)
#undef KG_CURAND
uint4 curand4(curandStatePhilox4_32_10 *state);
float4 curand_uniform4(curandStatePhilox4_32_10 *state);
float4 curand_normal4(curandStatePhilox4_32_10 *state);

#pragma clang force_cuda_host_device end
