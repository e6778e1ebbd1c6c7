// Objects in memory that a container has.
#pragma once

template <class T> void __kg_destroy_all(T *first, size_t count) {
  for (size_t k = count; k > 0; --k) first[k - 1].~T();
}
