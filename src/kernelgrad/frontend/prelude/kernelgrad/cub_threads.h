// CUB's operators and what a thread does by itself.
#pragma once

#pragma clang force_cuda_host_device begin
namespace cub {

struct Sum {
  template <class T, class U> auto operator()(const T &a, const U &b) const { return a + b; }
};
struct Difference {
  template <class T, class U> auto operator()(const T &a, const U &b) const { return a - b; }
};
struct Max {
  template <class T, class U> auto operator()(const T &a, const U &b) const { return a < b ? b : a; }
};
struct Min {
  template <class T, class U> auto operator()(const T &a, const U &b) const { return b < a ? b : a; }
};
struct Equality {
  template <class T, class U> bool operator()(const T &a, const U &b) const { return a == b; }
};
struct Inequality {
  template <class T, class U> bool operator()(const T &a, const U &b) const { return !(a == b); }
};
template <class Key, class Value> struct KeyValuePair {
  typedef Key Key_;
  typedef Value Value_;
  Key key;
  Value value;
  KeyValuePair() = default;
  KeyValuePair(const Key &k, const Value &v) : key(k), value(v) {}
  bool operator!=(const KeyValuePair &other) const { return value != other.value || key != other.key; }
};
// Of equal values the smaller key.
struct ArgMax {
  template <class K, class V> KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const {
    return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <class K, class V> KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const {
    return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};

enum CacheLoadModifier { LOAD_DEFAULT, LOAD_CA, LOAD_CG, LOAD_CS, LOAD_CV, LOAD_LDG, LOAD_VOLATILE };
enum CacheStoreModifier { STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE };
template <CacheLoadModifier how = LOAD_DEFAULT, class I> auto ThreadLoad(I from) { return *from; }
template <CacheStoreModifier how = STORE_DEFAULT, class O, class T> void ThreadStore(O to, T value) { *to = value; }

template <int n, class T, class Op> T ThreadReduce(const T (&items)[n], Op op) {
  T sum = items[0];
  for (int k = 1; k < n; ++k) sum = op(sum, items[k]);
  return sum;
}
template <int n, class T, class Op> T ThreadReduce(const T (&items)[n], Op op, T start) {
  for (int k = 0; k < n; ++k) start = op(start, items[k]);
  return start;
}

// The thread's place in a block of the given size; one that is flat is read off without products.
template <int x, int y, int z> unsigned int __kg_rank() {
  if (y == 1 && z == 1) return threadIdx.x;
  return (threadIdx.z * y + threadIdx.y) * x + threadIdx.x;
}
inline unsigned int RowMajorTid(int x, int y, int z) { return (threadIdx.z * y + threadIdx.y) * x + threadIdx.x; }
inline unsigned int LaneId() { return __kg_lane_id(); }
inline unsigned int WarpId() { return ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) / 32; }
inline void CTA_SYNC() { __syncthreads(); }
inline void WARP_SYNC(unsigned int mask) { __syncwarp(mask); }

template <int lanes, class T> T ShuffleUp(T value, int distance, int first, unsigned int mask) {
  T other = __kg_shfl_up(mask, value, (unsigned int)distance, lanes);
  return (int)(__kg_lane_id() % lanes) - distance < first ? value : other;
}
template <int lanes, class T> T ShuffleDown(T value, int distance, int last, unsigned int mask) {
  T other = __kg_shfl_down(mask, value, (unsigned int)distance, lanes);
  return (int)(__kg_lane_id() % lanes) + distance > last ? value : other;
}
template <int lanes, class T> T ShuffleIndex(T value, int lane, unsigned int mask) {
  return __kg_shfl_idx(mask, value, lane, lanes);
}

// What a value of shared memory is kept in where it must not be constructed, and what algorithms are named by.
template <class T> struct Uninitialized {
  T _value;
  T &Alias() { return _value; }
};
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

}  // namespace cub
#pragma clang force_cuda_host_device end
