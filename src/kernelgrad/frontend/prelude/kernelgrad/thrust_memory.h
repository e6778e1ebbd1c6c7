// thrust's pointers, references and vectors: memory of the device that the host names, and memory of the host.
#pragma once

#include "../vector"
#include "objects.h"

namespace thrust {

// An element of device memory, read and written by the host.
template <class T> struct device_reference {
  T *_at;
  operator T() const {
    T value;
    cudaMemcpy((void *)&value, (const void *)_at, sizeof(T), cudaMemcpyDeviceToHost);
    return value;
  }
  device_reference &operator=(const T &value) {
    cudaMemcpy((void *)_at, (const void *)&value, sizeof(T), cudaMemcpyHostToDevice);
    return *this;
  }
  device_reference &operator=(const device_reference &other) {
    cudaMemcpy((void *)_at, (const void *)other._at, sizeof(T), cudaMemcpyDeviceToDevice);
    return *this;
  }
  device_reference &operator+=(const T &value) { return *this = T(*this) + value; }
  device_reference &operator-=(const T &value) { return *this = T(*this) - value; }
  device_reference &operator*=(const T &value) { return *this = T(*this) * value; }
};

template <class T> struct device_ptr {
  typedef T value_type;
  typedef long difference_type;
  T *_at;
  __host__ __device__ device_ptr() : _at(nullptr) {}
  __host__ __device__ explicit device_ptr(T *at) : _at(at) {}
  template <class U> __host__ __device__ device_ptr(const device_ptr<U> &other) : _at(other._at) {}
  __host__ __device__ T *get() const { return _at; }
  device_reference<T> operator*() const { return device_reference<T>{_at}; }
  device_reference<T> operator[](long k) const { return device_reference<T>{_at + k}; }
  device_ptr operator+(long k) const { return device_ptr(_at + k); }
  device_ptr operator-(long k) const { return device_ptr(_at - k); }
  long operator-(const device_ptr &other) const { return _at - other._at; }
  device_ptr &operator++() { ++_at; return *this; }
  device_ptr &operator--() { --_at; return *this; }
  device_ptr &operator+=(long k) { _at += k; return *this; }
  bool operator==(const device_ptr &other) const { return _at == other._at; }
  bool operator!=(const device_ptr &other) const { return _at != other._at; }
  bool operator<(const device_ptr &other) const { return _at < other._at; }
};

template <class T> T *raw_pointer_cast(device_ptr<T> at) { return at._at; }
template <class T> T *raw_pointer_cast(T *at) { return at; }
template <class T> device_ptr<T> device_pointer_cast(T *at) { return device_ptr<T>(at); }
template <class T> device_ptr<T> device_malloc(size_t count) {
  T *made;
  cudaMalloc(&made, count * sizeof(T));
  return device_ptr<T>(made);
}
template <class T> void device_free(device_ptr<T> at) { cudaFree(at._at); }

template <class T> __global__ void __kg_set(T *to, T value, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) to[i] = value;
}
inline unsigned int __kg_blocks(long n) { return (unsigned int)((n + 255) / 256); }

template <class T> struct device_vector;

template <class T> struct host_vector {
  typedef T value_type;
  typedef T *iterator;
  typedef const T *const_iterator;
  std::vector<T> _own;
  host_vector() {}
  explicit host_vector(size_t count) : _own(count) {}
  host_vector(size_t count, const T &value) : _own(count, value) {}
  host_vector(std::initializer_list<T> values) : _own(values) {}
  host_vector(const std::vector<T> &other) : _own(other) {}
  host_vector(const device_vector<T> &other) : _own(other._size) { _take(other); }
  template <class I, class = decltype(*I())> host_vector(I first, I last) : _own(first, last) {}
  host_vector &operator=(const device_vector<T> &other) {
    _own.resize(other._size);
    _take(other);
    return *this;
  }
  T &operator[](size_t k) { return _own._data[k]; }
  const T &operator[](size_t k) const { return _own._data[k]; }
  T *begin() { return _own._data; }
  const T *begin() const { return _own._data; }
  T *end() { return _own._data + _own._size; }
  const T *end() const { return _own._data + _own._size; }
  T *data() { return _own._data; }
  const T *data() const { return _own._data; }
  T &front() { return _own.front(); }
  T &back() { return _own.back(); }
  size_t size() const { return _own._size; }
  bool empty() const { return _own._size == 0; }
  void resize(size_t count) { _own.resize(count); }
  void resize(size_t count, const T &value) { _own.resize(count, value); }
  void push_back(const T &value) { _own.push_back(value); }
  void clear() { _own.clear(); }
  void _take(const device_vector<T> &other) {
    cudaMemcpy((void *)_own._data, (const void *)other._memory, other._size * sizeof(T), cudaMemcpyDeviceToHost);
  }
};

template <class T> struct device_vector {
  typedef T value_type;
  typedef device_ptr<T> iterator;
  typedef device_ptr<const T> const_iterator;
  typedef device_ptr<T> pointer;
  T *_memory;
  size_t _size;
  device_vector() : _memory(nullptr), _size(0) {}
  explicit device_vector(size_t count) : _memory(nullptr), _size(0) {
    _make(count);
    if (count) cudaMemset((void *)_memory, 0, count * sizeof(T));
  }
  device_vector(size_t count, const T &value) : _memory(nullptr), _size(0) {
    _make(count);
    if (count) __kg_set<<<__kg_blocks(count), 256>>>(_memory, value, (long)count);
  }
  device_vector(std::initializer_list<T> values) : _memory(nullptr), _size(0) { _take(values.begin(), values.size()); }
  device_vector(const device_vector &other) : _memory(nullptr), _size(0) { _take(other._memory, other._size); }
  device_vector(device_vector &&other) : _memory(other._memory), _size(other._size) {
    other._memory = nullptr;
    other._size = 0;
  }
  device_vector(const host_vector<T> &other) : _memory(nullptr), _size(0) { _take(other.data(), other.size()); }
  device_vector(const std::vector<T> &other) : _memory(nullptr), _size(0) { _take(other.data(), other.size()); }
  device_vector(const T *first, const T *last) : _memory(nullptr), _size(0) { _take(first, last - first); }
  device_vector(T *first, T *last) : _memory(nullptr), _size(0) { _take(first, last - first); }
  device_vector(device_ptr<T> first, device_ptr<T> last) : _memory(nullptr), _size(0) { _take(first._at, last - first); }
  ~device_vector() { cudaFree(_memory); }
  device_vector &operator=(const device_vector &other) {
    if (this != &other) _take(other._memory, other._size);
    return *this;
  }
  device_vector &operator=(device_vector &&other) {
    swap(other);
    return *this;
  }
  device_vector &operator=(const host_vector<T> &other) {
    _take(other.data(), other.size());
    return *this;
  }
  device_vector &operator=(const std::vector<T> &other) {
    _take(other.data(), other.size());
    return *this;
  }
  device_reference<T> operator[](size_t k) { return device_reference<T>{_memory + k}; }
  T operator[](size_t k) const { return device_reference<T>{_memory + k}; }
  device_reference<T> front() { return device_reference<T>{_memory}; }
  device_reference<T> back() { return device_reference<T>{_memory + _size - 1}; }
  device_ptr<T> begin() { return device_ptr<T>(_memory); }
  device_ptr<T> end() { return device_ptr<T>(_memory + _size); }
  device_ptr<const T> begin() const { return device_ptr<const T>(_memory); }
  device_ptr<const T> end() const { return device_ptr<const T>(_memory + _size); }
  device_ptr<T> data() { return device_ptr<T>(_memory); }
  device_ptr<const T> data() const { return device_ptr<const T>(_memory); }
  size_t size() const { return _size; }
  bool empty() const { return _size == 0; }
  void clear() { _size = 0; }
  void resize(size_t count) { resize(count, T()); }
  void resize(size_t count, const T &value) {
    T *old = _memory;
    size_t before = _size, kept = before < count ? before : count;
    _memory = nullptr;
    _make(count);
    if (kept) cudaMemcpy((void *)_memory, (const void *)old, kept * sizeof(T), cudaMemcpyDeviceToDevice);
    if (count > kept) __kg_set<<<__kg_blocks(count - kept), 256>>>(_memory + kept, value, (long)(count - kept));
    cudaFree(old);
  }
  void push_back(const T &value) { resize(_size + 1, value); }
  void swap(device_vector &other) {
    T *memory = _memory;
    size_t size = _size;
    _memory = other._memory;
    _size = other._size;
    other._memory = memory;
    other._size = size;
  }
  void _make(size_t count) {
    if (count) cudaMalloc(&_memory, count * sizeof(T));
    _size = count;
  }
  void _take(const T *from, size_t count) {
    T *old = _memory;
    _memory = nullptr;
    _make(count);
    if (count) cudaMemcpy((void *)_memory, (const void *)from, count * sizeof(T), cudaMemcpyDefault);
    cudaFree(old);
  }
};
template <class T> void swap(device_vector<T> &a, device_vector<T> &b) { a.swap(b); }

}  // namespace thrust
