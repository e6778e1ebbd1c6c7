// CUB's collectives of a warp, or of a part of one, by shuffles.
#pragma once

#include "cub_threads.h"

#pragma clang force_cuda_host_device begin
namespace cub {

// The lanes of a thread's part of its warp. A part may have any number of lanes; parts that are no power of two are
// packed from lane 0 on, as many as fit.
template <int lanes> struct __kg_part {
  static constexpr bool is_even = (lanes & (lanes - 1)) == 0;
  static int lane() { return (int)(__kg_lane_id() % lanes); }
  static unsigned int mask() {
    return lanes == 32 ? 0xffffffffu : ((1u << (lanes % 32)) - 1u) << (__kg_lane_id() / lanes * lanes);
  }
  template <class T> static T down(T value, int distance) {
    if (is_even) return __kg_shfl_down(mask(), value, (unsigned int)distance, lanes);
    return __kg_shfl_idx(mask(), value, (int)__kg_lane_id() + (lane() + distance < lanes ? distance : 0), 32);
  }
  template <class T> static T up(T value, int distance) {
    if (is_even) return __kg_shfl_up(mask(), value, (unsigned int)distance, lanes);
    return __kg_shfl_idx(mask(), value, (int)__kg_lane_id() - (lane() >= distance ? distance : 0), 32);
  }
  template <class T> static T from(T value, int lane) {
    return __kg_shfl_idx(mask(), value, (int)(__kg_lane_id() / lanes * lanes) + lane, 32);
  }
};

// In lane 0, of the first `valid` lanes, in their order. Where all take part no lane needs to ask whether it does.
template <int lanes, class T, class Op> T __kg_reduce_all(T value, Op op) {
  typedef __kg_part<lanes> part;
  if (!part::is_even) {
    for (int step = 1; step < lanes; step *= 2) {
      T other = part::down(value, step);
      if (part::lane() + step < lanes) value = op(value, other);
    }
    return value;
  }
  for (int step = 1; step < lanes; step *= 2) value = op(value, part::down(value, step));
  return value;
}
template <int lanes, class T, class Op> T __kg_reduce_some(T value, Op op, int valid) {
  typedef __kg_part<lanes> part;
  for (int step = 1; step < lanes; step *= 2) {
    T other = part::down(value, step);
    if (part::lane() + step < valid) value = op(value, other);
  }
  return value;
}
template <int lanes, class T, class Op> T __kg_scan_all(T value, Op op) {
  typedef __kg_part<lanes> part;
  for (int step = 1; step < lanes; step *= 2) {
    T other = part::up(value, step);
    if (part::lane() >= step) value = op(other, value);
  }
  return value;
}

template <class T, int lanes = 32, int = 0> struct WarpReduce {
  struct TempStorage {};
  WarpReduce(TempStorage &) {}

  template <class Op> T Reduce(T value, Op op) const { return __kg_reduce_all<lanes>(value, op); }
  template <class Op> T Reduce(T value, Op op, int valid) const { return __kg_reduce_some<lanes>(value, op, valid); }
  T Sum(T value) const { return Reduce(value, cub::Sum()); }
  T Sum(T value, int valid) const { return Reduce(value, cub::Sum(), valid); }
  T Max(T value) const { return Reduce(value, cub::Max()); }
  T Min(T value) const { return Reduce(value, cub::Min()); }

  // A segment begins where a flag is set (or ends there); its sum is at its first lane.
  template <class Op, class Flag> T HeadSegmentedReduce(T value, Flag flag, Op op) const {
    typedef __kg_part<lanes> part;
    unsigned int heads = __ballot_sync(part::mask(), (int)(flag != 0)) >> (__kg_lane_id() / lanes * lanes);
    unsigned int later = part::lane() == 31 ? 0u : heads >> (part::lane() + 1);
    int length = later == 0 ? lanes - part::lane() : __ffs((int)later);
    return within(value, op, length);
  }
  template <class Op, class Flag> T TailSegmentedReduce(T value, Flag flag, Op op) const {
    typedef __kg_part<lanes> part;
    unsigned int tails = __ballot_sync(part::mask(), (int)(flag != 0)) >> (__kg_lane_id() / lanes * lanes);
    unsigned int later = tails >> part::lane();
    int length = later == 0 ? lanes - part::lane() : __ffs((int)later);
    return within(value, op, length);
  }
  template <class Flag> T HeadSegmentedSum(T value, Flag flag) const {
    return HeadSegmentedReduce(value, flag, cub::Sum());
  }
  template <class Flag> T TailSegmentedSum(T value, Flag flag) const {
    return TailSegmentedReduce(value, flag, cub::Sum());
  }
  template <class Op> T within(T value, Op op, int length) const {
    for (int step = 1; step < lanes; step *= 2) {
      T other = __kg_part<lanes>::down(value, step);
      if (step < length) value = op(value, other);
    }
    return value;
  }
};

template <class T, int lanes = 32, int = 0> struct WarpScan {
  typedef __kg_part<lanes> part;
  struct TempStorage {};
  WarpScan(TempStorage &) {}

  template <class Op> void InclusiveScan(T value, T &result, Op op) const { result = __kg_scan_all<lanes>(value, op); }
  template <class Op> void InclusiveScan(T value, T &result, Op op, T &total) const {
    result = __kg_scan_all<lanes>(value, op);
    total = part::from(result, lanes - 1);
  }
  template <class Op> void ExclusiveScan(T value, T &result, Op op) const {
    result = part::up(__kg_scan_all<lanes>(value, op), 1);
  }
  template <class Op> void ExclusiveScan(T value, T &result, T start, Op op) const {
    T before = part::up(__kg_scan_all<lanes>(value, op), 1);
    result = part::lane() == 0 ? start : op(start, before);
  }
  template <class Op> void ExclusiveScan(T value, T &result, T start, Op op, T &total) const {
    T all = __kg_scan_all<lanes>(value, op);
    T before = part::up(all, 1);
    result = part::lane() == 0 ? start : op(start, before);
    total = part::from(all, lanes - 1);
  }
  template <class Op> void Scan(T value, T &inclusive, T &exclusive, Op op) const {
    inclusive = __kg_scan_all<lanes>(value, op);
    exclusive = part::up(inclusive, 1);
  }
  void InclusiveSum(T value, T &result) const { InclusiveScan(value, result, cub::Sum()); }
  void InclusiveSum(T value, T &result, T &total) const { InclusiveScan(value, result, cub::Sum(), total); }
  void ExclusiveSum(T value, T &result) const { ExclusiveScan(value, result, T(0), cub::Sum()); }
  void ExclusiveSum(T value, T &result, T &total) const { ExclusiveScan(value, result, T(0), cub::Sum(), total); }
  T Broadcast(T value, unsigned int lane) const { return part::from(value, (int)lane); }
};

}  // namespace cub
#pragma clang force_cuda_host_device end
