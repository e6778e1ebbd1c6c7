// Stands in for Clad's header: a pointer with the number of elements behind it.
#pragma once

#pragma clang force_cuda_host_device begin
namespace clad {
template <class T> struct array_ref {
  T *data = nullptr;
  size_t count = 0;
  array_ref() = default;
  array_ref(T *data, size_t count) : data(data), count(count) {}
  T *ptr() const { return data; }
  size_t size() const { return count; }
  T &operator[](size_t k) const { return data[k]; }
};
} // namespace clad
#pragma clang force_cuda_host_device end
