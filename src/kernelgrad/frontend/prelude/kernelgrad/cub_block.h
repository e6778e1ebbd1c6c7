// CUB's collectives of a block: its warps by shuffles, their results through shared memory. Like CUB's they have no
// barrier at the end: who uses the storage again waits before.
#pragma once

#include "cub_warp.h"

#pragma clang force_cuda_host_device begin
namespace cub {

template <int x, int y, int z> struct __kg_block {
  static constexpr int threads = x * y * z, warps = (threads + 31) / 32;
  static int rank() { return (int)__kg_rank<x, y, z>(); }
  static int warp() { return rank() / 32; }
  static int lane() { return rank() % 32; }
  // How many of the first `valid` threads are in this thread's warp.
  static int in_warp(int valid) {
    int rest = valid - warp() * 32;
    return rest < 32 ? rest : 32;
  }
};

template <class T, int x, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int y = 1, int z = 1, int = 0>
struct BlockReduce {
  typedef __kg_block<x, y, z> block;
  struct TempStorage {
    T of_warp[block::warps];
  };
  TempStorage *_storage;
  BlockReduce(TempStorage &storage) : _storage(&storage) {}
  BlockReduce() : _storage(own()) {}

  // In thread 0.
  template <class Op> T Reduce(T value, Op op) const {
    if (block::threads % 32 == 0)
      value = __kg_reduce_all<32>(value, op);
    else
      value = __kg_reduce_some<32>(value, op, block::in_warp(block::threads));
    return of_warps(value, op, block::warps);
  }
  template <class Op> T Reduce(T value, Op op, int valid) const {
    return of_warps(__kg_reduce_some<32>(value, op, block::in_warp(valid)), op, (valid + 31) / 32);
  }
  template <int n, class Op> T Reduce(T (&items)[n], Op op) const { return Reduce(ThreadReduce(items, op), op); }
  T Sum(T value) const { return Reduce(value, cub::Sum()); }
  T Sum(T value, int valid) const { return Reduce(value, cub::Sum(), valid); }
  template <int n> T Sum(T (&items)[n]) const { return Reduce(items, cub::Sum()); }

  template <class Op> T of_warps(T value, Op op, int count) const {
    if (block::warps == 1) return value;
    if (block::lane() == 0) _storage->of_warp[block::warp()] = value;
    __syncthreads();
    if (block::rank() == 0)
      for (int k = 1; k < count; ++k) value = op(value, _storage->of_warp[k]);
    return value;
  }
  static TempStorage *own() {
    __shared__ TempStorage storage;
    return &storage;
  }
};

template <class T, int x, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int y = 1, int z = 1, int = 0> struct BlockScan {
  typedef __kg_block<x, y, z> block;
  struct TempStorage {
    T of_warp[block::warps];
    T before;
  };
  TempStorage *_storage;
  BlockScan(TempStorage &storage) : _storage(&storage) {}
  BlockScan() : _storage(own()) {}

  template <class Op> void InclusiveScan(T value, T &result, Op op, T &total) const {
    T before;
    scan(value, result, before, total, op);
  }
  template <class Op> void InclusiveScan(T value, T &result, Op op) const {
    T total;
    InclusiveScan(value, result, op, total);
  }
  template <class Op, class Prefix> void InclusiveScan(T value, T &result, Op op, Prefix &prefix) const {
    T before, total;
    scan(value, result, before, total, op);
    result = op(prefixed(total, prefix), result);
  }
  // Thread 0 has nothing before it: what it gets is not defined.
  template <class Op> void ExclusiveScan(T value, T &result, Op op, T &total) const {
    T inclusive;
    scan(value, inclusive, result, total, op);
  }
  template <class Op> void ExclusiveScan(T value, T &result, Op op) const {
    T total;
    ExclusiveScan(value, result, op, total);
  }
  template <class Op> void ExclusiveScan(T value, T &result, T start, Op op, T &total) const {
    T inclusive, before;
    scan(value, inclusive, before, total, op);
    result = block::rank() == 0 ? start : op(start, before);
  }
  template <class Op> void ExclusiveScan(T value, T &result, T start, Op op) const {
    T total;
    ExclusiveScan(value, result, start, op, total);
  }
  template <class Op, class Prefix> void ExclusiveScan(T value, T &result, Op op, Prefix &prefix) const {
    T inclusive, before, total;
    scan(value, inclusive, before, total, op);
    T first = prefixed(total, prefix);
    result = block::rank() == 0 ? first : op(first, before);
  }
  template <class... Rest> void InclusiveSum(T value, T &result, Rest &...rest) const {
    InclusiveScan(value, result, cub::Sum(), rest...);
  }
  void ExclusiveSum(T value, T &result) const { ExclusiveScan(value, result, T(0), cub::Sum()); }
  void ExclusiveSum(T value, T &result, T &total) const { ExclusiveScan(value, result, T(0), cub::Sum(), total); }
  template <class Prefix> void ExclusiveSum(T value, T &result, Prefix &prefix) const {
    ExclusiveScan(value, result, cub::Sum(), prefix);
  }

  // Of several items a thread: their sum is scanned, then each is added.
  template <int n, class Op, class... Rest>
  void InclusiveScan(T (&items)[n], T (&results)[n], Op op, Rest &...rest) const {
    T before;
    bool is_first = first_of_items(ThreadReduce(items, op), before, op, rest...);
    for (int k = 0; k < n; ++k) {
      before = is_first && k == 0 ? items[0] : op(before, items[k]);
      results[k] = before;
    }
  }
  template <int n, class Op, class... Rest>
  void ExclusiveScan(T (&items)[n], T (&results)[n], T start, Op op, Rest &...rest) const {
    T before;
    ExclusiveScan(ThreadReduce(items, op), before, start, op, rest...);
    store_exclusive(items, results, before, op);
  }
  template <int n, class Op, class Prefix>
  void ExclusiveScan(T (&items)[n], T (&results)[n], Op op, Prefix &prefix) const {
    T before;
    ExclusiveScan(ThreadReduce(items, op), before, op, prefix);
    store_exclusive(items, results, before, op);
  }
  template <int n, class... Rest> void InclusiveSum(T (&items)[n], T (&results)[n], Rest &...rest) const {
    InclusiveScan(items, results, cub::Sum(), rest...);
  }
  template <int n> void ExclusiveSum(T (&items)[n], T (&results)[n]) const {
    ExclusiveScan(items, results, T(0), cub::Sum());
  }
  template <int n> void ExclusiveSum(T (&items)[n], T (&results)[n], T &total) const {
    ExclusiveScan(items, results, T(0), cub::Sum(), total);
  }
  template <int n, class Prefix> void ExclusiveSum(T (&items)[n], T (&results)[n], Prefix &prefix) const {
    ExclusiveScan(items, results, cub::Sum(), prefix);
  }

  template <class Op> void scan(T value, T &inclusive, T &exclusive, T &total, Op op) const {
    int last = block::in_warp(block::threads) - 1, lane = block::lane(), warp = block::warp();
    T own = __kg_scan_all<32>(value, op);
    T left = __kg_shfl_up(0xffffffffu, own, 1u, 32);
    if (lane == last) _storage->of_warp[warp] = own;
    __syncthreads();
    T sum = _storage->of_warp[0], before = sum;
    for (int k = 1; k < block::warps; ++k) {
      if (k == warp) before = sum;
      sum = op(sum, _storage->of_warp[k]);
    }
    total = sum;
    inclusive = warp == 0 ? own : op(before, own);
    exclusive = lane == 0 ? before : warp == 0 ? left : op(before, left);
  }
  // What came before the block, which the first warp asks for and lane 0 is told.
  template <class Prefix> T prefixed(T total, Prefix &prefix) const {
    if (block::warp() == 0) {
      T before = prefix(total);
      if (block::lane() == 0) _storage->before = before;
    }
    __syncthreads();
    return _storage->before;
  }
  template <class Op> bool first_of_items(T sum, T &before, Op op) const {
    T total;
    return first_of_items(sum, before, op, total);
  }
  template <class Op> bool first_of_items(T sum, T &before, Op op, T &total) const {
    T inclusive;
    scan(sum, inclusive, before, total, op);
    return block::rank() == 0;
  }
  template <class Op, class Prefix> bool first_of_items(T sum, T &before, Op op, Prefix &prefix) const {
    ExclusiveScan(sum, before, op, prefix);
    return false;
  }
  template <int n, class Op> static void store_exclusive(T (&items)[n], T (&results)[n], T before, Op op) {
    for (int k = 0; k < n; ++k) {
      T item = items[k];
      results[k] = before;
      before = op(before, item);
    }
  }
  static TempStorage *own() {
    __shared__ TempStorage storage;
    return &storage;
  }
};

}  // namespace cub
#pragma clang force_cuda_host_device end
