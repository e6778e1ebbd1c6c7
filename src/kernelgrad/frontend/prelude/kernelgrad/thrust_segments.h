// thrust's algorithms by key, and differences of neighbours. Keys that are equal and beside each other are a segment: one
// thread goes through each.
#pragma once

#include "thrust_algorithms.h"

namespace thrust {

using std::equal_to;
using std::make_pair;
using std::not_equal_to;
using std::pair;

// ---- where segments start

template <class K, class P> __global__ void __kg_heads(K keys, int *heads, P equal, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) heads[i] = i == 0 || !equal(keys[i - 1], keys[i]) ? 1 : 0;
}
// `numbers[i]`: how many segments start up to element i.
inline __global__ void __kg_starts(const int *numbers, int *starts, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n && (i == 0 || numbers[i] != numbers[i - 1])) starts[numbers[i] - 1] = (int)i;
}
struct __kg_segments {
  device_vector<int> _starts;
  long _count, _n;
  template <class K, class P> __kg_segments(K keys, P equal, long n) : _starts(n), _count(0), _n(n) {
    device_vector<int> numbers(n);
    __kg_heads<<<__kg_blocks(n), 256>>>(keys, numbers._memory, equal, n);
    thrust::inclusive_scan(numbers.begin(), numbers.end(), numbers.begin());
    __kg_starts<<<__kg_blocks(n), 256>>>((const int *)numbers._memory, _starts._memory, n);
    _count = numbers[n - 1];
  }
};

// ---- one value for each segment

template <class V, class O, class F>
__global__ void __kg_reduce_segments(V values, O to, const int *starts, F function, long count, long n) {
  typedef typename __kg_value<O>::type T;
  long s = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (s >= count) return;
  long end = s + 1 < count ? starts[s + 1] : n;
  T sum = values[starts[s]];
  for (long k = starts[s] + 1; k < end; ++k) sum = function(sum, values[k]);
  to[s] = sum;
}
template <class K, class V, class J, class O, class P, class F>
pair<J, O> reduce_by_key(K first, K last, V values, J keys_to, O to, P equal, F function) {
  long n = last - first, count = 0;
  if (n <= 0) return pair<J, O>(keys_to, to);
  if constexpr (__kg_any_on_device<K, V, J, O>) {
    __kg_segments found(__kg_raw(first), equal, n);
    count = found._count;
    __kg_gather<<<__kg_blocks(count), 256>>>((const int *)found._starts._memory, __kg_raw(first), __kg_raw(keys_to), count);
    __kg_reduce_segments<<<__kg_blocks(count), 256>>>(__kg_raw(values), __kg_raw(to), (const int *)found._starts._memory,
                                                      function, count, n);
  } else {
    for (long k = 0; k < n; ++k) {
      if (k == 0 || !equal(first[k - 1], first[k])) {
        keys_to[count] = first[k];
        to[count++] = values[k];
      } else
        to[count - 1] = function(to[count - 1], values[k]);
    }
  }
  return pair<J, O>(keys_to + count, to + count);
}
template <class K, class V, class J, class O, class P>
pair<J, O> reduce_by_key(K first, K last, V values, J keys_to, O to, P equal) {
  return thrust::reduce_by_key(first, last, values, keys_to, to, equal, plus<typename __kg_value<O>::type>());
}
template <class K, class V, class J, class O> pair<J, O> reduce_by_key(K first, K last, V values, J keys_to, O to) {
  return thrust::reduce_by_key(first, last, values, keys_to, to, equal_to<typename __kg_value<K>::type>());
}

// ---- scans of segments

template <class V, class O, class T, class F>
__global__ void __kg_scan_segments(V values, O to, const int *starts, F function, T start, bool exclusive, long count,
                                   long n) {
  long s = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (s >= count) return;
  long first = starts[s], end = s + 1 < count ? starts[s + 1] : n;
  T sum = start;
  for (long k = first; k < end; ++k) {
    T own = values[k];
    T next = !exclusive && k == first ? own : function(sum, own);
    to[k] = exclusive ? sum : next;
    sum = next;
  }
}
template <class K, class V, class O, class T, class P, class F>
O __kg_scanned_by_key(K first, K last, V values, O to, T start, P equal, F function, bool exclusive) {
  long n = last - first;
  if (n <= 0) return to;
  if constexpr (__kg_any_on_device<K, V, O>) {
    __kg_segments found(__kg_raw(first), equal, n);
    __kg_scan_segments<<<__kg_blocks(found._count), 256>>>(__kg_raw(values), __kg_raw(to),
                                                           (const int *)found._starts._memory, function, start, exclusive,
                                                           found._count, n);
  } else {
    T sum = start;
    for (long k = 0; k < n; ++k) {
      bool is_first = k == 0 || !equal(first[k - 1], first[k]);
      T own = values[k], before = is_first ? start : sum;
      sum = !exclusive && is_first ? own : function(before, own);
      to[k] = exclusive ? before : sum;
    }
  }
  return to + n;
}
template <class K, class V, class O, class P, class F>
O inclusive_scan_by_key(K first, K last, V values, O to, P equal, F function) {
  typedef typename __kg_value<V>::type T;
  return __kg_scanned_by_key(first, last, values, to, T(), equal, function, false);
}
template <class K, class V, class O, class P> O inclusive_scan_by_key(K first, K last, V values, O to, P equal) {
  return thrust::inclusive_scan_by_key(first, last, values, to, equal, plus<typename __kg_value<V>::type>());
}
template <class K, class V, class O> O inclusive_scan_by_key(K first, K last, V values, O to) {
  return thrust::inclusive_scan_by_key(first, last, values, to, equal_to<typename __kg_value<K>::type>());
}
template <class K, class V, class O, class T, class P, class F>
O exclusive_scan_by_key(K first, K last, V values, O to, T start, P equal, F function) {
  return __kg_scanned_by_key(first, last, values, to, start, equal, function, true);
}
template <class K, class V, class O, class T, class P>
O exclusive_scan_by_key(K first, K last, V values, O to, T start, P equal) {
  return __kg_scanned_by_key(first, last, values, to, start, equal, plus<T>(), true);
}
template <class K, class V, class O, class T> O exclusive_scan_by_key(K first, K last, V values, O to, T start) {
  return thrust::exclusive_scan_by_key(first, last, values, to, start, equal_to<typename __kg_value<K>::type>());
}
template <class K, class V, class O> O exclusive_scan_by_key(K first, K last, V values, O to) {
  return thrust::exclusive_scan_by_key(first, last, values, to, typename __kg_value<V>::type(0));
}

// ---- neighbours: what is read may be what is written

template <class I, class O, class F> __global__ void __kg_differences(I from, O to, F function, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) to[i] = i == 0 ? from[0] : function(from[i], from[i - 1]);
}
template <class I, class O, class F> O adjacent_difference(I first, I last, O to, F function) {
  typedef typename __kg_value<I>::type T;
  long n = last - first;
  if (n <= 0) return to;
  if constexpr (__kg_any_on_device<I, O>) {
    device_vector<T> found(n);
    __kg_differences<<<__kg_blocks(n), 256>>>(__kg_raw(first), found._memory, function, n);
    return __kg_store(found.begin(), to, n);
  } else {
    T before = first[0];
    to[0] = before;
    for (long k = 1; k < n; ++k) {
      T own = first[k];
      to[k] = function(own, before);
      before = own;
    }
    return to + n;
  }
}
template <class I, class O> O adjacent_difference(I first, I last, O to) {
  return thrust::adjacent_difference(first, last, to, minus<typename __kg_value<I>::type>());
}

KG_WITH_POLICY(reduce_by_key)
KG_WITH_POLICY(inclusive_scan_by_key)
KG_WITH_POLICY(exclusive_scan_by_key)
KG_WITH_POLICY(adjacent_difference)

}  // namespace thrust
