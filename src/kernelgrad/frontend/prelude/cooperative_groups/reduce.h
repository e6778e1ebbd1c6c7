// cg::reduce and its operators.
#pragma once

#include "../cooperative_groups.h"

#pragma clang force_cuda_host_device begin
namespace cooperative_groups {

template <class T = void> struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T = void> struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T = void> struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T = void> struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T = void> struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T = void> struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

template <unsigned int tile, class Parent, class T, class Operator>
inline T reduce(const thread_block_tile<tile, Parent> &group, T value, Operator op) {
  for (unsigned int step = tile / 2; step > 0; step /= 2) value = op(value, group.shfl_xor(value, (int)step));
  return value;
}

template <class T, class Operator> inline T reduce(const coalesced_group &group, T value, Operator op) {
  T sum = group.shfl(value, 0);
  for (unsigned int rank = 1; rank < group.size(); ++rank) sum = op(sum, group.shfl(value, rank));
  return sum;
}

}  // namespace cooperative_groups
#pragma clang force_cuda_host_device end
