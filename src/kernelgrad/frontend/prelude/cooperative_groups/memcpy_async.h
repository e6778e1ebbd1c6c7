// cg::memcpy_async: the group copies element by element; wait is its barrier.
#pragma once

#include "../cooperative_groups.h"

#pragma clang force_cuda_host_device begin
namespace cooperative_groups {

template <class Group, class T> inline void memcpy_async(const Group &group, T *to, const T *from, size_t bytes) {
  for (size_t k = group.thread_rank(); k < bytes / sizeof(T); k += group.size()) to[k] = from[k];
}
template <class Group> inline void wait(const Group &group) { group.sync(); }
template <unsigned int stages, class Group> inline void wait_prior(const Group &group) { group.sync(); }

}  // namespace cooperative_groups
#pragma clang force_cuda_host_device end
