// thrust's iterators that compute what they give. In kernels, all that is asked of an iterator is `it[k]`.
#pragma once

#include "thrust_memory.h"

namespace thrust {

template <class T> struct counting_iterator {
  typedef T value_type;
  T _first;
  __host__ __device__ explicit counting_iterator(T first) : _first(first) {}
  __host__ __device__ T operator[](long k) const { return _first + (T)k; }
  __host__ __device__ T operator*() const { return _first; }
  __host__ __device__ counting_iterator operator+(long k) const { return counting_iterator(_first + (T)k); }
  __host__ __device__ long operator-(const counting_iterator &other) const { return (long)_first - (long)other._first; }
};
template <class T> counting_iterator<T> make_counting_iterator(T first) { return counting_iterator<T>(first); }

template <class T> struct constant_iterator {
  typedef T value_type;
  T _value;
  long _at;
  __host__ __device__ explicit constant_iterator(T value, long at = 0) : _value(value), _at(at) {}
  __host__ __device__ T operator[](long) const { return _value; }
  __host__ __device__ T operator*() const { return _value; }
  __host__ __device__ constant_iterator operator+(long k) const { return constant_iterator(_value, _at + k); }
  __host__ __device__ long operator-(const constant_iterator &other) const { return _at - other._at; }
};
template <class T> constant_iterator<T> make_constant_iterator(T value) { return constant_iterator<T>(value); }

template <class F, class I> struct transform_iterator {
  I _of;
  F _function;
  __host__ __device__ transform_iterator(I of, F function) : _of(of), _function(function) {}
  __host__ __device__ auto operator[](long k) const { return _function(_of[k]); }
  transform_iterator operator+(long k) const { return transform_iterator(_of + k, _function); }
  long operator-(const transform_iterator &other) const { return _of - other._of; }
};
template <class F, class I> transform_iterator<F, I> make_transform_iterator(I of, F function) {
  return transform_iterator<F, I>(of, function);
}

// Elements in the order of indices.
template <class I, class M> struct permutation_iterator {
  I _of;
  M _map;
  __host__ __device__ permutation_iterator(I of, M map) : _of(of), _map(map) {}
  __host__ __device__ decltype(auto) operator[](long k) const { return _of[_map[k]]; }
  permutation_iterator operator+(long k) const { return permutation_iterator(_of, _map + k); }
  long operator-(const permutation_iterator &other) const { return _map - other._map; }
};
template <class I, class M> permutation_iterator<I, M> make_permutation_iterator(I of, M map) {
  return permutation_iterator<I, M>(of, map);
}

// Two iterators and what is made of their elements.
template <class I, class J, class F> struct __kg_both {
  I _a;
  J _b;
  F _function;
  __host__ __device__ auto operator[](long k) const { return _function(_a[k], _b[k]); }
};

// Where an iterator's elements are, and the iterator as kernels have it.
template <class I> struct __kg_place {
  static constexpr bool on_device = false;
  static I raw(I it) { return it; }
};
template <class T> struct __kg_place<device_ptr<T>> {
  static constexpr bool on_device = true;
  static T *raw(device_ptr<T> it) { return it._at; }
};
template <class F, class I> struct __kg_place<transform_iterator<F, I>> {
  static constexpr bool on_device = __kg_place<I>::on_device;
  static auto raw(transform_iterator<F, I> it) {
    return transform_iterator<F, decltype(__kg_place<I>::raw(it._of))>(__kg_place<I>::raw(it._of), it._function);
  }
};
template <class I, class M> struct __kg_place<permutation_iterator<I, M>> {
  static constexpr bool on_device = __kg_place<I>::on_device || __kg_place<M>::on_device;
  static auto raw(permutation_iterator<I, M> it) {
    return permutation_iterator<decltype(__kg_place<I>::raw(it._of)), decltype(__kg_place<M>::raw(it._map))>(
        __kg_place<I>::raw(it._of), __kg_place<M>::raw(it._map));
  }
};
template <class I> struct __kg_value {
  typedef typename I::value_type type;
};
template <class T> struct __kg_value<T *> {
  typedef std::remove_const_t<T> type;
};
template <class T> struct __kg_value<device_ptr<T>> {
  typedef std::remove_const_t<T> type;
};
template <class I, class M> struct __kg_value<permutation_iterator<I, M>> {
  typedef typename __kg_value<I>::type type;
};
template <class F, class I> struct __kg_value<transform_iterator<F, I>> {
  typedef std::decay_t<decltype(std::declval<F>()(std::declval<typename __kg_value<I>::type>()))> type;
};
template <class I> auto __kg_raw(I it) { return __kg_place<I>::raw(it); }
template <class... I> constexpr bool __kg_any_on_device = (__kg_place<I>::on_device || ...);

}  // namespace thrust
