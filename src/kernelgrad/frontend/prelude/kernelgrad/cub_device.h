// CUB's algorithms over the whole device, by thrust's. Asked without storage, they say how much they want: a byte.
#pragma once

#include "cub_threads.h"
#include "thrust_algorithms.h"

namespace cub {

template <class T> thrust::device_ptr<T> __kg_on_device(T *at) { return thrust::device_ptr<T>(at); }
template <class I> I __kg_on_device(I it) { return it; }
template <class V, class Op, class I, class = long> struct TransformInputIterator : thrust::transform_iterator<Op, I> {
  TransformInputIterator(I of, Op op) : thrust::transform_iterator<Op, I>(of, op) {}
};
template <class V, class Op, class I, class N>
auto __kg_on_device(TransformInputIterator<V, Op, I, N> it) {
  return thrust::transform_iterator<Op, decltype(__kg_on_device(it._of))>(__kg_on_device(it._of), it._function);
}
template <class T, class = long> using CountingInputIterator = thrust::counting_iterator<T>;
template <class T, class = long> using ConstantInputIterator = thrust::constant_iterator<T>;

template <class T, class F> __global__ void __kg_begin_with(T *at, T start, F function) { *at = function(start, *at); }
template <class T> __global__ void __kg_only(T *at, T value) { *at = value; }

struct __kg_sized {
  static bool only_asks(void *storage, size_t &bytes) {
    if (storage == nullptr) bytes = 1;
    return storage == nullptr;
  }
};

struct DeviceReduce : __kg_sized {
  template <class I, class T, class N, class F, class S>
  static cudaError_t Reduce(void *storage, size_t &bytes, I in, T *out, N count, F op, S start, cudaStream_t = 0) {
    if (only_asks(storage, bytes)) return cudaSuccess;
    long n = (long)count;
    if (n <= 0) {
      __kg_only<<<1, 1>>>(out, (T)start);
      return cudaSuccess;
    }
    unsigned int blocks = n < 256 * 1024L ? thrust::__kg_blocks(n) : 1024u;
    thrust::device_vector<T> partial(blocks);
    thrust::__kg_partial<<<blocks, 256>>>(thrust::__kg_raw(__kg_on_device(in)), partial._memory, op, n);
    thrust::__kg_partial<<<1, 256>>>(partial._memory, out, op, (long)blocks);
    __kg_begin_with<<<1, 1>>>(out, (T)start, op);
    return cudaSuccess;
  }
  template <class I, class T, class N>
  static cudaError_t Sum(void *storage, size_t &bytes, I in, T *out, N count, cudaStream_t stream = 0) {
    return Reduce(storage, bytes, in, out, count, thrust::plus<T>(), T(0), stream);
  }
  template <class I, class T, class N>
  static cudaError_t Max(void *storage, size_t &bytes, I in, T *out, N count, cudaStream_t stream = 0) {
    return Reduce(storage, bytes, in, out, count, thrust::maximum<T>(), std::numeric_limits<T>::lowest(), stream);
  }
  template <class I, class T, class N>
  static cudaError_t Min(void *storage, size_t &bytes, I in, T *out, N count, cudaStream_t stream = 0) {
    return Reduce(storage, bytes, in, out, count, thrust::minimum<T>(), std::numeric_limits<T>::max(), stream);
  }
};

struct DeviceScan : __kg_sized {
  template <class I, class O, class F, class N>
  static cudaError_t InclusiveScan(void *storage, size_t &bytes, I in, O out, F op, N count, cudaStream_t = 0) {
    if (only_asks(storage, bytes)) return cudaSuccess;
    auto first = __kg_on_device(in);
    thrust::inclusive_scan(first, first + (long)count, __kg_on_device(out), op);
    return cudaSuccess;
  }
  template <class I, class O, class F, class T, class N>
  static cudaError_t ExclusiveScan(void *storage, size_t &bytes, I in, O out, F op, T start, N count, cudaStream_t = 0) {
    if (only_asks(storage, bytes)) return cudaSuccess;
    auto first = __kg_on_device(in);
    thrust::exclusive_scan(first, first + (long)count, __kg_on_device(out), start, op);
    return cudaSuccess;
  }
  template <class I, class O, class N>
  static cudaError_t InclusiveSum(void *storage, size_t &bytes, I in, O out, N count, cudaStream_t stream = 0) {
    return InclusiveScan(storage, bytes, in, out, thrust::plus<typename thrust::__kg_value<O>::type>(), count, stream);
  }
  template <class I, class O, class N>
  static cudaError_t ExclusiveSum(void *storage, size_t &bytes, I in, O out, N count, cudaStream_t stream = 0) {
    typedef typename thrust::__kg_value<O>::type T;
    return ExclusiveScan(storage, bytes, in, out, thrust::plus<T>(), T(0), count, stream);
  }
};

}  // namespace cub
