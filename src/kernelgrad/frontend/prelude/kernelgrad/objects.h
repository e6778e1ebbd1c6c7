// Objects in memory that a container has.
#pragma once

template <class T> void __kg_destroy_all(T *first, size_t count) {
  for (size_t k = 0; k < count; ++k) first[k].~T();
}
