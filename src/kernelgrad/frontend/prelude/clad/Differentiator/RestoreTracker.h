// Stands in for Clad's header: variables whose first values come back.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef Max_Records
#define Max_Records 64
#endif
#ifndef Max_Bytes
#define Max_Bytes 1024
#endif

#pragma clang force_cuda_host_device begin
namespace clad {
class restore_tracker {
  uint8_t *_at[Max_Records];
  size_t _start[Max_Records + 1];
  uint8_t _kept[Max_Bytes];
  size_t _count = 0;

public:
  // Only the first value of a variable is kept.
  template <class T> void store(const T &value) {
    const uint8_t *at = (const uint8_t *)&value;
    for (size_t k = 0; k < _count; ++k)
      if (_at[k] == at) return;
    size_t start = _count ? _start[_count] : 0;
    if (_count >= Max_Records || start + sizeof(T) > Max_Bytes) return;
    for (size_t k = 0; k < sizeof(T); ++k) _kept[start + k] = at[k];
    _at[_count] = (uint8_t *)at;
    _start[_count++] = start;
    _start[_count] = start + sizeof(T);
  }
  void restore() {
    for (size_t k = 0; k < _count; ++k)
      for (size_t i = _start[k]; i < _start[k + 1]; ++i) _at[k][i - _start[k]] = _kept[i];
  }
  void clear() { _count = 0; }
};
} // namespace clad
#pragma clang force_cuda_host_device end
