// Shuffles, votes, matches and reductions of a warp.
#pragma once

#define KG_SHUFFLE(T)                                                                                                  \
  T __shfl_sync(unsigned int mask, T value, int lane, int width = 32);                                                 \
  T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32);                                    \
  T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32);                                  \
  T __shfl_xor_sync(unsigned int mask, T value, int lane_mask, int width = 32);                                        \
  /* the forms of before Volta: the whole warp takes part */                                                           \
  inline T __shfl(T value, int lane, int width = 32) { return __shfl_sync(0xffffffffu, value, lane, width); }          \
  inline T __shfl_up(T value, unsigned int delta, int width = 32) {                                                    \
    return __shfl_up_sync(0xffffffffu, value, delta, width);                                                           \
  }                                                                                                                    \
  inline T __shfl_down(T value, unsigned int delta, int width = 32) {                                                  \
    return __shfl_down_sync(0xffffffffu, value, delta, width);                                                         \
  }                                                                                                                    \
  inline T __shfl_xor(T value, int lane_mask, int width = 32) {                                                        \
    return __shfl_xor_sync(0xffffffffu, value, lane_mask, width);                                                      \
  }
KG_SHUFFLE(int)
KG_SHUFFLE(unsigned int)
KG_SHUFFLE(long)
KG_SHUFFLE(unsigned long)
KG_SHUFFLE(long long)
KG_SHUFFLE(unsigned long long)
KG_SHUFFLE(float)
KG_SHUFFLE(double)

// Of any type, field by field: what groups and CUB shuffle.
template <class T> T __kg_shfl_idx(unsigned int mask, T value, int lane, int width);
template <class T> T __kg_shfl_up(unsigned int mask, T value, unsigned int delta, int width);
template <class T> T __kg_shfl_down(unsigned int mask, T value, unsigned int delta, int width);
template <class T> T __kg_shfl_xor(unsigned int mask, T value, int lane_mask, int width);

int __any_sync(unsigned int mask, int predicate);
int __all_sync(unsigned int mask, int predicate);
int __uni_sync(unsigned int mask, int predicate);
unsigned int __ballot_sync(unsigned int mask, int predicate);
unsigned int __activemask();
inline int __any(int predicate) { return __any_sync(0xffffffffu, predicate); }
inline int __all(int predicate) { return __all_sync(0xffffffffu, predicate); }
inline unsigned int __ballot(int predicate) { return __ballot_sync(0xffffffffu, predicate); }

#define KG_MATCH(T)                                                                                                    \
  unsigned int __match_any_sync(unsigned int mask, T value);                                                           \
  unsigned int __match_all_sync(unsigned int mask, T value, int *predicate);
KG_MATCH(int)
KG_MATCH(unsigned int)
KG_MATCH(long)
KG_MATCH(unsigned long)
KG_MATCH(long long)
KG_MATCH(unsigned long long)
KG_MATCH(float)
KG_MATCH(double)

unsigned int __reduce_add_sync(unsigned int mask, unsigned int value);
int __reduce_add_sync(unsigned int mask, int value);
unsigned int __reduce_min_sync(unsigned int mask, unsigned int value);
int __reduce_min_sync(unsigned int mask, int value);
unsigned int __reduce_max_sync(unsigned int mask, unsigned int value);
int __reduce_max_sync(unsigned int mask, int value);
unsigned int __reduce_and_sync(unsigned int mask, unsigned int value);
unsigned int __reduce_or_sync(unsigned int mask, unsigned int value);
unsigned int __reduce_xor_sync(unsigned int mask, unsigned int value);

unsigned int __kg_lane_id();
inline unsigned int __lane_id() { return __kg_lane_id(); }
