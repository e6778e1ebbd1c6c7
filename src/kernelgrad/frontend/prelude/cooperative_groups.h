// Cooperative groups: blocks, tiles of a warp, coalesced threads. The grid is there to ask questions of, not to sync.
#pragma once

#pragma clang force_cuda_host_device begin

void __kg_unsupported_grid_sync();

namespace cooperative_groups {

namespace details {
inline unsigned int block_size() { return blockDim.x * blockDim.y * blockDim.z; }
inline unsigned int block_rank() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
inline unsigned int lane() { return block_rank() & 31u; }
inline unsigned int lanes_below() { return (1u << lane()) - 1u; }
inline unsigned int tile_mask(unsigned int size) {
  return size >= 32u ? 0xffffffffu : ((1u << size) - 1u) << (lane() & ~(size - 1u));
}
// The lane of the n-th set bit of mask.
inline unsigned int nth_lane(unsigned int mask, unsigned int n) {
  for (unsigned int k = 0; k < n; ++k) mask &= mask - 1u;
  return (unsigned int)(__ffs((int)mask) - 1);
}
}  // namespace details

struct thread_block {
  static void sync() { __syncthreads(); }
  void barrier_wait() const { __syncthreads(); }
  static unsigned int thread_rank() { return details::block_rank(); }
  static unsigned int size() { return details::block_size(); }
  static unsigned int num_threads() { return details::block_size(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return thread_block(); }

struct grid_group {
  static void sync() { __kg_unsupported_grid_sync(); }
  static bool is_valid() { return true; }
  static unsigned long long block_rank() {
    return ((unsigned long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long thread_rank() { return block_rank() * details::block_size() + details::block_rank(); }
  static unsigned long long size() { return num_blocks() * details::block_size(); }
  static unsigned long long num_threads() { return size(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return blockIdx; }
};
inline grid_group this_grid() { return grid_group(); }

// A part of a warp: some lanes, of which this thread has the given rank.
struct coalesced_group {
  unsigned int _mask;

  void sync() const { __syncwarp(_mask); }
  unsigned int size() const { return (unsigned int)__popc(_mask); }
  unsigned int num_threads() const { return size(); }
  unsigned int thread_rank() const { return (unsigned int)__popc(_mask & details::lanes_below()); }
  unsigned int meta_group_rank() const { return 0; }
  unsigned int meta_group_size() const { return 1; }
  int any(int predicate) const { return __any_sync(_mask, predicate); }
  int all(int predicate) const { return __all_sync(_mask, predicate); }
  unsigned int ballot(int predicate) const { return pack(__ballot_sync(_mask, predicate)); }
  template <class T> T shfl(T value, unsigned int rank) const {
    return __kg_shfl_idx(_mask, value, (int)details::nth_lane(_mask, rank % size()), 32);
  }
  template <class T> T shfl_down(T value, unsigned int delta) const {
    unsigned int rank = thread_rank() + delta;
    int lane = (int)(rank < size() ? details::nth_lane(_mask, rank) : details::lane());
    return __kg_shfl_idx(_mask, value, lane, 32);
  }
  template <class T> T shfl_up(T value, unsigned int delta) const {
    unsigned int rank = thread_rank();
    int lane = (int)(rank >= delta ? details::nth_lane(_mask, rank - delta) : details::lane());
    return __kg_shfl_idx(_mask, value, lane, 32);
  }
  template <class T> unsigned int match_any(T value) const { return pack(__match_any_sync(_mask, value)); }

  // The bits of the group's lanes, moved together.
  unsigned int pack(unsigned int lanes) const {
    unsigned int packed = 0, bit = 1;
    for (unsigned int rest = _mask; rest; rest &= rest - 1u, bit <<= 1)
      if (lanes & rest & (0u - rest)) packed |= bit;
    return packed;
  }
};
inline coalesced_group coalesced_threads() { return {__activemask()}; }

template <unsigned int tile, class Parent = void> struct thread_block_tile {
  static_assert(tile >= 1 && tile <= 32 && (tile & (tile - 1)) == 0, "tiles larger than a warp are not supported");

  thread_block_tile() = default;
  template <class Other> thread_block_tile(const thread_block_tile<tile, Other> &) {}
  static unsigned int mask() { return details::tile_mask(tile); }
  static void sync() { __syncwarp(mask()); }
  static constexpr unsigned int size() { return tile; }
  static constexpr unsigned int num_threads() { return tile; }
  static unsigned int thread_rank() { return details::block_rank() % tile; }
  static unsigned int meta_group_rank() { return details::block_rank() / tile; }
  static unsigned int meta_group_size() { return (details::block_size() + tile - 1) / tile; }
  static int any(int predicate) { return __any_sync(mask(), predicate); }
  static int all(int predicate) { return __all_sync(mask(), predicate); }
  static unsigned int ballot(int predicate) { return shift(__ballot_sync(mask(), predicate)); }
  template <class T> static T shfl(T value, int rank) { return __kg_shfl_idx(mask(), value, rank, (int)tile); }
  template <class T> static T shfl_up(T value, unsigned int delta) {
    return __kg_shfl_up(mask(), value, delta, (int)tile);
  }
  template <class T> static T shfl_down(T value, unsigned int delta) {
    return __kg_shfl_down(mask(), value, delta, (int)tile);
  }
  template <class T> static T shfl_xor(T value, int lanes) { return __kg_shfl_xor(mask(), value, lanes, (int)tile); }
  template <class T> static unsigned int match_any(T value) { return shift(__match_any_sync(mask(), value)); }
  template <class T> static unsigned int match_all(T value, int &predicate) {
    return shift(__match_all_sync(mask(), value, &predicate));
  }
  static unsigned int shift(unsigned int lanes) { return (lanes & mask()) >> (details::lane() & ~(tile - 1u)); }
};

template <unsigned int tile, class Parent> inline thread_block_tile<tile, Parent> tiled_partition(const Parent &) {
  return thread_block_tile<tile, Parent>();
}

// A group known only at run time: a block, or lanes of a warp.
struct thread_group {
  unsigned int _mask, _size, _rank;
  bool _is_block;

  thread_group() = default;
  thread_group(unsigned int mask, unsigned int size, unsigned int rank, bool is_block)
      : _mask(mask), _size(size), _rank(rank), _is_block(is_block) {}
  thread_group(const thread_block &block) : thread_group(0u, block.size(), block.thread_rank(), true) {}
  thread_group(const coalesced_group &g) : thread_group(g._mask, g.size(), g.thread_rank(), false) {}
  template <unsigned int tile, class Parent>
  thread_group(const thread_block_tile<tile, Parent> &t) : thread_group(t.mask(), tile, t.thread_rank(), false) {}

  void sync() const {
    if (_is_block)
      __syncthreads();
    else
      __syncwarp(_mask);
  }
  unsigned int size() const { return _size; }
  unsigned int num_threads() const { return _size; }
  unsigned int thread_rank() const { return _rank; }
};
inline thread_group tiled_partition(const thread_group &, unsigned int size) {
  return thread_group(details::tile_mask(size), size, details::block_rank() % size, false);
}

template <class Group> inline void sync(const Group &group) { group.sync(); }
template <class Group> inline unsigned int thread_rank(const Group &group) { return group.thread_rank(); }
template <class Group> inline unsigned int group_size(const Group &group) { return group.size(); }

}  // namespace cooperative_groups

#pragma clang force_cuda_host_device end
