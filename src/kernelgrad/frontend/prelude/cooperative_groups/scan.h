// cg::inclusive_scan and cg::exclusive_scan over tiles of a warp.
#pragma once

#include "reduce.h"

#pragma clang force_cuda_host_device begin
namespace cooperative_groups {

template <class Group, class T, class Operator> inline T inclusive_scan(const Group &group, T value, Operator op) {
  for (unsigned int step = 1; step < group.size(); step *= 2) {
    T left = group.shfl_up(value, step);
    if (group.thread_rank() >= step) value = op(left, value);
  }
  return value;
}
template <class Group, class T> inline T inclusive_scan(const Group &group, T value) {
  return inclusive_scan(group, value, plus<T>());
}
template <class Group, class T, class Operator> inline T exclusive_scan(const Group &group, T value, Operator op) {
  T left = group.shfl_up(inclusive_scan(group, value, op), 1u);
  return group.thread_rank() == 0 ? T() : left;
}
template <class Group, class T> inline T exclusive_scan(const Group &group, T value) {
  return exclusive_scan(group, value, plus<T>());
}

}  // namespace cooperative_groups
#pragma clang force_cuda_host_device end
