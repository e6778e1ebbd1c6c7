// CUB's ways to load, store and exchange several items a thread: blocked (a thread's items are neighbours) or striped
// (neighbours are of neighbouring threads).
#pragma once

#include "cub_block.h"

#pragma clang force_cuda_host_device begin
namespace cub {

#define KG_CUB_DIRECT(kind, parameters, place)                                                                         \
  template <parameters class T, int n, class I> void LoadDirect##kind(int rank, I from, T(&items)[n]) {                \
    for (int k = 0; k < n; ++k) items[k] = from[place];                                                                \
  }                                                                                                                    \
  template <parameters class T, int n, class I> void LoadDirect##kind(int rank, I from, T(&items)[n], int valid) {     \
    for (int k = 0; k < n; ++k)                                                                                        \
      if (place < valid) items[k] = from[place];                                                                       \
  }                                                                                                                    \
  template <parameters class T, int n, class I, class D>                                                               \
  void LoadDirect##kind(int rank, I from, T(&items)[n], int valid, D other) {                                          \
    for (int k = 0; k < n; ++k) items[k] = place < valid ? (T)from[place] : (T)other;                                  \
  }                                                                                                                    \
  template <parameters class T, int n, class O> void StoreDirect##kind(int rank, O to, T(&items)[n]) {                 \
    for (int k = 0; k < n; ++k) to[place] = items[k];                                                                  \
  }                                                                                                                    \
  template <parameters class T, int n, class O> void StoreDirect##kind(int rank, O to, T(&items)[n], int valid) {      \
    for (int k = 0; k < n; ++k)                                                                                        \
      if (place < valid) to[place] = items[k];                                                                         \
  }
#define KG_NOTHING
#define KG_THREADS int threads,
KG_CUB_DIRECT(Blocked, KG_NOTHING, rank *n + k)
KG_CUB_DIRECT(BlockedVectorized, KG_NOTHING, rank *n + k)
KG_CUB_DIRECT(Striped, KG_THREADS, rank + k * threads)
KG_CUB_DIRECT(WarpStriped, KG_NOTHING, rank / 32 * 32 * n + rank % 32 + k * 32)
#undef KG_CUB_DIRECT
#undef KG_NOTHING
#undef KG_THREADS

template <class T, int x, int n, BlockLoadAlgorithm how = BLOCK_LOAD_DIRECT, int y = 1, int z = 1, int = 0>
struct BlockLoad {
  typedef __kg_block<x, y, z> block;
  struct TempStorage {};
  BlockLoad() {}
  BlockLoad(TempStorage &) {}
  template <class I, class... Rest> void Load(I from, T (&items)[n], Rest... rest) const {
    if (how == BLOCK_LOAD_STRIPED)
      LoadDirectStriped<block::threads>(block::rank(), from, items, rest...);
    else
      LoadDirectBlocked(block::rank(), from, items, rest...);
  }
};
template <class T, int x, int n, BlockStoreAlgorithm how = BLOCK_STORE_DIRECT, int y = 1, int z = 1, int = 0>
struct BlockStore {
  typedef __kg_block<x, y, z> block;
  struct TempStorage {};
  BlockStore() {}
  BlockStore(TempStorage &) {}
  template <class O, class... Rest> void Store(O to, T (&items)[n], Rest... rest) const {
    if (how == BLOCK_STORE_STRIPED)
      StoreDirectStriped<block::threads>(block::rank(), to, items, rest...);
    else
      StoreDirectBlocked(block::rank(), to, items, rest...);
  }
};

// Items through shared memory: each is stored where it goes by one arrangement, and taken from there by the other.
#define KG_CUB_EXCHANGE                                                                                                \
  void StripedToBlocked(T(&items)[n]) const { StripedToBlocked(items, items); }                                        \
  void BlockedToStriped(T(&items)[n]) const { BlockedToStriped(items, items); }                                        \
  template <class U> void StripedToBlocked(const T(&items)[n], U(&results)[n]) const {                                 \
    for (int k = 0; k < n; ++k) _storage->item[rank() + k * threads] = items[k];                                       \
    wait();                                                                                                            \
    for (int k = 0; k < n; ++k) results[k] = _storage->item[rank() * n + k];                                           \
  }                                                                                                                    \
  template <class U> void BlockedToStriped(const T(&items)[n], U(&results)[n]) const {                                 \
    for (int k = 0; k < n; ++k) _storage->item[rank() * n + k] = items[k];                                             \
    wait();                                                                                                            \
    for (int k = 0; k < n; ++k) results[k] = _storage->item[rank() + k * threads];                                     \
  }                                                                                                                    \
  template <class R> void ScatterToBlocked(T(&items)[n], const R(&places)[n]) const {                                  \
    for (int k = 0; k < n; ++k) _storage->item[places[k]] = items[k];                                                  \
    wait();                                                                                                            \
    for (int k = 0; k < n; ++k) items[k] = _storage->item[rank() * n + k];                                             \
  }                                                                                                                    \
  template <class R> void ScatterToStriped(T(&items)[n], const R(&places)[n]) const {                                  \
    for (int k = 0; k < n; ++k) _storage->item[places[k]] = items[k];                                                  \
    wait();                                                                                                            \
    for (int k = 0; k < n; ++k) items[k] = _storage->item[rank() + k * threads];                                       \
  }

template <class T, int x, int n, bool = false, int y = 1, int z = 1, int = 0> struct BlockExchange {
  static constexpr int threads = x * y * z;
  struct TempStorage {
    T item[threads * n];
  };
  TempStorage *_storage;
  BlockExchange(TempStorage &storage) : _storage(&storage) {}
  static int rank() { return (int)__kg_rank<x, y, z>(); }
  static void wait() { __syncthreads(); }
  KG_CUB_EXCHANGE
};
template <class T, int n, int threads = 32, int = 0> struct WarpExchange {
  struct TempStorage {
    T item[threads * n];
  };
  TempStorage *_storage;
  WarpExchange(TempStorage &storage) : _storage(&storage) {}
  static int rank() { return __kg_part<threads>::lane(); }
  static void wait() { __syncwarp(__kg_part<threads>::mask()); }
  KG_CUB_EXCHANGE
};
#undef KG_CUB_EXCHANGE

}  // namespace cub
#pragma clang force_cuda_host_device end
