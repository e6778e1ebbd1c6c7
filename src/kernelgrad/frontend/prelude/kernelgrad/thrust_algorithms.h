// thrust's algorithms: kernels where an iterator is of the device, loops of the host elsewhere.
#pragma once

#include "../algorithm"
#include "../functional"
#include "thrust_iterators.h"

namespace thrust {

struct __kg_policy {
  __kg_policy on(cudaStream_t) const { return *this; }
};
struct __kg_host_policy {};
constexpr __kg_policy device{};
constexpr __kg_host_policy host{}, seq{};
namespace cuda {
constexpr __kg_policy par{}, par_nosync{};
}
// With raw pointers, the policy says where they point.
template <class I> I __kg_given(__kg_policy, I it) { return it; }
template <class T> device_ptr<T> __kg_given(__kg_policy, T *it) { return device_ptr<T>(it); }

template <class I> I __kg_given(__kg_host_policy, I it) { return it; }

using std::divides;
using std::greater;
using std::less;
using std::minus;
using std::modulus;
using std::multiplies;
using std::plus;
template <class T> struct negate {
  __host__ __device__ T operator()(const T &a) const { return -a; }
};
template <class T> struct maximum {
  __host__ __device__ T operator()(const T &a, const T &b) const { return a < b ? b : a; }
};
template <class T> struct minimum {
  __host__ __device__ T operator()(const T &a, const T &b) const { return b < a ? b : a; }
};
template <class T> struct identity {
  __host__ __device__ T operator()(const T &a) const { return a; }
};
template <class T> struct square {
  __host__ __device__ T operator()(const T &a) const { return a * a; }
};

// ---- one element at a time

template <class I, class O> __global__ void __kg_assign(I from, O to, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}
template <class I, class F> __global__ void __kg_each(I it, F function, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) function(it[i]);
}
template <class I, class O, class M> __global__ void __kg_gather(M map, I from, O to, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[map[i]];
}
template <class I, class O, class M> __global__ void __kg_scatter(M map, I from, O to, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) to[map[i]] = from[i];
}

template <class I, class O> O __kg_store(I from, O to, long n) {
  if (n > 0) {
    if constexpr (__kg_any_on_device<I, O>)
      __kg_assign<<<__kg_blocks(n), 256>>>(__kg_raw(from), __kg_raw(to), n);
    else
      for (long k = 0; k < n; ++k) to[k] = from[k];
  }
  return to + n;
}
template <class I, class O, class F> O transform(I first, I last, O to, F function) {
  return __kg_store(transform_iterator<F, I>(first, function), to, last - first);
}
template <class I, class J, class O, class F> O transform(I first, I last, J second, O to, F function) {
  long n = last - first;
  if (n > 0) {
    if constexpr (__kg_any_on_device<I, J, O>) {
      __kg_both<decltype(__kg_raw(first)), decltype(__kg_raw(second)), F> of{__kg_raw(first), __kg_raw(second), function};
      __kg_assign<<<__kg_blocks(n), 256>>>(of, __kg_raw(to), n);
    } else
      for (long k = 0; k < n; ++k) to[k] = function(first[k], second[k]);
  }
  return to + n;
}
template <class T, class U> U *copy(T *first, T *last, U *to) { return std::copy(first, last, to); }
template <class T, class U> device_ptr<U> copy(T *first, T *last, device_ptr<U> to) {
  cudaMemcpy((void *)to._at, (const void *)first, (last - first) * sizeof(U), cudaMemcpyHostToDevice);
  return to + (last - first);
}
template <class T, class U> U *copy(device_ptr<T> first, device_ptr<T> last, U *to) {
  cudaMemcpy((void *)to, (const void *)first._at, (last - first) * sizeof(U), cudaMemcpyDeviceToHost);
  return to + (last - first);
}
template <class T, class U> device_ptr<U> copy(device_ptr<T> first, device_ptr<T> last, device_ptr<U> to) {
  return __kg_store(first, to, last - first);
}
template <class I, class N, class O> O copy_n(I first, N count, O to) { return thrust::copy(first, first + count, to); }
template <class I, class T> void fill(I first, I last, const T &value) {
  __kg_store(constant_iterator<T>(value), first, last - first);
}
template <class I, class N, class T> I fill_n(I first, N count, const T &value) {
  return __kg_store(constant_iterator<T>(value), first, (long)count);
}
template <class I> void sequence(I first, I last) {
  __kg_store(counting_iterator<typename __kg_value<I>::type>(0), first, last - first);
}
template <class I, class F> I for_each(I first, I last, F function) {
  long n = last - first;
  if (n > 0) {
    if constexpr (__kg_any_on_device<I>)
      __kg_each<<<__kg_blocks(n), 256>>>(__kg_raw(first), function, n);
    else
      for (long k = 0; k < n; ++k) function(first[k]);
  }
  return last;
}
template <class M, class I, class O> O gather(M first, M last, I from, O to) {
  long n = last - first;
  if (n > 0) __kg_gather<<<__kg_blocks(n), 256>>>(__kg_raw(first), __kg_raw(from), __kg_raw(to), n);
  return to + n;
}
template <class I, class M, class O> void scatter(I first, I last, M map, O to) {
  long n = last - first;
  if (n > 0) __kg_scatter<<<__kg_blocks(n), 256>>>(__kg_raw(map), __kg_raw(first), __kg_raw(to), n);
}

// ---- sums

// Each block adds up what its threads have: those that have nothing stay out of it.
template <class I, class T, class F> __global__ void __kg_partial(I from, T *to, F function, long n) {
  __shared__ T part[256];
  int t = threadIdx.x;
  long first = blockIdx.x * 256L + t;
  if (first < n) {
    T sum = from[first];
    for (long k = first + gridDim.x * 256L; k < n; k += gridDim.x * 256L) sum = function(sum, from[k]);
    part[t] = sum;
  }
  long rest = n - blockIdx.x * 256L;
  int count = rest < 256 ? (int)rest : 256;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half && t + half < count) part[t] = function(part[t], part[t + half]);
    __syncthreads();
  }
  if (t == 0) to[blockIdx.x] = part[0];
}

template <class I, class T, class F> T reduce(I first, I last, T start, F function) {
  long n = last - first;
  if (n <= 0) return start;
  if constexpr (__kg_any_on_device<I>) {
    unsigned int blocks = n < 256 * 1024L ? __kg_blocks(n) : 1024u;
    device_vector<T> partial(blocks), total(1);
    __kg_partial<<<blocks, 256>>>(__kg_raw(first), partial._memory, function, n);
    __kg_partial<<<1, 256>>>(partial._memory, total._memory, function, (long)blocks);
    return function(start, T(total[0]));
  } else {
    for (long k = 0; k < n; ++k) start = function(start, first[k]);
    return start;
  }
}
template <class I, class T> T reduce(I first, I last, T start) { return thrust::reduce(first, last, start, plus<T>()); }
template <class I> typename __kg_value<I>::type reduce(I first, I last) {
  typedef typename __kg_value<I>::type T;
  return thrust::reduce(first, last, T(0), plus<T>());
}
template <class I, class U, class T, class F> T transform_reduce(I first, I last, U unary, T start, F function) {
  return thrust::reduce(transform_iterator<U, I>(first, unary), transform_iterator<U, I>(last, unary), start, function);
}
template <class I, class J, class T, class F, class G>
T inner_product(I first, I last, J second, T start, F sum, G product) {
  long n = last - first;
  if (n <= 0) return start;
  if constexpr (__kg_any_on_device<I, J>) {
    unsigned int blocks = n < 256 * 1024L ? __kg_blocks(n) : 1024u;
    device_vector<T> partial(blocks), total(1);
    __kg_both<decltype(__kg_raw(first)), decltype(__kg_raw(second)), G> of{__kg_raw(first), __kg_raw(second), product};
    __kg_partial<<<blocks, 256>>>(of, partial._memory, sum, n);
    __kg_partial<<<1, 256>>>(partial._memory, total._memory, sum, (long)blocks);
    return sum(start, T(total[0]));
  } else {
    for (long k = 0; k < n; ++k) start = sum(start, product(first[k], second[k]));
    return start;
  }
}
template <class I, class J, class T> T inner_product(I first, I last, J second, T start) {
  return thrust::inner_product(first, last, second, start, plus<T>(), multiplies<T>());
}

// ---- scans: each thread has a piece; their sums are scanned by one

template <class I, class T, class F> __global__ void __kg_pieces(I from, T *sums, F function, long n, long piece) {
  long t = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (t * piece >= n) return;
  T sum = from[t * piece];
  long end = (t + 1) * piece < n ? (t + 1) * piece : n;
  for (long k = t * piece + 1; k < end; ++k) sum = function(sum, from[k]);
  sums[t] = sum;
}
template <class T, class F> __global__ void __kg_scan_sums(T *sums, F function, long count) {
  T sum = sums[0];
  for (long k = 1; k < count; ++k) {
    sum = function(sum, sums[k]);
    sums[k] = sum;
  }
}
template <class I, class O, class T, class F>
__global__ void __kg_scan(I from, O to, const T *sums, F function, T start, bool exclusive, long n, long piece) {
  long t = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (t * piece >= n) return;
  long end = (t + 1) * piece < n ? (t + 1) * piece : n;
  T sum = start;
  if (t > 0) sum = exclusive ? function(start, sums[t - 1]) : sums[t - 1];
  for (long k = t * piece; k < end; ++k) {
    T own = from[k];
    T next = !exclusive && k == 0 ? own : function(sum, own);
    to[k] = exclusive ? sum : next;
    sum = next;
  }
}
template <class I, class O, class T, class F>
O __kg_scanned(I first, I last, O to, T start, F function, bool exclusive) {
  long n = last - first;
  if (n <= 0) return to;
  if constexpr (__kg_any_on_device<I, O>) {
    long piece = (n + 4095) / 4096, count = (n + piece - 1) / piece;
    device_vector<T> sums(count);
    __kg_pieces<<<__kg_blocks(count), 256>>>(__kg_raw(first), sums._memory, function, n, piece);
    __kg_scan_sums<<<1, 1>>>(sums._memory, function, count);
    __kg_scan<<<__kg_blocks(count), 256>>>(__kg_raw(first), __kg_raw(to), (const T *)sums._memory, function, start,
                                           exclusive, n, piece);
  } else {
    for (long k = 0; k < n; ++k) {
      T own = first[k];
      T next = !exclusive && k == 0 ? own : function(start, own);
      to[k] = exclusive ? start : next;
      start = next;
    }
  }
  return to + n;
}
template <class I, class O, class F> O inclusive_scan(I first, I last, O to, F function) {
  return __kg_scanned(first, last, to, typename __kg_value<I>::type(0), function, false);
}
template <class I, class O> O inclusive_scan(I first, I last, O to) {
  return thrust::inclusive_scan(first, last, to, plus<typename __kg_value<I>::type>());
}
template <class I, class O, class T, class F> O exclusive_scan(I first, I last, O to, T start, F function) {
  return __kg_scanned(first, last, to, start, function, true);
}
template <class I, class O, class T> O exclusive_scan(I first, I last, O to, T start) {
  return __kg_scanned(first, last, to, start, plus<T>(), true);
}
template <class I, class O> O exclusive_scan(I first, I last, O to) {
  typedef typename __kg_value<I>::type T;
  return __kg_scanned(first, last, to, T(0), plus<T>(), true);
}

// ---- order: the host finds it, and has no derivative of that; elements are moved

bool __kg_unsupported_order();
template <class F> struct __kg_order {
  static bool falls() { return __kg_unsupported_order(); }
};
template <class T> struct __kg_order<less<T>> {
  static bool falls() { return false; }
};
template <class T> struct __kg_order<greater<T>> {
  static bool falls() { return true; }
};
template <class I> void __kg_move(I first, const int *order, long n) {
  typedef typename __kg_value<I>::type T;
  device_vector<T> sorted(n);
  __kg_gather<<<__kg_blocks(n), 256>>>(order, __kg_raw(first), sorted._memory, n);
  cudaMemcpy((void *)__kg_raw(first), (const void *)sorted._memory, n * sizeof(T), cudaMemcpyDefault);
}
template <class T> void __kg_sort_order(int *order, const T *keys, long n, bool falls);

template <class T, class F> void sort(device_ptr<T> first, device_ptr<T> last, F less) {
  long n = last - first;
  if (n < 2) return;
  device_vector<int> order(n);
  __kg_sort_order(order._memory, (const T *)first._at, n, __kg_order<F>::falls());
  __kg_move(first, order._memory, n);
}
template <class K, class V, class F>
void sort_by_key(device_ptr<K> first, device_ptr<K> last, device_ptr<V> values, F less) {
  long n = last - first;
  if (n < 2) return;
  device_vector<int> order(n);
  __kg_sort_order(order._memory, (const K *)first._at, n, __kg_order<F>::falls());
  __kg_move(first, order._memory, n);
  __kg_move(values, order._memory, n);
}
template <class T> void sort(device_ptr<T> first, device_ptr<T> last) { thrust::sort(first, last, less<T>()); }
template <class K, class V> void sort_by_key(device_ptr<K> first, device_ptr<K> last, device_ptr<V> values) {
  thrust::sort_by_key(first, last, values, less<K>());
}
template <class T> void stable_sort(device_ptr<T> first, device_ptr<T> last) { thrust::sort(first, last); }
template <class K, class V> void stable_sort_by_key(device_ptr<K> first, device_ptr<K> last, device_ptr<V> values) {
  thrust::sort_by_key(first, last, values);
}
template <class T> void sort(T *first, T *last) { std::sort(first, last); }

// ---- with a policy

#define KG_WITH_POLICY(name)                                                                                           \
  template <class... A> auto name(const __kg_policy &policy, A... values) {                                            \
    return thrust::name(__kg_given(policy, values)...);                                                                \
  }                                                                                                                    \
  template <class... A> auto name(const __kg_host_policy &policy, A... values) {                                       \
    return thrust::name(__kg_given(policy, values)...);                                                                \
  }
KG_WITH_POLICY(transform)
KG_WITH_POLICY(copy)
KG_WITH_POLICY(fill)
KG_WITH_POLICY(sequence)
KG_WITH_POLICY(for_each)
KG_WITH_POLICY(reduce)
KG_WITH_POLICY(transform_reduce)
KG_WITH_POLICY(inner_product)
KG_WITH_POLICY(inclusive_scan)
KG_WITH_POLICY(exclusive_scan)
KG_WITH_POLICY(gather)
KG_WITH_POLICY(scatter)
KG_WITH_POLICY(sort)
KG_WITH_POLICY(sort_by_key)

}  // namespace thrust
